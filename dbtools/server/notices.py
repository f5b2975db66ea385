"""Tells clients that the tools or resources of their role have changed, in both eras of the protocol.

A client of the 2025 era hears of it on its connection; one of 2026-07-28 on the stream that it has asked for
by `subscriptions/listen`. Nobody is told of what does not concern the own role.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.server import ServerRequestContext
from mcp.server.connection import Connection
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from dbtools.policy import Caller
from dbtools.service.snapshot import Snapshot
from dbtools.tools.definition import Change

PATIENCE = 5.0  #: seconds that one client may take to read a notice
MOST_STREAMS = 256  #: of the clients of one role

Context = ServerRequestContext[Any, Any]


class Notices:
    """The clients who are told, by role."""

    def __init__(self, identify: Callable[[Context], Caller], *, streams: int = MOST_STREAMS) -> None:
        self._identify = identify
        self._streams = streams
        self._connections: WeakKeyDictionary[Connection, str] = WeakKeyDictionary()
        self._buses: dict[str, InMemorySubscriptionBus] = {}
        self._handlers: dict[str, ListenHandler] = {}
        self._due: dict[tuple[str, ServerEvent], None] = {}  #: roles whose clients are to be told, and what
        self._noted = anyio.Event()
        self._closed = False

    def note(self, _: Snapshot, changes: Mapping[str, Change]) -> None:
        """Have the clients of the roles in *changes* told."""
        for role, change in changes.items():
            self._due |= dict.fromkeys((role, event) for event in _events(change))
        self._noted.set()

    async def run(self) -> None:
        """Tell clients until cancelled."""
        async with anyio.create_task_group() as group:
            while True:
                await self._noted.wait()
                self._noted = anyio.Event()
                while self._due:
                    (role, event), _ = self._due.popitem()
                    await self._tell(role, event, group)

    async def _tell(self, role: str, event: ServerEvent, group: TaskGroup) -> None:
        """Tell the clients of *role*, each by a task of its own: one that does not read holds up nobody."""
        if role in self._buses:
            await self._buses[role].publish(event)
        for connection, of in list(self._connections.items()):
            if of == role:
                group.start_soon(_notify, connection, event)

    async def on_initialized(self, context: Context, params: types.NotificationParams | None) -> None:
        """Note a client of the 2025 era, once it is ready to hear."""
        # The SDK (2.3) has no other way to a connection that outlives the request.
        self._connections[context.session._connection] = self._identify(context).role

    async def on_listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Answer `subscriptions/listen` with a stream of what concerns the caller's role."""
        role = self._identify(context).role
        if role not in self._handlers:
            self._buses[role] = InMemorySubscriptionBus()
            self._handlers[role] = ListenHandler(self._buses[role], max_subscriptions=self._streams)
        handler = self._handlers[role]
        if self._closed:
            return await _late(handler, context, params)
        return await handler(context, params)

    def close(self) -> None:
        """End the streams, as 2026-07-28 has it: with their results."""
        self._closed = True
        for handler in self._handlers.values():
            handler.close()


async def _late(
    handler: ListenHandler, context: Context, params: types.SubscriptionsListenRequestParams
) -> types.SubscriptionsListenResult:
    """Answer with a stream that ends at once, since those that were there have ended."""

    async def close() -> None:
        handler.close()

    async with anyio.create_task_group() as group:
        # It runs when the handler waits for the first time, which has a stream by then.
        group.start_soon(close)
        answer = [await handler(context, params)]
    return answer[0]


def _events(change: Change) -> Iterator[ServerEvent]:
    if change.tools:
        yield ToolsListChanged()
    if change.resources:
        yield ResourcesListChanged()
    yield from (ResourceUpdated(uri=uri) for uri in change.updated)


async def _notify(connection: Connection, event: ServerEvent) -> None:
    """Tell a client of the 2025 era, which cannot ask to be told of one resource."""
    with anyio.move_on_after(PATIENCE):
        match event:
            case ToolsListChanged():
                await connection.send_tool_list_changed()
            case ResourcesListChanged():
                await connection.send_resource_list_changed()
            case _:
                return
