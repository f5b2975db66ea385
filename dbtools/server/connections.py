"""One connection of HTTP/1.1, within bounds: the size of a head, the time for it, the number of connections.

uvicorn bounds none of these, and a client needs no token to use them up. It does close idle connections
(`timeout_keep_alive`); the kernel closes those whose client does not read its answer (`http.bound`).
"""

import sys
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if sys.platform != "win32":
    import resource

RESERVED = 100  #: descriptors for the database, files and the log
HEAD_IN = 10.0  #: seconds in which a client sends the head of a request
LONGEST_HEAD = 32_768  #: bytes
MOST_FIELDS = 100
UNREAD = 2.0  #: seconds that a client has to read its answers when the server ends
END = "dbtools.end"  #: the key of what begins to shut down the application, in the state of its lifespan
REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"connection: close\r\ncontent-length: 23\r\n\r\nThe head is too large.\n"
)


class BoundedProtocol(HttpToolsProtocol):
    """A connection of a client that may be slow or greedy."""

    most: ClassVar[int] = 10_000  #: connections of this process
    waiting: ClassVar["dict[BoundedProtocol, None]"] = {}  #: for a request, longest first
    _deadline: Any = None  #: of a head
    _unparsed = 0  #: bytes since the last head or piece of a body

    def connection_made(self, transport: Any) -> None:
        """Wait for a head. If there are too many connections, close the one that has waited longest."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            next(iter(self.waiting), self).transport.abort()
        self.waiting[self] = None
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse *data*, and start the deadline of a head that has not arrived in one piece."""
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > LONGEST_HEAD:
            self._refuse()
        elif self._deadline is None and not self._is_answering():
            self._expect_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a field without the blanks around its value, which httptools leaves (RFC 9110, 5.5)."""
        super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        """Begin to answer the request, unless its head is too large."""
        self._unparsed = 0
        self._stop_waiting()
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > LONGEST_HEAD or len(self.headers) > MOST_FIELDS:
            self._refuse()
            raise ValueError  # which ends the parser
        super().on_headers_complete()
        self.headers = []  # takes the trailers: they are no fields of the head (RFC 9110, 6.5.1)

    def on_body(self, body: bytes) -> None:
        """Add a piece of a body."""
        self._unparsed = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self._is_answering():
            self.waiting[self] = None

    def shutdown(self) -> None:
        """Answer no further request; the first connection has the application begin to shut down as well."""
        super().shutdown()
        self.loop.call_later(UNREAD, self._leave_unread)
        if end := self.app_state.pop(END, None):
            end()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, unless another answer has begun."""
        if self._is_answering():
            self.transport.abort()
        elif not self.transport.is_closing():
            super().send_400_response(msg)

    def _leave_unread(self) -> None:
        if self.flow.write_paused:
            self.transport.abort()

    def _is_answering(self) -> bool:
        cycle: Any = self.cycle  # of the newest request; None before the first
        return cycle is not None and not cycle.response_complete

    def _refuse(self) -> None:
        if self._is_answering():
            self.transport.abort()
        else:
            self.transport.write(REFUSAL)
            self.transport.close()

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(HEAD_IN, self.transport.abort)

    def _stop_waiting(self) -> None:
        self.waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def most_connections(wanted: int) -> int:
    """Return how many connections can be open, at most *wanted*, with as many descriptors as are allowed."""
    if sys.platform == "win32":
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max(soft, wanted + RESERVED)
    allowed = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return max(1, min(wanted, allowed - RESERVED))
