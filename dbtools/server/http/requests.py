"""Check request ID, Host, Origin and body of every HTTP request. A request in, a message or a rejection out.

The log counts rejections: an operator sees attempts to guess tokens, and a client cannot fill the log. The
checks of Host and Origin stop web pages that call a server on the user's machine (DNS rebinding).
"""

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import accumulate

from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dbtools.server.messages import (
    ClientResponse,
    Code,
    Notification,
    ProtocolError,
    Request,
    encode_error,
    parse,
)
from dbtools.settings.sections import ServerSection
from dbtools.telemetry import REFUSED_REQUESTS, REQUEST, new_request_id

REASON = "dbtools.reason"  #: the key in the scope of why a request is rejected, for the operator
REQUEST_ID = re.compile(r"[\w.:-]{1,50}", re.ASCII)  #: of a request ID from a proxy
MINUTE = 60.0  #: seconds
STATUSES = {401, 403, 408, 413, 421, 503}  #: rejections to log; other errors are part of the protocol
RETRY = (b"retry-after", b"1")  #: seconds; sent with each 503
MOST_KINDS = 20  #: of rejections that the log distinguishes within a minute
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
LOOPBACK_ORIGIN = rf"https?://({'|'.join(map(re.escape, LOOPBACK_HOSTS))})(:\d+)?"
PORT = re.compile(r":\d+$")
WRONG_HOST = PlainTextResponse("Unknown host: see [server] allowed_hosts.\n", 421)
WRONG_ORIGIN = PlainTextResponse("Origin not allowed: see [server] allowed_origins.\n", 403)
BODY_TIMEOUT = 20.0  #: seconds to receive a body
DEEPEST_JSON = 64  #: levels of JSON
MOST_VALUES = 10_000  #: JSON values, approximately: each takes far more memory than its bytes
STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
NO_BRACKETS = bytes(each for each in range(256) if each not in b"[]{}")
TOO_LARGE = "The body is too large."
TOO_COMPLEX = (
    f"The JSON is nested deeper than {DEEPEST_JSON} levels, or has more than {MOST_VALUES:,} values."
)
logger = logging.getLogger("dbtools")


