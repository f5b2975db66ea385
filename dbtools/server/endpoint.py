"""MCP over Streamable HTTP, in both eras: one request of ASGI in, its answer out.

In this order: who asks, whether there is a slot, the body, the message, the session or headers, the answer.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from dbtools.policy import Caller
from dbtools.server.asked import ENDING, Asked, Refused, check_accept, error, json_answer
from dbtools.server.exchange import Exchange
from dbtools.server.identity import Identity, Refusal
from dbtools.server.kernel import Peer, Session, modern
from dbtools.server.limiter import Limiter, Slots
from dbtools.server.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Id,
    Notification,
    ProtocolError,
    Request,
    Response as Answered,
    encode_error,
    id_of,
)
from dbtools.server.protocol import Reply, Server
from dbtools.server.requests import REASON, fields
from dbtools.server.sessions import CANCEL, END, HttpSession, Sessions, Turn
from dbtools.server.streams import Answering, EventStream
from dbtools.server.versions import (
    HANDSHAKES,
    HEADER_MISMATCH,
    MISSING_CAPABILITY,
    UNNAMED,
    UNSUPPORTED_VERSION,
)

FREE = Slots()
SESSION = b"mcp-session-id"
CANCELLED = -32800  #: of a request that its client has cancelled: until 2025-11-25 its stream needs an answer
STATUSES = {  #: of errors of 2026-07-28 (basic/transports); all others have 200
    **dict.fromkeys((PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS), 400),
    **dict.fromkeys((HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION), 400),
    METHOD_NOT_FOUND: 404,
}
#: The answers to stopped requests. At shutdown, a request without a stream gets 503 instead.
STOPPED = {
    CANCEL: ProtocolError(CANCELLED, "Request cancelled"),
    END: ProtocolError(INTERNAL_ERROR, ENDING),
}
LOOK_AFTER = 0.05  #: seconds until a request is watched for a client that leaves; most are answered by then
FULL = "The server is at its limit. Try again."
TAKEN = "The session already has a running request with this ID."
UNOPENED = (
    "Send initialize first to open a session. Requests of 2026-07-28 need none, but the header "
    "MCP-Protocol-Version."
)


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
        """Begin to shut down: streams end, nothing new is answered, what has begun goes on."""
        self._is_ending = True
        self._server.notices.close()
        self.sessions.end_streams()

    def stop(self) -> None:
        """Stop what is still being answered: its clients are asked to try again."""
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
        asked = Asked(scope, receive, send, caller, partial(self._identity.admit, authorization))
        self._turns.add(asked.turn)
        try:
            await (self._serve_alone(asked) if is_modern else self._serve_session(asked))
        except asyncio.CancelledError:
            reason = asked.turn.caught()
            if not reason:
                raise
            await asked.break_off(reason)
        finally:
            self._turns.discard(asked.turn)
            slots.release(caller.identity)

    def _slots(self, scope: Scope, *, is_modern: bool) -> Slots:
        """Return of which slots a request needs one."""
        if scope["method"] == "DELETE":
            # It ends what takes slots.
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

    async def _serve_alone(self, asked: Asked) -> None:
        """Answer a request of 2026-07-28, or of a version that nobody knows."""
        if asked.scope["method"] != "POST":
            raise Refused(Response(status_code=405, headers={"Allow": "POST"}))
        message = await asked.message(self._most)
        header = asked.header
        match message:
            case Answered():
                raise Refused(error(400, "Nothing has been asked."))
            case Notification():
                try:
                    modern(header("mcp-protocol-version")[0])
                except ProtocolError as exc:
                    raise _refused(None, exc, 400) from exc
                await Response(status_code=202)(asked.scope, asked.receive, asked.send)
            case Request():
                try:
                    peer = self._server.admit(
                        Session(is_modern=True), message, asked.caller, asked.id, header
                    )
                except ProtocolError as exc:
                    raise _refused(message.id, exc, STATUSES.get(exc.code, 200)) from exc
                await self._answer(asked, message, peer, leaves=True)

    async def _serve_session(self, asked: Asked) -> None:
        """Answer a request of the era of sessions."""
        session = self._session(asked)
        match asked.scope["method"]:
            case "POST":
                await self._post(asked)
            case "GET":
                check_accept(asked.scope, "text/event-stream")
                await self._stream(asked, _known(session))
            case "DELETE":
                self.sessions.close(_known(session))
                await Response(status_code=200)(asked.scope, asked.receive, asked.send)
            case _:
                raise Refused(error(405, "Method not allowed.", {"Allow": "GET, POST, DELETE"}))

    def _session(self, asked: Asked) -> HttpSession | None:
        """Return the session that a request names, None where it names none."""
        named = fields(asked.scope, SESSION)
        if not named or self._stateless:
            return None
        found = self.sessions.find(named[0], asked.caller)
        if found is None:
            raise Refused(error(404, "Session not found."))
        return found

    async def _post(self, asked: Asked) -> None:
        message = await asked.message(self._most)
        # It may have been closed while the body came.
        session = self._session(asked)
        match message:
            case Request():
                await self._request(asked, message, session)
            case _:
                if session is not None:
                    self._note(session, message, asked.caller)
                elif not self._stateless:
                    raise Refused(error(400, UNOPENED))
                await Response(status_code=202)(asked.scope, asked.receive, asked.send)

    async def _request(self, asked: Asked, request: Request, session: HttpSession | None) -> None:
        if session is None and not self._stateless and request.method != "initialize":
            raise Refused(error(400, UNOPENED))
        state = session.session if session is not None else self._fresh(asked)
        try:
            peer = self._server.admit(state, request, asked.caller, asked.id)
        except ProtocolError as exc:
            raise _refused(request.id, exc, 200) from exc
        if session is None:
            headers = self._opened(asked, state) if request.method == "initialize" else ()
            # Without a session, no message of the client could cancel the request.
            await self._answer(asked, request, peer, headers=headers, leaves=self._stateless)
            return
        if request.id in session.turns:
            raise Refused(error(400, TAKEN))
        await self._answer(asked, request, peer, session=session)

    def _fresh(self, asked: Asked) -> Session:
        """Return the state of a request that names no session."""
        if not self._stateless:
            return Session(is_modern=False, ignores_envelopes=True)
        named = fields(asked.scope, b"mcp-protocol-version")
        revision = HANDSHAKES[named[0]] if named else UNNAMED
        return Session(peer=Peer(revision), is_modern=False, ignores_envelopes=True)

    def _opened(self, asked: Asked, state: Session) -> Sequence[tuple[bytes, bytes]]:
        """Return the headers that name a new session."""
        if self._stateless:
            return ()
        opened = self.sessions.open(asked.caller, state)
        if opened is None:
            raise Refused(error(503, "There are too many open sessions."))
        return ((SESSION, opened.id.encode()),)

    def _note(self, session: HttpSession, message: Notification | Answered, caller: Caller) -> None:
        """Act on a message that gets no answer."""
        if isinstance(message, Answered):
            session.questions.answer(message)
        elif message.method == "notifications/initialized":
            session.unfollow = self._server.notices.follow(caller.role, session.put)
        elif message.method == "notifications/cancelled":
            id = id_of(message.params.get("requestId"))
            if id in session.turns:
                session.turns[id].stop(CANCEL)

    async def _answer(
        self,
        asked: Asked,
        request: Request,
        peer: Peer,
        *,
        session: HttpSession | None = None,
        headers: Sequence[tuple[bytes, bytes]] = (),
        leaves: bool = False,
    ) -> None:
        """Answer *request*; if *leaves*, a client that leaves has cancelled it."""
        answering, loop = Answering(asked.send), asyncio.get_running_loop()
        exchange = Exchange(
            id=request.id,
            method=request.method,
            params=request.params,
            peer=peer,
            caller=asked.caller,
            send=answering.put,
            questions=session.questions if session is not None else None,
            request_id=asked.id,
        )
        timers = [loop.call_later(peer.revision.quiet, answering.begin)]
        if leaves:
            is_listening = request.method == "subscriptions/listen"
            timers.append(loop.call_later(LOOK_AFTER, asked.watch, is_listening))
        turns = session.turns if session is not None else {}
        turns[request.id] = asked.turn
        try:
            reply = await self._server.answer(exchange)
        except asyncio.CancelledError:
            problem = STOPPED.get(asked.turn.reason)
            if problem is None or (asked.turn.reason == END and not answering.is_stream):
                answering.abandon()
                raise
            asked.turn.caught()
            reply = Reply(message=encode_error(request.id, problem), code=problem.code)
        finally:
            # An answer that is being sent can no longer be cancelled.
            del turns[request.id]
            for timer in timers:
                timer.cancel()
            asked.unwatch()
        status = 200 if peer.revision.has_handshake else STATUSES.get(reply.code, 200)
        await answering.finish(reply.message, status, headers)

    async def _stream(self, asked: Asked, session: HttpSession) -> None:
        """Tell the client of a session what changes, until one of both leaves."""
        if session.stream is not None:
            raise Refused(error(409, "The session has a stream already."))
        session.stream = stream = EventStream(asked.send)
        asked.watch(True, stream.close)
        try:
            await stream.run()
        finally:
            session.stream = None
            asked.unwatch()


def _refused(id: Id | None, exc: ProtocolError, status: int) -> Refused:
    return Refused(json_answer(encode_error(id, exc), status))


def _known(session: HttpSession | None) -> HttpSession:
    if session is None:
        raise Refused(error(400, UNOPENED))
    return session


def _is_modern(scope: Scope) -> bool:
    """Return whether a request is of an era without sessions, or of a version that nobody knows."""
    version = fields(scope, b"mcp-protocol-version")
    return bool(version) and version[0] not in HANDSHAKES
