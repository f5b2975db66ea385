"""One request over HTTP: its headers, its body, and whether its client is still there.

Bodies are read whole, in time, and neither too large nor too deep, before anybody parses them.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from dbtools.policy import Caller
from dbtools.server.identity import Refusal
from dbtools.server.messages import (
    INVALID_REQUEST,
    Malformed,
    Notification,
    ProtocolError,
    Request,
    Response as Answered,
    encode_error,
    parse,
)
from dbtools.server.requests import ID, fields
from dbtools.server.sessions import LEAVE, Turn

ENDING = "The server is shutting down. Try again."
STILL = 5.0  #: seconds between two checks whether an open stream is still authorized
BODY_IN = 20.0  #: seconds in which a client sends all of a body
DEEPEST = 64  #: levels of JSON
MOST_PARTS = 10_000  #: values of JSON, more or less: each takes much more memory than it has bytes
STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
NO_BRACKETS = bytes(each for each in range(256) if each not in b"[]{}")
TOO_LARGE = "The body is too large."
TOO_LATE = f"The body has not arrived within {BODY_IN:g} seconds."
TOO_MUCH = f"The JSON is nested deeper than {DEEPEST} levels, or has over {MOST_PARTS:,} values."
Admit = Callable[[], Awaitable[Caller | Refusal]]  #: who makes a request, asked anew
LEFT = "The client has left."  #: which nobody reads


class Refused(Exception):
    """An HTTP error response."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


class Asked:
    """One request over HTTP, and who makes it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, caller: Caller, admit: Admit) -> None:
        self.scope = scope
        self.receive = receive
        self.caller = caller
        self.id: str = scope[ID]
        self.turn = Turn()
        self._send = send
        self._admit = admit
        self._is_begun = self._is_stream = False
        self._watchers: list[asyncio.Task[None]] = []

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        await self._send(message)
        if message["type"] == "http.response.start":
            self._is_begun = True
            self._is_stream = all(name != b"content-length" for name, _ in message["headers"])
        elif not message.get("more_body", False):
            self._is_stream = False

    async def break_off(self, reason: str) -> None:
        """End an answer that was stopped: a stream ends as a whole, other clients are asked to try again.

        What has said how long it is cannot end: its connection is closed.
        """
        if self._is_stream:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        elif not self._is_begun and reason != LEAVE:
            raise Refused(error(503, ENDING))

    def header(self, name: str) -> Sequence[str]:
        """Return the values of the header *name*, which is in lower case."""
        return fields(self.scope, name.encode())

    async def message(self, most: int) -> Request | Notification | Answered:
        """Return the message that a body of at most *most* bytes is, or raise Refused."""
        body = await self._body(most)
        check_content_type(self.scope)
        check_accept(self.scope, "application/json", "text/event-stream")
        message = parse(body)
        if isinstance(message, Malformed):
            raise Refused(json_answer(message.reply(), 400))
        return message

    async def _body(self, most: int) -> bytes:
        announced = next(iter(fields(self.scope, b"content-length")), "0")
        if not announced.isdecimal() or len(announced) > len(str(most)) or int(announced) > most:
            raise Refused(error(413, TOO_LARGE))
        read, more = bytearray(), True
        try:
            async with asyncio.timeout(BODY_IN):
                while more:
                    message = await self.receive()
                    if message["type"] != "http.request":
                        raise Refused(error(400, LEFT))
                    read += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(read) > most:
                        raise Refused(error(413, TOO_LARGE))
        except TimeoutError:
            raise Refused(error(408, TOO_LATE)) from None
        body = bytes(read)
        if is_too_much(body):
            raise Refused(error(400, TOO_MUCH))
        return body

    def watch(self, lasts: bool, leave: Callable[[], object] | None = None) -> None:
        """Have *leave* called, or the request stopped, when its client leaves, or may no longer stay."""
        leave = leave or partial(self.turn.stop, LEAVE)
        waits: list[Callable[[], Awaitable[None]]] = [self._left, *([self._expired] if lasts else [])]
        loop = asyncio.get_running_loop()
        self._watchers = [loop.create_task(_after(wait, leave)) for wait in waits]

    def unwatch(self) -> None:
        """Watch no longer."""
        for each in self._watchers:
            each.cancel()

    async def _left(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def _expired(self) -> None:
        while await self._admit() == self.caller:  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(STILL)


async def _after(wait: Callable[[], Awaitable[None]], act: Callable[[], object]) -> None:
    await wait()
    act()


def is_too_much(body: bytes) -> bool:
    """Return whether *body* is JSON of too many values or levels, in time that is linear in its length."""
    opening = body.count(b"[") + body.count(b"{")
    if opening <= DEEPEST and opening + body.count(b",") <= MOST_PARTS:
        return False
    bare = STRING.sub(b"", body)
    if bare.count(b"[") + bare.count(b"{") + bare.count(b",") > MOST_PARTS:
        return True
    brackets = bare.translate(None, NO_BRACKETS)
    for _ in range(DEEPEST):
        shorter = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(shorter) == len(brackets):
            break
        brackets = shorter
    return bool(brackets)


def check_accept(scope: Scope, *wanted: str) -> None:
    """Raise Refused where the client does not accept every type that is *wanted* (RFC 9110, 12.5.1)."""
    accepted = {each.split(";")[0].strip().lower() for each in ",".join(fields(scope, b"accept")).split(",")}
    for type in wanted:
        if not accepted & {type, f"{type.partition('/')[0]}/*", "*/*"}:
            raise Refused(error(406, f"Accept must name {' and '.join(wanted)}."))


def check_content_type(scope: Scope) -> None:
    """Raise Refused where the body is not said to be JSON."""
    type = next(iter(fields(scope, b"content-type")), "")
    if type.split(";")[0].strip().lower() != "application/json":
        raise Refused(error(415, "Content-Type must be application/json."))


def error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    """Return an HTTP answer with an error of JSON-RPC that belongs to no request."""
    problem = ProtocolError(INVALID_REQUEST, message)
    return json_answer(encode_error(None, problem), status, headers)


def json_answer(body: bytes, status: int, headers: dict[str, str] | None = None) -> Response:
    """Return an HTTP answer with *body*, which is JSON."""
    return Response(body, status, headers, media_type="application/json")
