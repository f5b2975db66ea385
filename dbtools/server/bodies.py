"""The bodies of requests: whole, in time, not too large and not too deep, before anybody parses them."""

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress

import orjson
from mcp_types import INVALID_REQUEST
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dbtools.server.requests import fields

PATIENCE = 20.0  #: seconds in which a client sends all of a body
DEEPEST = 64  #: levels of JSON
MOST_PARTS = 10_000  #: values of JSON, more or less: each takes much more memory than it has bytes
STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
NO_BRACKETS = bytes(each for each in range(256) if each not in b"[]{}")
SAYS: Mapping[int, str] = {
    400: f"The JSON is nested deeper than {DEEPEST} levels, has over {MOST_PARTS:,} values, or is not UTF-8.",
    408: f"The body has not come within {PATIENCE:g} seconds.",
    413: "The body is too large.",
}


class Bodies:
    """Reads the body of each request to its end, at most *most* bytes, and passes it on as one piece."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 400, 408 or 413, or pass the request on."""
        body: bytes | int | None = 408
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                body = await self._read(scope, receive)
        if body is None:
            return  # the client has left
        if isinstance(body, bytes) and (not is_utf8(body) or is_too_much(body)):
            body = 400
        if isinstance(body, int):
            await error(body, SAYS[body])(scope, receive, send)
            return
        whole = {"type": "http.request", "body": body, "more_body": False}
        await self._app(scope, after(whole, receive), send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | int | None:
        """Return the body, 413 where it is too large, or None where the client leaves."""
        announced = next(iter(fields(scope, b"content-length")), "0")
        if not announced.isdecimal() or len(announced) > len(str(self._most)) or int(announced) > self._most:
            return 413
        read = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            read += message.get("body", b"")
            if len(read) > self._most:
                return 413
            if not message.get("more_body", False):
                return bytes(read)


def after(message: Message, receive: Receive) -> Receive:
    """Return what receives *message*, which has been taken already, and then what *receive* does."""
    first: Message | None = message

    async def receive_again() -> Message:
        nonlocal first
        if first is None:
            return await receive()
        taken, first = first, None
        return taken

    return receive_again


def is_utf8(body: bytes) -> bool:
    """Return whether *body* is UTF-8: what parses JSON takes other encodings too, which nothing here reads.

    They have bytes of zero, which JSON in UTF-8 has not.
    """
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in body


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


def error(status: int, message: str) -> Response:
    """Return an answer with an error of JSON-RPC that belongs to no request."""
    content = {"jsonrpc": "2.0", "id": None, "error": {"code": INVALID_REQUEST, "message": message}}
    return Response(orjson.dumps(content), status, media_type="application/json")
