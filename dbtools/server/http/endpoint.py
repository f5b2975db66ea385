"""MCP over Streamable HTTP, in both eras: one ASGI request in, its answer out.

The steps: authentication, concurrency limit, body, message, session or headers, answer.
"""

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dbtools.policy.roles import Caller
from dbtools.server.calls import Limiter
from dbtools.server.http.identity import Identity, Rejection
from dbtools.server.http.requests import REASON, HttpError, check_accept, fields, read_message
from dbtools.server.http.streams import CANCEL, DISCONNECT, SHUTDOWN, PendingRequest
from dbtools.server.mcp.exchange import Exchange, deliver_response
from dbtools.server.mcp.kernel import Peer, Session, modern_revision
from dbtools.server.mcp.protocol import Reply, Server
from dbtools.server.mcp.versions import DEFAULT_HANDSHAKE, HANDSHAKES
from dbtools.server.messages import (
    ClientResponse,
    Code,
    Id,
    Notification,
    ProtocolError,
    Request,
    encode_error,
    id_of,
)

SESSION_HEADER = b"mcp-session-id"
REQUEST_GRACE = 2.5  #: seconds for running requests during a shutdown
CHECK_INTERVAL = 5.0  #: seconds between two checks of open streams and sessions
SESSION_TIMEOUT = 1_800.0  #: seconds after which a session expires
STATUSES: Mapping[int, int] = {  #: of errors of 2026-07-28 (basic/transports); all others have 200
    **dict.fromkeys((Code.PARSE_ERROR, Code.INVALID_REQUEST, Code.INVALID_PARAMS), 400),
    **dict.fromkeys((Code.HEADER_MISMATCH, Code.MISSING_CAPABILITY, Code.UNSUPPORTED_VERSION), 400),
    Code.METHOD_NOT_FOUND: 404,
}
ENDING = "The server is shutting down. Try again."
AT_LIMIT = "The server is at its limit. Try again."
NO_SESSION = (
    "Send initialize first to open a session. Requests of 2026-07-28 need none, but the header "
    "MCP-Protocol-Version."
)
#: The answers to requests that are stopped. During a shutdown, those without a stream get 503 instead.
STOPPED = {
    CANCEL: ProtocolError(Code.CANCELLED, "Request cancelled"),
    SHUTDOWN: ProtocolError(Code.INTERNAL_ERROR, ENDING),
}


@dataclass(eq=False, kw_only=True)
class HttpSession(Session):
    """A session, until 2025-11-25: bound to the caller who opened it, with an idle timeout."""

    caller: Caller
    id: str = field(default_factory=partial(secrets.token_hex, 16))
    pending: dict[Id | None, PendingRequest] = field(
        default_factory=dict
    )  #: by ID; None: the stream of a GET
    used: float = field(default_factory=monotonic)

    def put(self, message: bytes) -> None:
        """Send *message* on the stream of the session; drop it if the client has not opened one."""
        if None in self.pending:
            self.pending[None].put(message)


