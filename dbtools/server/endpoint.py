"""MCP over Streamable HTTP, in both eras: one request of ASGI in, its answer out.

In this order: authentication, a slot, the body, the message, the session or the headers, the answer.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from dbtools.policy import Caller
from dbtools.server.asked import Refused, check_accept, error, json_answer, read_message
from dbtools.server.exchange import Exchange
from dbtools.server.identity import Identity, Refusal
from dbtools.server.kernel import Header, Peer, Session, modern
from dbtools.server.limiter import Limiter, Slots
from dbtools.server.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Notification,
    ProtocolError,
    Request,
    Response as Answered,
    encode_error,
    id_of,
)
from dbtools.server.protocol import Reply, Server
from dbtools.server.requests import REASON, fields
from dbtools.server.sessions import HttpSession, Sessions
from dbtools.server.streams import CANCEL, END, LATE, EventStream, Turn
from dbtools.server.versions import (
    HANDSHAKES,
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    UNNAMED,
    UNSUPPORTED_VERSION,
)

FREE = Slots()
SESSION = b"mcp-session-id"
BODY_IN = 20.0  #: seconds in which a client sends all of a body
CANCELLED = -32800  #: of a request that its client has cancelled: until 2025-11-25 its stream needs an answer
STATUSES = {  #: of errors of 2026-07-28 (basic/transports); all others have 200
    **dict.fromkeys((PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS), 400),
    **dict.fromkeys((HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION), 400),
    METHOD_NOT_FOUND: 404,
}
ENDING = "The server is shutting down. Try again."
FULL = "The server is at its limit. Try again."
TAKEN = "The session already has a running request with this ID."
UNOPENED = (
    "Send initialize first to open a session. Requests of 2026-07-28 need none, but the header "
    "MCP-Protocol-Version."
)
#: The status and message of requests that are stopped before any answer.
UNANSWERED = {END: (503, ENDING), LATE: (408, f"The body has not arrived within {BODY_IN:g} seconds.")}
#: The answers to requests that are stopped later. At shutdown, those without a stream get 503 instead.
STOPPED = {
    CANCEL: ProtocolError(CANCELLED, "Request cancelled"),
    END: ProtocolError(INTERNAL_ERROR, ENDING),
}


class Endpoint:
    """The application at one path. *most* is how many bytes a body may have."""

    def __init__(
        self, server: Server, identity: Identity, limiter: Limiter, *, most: int, stateless: bool
    ) -> None:
        self._server = server
        self._identity = identity
        self._limiter = limiter
        self._most = most
        self._stateless = stateless
        self.sessions = Sessions(limiter.sessions)
        self._turns: set[Turn] = set()
        self._is_ending = False

    def end(self) -> None:
        """Begin the shutdown: close streams, refuse new requests, and let running ones go on."""
        self._is_ending = True
        self._server.notifications.close()
        self.sessions.end_streams()

    def stop(self) -> None:
        """Stop requests that are still running: their clients may try again."""
        for each in tuple(self._turns):
            each.stop(END)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI 3, http)."""
        try:
            await self._serve(scope, receive, send)
        except Refused as exc:
            await exc.response(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._stateless and scope["method"] != "POST":
            answer = PlainTextResponse("This server keeps no sessions.\n", 405, {"Allow": "POST"})
            raise Refused(answer)
        authorization = fields(scope, b"authorization")
        caller = await self._identity.admit(authorization)
        if isinstance(caller, Refusal):
            scope[REASON] = caller.reason
            raise Refused(self._refusal(caller))
        is_modern = _is_modern(scope)
        slots = self._slots(scope, is_modern=is_modern)
        if self._is_ending or not slots.acquire_share(caller.identity):
            raise Refused(error(503, ENDING if self._is_ending else FULL))
        turn = Turn(scope, receive, send, caller, partial(self._identity.admit, authorization))
        self._turns.add(turn)
        try:
            await (self._serve_alone(turn) if is_modern else self._serve_session(turn))
        except asyncio.CancelledError:
            reason = turn.caught()
            if not reason:
                raise
            if reason in UNANSWERED and not turn.is_begun:
                raise Refused(error(*UNANSWERED[reason])) from None
            await turn.end()
        finally:
            turn.settle()
            self._turns.discard(turn)
            slots.release(caller.identity)

    def _slots(self, scope: Scope, *, is_modern: bool) -> Slots:
        """Return the slots that a request takes one of."""
        if scope["method"] == "DELETE":
            # It ends a session, which takes a slot.
            return FREE
        is_listening = is_modern and fields(scope, b"mcp-method") == ["subscriptions/listen"]
        is_stream = scope["method"] == "GET" or is_listening
        return self._limiter.streams if is_stream else self._limiter.requests

    def _refusal(self, found: Refusal) -> Response:
        # Clients show the words of an error of the protocol, and of no other.
        answer = error(found.status, found.description)
        if found.status in (401, 403):
            answer.headers["www-authenticate"] = self._identity.challenge(found)
        return answer

    async def _serve_alone(self, turn: Turn) -> None:
        """Answer a request of 2026-07-28, or of an unknown version."""
        if turn.scope["method"] != "POST":
            raise Refused(Response(status_code=405, headers={"Allow": "POST"}))
        message = await self._message(turn)
        match message:
            case Answered():
                raise Refused(error(400, "Nothing has been asked."))
            case Notification():
                try:
                    modern(turn.header("mcp-protocol-version")[0])
                except ProtocolError as exc:
                    raise Refused(json_answer(encode_error(None, exc), 400)) from exc
                await Response(status_code=202)(turn.scope, turn.receive, turn.send)
            case Request():
                peer = self._admit(turn, message, Session(is_modern=True), turn.header)
                await self._answer(turn, message, peer, leaves=True)

    def _admit(self, turn: Turn, request: Request, session: Session, header: Header | None = None) -> Peer:
        """Return the peer of *request*, or raise Refused."""
        try:
            return self._server.admit(session, request, turn.caller, turn.id, header)
        except ProtocolError as exc:
            status = STATUSES.get(exc.code, 200) if session.is_modern else 200
            raise Refused(json_answer(encode_error(request.id, exc), status)) from exc

    async def _message(self, turn: Turn) -> Request | Notification | Answered:
        turn.after(BODY_IN, partial(turn.stop, LATE))
        message = await read_message(turn.scope, turn.receive, self._most)
        turn.settle()
        return message

    async def _serve_session(self, turn: Turn) -> None:
        """Answer a request of the era of sessions."""
        session = self._session(turn)
        match turn.scope["method"]:
            case "POST":
                await self._post(turn)
            case "GET":
                check_accept(turn.scope, "text/event-stream")
                await self._stream(turn, _known(session))
            case "DELETE":
                self.sessions.close(_known(session))
                await Response(status_code=200)(turn.scope, turn.receive, turn.send)
            case _:
                raise Refused(error(405, "Method not allowed.", {"Allow": "GET, POST, DELETE"}))

    def _session(self, turn: Turn) -> HttpSession | None:
        """Return the session that a request names, None where it names none."""
        named = fields(turn.scope, SESSION)
        if not named or self._stateless:
            return None
        found = self.sessions.find(named[0], turn.caller)
        if found is None:
            raise Refused(error(404, "Session not found."))
        return found

    async def _post(self, turn: Turn) -> None:
        message = await self._message(turn)
        # It may have been closed while the body came.
        session = self._session(turn)
        match message:
            case Request():
                await self._request(turn, message, session)
            case _:
                if session is not None:
                    self._note(session, message, turn.caller)
                elif not self._stateless:
                    raise Refused(error(400, UNOPENED))
                await Response(status_code=202)(turn.scope, turn.receive, turn.send)

    async def _request(self, turn: Turn, request: Request, session: HttpSession | None) -> None:
        if session is None and not self._stateless and request.method != "initialize":
            raise Refused(error(400, UNOPENED))
        state = session.session if session is not None else self._fresh(turn)
        peer = self._admit(turn, request, state)
        if session is None:
            headers = self._opened(turn, state) if request.method == "initialize" else ()
            # Without a session, no message of the client could cancel the request.
            await self._answer(turn, request, peer, headers=headers, leaves=self._stateless)
            return
        if request.id in session.turns:
            raise Refused(error(400, TAKEN))
        await self._answer(turn, request, peer, session=session)

    def _fresh(self, turn: Turn) -> Session:
        """Return the state of a request that names no session."""
        if not self._stateless:
            return Session(is_modern=False, ignores_envelopes=True)
        named = fields(turn.scope, b"mcp-protocol-version")
        revision = HANDSHAKES[named[0]] if named else UNNAMED
        return Session(peer=Peer(revision), is_modern=False, ignores_envelopes=True)

    def _opened(self, turn: Turn, state: Session) -> Sequence[tuple[bytes, bytes]]:
        """Return the headers that name a new session."""
        if self._stateless:
            return ()
        opened = self.sessions.open(turn.caller, state)
        if opened is None:
            raise Refused(error(503, "There are too many open sessions."))
        return ((SESSION, opened.id.encode()),)

    def _note(self, session: HttpSession, message: Notification | Answered, caller: Caller) -> None:
        """Act on a message that gets no answer."""
        if isinstance(message, Answered):
            session.questions.answer(message)
        elif message.method == "notifications/initialized":
            session.unfollow = self._server.notifications.follow(caller.role, session.put)
        elif message.method == "notifications/cancelled":
            id = id_of(message.params.get("requestId"))
            if id in session.turns:
                session.turns[id].stop(CANCEL)

    async def _answer(
        self,
        turn: Turn,
        request: Request,
        peer: Peer,
        *,
        session: HttpSession | None = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
        leaves: bool = False,
    ) -> None:
        """Answer *request*; if it *leaves*, a client that leaves has cancelled it."""
        exchange = Exchange(
            id=request.id,
            method=request.method,
            params=request.params,
            peer=peer,
            caller=turn.caller,
            send=turn.put,
            questions=session.questions if session is not None else None,
            request_id=turn.id,
        )
        turn.wait(peer.revision.quiet, leaves=leaves, is_long=request.method == "subscriptions/listen")
        turns = session.turns if session is not None else {}
        turns[request.id] = turn
        try:
            reply = await self._server.answer(exchange)
        except asyncio.CancelledError:
            problem = STOPPED.get(turn.reason)
            if problem is None or (turn.reason == END and not turn.is_stream):
                raise
            turn.caught()
            reply = Reply(message=encode_error(request.id, problem), code=problem.code)
        finally:
            # An answer that is being sent can no longer be cancelled.
            del turns[request.id]
            turn.settle()
        status = 200 if peer.revision.has_handshake else STATUSES.get(reply.code, 200)
        await turn.finish(reply.message, status, headers)

    async def _stream(self, turn: Turn, session: HttpSession) -> None:
        """Send a session's notifications until the client or the server closes the stream."""
        if session.stream is not None:
            raise Refused(error(409, "The session has a stream already."))
        turn.is_begun, session.stream = True, EventStream(turn.send)
        turn.watch(session.stream.close, is_long=True)
        try:
            await session.stream.run()
        finally:
            session.stream = None


def _known(session: HttpSession | None) -> HttpSession:
    if session is None:
        raise Refused(error(400, UNOPENED))
    return session


def _is_modern(scope: Scope) -> bool:
    """Return whether a request is of an era without sessions, or of an unknown version."""
    version = fields(scope, b"mcp-protocol-version")
    return bool(version) and version[0] not in HANDSHAKES
