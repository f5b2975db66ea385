"""What is told of each request: its id to who makes it, and to the operator why requests are refused.

Refusals are counted: who tries tokens or names is seen, and cannot fill the log.
"""

import logging
import re
from collections import Counter
from random import getrandbits

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dbtools.server.bodies import RETRY
from dbtools.server.headers import fields
from dbtools.telemetry import REFUSED, REQUEST

ID = "dbtools.request"  #: the key of the scope that holds the id of a request
REASON = "dbtools.reason"  #: that of why a request is refused, in words for the operator
FORM = re.compile(r"[\w.:-]{1,50}", re.ASCII)  #: of an id that a proxy may give
Refused = tuple[int, str]  #: status and reason
MINUTE = 60.0  #: seconds
STATUSES = {401, 403, 408, 413, 421, 503}  #: of our own refusals; others belong to the protocol
MOST_REASONS = 20  #: that are told apart within a minute
logger = logging.getLogger("dbtools")


class Requests:
    """Names requests, and tells of refusals: of the first of a kind at once, then of a minute's together."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._counts: Counter[Refused] = Counter()  #: those that have not been told of
        self._told: set[Refused] = set()  #: the kinds that have been, within a minute
        self._begun = anyio.Event()  #: a minute

    async def run(self) -> None:
        """Tell of refusals at the end of each minute with such, and when cancelled."""
        try:
            while True:
                await self._begun.wait()
                await anyio.sleep(MINUTE)
                self._begun = anyio.Event()
                self._tell()
                self._told.clear()
        finally:
            self._tell()

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

    def _note(self, status: int, reason: str) -> None:
        REFUSED.add(1, {"http.response.status_code": status})
        is_new = (status, reason) not in self._told
        if is_new and len(self._told) >= MOST_REASONS:
            reason = ""
        self._counts[status, reason] += 1
        if (status, reason) not in self._told:
            self._told.add((status, reason))
            self._tell((status, reason))
        self._begun.set()

    def _tell(self, *kinds: Refused) -> None:
        """Tell of what has not been told of those *kinds*, or of all."""
        counts = [(kind, self._counts.pop(kind)) for kind in sorted(kinds or self._counts)]
        if counts:
            counted = ", ".join(
                f"{number} with {status}{f' ({reason})' if reason else ''}"
                for (status, reason), number in counts
            )
            logger.warning(f"Requests have been refused: {counted}.")


def _id(scope: Scope) -> str:
    """Return the id that a proxy has given the request, or a new one."""
    given = fields(scope, b"x-request-id")
    return given[0] if given and FORM.fullmatch(given[0]) else f"{getrandbits(64):016x}"


def _retry(message: Message) -> list[tuple[bytes, bytes]]:
    """Return what a refusal for want of room tells of coming again, where whoever refuses has not."""
    told = {name.lower() for name, _ in message.get("headers", ())}
    retry = [(name.encode(), value.encode()) for name, value in RETRY.items()]
    return [] if message["status"] != 503 or b"retry-after" in told else retry