class Endpoint:
    """The ASGI application for MCP. A body may have at most *most* bytes."""

    def __init__(
        self, server: Server, identity: Identity, limiter: Limiter, *, most: int, stateless: bool
    ) -> None:
        self._server = server
        self._identity = identity
        self._limiter = limiter
        self._most = most
        self._stateless = stateless
        self._sessions: dict[str, HttpSession] = {}
        self._pending: set[PendingRequest] = set()
        self._is_ending = False

    def end(self) -> None:
        """Start the shutdown: close streams, reject new requests, and give running ones some time."""
        self._is_ending = True
        asyncio.get_running_loop().call_later(REQUEST_GRACE, self.stop)
        self._server.notifications.close()
        for session in self._sessions.values():
            if None in session.pending:
                session.pending[None].stop(SHUTDOWN)

    def stop(self) -> None:
        """Stop the requests that are still running; their clients may try again."""
        for each in tuple(self._pending):
            each.stop(SHUTDOWN)

    async def watch(self) -> None:
        """Close streams whose token is no longer valid, and idle sessions, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL)
            self.sweep(monotonic())
            for pending in [each for each in self._pending if each.is_subscription]:
                if await self._identity.admit(pending.header("authorization")) != pending.caller:
                    pending.stop(DISCONNECT)

    def sweep(self, now: float) -> None:
        """Close sessions that were idle for SESSION_TIMEOUT seconds: without a request or an open stream."""
        for each in tuple(self._sessions.values()):
            if each.pending:
                each.used = now
            elif each.used < now - SESSION_TIMEOUT:
                self._close(each)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI 3, http)."""
        try:
            await self._serve(scope, receive, send)
        except HttpError as exc:
            await exc.response(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self._identity.admit(fields(scope, b"authorization"))
        if isinstance(caller, Rejection):
            scope[REASON] = caller.reason
            raise HttpError(caller.status, caller.description, self._identity.challenge(caller))
        # Without the header, a request belongs to the era of sessions; with an unknown version, it does not.
        version = fields(scope, b"mcp-protocol-version")
        is_modern = bool(version) and version[0] not in HANDSHAKES
        listens = is_modern and fields(scope, b"mcp-method") == ["subscriptions/listen"]
        # A DELETE stops running requests, so it must not wait for them.
        is_request = scope["method"] == "POST" and not listens
        slots = self._limiter.requests if is_request else self._limiter.streams
        if self._is_ending or not slots.acquire(caller.identity):
            raise HttpError(503, ENDING if self._is_ending else AT_LIMIT)
        pending = PendingRequest(scope, receive, send, caller)
        self._pending.add(pending)
        try:
            await (self._serve_modern(pending) if is_modern else self._serve_session(pending))
        except ProtocolError as exc:
            status = STATUSES.get(exc.code, 200) if is_modern else 200
            raise HttpError(status, encode_error(exc.id, exc)) from exc
        except asyncio.CancelledError:
            reason = pending.take_stop_reason()
            if not reason:
                raise
            if reason == SHUTDOWN and not pending.has_started:
                raise HttpError(503, ENDING) from None
            await pending.end()
        finally:
            pending.stop_watching()
            self._pending.discard(pending)
            slots.release(caller.identity)

    async def _serve_modern(self, pending: PendingRequest) -> None:
        """Answer a request of 2026-07-28 or of an unknown version."""
        if pending.scope["method"] != "POST":
            raise HttpError(405, "Method not allowed.", {"Allow": "POST"})
        match await read_message(pending.scope, pending.receive, self._most):
            case ClientResponse():
                raise HttpError(400, "The server has sent no request.")
            case Notification():
                modern_revision(pending.header("mcp-protocol-version")[0])
                await Response(status_code=202)(pending.scope, pending.receive, pending.send)
            case Request() as request:
                exchange = self._server.admit(
                    None, request, pending.caller, pending.put, header=pending.header
                )
                await self._answer(pending, exchange)

    async def _serve_session(self, pending: PendingRequest) -> None:
        """Answer a request of the handshake era."""
        method, allowed = pending.scope["method"], ("POST",) if self._stateless else ("POST", "GET", "DELETE")
        session = self._session(pending)
        if method not in allowed:
            raise HttpError(405, "Method not allowed.", {"Allow": ", ".join(allowed)})
        if method == "POST":
            await self._post(pending, await read_message(pending.scope, pending.receive, self._most))
            return
        if method == "GET":
            check_accept(pending.scope, "text/event-stream")
        if session is None:
            raise HttpError(400, NO_SESSION)
        if method == "GET":
            await self._stream_notifications(pending, session)
            return
        self._close(session)
        await Response(status_code=200)(pending.scope, pending.receive, pending.send)

    def _session(self, pending: PendingRequest) -> HttpSession | None:
        """Return the session of a request, None if it names none; raise HttpError if it is unknown."""
        named = fields(pending.scope, SESSION_HEADER)
        if not named or self._stateless:
            return None
        found, caller = self._sessions.get(named[0]), pending.caller
        # Another caller must not learn that the session exists.
        if found is None or (found.caller.identity, found.caller.role) != (caller.identity, caller.role):
            raise HttpError(404, "Session not found.")
        found.used = monotonic()
        return found

    async def _post(self, pending: PendingRequest, message: Request | Notification | ClientResponse) -> None:
        # The session may have been closed while the body arrived.
        session = self._session(pending)
        opens = isinstance(message, Request) and message.method == "initialize"
        if session is None and not self._stateless and not opens:
            raise HttpError(400, NO_SESSION)
        if not isinstance(message, Request):
            if session is not None:
                self._process(session, message)
            await Response(status_code=202)(pending.scope, pending.receive, pending.send)
        elif session is None:
            await self._answer_without_session(pending, message)
        else:
            exchange = self._server.admit(session, message, pending.caller, pending.put)
            if message.id in session.pending:
                raise HttpError(400, "The session already has a running request with this ID.")
            await self._answer(pending, exchange, session)

    async def _answer_without_session(self, pending: PendingRequest, request: Request) -> None:
        """Answer a *request* without a session; `initialize` opens one."""
        session = HttpSession(caller=pending.caller)
        if self._stateless:
            named = pending.header("mcp-protocol-version")
            session.peer = Peer(HANDSHAKES[named[0]] if named else DEFAULT_HANDSHAKE)
            session.questions = None
        exchange = self._server.admit(session, request, pending.caller, pending.put)
        if not self._stateless:
            if not self._limiter.sessions.acquire(pending.caller.identity):
                raise HttpError(503, "There are too many open sessions.")
            self._sessions[session.id] = session
            pending.headers.append((SESSION_HEADER, session.id.encode()))
        await self._answer(pending, exchange)

    def _close(self, session: HttpSession) -> None:
        del self._sessions[session.id]
        self._limiter.sessions.release(session.caller.identity)
        self._server.notifications.unfollow(session.put)
        for pending in session.pending.values():
            pending.stop(CANCEL)

    def _process(self, session: HttpSession, message: Notification | ClientResponse) -> None:
        if isinstance(message, ClientResponse):
            deliver_response(session, message)
        elif message.method == "notifications/initialized":
            self._server.notifications.follow(session.caller.role, session.put)
        elif message.method == "notifications/cancelled":
            id = id_of(message.params.get("requestId"))
            if id is not None and id in session.pending:
                session.pending[id].stop(CANCEL)

    async def _answer(
        self, pending: PendingRequest, exchange: Exchange, session: HttpSession | None = None
    ) -> None:
        revision, running = exchange.peer.revision, session.pending if session is not None else {}
        pending.is_subscription = exchange.method == "subscriptions/listen"
        # Without a session, the client can cancel only by closing the connection.
        pending.become_stream_after(revision.stream_after, cancel_on_disconnect=session is None)
        running[exchange.id] = pending
        try:
            reply = await self._server.answer(exchange)
        except asyncio.CancelledError:
            problem = STOPPED.get(pending.reason)
            if problem is None or (pending.reason == SHUTDOWN and pending.stream is None):
                raise
            pending.take_stop_reason()
            reply = Reply(encode_error(exchange.id, problem), problem.code)
        finally:
            # An answer that is being sent cannot be cancelled.
            del running[exchange.id]
            pending.stop_watching()
        status = 200 if revision.has_handshake else STATUSES.get(reply.code, 200)
        await pending.finish(reply.message, status)

    async def _stream_notifications(self, pending: PendingRequest, session: HttpSession) -> None:
        """Send a session's notifications until the client or the server closes the stream."""
        if None in session.pending:
            raise HttpError(409, "The session has a stream already.")
        pending.is_subscription, session.pending[None] = True, pending
        pending.stop_on_disconnect()
        try:
            await pending.become_stream().ended()
        finally:
            del session.pending[None]
