"""The ID of each request over HTTP, its header fields, and what the log says of rejected requests.

Rejections are counted: an operator sees who tries tokens or names, and nobody can fill the log.
"""

import logging
import re
from collections import Counter
from collections.abc import Sequence
from time import monotonic

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dbtools.telemetry import REFUSED, REQUEST, new_request_id

ID = "dbtools.request"  #: the key of a request's ID in its scope
REASON = "dbtools.reason"  #: of why it is rejected, in words for the operator
FORM = re.compile(r"[\w.:-]{1,50}", re.ASCII)  #: of an ID that a proxy may give
MINUTE = 60.0  #: seconds
STATUSES = {401, 403, 408, 413, 421, 503}  #: of our own rejections; others belong to the protocol
RETRY = (b"retry-after", b"1")  #: seconds; sent with each 503
MOST_KINDS = 20  #: of rejections that are told apart within a minute
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


def fields(scope: Scope, name: bytes) -> Sequence[str]:
    """Return the values of the header *name*, which is in lower case (ASGI 3, HTTP connection scope)."""
    return [value.decode("latin-1") for each, value in scope["headers"] if each == name]
