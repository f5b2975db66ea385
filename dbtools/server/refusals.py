"""Requests that are refused, counted: who tries tokens or names is seen, and cannot fill the log."""

import logging
import time
from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dbtools.telemetry import REFUSED

MINUTE = 60.0  #: seconds
STATUSES = {401, 403, 408, 413, 421, 503}  #: of our own refusals; others belong to the protocol
logger = logging.getLogger("dbtools")


class Refusals:
    """Tells of refusals: the first at once, those of a minute together."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._counts: Counter[int] = Counter()
        self._told = -MINUTE

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and look how it is answered."""

        async def send_and_look(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in STATUSES:
                self._note(message["status"])
            await send(message)

        await self._app(scope, receive, send_and_look)
        self._tell()

    def _note(self, status: int) -> None:
        REFUSED.add(1, {"http.response.status_code": status})
        self._counts[status] += 1

    def _tell(self) -> None:
        """Tell what has not been told; whichever request comes next to the end of the minute does so."""
        now = time.monotonic()
        if self._counts and now - self._told >= MINUTE:
            counted = ", ".join(f"{number} with {status}" for status, number in sorted(self._counts.items()))
            logger.warning(f"Requests have been refused: {counted}.")
            self._told = now
            self._counts.clear()
