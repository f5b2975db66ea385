"""How much is served at the same time: requests and streams are counted, and end when the server does."""

import logging

import anyio
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dbtools.server.bodies import error

PATIENCE = 20.0  #: seconds in which a client takes a part of an answer
RETRY = {"retry-after": "1"}
logger = logging.getLogger("dbtools")


class _Gone(Exception):
    """The client does not read."""


class Load:
    """Passes on as many requests, and as many streams of notices, as are allowed."""

    def __init__(self, app: ASGIApp, *, requests: int, streams: int) -> None:
        self._app = app
        self._room = {True: streams, False: requests}
        self._ending = anyio.Event()

    def end(self) -> None:
        """End the streams, as if their clients had left; what is being answered goes on."""
        self._ending.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 503, or pass the request on."""
        is_stream = _is_stream(scope)
        if not self._room[is_stream] or (is_stream and self._ending.is_set()):
            await error(503, "The server has no room for more.", RETRY)(scope, receive, send)
            return
        self._room[is_stream] -= 1
        try:
            taken = self._until_end(receive) if is_stream else receive
            await self._app(scope, taken, _in_time(send))
        except _Gone:
            logger.debug("a client that reads nothing is left")
        finally:
            self._room[is_stream] += 1

    def _until_end(self, receive: Receive) -> Receive:
        """Return *receive*, which tells of a client that leaves when the server ends."""

        async def receive_until_end() -> Message:
            message: Message = {"type": "http.disconnect"}
            async with anyio.create_task_group() as group:

                async def end() -> None:
                    await self._ending.wait()
                    group.cancel_scope.cancel()

                group.start_soon(end)
                message = await receive()
                group.cancel_scope.cancel()
            return message

        return receive_until_end


def _is_stream(scope: Scope) -> bool:
    """Return whether a request is for notices: the GET of the 2025 era, or what 2026-07-28 names so."""
    return scope["method"] == "GET" or Headers(scope=scope).get("mcp-method") == "subscriptions/listen"


def _in_time(send: Send) -> Send:
    async def send_in_time(message: Message) -> None:
        try:
            with anyio.fail_after(PATIENCE):
                await send(message)
        except TimeoutError as exc:
            raise _Gone from exc

    return send_in_time
