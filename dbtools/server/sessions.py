"""Sessions over HTTP, until 2025-11-25: each belongs to the caller who opened it, and expires when idle."""

import asyncio
import secrets
from collections.abc import Callable
from time import monotonic

from dbtools.policy import Caller
from dbtools.server.exchange import Questions
from dbtools.server.kernel import Session
from dbtools.server.limiter import Slots
from dbtools.server.messages import Id
from dbtools.server.streams import CANCEL, EventStream, Turn

IDLE = 1_800.0  #: seconds
SWEEP = 60.0  #: seconds


class HttpSession:
    """One session."""

    def __init__(self, caller: Caller, session: Session) -> None:
        self.id = secrets.token_hex(16)
        self.identity = caller.identity
        self.role = caller.role
        self.session = session
        self.questions = Questions()
        self.turns: dict[Id, Turn] = {}
        self.stream: EventStream | None = None  #: of a GET
        self.used = monotonic()
        self.unfollow: Callable[[], object] | None = None

    def put(self, message: bytes) -> None:
        """Send *message* on the stream, if the client listens; otherwise it is dropped."""
        if self.stream is not None:
            self.stream.put(message)

    def close(self) -> None:
        """End what belongs to the session."""
        if self.unfollow is not None:
            self.unfollow()
        if self.stream is not None:
            self.stream.close()
        for turn in self.turns.values():
            turn.stop(CANCEL)


class Sessions:
    """The sessions of one process."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._open: dict[str, HttpSession] = {}

    def open(self, caller: Caller, session: Session) -> HttpSession | None:
        """Return a new session of *caller*, or None if there is no free slot."""
        if not self._slots.acquire_share(caller.identity):
            return None
        opened = HttpSession(caller, session)
        self._open[opened.id] = opened
        return opened

    def find(self, id: str, caller: Caller) -> HttpSession | None:
        """Return the session *id* if it belongs to *caller*; otherwise None, as for an unknown ID."""
        found = self._open.get(id)
        if found is None or (found.identity, found.role) != (caller.identity, caller.role):
            return None
        found.used = monotonic()
        return found

    def close(self, session: HttpSession) -> None:
        """End *session*."""
        if self._open.pop(session.id, None) is not None:
            self._slots.release(session.identity)
            session.close()

    async def expire(self) -> None:
        """End idle sessions, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP)
            self.sweep(monotonic())

    def sweep(self, now: float) -> None:
        """End sessions that were idle for IDLE seconds; a running call or an open stream counts as use."""
        for each in tuple(self._open.values()):
            if each.turns or each.stream is not None:
                each.used = now
            elif each.used < now - IDLE:
                self.close(each)

    def end_streams(self) -> None:
        """End the streams of all sessions."""
        for each in self._open.values():
            if each.stream is not None:
                each.stream.close()
