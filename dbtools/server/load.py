"""How much is served at the same time, in all and to one caller; and how it ends when the server does."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dbtools.server.bodies import error
from dbtools.server.identity import CALLER, STILL
from dbtools.server.requests import fields

SHARE = 4  #: of all places a known caller takes no more than the fourth part
PIECE = 65_536  #: bytes of an answer that wait for the client to take them
START = "http.response.start"
LOOK = 5.0  #: seconds between two looks whether whoever listens still may


@dataclass(kw_only=True)
class Room:
    """Places for requests or streams."""

    most: int
    taken: int = 0
    taken_by: dict[str | None, int] = field(default_factory=dict)  #: identity

    def take(self, identity: str | None) -> bool:
        """Take a place, and return whether there was one."""
        share = self.most if identity is None else share_of(self.most)
        own = self.taken_by.get(identity, 0)
        if self.taken >= self.most or own >= share:
            return False
        self.taken += 1
        self.taken_by[identity] = own + 1
        return True

    def leave(self, identity: str | None) -> None:
        """Give the place back."""
        self.taken -= 1
        self.taken_by[identity] -= 1
        if not self.taken_by[identity]:
            del self.taken_by[identity]


def share_of(most: int) -> int:
    """Return how many of *most* places one caller may have, so that others have some."""
    return max(1, most // SHARE)


class Load:
    """Passes on as many requests, and as many streams of notices, as there is room for."""

    def __init__(self, app: ASGIApp, *, requests: int, streams: int) -> None:
        self._app = app
        self._requests = Room(most=requests)
        self._streams = Room(most=streams)
        self._ending = anyio.Event()
        self._running: set[asyncio.Task[object]] = set()
        self._stopped = False

    def end(self) -> None:
        """End the streams, as if their clients had left; what is being answered goes on."""
        self._ending.set()

    def stop(self) -> None:
        """Stop what is still being answered: its clients are told to come again."""
        self._stopped = True
        for each in self._running:
            each.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 503, or pass the request on."""
        is_stream, identity = _is_stream(scope), scope[CALLER].identity
        room = self._streams if is_stream else self._requests
        if self._ending.is_set() or not room.take(identity):
            await self._refuse(scope, receive, send)
            return
        try:
            await self._pass(scope, self._until_end(scope, receive) if is_stream else receive, send)
        finally:
            room.leave(identity)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        ending = self._ending.is_set()
        message = (
            "The server is ending. Try again." if ending else "The server has no room for more. Try again."
        )
        await error(503, message)(scope, receive, send)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun, is_open = False, False

        async def send_in_pieces(message: Message) -> None:
            """Send *message*; the last of it only when the client takes it, so that its place is held."""
            nonlocal begun, is_open
            begun, is_open = True, message.get("more_body", message["type"] == START)
            body = message.get("body", b"")
            last = max(0, len(body) - 1) // PIECE * PIECE
            for start in range(0, last, PIECE):
                await send({**message, "body": body[start : start + PIECE], "more_body": True})
            await send({**message, "body": body[last:]} if last else message)

        # Not a scope of anyio's, which takes longer than all else here.
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            await self._app(scope, receive, send_in_pieces)
        except asyncio.CancelledError:
            if not self._stopped or task.uncancel():
                raise
            if not begun:
                await self._refuse(scope, receive, send)
        finally:
            self._running.discard(task)
        if is_open:
            # A stream that ends with the server, or with what its client may do, is none that broke off.
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _until_end(self, scope: Scope, receive: Receive) -> Receive:
        """Return *receive*, which tells of a client that leaves where the server ends or it may not stay."""
        may_stay: Callable[[], Awaitable[bool]] = scope[STILL]

        async def receive_until_end() -> Message:
            message: Message = {"type": "http.disconnect"}
            async with anyio.create_task_group() as group:

                async def end() -> None:
                    while not self._ending.is_set() and await may_stay():
                        with anyio.move_on_after(LOOK):
                            await self._ending.wait()
                    group.cancel_scope.cancel()

                group.start_soon(end)
                message = await receive()
                group.cancel_scope.cancel()
            return message

        return receive_until_end


def _is_stream(scope: Scope) -> bool:
    """Return whether a request is for notices: the GET of the 2025 era, or what 2026-07-28 names so."""
    if scope["method"] == "GET":
        return True
    if fields(scope, b"mcp-method")[:1] != ["subscriptions/listen"]:
        return False
    version = fields(scope, b"mcp-protocol-version")[:1]
    return bool(version) and version[0] not in HANDSHAKE_PROTOCOL_VERSIONS


if sys.platform != "win32":
    import resource

RESERVED = 100  #: descriptors for the database, files and the log
LOOK = 1.0  #: seconds between two looks for the parent


def most_connections(wanted: int) -> int:
    """Return how many connections can be open, at most *wanted*, with as many descriptors as are allowed."""
    if sys.platform == "win32":
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, wanted + RESERVED)
    needed = min(hard, max(soft, wanted + RESERVED))
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return max(1, min(wanted, needed - RESERVED))


async def end_with_parent() -> None:
    """End this process when whoever has started it is gone: nobody would end it or start it again."""
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110 (nobody tells)
        await anyio.sleep(LOOK)
    os.kill(os.getpid(), signal.SIGTERM)
