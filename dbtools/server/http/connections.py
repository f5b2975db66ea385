"""One HTTP/1.1 connection with limits: size and time of a request head, and the number of connections.

uvicorn limits none of these, and a client needs no token to exhaust them. It does close idle connections
(`timeout_keep_alive`); the operating system closes those whose client does not read (`http.bound`).
"""

import sys
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if sys.platform != "win32":
    import resource

RESERVED_FILES = 100  #: file descriptors kept free for the database, files and the log
LONGEST_HEAD = 32_768  #: bytes
MOST_FIELDS = 100
UNREAD_GRACE = 2.0  #: seconds after which unread connections are closed during a shutdown
SHUTDOWN_KEY = "dbtools.end"  #: the key in the lifespan state of a function that starts the shutdown
REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"connection: close\r\ncontent-length: 23\r\n\r\nThe head is too large.\n"
)


class BoundedProtocol(HttpToolsProtocol):
    """A connection whose client may be slow or greedy."""

    most: ClassVar[int] = 10_000  #: maximum number of connections of this process
    head_timeout: ClassVar[float] = 10.0  #: seconds to receive the head of a request
    waiting: ClassVar["dict[BoundedProtocol, None]"] = {}  #: connections without a request, the oldest first
    _deadline: Any = None  #: timer for a request head
    _unparsed = 0  #: bytes received since the last complete head or piece of a body

    def connection_made(self, transport: Any) -> None:
        """Wait for a head. If there are too many connections, close the one that has been idle longest."""
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
        """Parse *data*, and start the timer if a head is incomplete."""
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > LONGEST_HEAD:
            self._refuse()
        elif self._deadline is None and not self._is_answering():
            self._expect_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a field, without the whitespace around its value that httptools keeps (RFC 9110, 5.5)."""
        super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        """Start to answer the request, unless its head is too large."""
        self._unparsed = 0
        self._stop_waiting()
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > LONGEST_HEAD or len(self.headers) > MOST_FIELDS:
            self._refuse()
            raise ValueError  # stops the parser
        super().on_headers_complete()
        self.headers = []  # collects the trailers, which are not headers (RFC 9110, 6.5.1)

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
        """Accept no further request; the first connection starts the shutdown of the application."""
        super().shutdown()
        self.loop.call_later(UNREAD_GRACE, self._leave_unread)
        if end := self.app_state.pop(SHUTDOWN_KEY, None):
            end()

    def send_400_response(self, msg: str) -> None:
        """Reject what is not HTTP, unless another answer has begun."""
        if self._is_answering():
            self.transport.abort()
        elif not self.transport.is_closing():
            super().send_400_response(msg)

    def _leave_unread(self) -> None:
        if self.flow.write_paused:
            self.transport.abort()

    def _is_answering(self) -> bool:
        cycle: Any = self.cycle  # the newest request; None before the first
        return cycle is not None and not cycle.response_complete

    def _refuse(self) -> None:
        if self._is_answering():
            self.transport.abort()
        else:
            self.transport.write(REFUSAL)
            self.transport.close()

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(self.head_timeout, self.transport.abort)

    def _stop_waiting(self) -> None:
        self.waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def most_connections(wanted: int) -> int:
    """Raise the limit of file descriptors; return how many connections it allows, at most *wanted*."""
    if sys.platform == "win32":
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max(soft, wanted + RESERVED_FILES)
    allowed = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return max(1, min(wanted, allowed - RESERVED_FILES))
