"""The message in one request over HTTP, or the error response that refuses it.

Bodies are read whole, and neither too large nor too deep, before they are parsed.
"""

import re

from starlette.responses import Response
from starlette.types import Receive, Scope

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
from dbtools.server.requests import fields

DEEPEST = 64  #: levels of JSON
MOST_PARTS = 10_000  #: values of JSON, more or less: each takes much more memory than it has bytes
STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
NO_BRACKETS = bytes(each for each in range(256) if each not in b"[]{}")
TOO_LARGE = "The body is too large."
TOO_MUCH = f"The JSON is nested deeper than {DEEPEST} levels, or has over {MOST_PARTS:,} values."
LEFT = "The client has left."  #: which nobody reads


class Refused(Exception):
    """An HTTP error response."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


async def read_message(scope: Scope, receive: Receive, most: int) -> Request | Notification | Answered:
    """Return the message that a body of at most *most* bytes is, or raise Refused."""
    body = await _body(scope, receive, most)
    check_content_type(scope)
    check_accept(scope, "application/json", "text/event-stream")
    message = parse(body)
    if isinstance(message, Malformed):
        raise Refused(json_answer(message.reply(), 400))
    return message


async def _body(scope: Scope, receive: Receive, most: int) -> bytes:
    announced = next(iter(fields(scope, b"content-length")), "0")
    if not announced.isdecimal() or len(announced) > len(str(most)) or int(announced) > most:
        raise Refused(error(413, TOO_LARGE))
    read, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise Refused(error(400, LEFT))
        read += message.get("body", b"")
        more = message.get("more_body", False)
        if len(read) > most:
            raise Refused(error(413, TOO_LARGE))
    body = bytes(read)
    if is_too_much(body):
        raise Refused(error(400, TOO_MUCH))
    return body


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
