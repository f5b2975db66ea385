"""The ID of each request over HTTP, and what the operator is told of refused ones.

Refusals are counted: whoever tries tokens or names is seen, and cannot fill the log.
"""

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dbtools.telemetry import REFUSED, REQUEST, new_request_id

ID = "dbtools.request"  #: the key of the scope that holds the id of a request
REASON = "dbtools.reason"  #: that of why a request is refused, in words for the operator
FORM = re.compile(r"[\w.:-]{1,50}", re.ASCII)  #: of an id that a proxy may give
Refused = tuple[int, str]  #: status and reason
MINUTE = 60.0  #: seconds
STATUSES = {401, 403, 408, 413, 421, 503}  #: of our own refusals; others belong to the protocol
RETRY = (b"retry-after", b"1")  #: seconds; whoever answers 503 wants the client to come again
MOST_REASONS = 20  #: that are told apart within a minute
logger = logging.getLogger("dbtools")


class Refusals:
    """Reports the requests that are refused: the first of a kind at once, then those of a minute together."""

    def __init__(self) -> None:
        self._counts: Counter[Refused] = Counter()  #: those not reported yet
        self._told: set[Refused] = set()  #: the kinds that were, within a minute
        self._begun = anyio.Event()  #: a minute

    async def run(self) -> None:
        """Report refusals at the end of each minute with such, and when cancelled."""
        try:
            while True:
                await self._begun.wait()
                await anyio.sleep(MINUTE)
                self._begun = anyio.Event()
                self._tell()
                self._told.clear()
        finally:
            self._tell()

    def note(self, status: int, reason: str) -> None:
        """Count one."""
        REFUSED.add(1, {"http.response.status_code": status})
        kind = (status, reason)
        if kind not in self._told and len(self._told) >= MOST_REASONS:
            kind = (status, "")
        self._counts[kind] += 1
        if kind not in self._told:
            self._told.add(kind)
            self._tell(kind)
        self._begun.set()

    def _tell(self, *kinds: Refused) -> None:
        """Report what has not been reported of those *kinds*, or of all."""
        counts = [(kind, self._counts.pop(kind)) for kind in sorted(kinds or self._counts)]
        if counts:
            counted = ", ".join(
                f"{number} with {status}{f' ({reason})' if reason else ''}"
                for (status, reason), number in counts
            )
            logger.warning(f"Requests have been refused: {counted}.")


class Requests:
    """Middleware that gives each request an ID, tells its client, and notes how it is answered."""

    def __init__(self, app: ASGIApp, refusals: Refusals) -> None:
        self._app = app
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and look how it is answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id = _id(scope)
        scope[ID] = id
        REQUEST.set(id)

        async def send_and_look(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = headers = [*message.get("headers", ()), (b"x-request-id", id.encode())]
                status = message["status"]
                if status in STATUSES:
                    self._refusals.note(status, scope.get(REASON, ""))
                if status == 503:
                    headers.append(RETRY)
            await send(message)

        await self._app(scope, receive, send_and_look)


def _id(scope: Scope) -> str:
    """Return the id that a proxy has given the request, or a new one."""
    given = fields(scope, b"x-request-id")
    return given[0] if given and FORM.fullmatch(given[0]) else new_request_id()


COLLECTED = "dbtools.headers"  #: the key of the scope that holds its headers by their names


def fields(scope: Scope, name: bytes) -> Sequence[str]:
    """Return the values of the header *name*, which is in lower case (ASGI 3, HTTP connection scope)."""
    collected: Mapping[bytes, Sequence[str]] | None = scope.get(COLLECTED)
    if collected is None:
        collected = scope[COLLECTED] = _collected(scope["headers"])
    return collected.get(name, ())


def _collected(headers: Sequence[tuple[bytes, bytes]]) -> Mapping[bytes, Sequence[str]]:
    collected: dict[bytes, list[str]] = {}
    for name, value in headers:
        collected.setdefault(name, []).append(value.decode("latin-1"))
    return collected
