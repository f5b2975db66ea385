"""What is told of each request: its id to who makes it, and to the operator why requests are refused.

Refusals are counted: who tries tokens or names is seen, and cannot fill the log.
"""

import logging
import re
import time
from collections import Counter
from random import getrandbits

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dbtools.server.bodies import RETRY
from dbtools.server.headers import fields
from dbtools.telemetry import REFUSED, REQUEST

ID = "dbtools.request"  #: the key of the scope that holds the id of a request
REASON = "dbtools.reason"  #: that of why a request is refused, in words for the operator
FORM = re.compile(r"[\w.:-]{1,50}", re.ASCII)  #: of an id that a proxy may give
MINUTE = 60.0  #: seconds
STATUSES = {401, 403, 408, 413, 421, 503}  #: of our own refusals; others belong to the protocol
MOST_REASONS = 20  #: that are told apart within a minute
logger = logging.getLogger("dbtools")


class Requests:
    """Names requests, and tells of refusals: of the first at once, of those of a minute together."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._counts: Counter[tuple[int, str]] = Counter()  #: by status and reason
        self._told = -MINUTE

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and look how it is answered."""
        id = _id(scope)
        scope[ID] = id
        REQUEST.set(id)

        async def send_and_look(message: Message) -> None:
            if message["type"] == "http.response.start":
                more = [(b"x-request-id", id.encode())]
                if message["status"] in STATUSES:
                    self._note(message["status"], scope.get(REASON, ""))
                    more += _retry(message)
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        await self._app(scope, receive, send_and_look)
        if self._counts:
            self._tell()

    def _note(self, status: int, reason: str) -> None:
        REFUSED.add(1, {"http.response.status_code": status})
        is_new = (status, reason) not in self._counts
        self._counts[status, "" if is_new and len(self._counts) >= MOST_REASONS else reason] += 1

    def _tell(self) -> None:
        """Tell what has not been told; whichever request comes next to the end of the minute does so."""
        now = time.monotonic()
        if now - self._told >= MINUTE:
            counted = ", ".join(
                f"{number} with {status}{f' ({reason})' if reason else ''}"
                for (status, reason), number in sorted(self._counts.items())
            )
            logger.warning(f"Requests have been refused: {counted}.")
            self._told = now
            self._counts.clear()


def _id(scope: Scope) -> str:
    """Return the id that a proxy has given the request, or a new one."""
    given = fields(scope, b"x-request-id")
    return given[0] if given and FORM.fullmatch(given[0]) else f"{getrandbits(64):016x}"


def _retry(message: Message) -> list[tuple[bytes, bytes]]:
    """Return what a refusal for want of room tells of coming again, where whoever refuses has not."""
    told = {name.lower() for name, _ in message.get("headers", ())}
    retry = [(name.encode(), value.encode()) for name, value in RETRY.items()]
    return [] if message["status"] != 503 or b"retry-after" in told else retry
