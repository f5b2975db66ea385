"""The bodies of requests: whole, in time, not too large and not too deep, before anybody parses them."""

import asyncio
import re

from starlette.types import Receive, Scope

from dbtools.server.requests import fields

BODY_IN = 20.0  #: seconds in which a client sends all of a body
DEEPEST = 64  #: levels of JSON
MOST_PARTS = 10_000  #: values of JSON, more or less: each takes much more memory than it has bytes
STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
NO_BRACKETS = bytes(each for each in range(256) if each not in b"[]{}")
TOO_LARGE = (413, "The body is too large.")
TOO_LATE = (408, f"The body has not arrived within {BODY_IN:g} seconds.")
TOO_MUCH = (400, f"The JSON is nested deeper than {DEEPEST} levels, or has over {MOST_PARTS:,} values.")
LEFT = (400, "The client has left.")  #: which nobody reads


async def read_body(scope: Scope, receive: Receive, most: int) -> bytes | tuple[int, str]:
    """Return the body of at most *most* bytes, or the status and the words that refuse it."""
    try:
        async with asyncio.timeout(BODY_IN):
            body = await _read(scope, receive, most)
    except TimeoutError:
        return TOO_LATE
    return TOO_MUCH if isinstance(body, bytes) and is_too_much(body) else body


async def _read(scope: Scope, receive: Receive, most: int) -> bytes | tuple[int, str]:
    announced = next(iter(fields(scope, b"content-length")), "0")
    if not announced.isdecimal() or len(announced) > len(str(most)) or int(announced) > most:
        return TOO_LARGE
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        return body if len(body) <= most else TOO_LARGE
    read = bytearray()
    while message["type"] == "http.request":
        read += message.get("body", b"")
        if len(read) > most:
            return TOO_LARGE
        if not message.get("more_body", False):
            return bytes(read)
        message = await receive()
    return LEFT


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
