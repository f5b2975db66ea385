"""Notify clients that the tools or resources of their role have changed, in both eras of the protocol.

A client with a handshake gets notifications on its connection or session; a client of 2026-07-28 on the
stream that it opened with `subscriptions/listen`. A client gets only those that concern its role.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping

from dbtools.server.exchange import Exchange, Send
from dbtools.server.messages import INTERNAL_ERROR, Json, ProtocolError, encode_id, encode_notification
from dbtools.server.versions import SUBSCRIPTION_KEY
from dbtools.service.snapshot import Snapshot
from dbtools.tools.definition import Change

MOST_STREAMS = 256  #: where the limiter does not count them: on stdio
TOOLS = "notifications/tools/list_changed"
RESOURCES = "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"
FLAGS: Mapping[str, str] = {
    "toolsListChanged": TOOLS,
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": RESOURCES,
}

Event = tuple[str, str]  #: method, and the address of the resource that it is about


class Listener:
    """An open stream of `subscriptions/listen`."""

    def __init__(self, exchange: Exchange) -> None:
        wanted = exchange.params["notifications"]
        assert isinstance(wanted, dict)
        uris = wanted.get("resourceSubscriptions") or []
        flags = {flag: True for flag in FLAGS if wanted.get(flag)}
        self._events = {(FLAGS[flag], "") for flag in flags} | {(UPDATED, uri) for uri in uris}
        self.accepted: Json = {**flags, **({"resourceSubscriptions": uris} if uris else {})}
        self.meta: Json = {SUBSCRIPTION_KEY: exchange.id}
        self.role = exchange.caller.role
        self.ended = asyncio.Event()
        self._notify = exchange.notify

    def acknowledge(self) -> None:
        """Acknowledge the notifications that the client asked for."""
        params = {"notifications": self.accepted, "_meta": self.meta}
        self._notify("notifications/subscriptions/acknowledged", params)

    def tell(self, event: Event) -> None:
        """Send *event*, if the client asked for it."""
        if event in self._events:
            method, uri = event
            self._notify(method, {**({"uri": uri} if uri else {}), "_meta": self.meta})


class Notifications:
    """The clients that get notifications, by role."""

    def __init__(self, *, streams: int = MOST_STREAMS) -> None:
        self._most = streams
        self._listeners: set[Listener] = set()
        self._sessions: dict[Send, str] = {}  #: roles
        self._closed = False

    def follow(self, role: str, send: Send) -> Callable[[], object]:
        """Notify a client of *role* with *send*; return a function that ends that."""
        self._sessions[send] = role
        return lambda: self._sessions.pop(send, None)

    async def listen(self, exchange: Exchange) -> Json:
        """Answer `subscriptions/listen` once the stream has ended."""
        if len(self._listeners) >= self._most:
            raise ProtocolError(INTERNAL_ERROR, "There are too many streams.")
        listener = Listener(exchange)
        self._listeners.add(listener)
        try:
            listener.acknowledge()
            if not self._closed:
                await listener.ended.wait()
        finally:
            self._listeners.discard(listener)
        return {"_meta": {SUBSCRIPTION_KEY: encode_id(exchange.id)}}

    def note(self, _: Snapshot, changes: Mapping[str, Change]) -> None:
        """Notify the clients of the roles in *changes*."""
        for role, change in changes.items():
            for event in _events(change):
                self.tell(role, event)

    def tell(self, role: str, event: Event) -> None:
        """Send *event* to the clients of *role*."""
        for listener in tuple(self._listeners):
            if listener.role == role:
                listener.tell(event)
        method, uri = event
        for send, of in tuple(self._sessions.items()):
            # Until 2025-11-25, clients subscribe to a resource with a method that dbtools does not serve.
            if of == role and not uri:
                send(encode_notification(method))

    def close(self) -> None:
        """End the streams, each with its result (MCP 2026-07-28, basic/patterns/subscriptions)."""
        self._closed = True
        for listener in self._listeners:
            listener.ended.set()


def _events(change: Change) -> Iterator[Event]:
    if change.tools:
        yield TOOLS, ""
    if change.resources:
        yield RESOURCES, ""
    yield from ((UPDATED, uri) for uri in change.updated)
