"""Sessions of the 2025 era: the SDK's, of which one caller that is known cannot take all.

Within a session each request that runs has an id of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.streamable_http import GET_STREAM_KEY, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic_core import from_json
from starlette.types import ASGIApp, Receive, Scope, Send

from dbtools.server.bodies import after, error
from dbtools.server.identity import CALLER
from dbtools.server.load import share_of
from dbtools.server.requests import fields

Key = tuple[str, str, str]  #: caller, session and id
USE = "dbtools.use"  #: the key of the scope that holds what holds the id of a request
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


class Use:
    """Who holds the id of a request: the request itself, and what answers it.

    It is among the *uses* by its *key* until nobody does any more.
    """

    def __init__(self, uses: "Uses", key: Key) -> None:
        uses[key] = self
        self._uses = uses
        self._key = key
        self._holders = 0
        self.ended = anyio.Event()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Hold it."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                self._uses.pop(self._key, None)
                self.ended.set()


Uses = dict[Key, Use]


class OwnIds:
    """Passes requests on whose ids no other has that runs in their session (MCP 2025-11-25, basic).

    The SDK, 2.3 for now, takes the answer of the one from the other, which then waits for ever; it has a
    stream of its own under the name of an id as well. A request whose client has left runs on.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._uses: Uses = {}

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
        scope[USE] = use = Use(self._uses, key)
        with use():
            await self._app(scope, after(whole, receive), send)

    async def _is_free(self, key: Key) -> bool:
        """Return whether no request has this *key*, or has been answered and ends within a moment."""
        with anyio.move_on_after(PATIENCE):
            while (use := self._uses.get(key)) is not None:
                await use.ended.wait()
        return key not in self._uses


def _id_of(body: bytes) -> str | None:
    """Return the id of the request that *body* is, read as the SDK reads it; None where it is none."""
    try:
        message = from_json(body)
    except ValueError:
        return None
    is_request = isinstance(message, dict) and "method" in message and "id" in message
    return str(message["id"]) if is_request else None
