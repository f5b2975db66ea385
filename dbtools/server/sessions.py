"""Sessions of the 2025 era: the SDK's, of which one caller that is known cannot take all.

Within a session each request that runs has an id of its own.
"""

import anyio
import orjson
from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.streamable_http import GET_STREAM_KEY, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import ASGIApp, Receive, Scope, Send

from dbtools.server.bodies import after, error
from dbtools.server.headers import fields
from dbtools.server.identity import CALLER
from dbtools.server.load import share_of

PATIENCE = 1.0  #: seconds
TAKEN = "A request with this id runs in the session: each has an id of its own."


class SharedSessions(StreamableHTTPSessionManager):
    """The SDK's sessions, shared among callers."""

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        """Return a new session, or None where there is no room for one of *requestor*'s.

        The SDK, 2.3 for now, has no public way to tell whose sessions there are.
        """
        owned = sum(owner == requestor for owner in self._session_owners.values())
        is_known = requestor is not None and bool(requestor["client_id"])
        if is_known and self.max_sessions is not None and owned >= share_of(self.max_sessions):
            return None
        return super()._admit_session(requestor)


class OwnIds:
    """Passes requests on whose ids no other has that runs in their session (MCP 2025-11-25, basic).

    The SDK, 2.3 for now, takes the answer of the one from the other, which then waits for ever; it has a
    stream of its own under the name of an id as well.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._running: dict[tuple[str, ...], anyio.Event] = {}  #: by caller, session and id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 400, or pass the request on, whose body comes as one piece."""
        session = fields(scope, b"mcp-session-id")
        if not session or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        whole = await receive()
        id = _id_of(whole.get("body", b""))
        if id is None:
            await self._app(scope, after(whole, receive), send)
            return
        key = (scope[CALLER].identity or "", session[0], id)
        if id == GET_STREAM_KEY or not await self._is_free(key):
            await error(400, TAKEN)(scope, receive, send)
            return
        ended = self._running[key] = anyio.Event()
        try:
            await self._app(scope, after(whole, receive), send)
        finally:
            del self._running[key]
            ended.set()

    async def _is_free(self, key: tuple[str, ...]) -> bool:
        """Return whether no request has this *key*, or has been answered and ends within a moment."""
        with anyio.move_on_after(PATIENCE):
            while (ended := self._running.get(key)) is not None:
                await ended.wait()
        return key not in self._running


def _id_of(body: bytes) -> str | None:
    """Return the id of the request that *body* is, as the SDK knows it; None where it is none."""
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    is_request = isinstance(message, dict) and "method" in message and "id" in message
    return str(message["id"]) if is_request else None
