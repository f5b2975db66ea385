"""One connection of HTTP/1.1, within bounds: short heads, waits that end, and answers that are taken.

What uvicorn leaves open: it takes a head of any size, waits for one for ever, and keeps for ever what a
client does not read. Nobody has to show who they are for any of that.
"""

import sys
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if sys.platform != "win32":
    import resource

RESERVED = 100  #: descriptors for the database, files and the log
HEAD_IN = 10.0  #: seconds in which a client sends the head of a request
IDLE = 30.0  #: seconds that a connection without a request stays open
TAKEN_IN = 20.0  #: seconds in which a client takes some of an answer that waits for it
LONGEST_HEAD = 32_768  #: bytes
MOST_FIELDS = 100
REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"connection: close\r\ncontent-length: 23\r\n\r\nThe head is too large.\n"
)


class _TooLarge(Exception):
    """The head has too many fields, or too many bytes."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection that holds nothing up.

    While no request is being answered a deadline runs; while an answer waits to be taken another one does.
    """

    most: ClassVar[int] = 10_000  #: connections of this process
    waiting: ClassVar["dict[BoundedProtocol, None]"] = {}  #: for a request, those first that wait longest
    _deadline: Any = None
    _unread: Any = None
    _in_head = False
    _is_late = False  #: whether the deadline of a head runs
    _is_too_large = False  #: the head
    _overhead = 0  #: bytes since the last that belongs to a body

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a head; where there is no room, whoever waits longest makes it."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            longest = next(iter(self.waiting), self)
            longest.transport.abort()
        self._wait(HEAD_IN)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._rest()
        self._cancel_unread()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse *data*; what is no body is counted."""
        self._overhead += len(data)
        super().data_received(data)
        if self._overhead > LONGEST_HEAD:
            self._refuse()
        if self._in_head and not self._is_late and not self._is_answering():
            # Most heads come in one piece, and none has more time for coming in many.
            self._is_late = True
            self._wait(HEAD_IN)

    def on_message_begin(self) -> None:
        """Begin a head."""
        super().on_message_begin()
        self._in_head, self._is_late = True, False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field of the head; those after the body (trailers) are dropped (RFC 9110, 6.5.1).

        httptools leaves the blanks after a value, which do not belong to it (RFC 9110, 5.5).
        """
        if self._in_head:
            super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        """Wait no longer: there is a request to answer, unless its head has come too large in one piece."""
        self._in_head, self._overhead = False, 0
        self._rest()
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > LONGEST_HEAD or len(self.headers) > MOST_FIELDS:
            self._is_too_large = True
            raise _TooLarge
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        """Count from here: a piece of a body begins, or what comes after its last one."""
        self._overhead = 0

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._overhead = max(0, self._overhead - len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Where the answer was there before the end of the request, wait for another one."""
        self._overhead = 0
        super().on_message_complete()
        if not self._is_answering():
            self._wait(IDLE)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._unset_keepalive_if_required()
        if not self._is_answering():
            self._wait(IDLE)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, unless another answer is under way."""
        if self._is_too_large or self._is_answering():
            self._refuse()
        else:
            super().send_400_response(msg)

    def pause_writing(self) -> None:
        """Begin to wait for the client to take what is there."""
        super().pause_writing()
        self._cancel_unread()
        self._expect_less(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Wait no longer: all is taken."""
        self._cancel_unread()
        super().resume_writing()

    def _is_answering(self) -> bool:
        cycle: Any = self.cycle  # None before the first request
        return bool(self.pipeline) or (cycle is not None and not cycle.response_complete)

    def _refuse(self) -> None:
        if self._is_answering():
            self.transport.abort()
        elif not self.transport.is_closing():
            self.transport.write(REFUSAL)
            self.transport.close()

    def _wait(self, seconds: float) -> None:
        self._rest()
        self.waiting[self] = None
        self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _rest(self) -> None:
        self.waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expect_less(self, size: int) -> None:
        """Leave the client where it has taken nothing of *size* bytes in time."""

        def look() -> None:
            left = self.transport.get_write_buffer_size()
            if left >= size:
                self.transport.abort()
            else:
                self._expect_less(left)

        self._unread = self.loop.call_later(TAKEN_IN, look)

    def _cancel_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


def most_connections(wanted: int) -> int:
    """Return how many connections can be open, at most *wanted*, with as many descriptors as are allowed."""
    if sys.platform == "win32":
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, wanted + RESERVED)
    needed = min(hard, max(soft, wanted + RESERVED))
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return max(1, min(wanted, needed - RESERVED))