class RequestMiddleware:
    """Middleware that assigns request IDs, checks Host and Origin, and logs rejections.

    It allows the hosts and origins of *section*, and those of the loopback address if the server is *local*;
    it allows any host for *exempt* paths.
    """

    def __init__(
        self, app: ASGIApp, section: ServerSection, *, local: bool, exempt: Collection[str] = ()
    ) -> None:
        self._app = app
        self._hosts = {each.lower() for each in (*section.allowed_hosts, *(LOOPBACK_HOSTS if local else ()))}
        self._exempt = exempt
        self._shared = CORSMiddleware(
            app,
            allow_origins=[each.lower().rstrip("/") for each in section.allowed_origins],
            allow_origin_regex=LOOPBACK_ORIGIN if local else None,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["Mcp-Session-Id", "WWW-Authenticate", "X-Request-Id"],
        )
        self._counts: Counter[tuple[int, str]] = Counter()  #: status and reason of those not logged yet
        self._logged: set[tuple[int, str]] = set()  #: within the current minute
        self._minute = time.monotonic()  #: when the current minute began

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request, or answer 421 or 403; add headers to the answer and note rejections."""
        given = fields(scope, b"x-request-id")
        id = given[0] if given and REQUEST_ID.fullmatch(given[0]) else new_request_id()
        REQUEST.set(id)

        async def send_and_count(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                retry = [RETRY] if status == 503 else []
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", id.encode()), *retry]
                if status in STATUSES:
                    self._count(status, scope.get(REASON, ""))
            await send(message)

        app = self._app if scope["path"] in self._exempt else self._app_for(scope)
        await app(scope, receive, send_and_count)

    def _app_for(self, scope: Scope) -> ASGIApp:
        hosts = [each.lower() for each in fields(scope, b"host")]
        if len(hosts) != 1 or not self._hosts & {hosts[0], PORT.sub("", hosts[0])}:
            return WRONG_HOST
        origins = fields(scope, b"origin")
        if not origins:
            return self._app
        may_call = len(origins) == 1 and self._shared.is_allowed_origin(origins[0])
        return self._shared if may_call else WRONG_ORIGIN

    def _count(self, status: int, reason: str) -> None:
        """Log the first rejection of a kind in a minute, with those counted since the last line."""
        REFUSED_REQUESTS.add(1, {"http.response.status_code": status})
        if time.monotonic() - self._minute >= MINUTE:
            self._minute = time.monotonic()
            self._logged.clear()
        kind = (status, reason)
        if kind not in self._logged and len(self._logged) >= MOST_KINDS:
            kind = (status, "")
        self._counts[kind] += 1
        if kind not in self._logged:
            self._logged.add(kind)
            self.report()

    def report(self) -> None:
        """Log the rejections that were only counted so far."""
        counted = ", ".join(
            f"{number} with {status}{f' ({reason})' if reason else ''}"
            for (status, reason), number in sorted(self._counts.items())
        )
        self._counts.clear()
        if counted:
            logger.warning(f"Requests have been refused: {counted}.")


def fields(scope: Scope, name: bytes) -> Sequence[str]:
    """Return the values of the header *name*, given in lower case (ASGI 3, HTTP connection scope)."""
    return [value.decode("latin-1") for each, value in scope["headers"] if each == name]


class HttpError(Exception):
    """An HTTP error response. Its body is a JSON-RPC error, since clients show its message to the user."""

    def __init__(self, status: int, message: str | bytes, headers: dict[str, str] | None = None) -> None:
        if isinstance(message, str):
            message = encode_error(None, ProtocolError(Code.INVALID_REQUEST, message))
        self.response = Response(message, status, headers, media_type="application/json")


async def read_message(scope: Scope, receive: Receive, most: int) -> Request | Notification | ClientResponse:
    """Return the message in a body of at most *most* bytes, or raise HttpError."""
    announced = next(iter(fields(scope, b"content-length")), "0")
    if not announced.isdecimal() or len(announced) > len(str(most)) or int(announced) > most:
        raise HttpError(413, TOO_LARGE)
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            body = await _read_body(receive, most)
    except TimeoutError:
        raise HttpError(408, f"The body has not arrived within {BODY_TIMEOUT:g} seconds.") from None
    if is_too_complex(body):
        raise HttpError(400, TOO_COMPLEX)
    type = next(iter(fields(scope, b"content-type")), "")
    if type.split(";")[0].strip().lower() != "application/json":
        raise HttpError(415, "Content-Type must be application/json.")
    check_accept(scope, "application/json", "text/event-stream")
    try:
        return parse(body)
    except ProtocolError as exc:
        raise HttpError(400, encode_error(exc.id, exc)) from exc


async def _read_body(receive: Receive, most: int) -> bytes:
    body, more = bytearray(), True
    while more:
        event = await receive()
        if event["type"] != "http.request":
            raise HttpError(400, "The client has left.")
        body += event.get("body", b"")
        more = event.get("more_body", False)
        if len(body) > most:
            raise HttpError(413, TOO_LARGE)
    return bytes(body)


def is_too_complex(body: bytes) -> bool:
    """Return whether the JSON in *body* has too many values or levels, in linear time."""
    opening = body.count(b"[") + body.count(b"{")
    if opening <= DEEPEST_JSON and opening + body.count(b",") <= MOST_VALUES:
        return False
    bare = STRING.sub(b"", body)
    parts, ends = sum(map(bare.count, (b"[", b"{", b","))), sum(map(bare.count, (b"]", b"}")))
    levels = accumulate(1 if each in b"[{" else -1 for each in bare.translate(None, NO_BRACKETS))
    return max(parts, ends) > MOST_VALUES or max(levels, default=0) > DEEPEST_JSON


def check_accept(scope: Scope, *wanted: str) -> None:
    """Raise HttpError unless the client accepts all types in *wanted* (RFC 9110, 12.5.1)."""
    accepted = {each.split(";")[0].strip().lower() for each in ",".join(fields(scope, b"accept")).split(",")}
    for type in wanted:
        if not accepted & {type, f"{type.partition('/')[0]}/*", "*/*"}:
            raise HttpError(406, f"Accept must name {' and '.join(wanted)}.")
