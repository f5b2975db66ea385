"""What every request over HTTP passes: an ID, the count of rejections, the checks of Host and Origin.

Rejections are counted: an operator sees attempts to guess tokens, and a client cannot fill the log. Any web
page can have a browser call a server on the user's machine under the page's host name (DNS rebinding).
"""

import logging
import re
from collections import Counter
from collections.abc import Collection, Sequence
from time import monotonic

from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dbtools.settings.sections import ServerSection
from dbtools.telemetry import REFUSED, REQUEST, new_request_id

ID = "dbtools.request"  #: the key of a request's ID in its scope
REASON = "dbtools.reason"  #: of why it is rejected, in words for the operator
FORM = re.compile(r"[\w.:-]{1,50}", re.ASCII)  #: of an ID that a proxy may give
MINUTE = 60.0  #: seconds
STATUSES = {401, 403, 408, 413, 421, 503}  #: of rejections that are logged; others belong to the protocol
RETRY = (b"retry-after", b"1")  #: seconds; sent with each 503
MOST_KINDS = 20  #: of rejections that are distinguished within a minute
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
LOOPBACK_ORIGIN = rf"https?://({'|'.join(map(re.escape, LOOPBACK_HOSTS))})(:\d+)?"
NOTHING = r"(?!)"  #: a pattern that matches nothing
PORT = re.compile(r":\d+$")
WRONG_HOST = PlainTextResponse("This server has no such name: [server] allowed_hosts.\n", 421)
WRONG_ORIGIN = PlainTextResponse("Pages of this origin may not call. [server] allowed_origins.\n", 403)
logger = logging.getLogger("dbtools")


class Requests:
    """Middleware that gives each request an ID, returns it to the client, and counts rejections."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._counts: Counter[tuple[int, str]] = Counter()  #: status and reason of those not logged yet
        self._logged: set[tuple[int, str]] = set()  #: within the current minute
        self._minute = monotonic()  #: when it began

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and look at the head of the answer."""
        given = fields(scope, b"x-request-id")
        id = given[0] if given and FORM.fullmatch(given[0]) else new_request_id()
        scope[ID] = id
        REQUEST.set(id)

        async def send_and_look(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                retry = [RETRY] if status == 503 else []
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", id.encode()), *retry]
                if status in STATUSES:
                    self._count(status, scope.get(REASON, ""))
            await send(message)

        await self._app(scope, receive, send_and_look)

    def _count(self, status: int, reason: str) -> None:
        """Log the first rejection of a kind in a minute, with those that were only counted before it."""
        REFUSED.add(1, {"http.response.status_code": status})
        if monotonic() - self._minute >= MINUTE:
            self._minute = monotonic()
            self._logged.clear()
        kind = (status, reason)
        if kind not in self._logged and len(self._logged) >= MOST_KINDS:
            kind = (status, "")
        self._counts[kind] += 1
        if kind not in self._logged:
            self._logged.add(kind)
            self.report()

    def report(self) -> None:
        """Log the rejections that have not been logged yet."""
        counted = ", ".join(
            f"{number} with {status}{f' ({reason})' if reason else ''}"
            for (status, reason), number in sorted(self._counts.items())
        )
        self._counts.clear()
        if counted:
            logger.warning(f"Requests have been refused: {counted}.")


class Hosts:
    """Middleware that rejects hosts and origins that *section* does not name, and CORS for the others.

    A *local* server has the names of the loopback address as well; *exempt* paths have any.
    """

    def __init__(
        self, app: ASGIApp, section: ServerSection, *, local: bool, exempt: Collection[str] = ()
    ) -> None:
        self._app = app
        self._hosts = {each.lower() for each in (*section.allowed_hosts, *(LOOPBACK_HOSTS if local else ()))}
        self._origins = {each.lower().rstrip("/") for each in section.allowed_origins}
        self._local_origin = re.compile(LOOPBACK_ORIGIN if local else NOTHING)
        self._exempt = exempt
        self._shared = CORSMiddleware(
            app,
            allow_origins=sorted(self._origins),
            allow_origin_regex=self._local_origin.pattern,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["Mcp-Session-Id", "WWW-Authenticate", "X-Request-Id"],
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 421 or 403, or pass the request on."""
        app: ASGIApp = self._app
        if scope["type"] == "http" and scope["path"] not in self._exempt:
            hosts = [each.lower() for each in fields(scope, b"host")]
            origins = [each.lower() for each in fields(scope, b"origin")]
            if len(hosts) != 1 or not self._hosts & {hosts[0], PORT.sub("", hosts[0])}:
                app = WRONG_HOST
            elif origins:
                app = self._shared if len(origins) == 1 and self._may_call(origins[0]) else WRONG_ORIGIN
        await app(scope, receive, send)

    def _may_call(self, origin: str) -> bool:
        return origin in self._origins or self._local_origin.fullmatch(origin) is not None


def fields(scope: Scope, name: bytes) -> Sequence[str]:
    """Return the values of the header *name*, which is in lower case (ASGI 3, HTTP connection scope)."""
    return [value.decode("latin-1") for each, value in scope["headers"] if each == name]
