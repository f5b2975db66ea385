"""Scripts of exchanges, run against one server: lines or HTTP requests in, comparable outcomes out."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
from starlette.types import ASGIApp, Message as Event

from tests.oracle.validation import validate_envelope

PATIENCE = 30.0  #: seconds for an answer that there will be
LONGEST_LINE = 2**24  #: bytes
SESSION = "mcp-session-id"
THE_SESSION = "{session}"  #: stands in a script for the session that its `initialize` has opened
NO_SESSION = "0" * 32
LISTEN = "subscriptions/listen"
SLOW = b'"list_slow"'  #: the tool whose calls are cancelled, not waited for


Message = dict[str, Any]
CLOSED: Message = {"closed": True}  #: stands for an answer where the server has closed its output
SILENCE: Message = {"silence": True}  #: and where none comes
#: Serves what it reads, until its input ends, to what it writes.
ServeLines = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Side:
    """A toolbox, served by the SDK or by us."""

    serve_lines: ServeLines
    app: ASGIApp
    end: Callable[[], None]  #: begins to shut down what is served over HTTP


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """One request to the endpoint."""

    verb: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def within(self, session: str) -> "HttpRequest":
        """Return the request with *session* in place of its placeholder."""
        headers = tuple((name, value.replace(THE_SESSION, session)) for name, value in self.headers)
        return replace(self, headers=headers)


@dataclass(kw_only=True)
class HttpAnswer:
    """What a client learns from an answer: a message that is JSON and one in a stream are the same to it."""

    status: int = 0  #: 0: the answer does not end
    headers: dict[str, str] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)


async def play_lines(serve: ServeLines, script: Sequence[bytes]) -> list[list[Message]]:
    """Return what *serve* answers to each line, and at last what comes when the input has ended.

    The next line is sent when a request has been answered, or its stream has begun.
    """
    near, far = socket.socketpair()
    async with AsyncExitStack() as stack:
        reader, writer = await asyncio.open_connection(sock=near, limit=LONGEST_LINE)
        stack.callback(writer.close)
        far_reader, far_writer = await asyncio.open_connection(sock=far, limit=LONGEST_LINE)
        group = await stack.enter_async_context(anyio.create_task_group())

        async def run() -> None:
            try:
                await serve(far_reader, far_writer)
            finally:
                far_writer.close()

        group.start_soon(run)
        heard: list[list[Message]] = []
        for line in script:
            writer.write(line + b"\n")
            sent = json.loads(line)
            wants_answer = "method" in sent and "id" in sent and SLOW not in line
            heard.append([comparable(await _next(reader))] if wants_answer else [])
        writer.write_eof()
        with anyio.fail_after(PATIENCE):
            rest = [comparable(_message(line)) async for line in reader]
        return [*heard, sorted(rest, key=json.dumps)]


async def _next(reader: asyncio.StreamReader) -> Message:
    with anyio.move_on_after(PATIENCE):
        line = await reader.readline()
        return _message(line) if line else CLOSED
    return SILENCE


def _message(content: bytes) -> Message:
    message: Message = json.loads(content)
    validate_envelope(message)
    return message


async def play_http(app: ASGIApp, script: Iterable[HttpRequest]) -> list[HttpAnswer]:
    """Return what *app* answers to each request; the first session is that of the script."""
    sessions: list[str] = []
    answers: list[HttpAnswer] = []
    for request in script:
        answer = await _ask(app, request.within(sessions[0] if sessions else NO_SESSION))
        session = answer.headers.get(SESSION)
        is_new = session is not None and session not in sessions and answer.status < 400
        if session is not None and is_new:
            sessions.append(session)
        answers.append(comparable_answer(answer, len(sessions) if is_new else 0))
    for each in sessions:
        await _ask(app, HttpRequest(verb="DELETE", headers=((SESSION, each),)))
    return answers


async def _ask(app: ASGIApp, request: HttpRequest) -> HttpAnswer:
    """Return the answer to *request*; the client of an endless stream leaves as soon as it has begun."""
    answer = HttpAnswer()
    body = bytearray()
    left = anyio.Event()
    incoming: list[Event] = [{"type": "http.request", "body": request.body, "more_body": False}]

    async def receive() -> Event:
        if incoming:
            return incoming.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(event: Event) -> None:
        if event["type"] == "http.response.start":
            answer.status = int(event["status"])
            answer.headers = {name.decode().lower(): value.decode() for name, value in event["headers"]}
        body.extend(event.get("body", b""))
        streams = "event-stream" in answer.headers.get("content-type", "")
        listens = b'"' + LISTEN.encode() + b'"' in request.body and b"\r\n\r\n" in body
        if streams and (request.verb == "GET" or listens):
            left.set()

    with anyio.move_on_after(PATIENCE) as scope:
        await app(scope_of(request), receive, send)
    answer.status = 0 if scope.cancelled_caught else answer.status
    answer.messages = _messages(bytes(body), answer.headers.get("content-type", ""))
    return answer


def scope_of(request: HttpRequest) -> dict[str, Any]:
    """Return *request* as ASGI has it."""
    given = [(name.lower().encode(), value.encode("latin-1")) for name, value in request.headers]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.verb,
        "scheme": "http",
        "path": "/mcp",
        "raw_path": b"/mcp",
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-length", b"%d" % len(request.body)), *given],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }


def _messages(body: bytes, content_type: str) -> list[Message]:
    if "event-stream" in content_type:
        return [_message(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")]
    return [_message(body)] if "json" in content_type and body else []


def comparable_answer(answer: HttpAnswer, opened: int) -> HttpAnswer:
    """Return the part of *answer* to compare: of a session that it has *opened*, its number."""
    headers = {name: answer.headers[name] for name in ("allow",) if name in answer.headers}
    if opened:
        headers[SESSION] = f"session {opened}"
    messages = [comparable(each) for each in answer.messages]
    return HttpAnswer(status=answer.status, headers=headers, messages=messages)


def comparable(message: Message) -> Message:
    """Return the part of *message* to compare: the wording of errors may differ."""
    if "error" not in message:
        return message
    error: Mapping[str, Any] = message["error"]
    data = {"data": error["data"]} if isinstance(error.get("data"), dict) else {}
    return {**message, "error": {"code": error["code"], **data}}
