"""The server log on stderr: text for people or JSON for collectors; and who owns stdout."""

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from dbtools.cells import json_of
from dbtools.settings import LogSection
from dbtools.telemetry import request_id

#: Below these levels, libraries log each rejected request: a client could fill the log.
LEVELS = {
    "dbtools": logging.INFO,
    "asyncio": logging.ERROR,
    "opentelemetry": logging.ERROR,
    "uvicorn": logging.ERROR,
}


class JsonFormatter(logging.Formatter):
    """Formats a record as an object: `time` (RFC 3339, UTC), `level`, `message`, `request`, `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line without its end."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        content = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "request": request_id(),  # of the request that is being answered
            "exception": self.formatException(record.exc_info) if record.exc_info else "",
        }
        return json_of({name: value for name, value in content.items() if value})


class StderrHandler(logging.Handler):
    """Writes lines to the current stderr, if anybody reads it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write *record*."""
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            return


def begin_log(section: LogSection) -> None:
    """Have this process log in the format of *section* from now on."""
    is_json = section.format == "json"
    handler = StderrHandler()
    handler.setFormatter(JsonFormatter() if is_json else logging.Formatter("dbtools: %(message)s"))
    for name, level in LEVELS.items():
        logger = logging.getLogger(name)
        logger.handlers = [each for each in logger.handlers if not isinstance(each, StderrHandler)]
        logger.addHandler(handler)
        logger.setLevel(level)


@dataclass(frozen=True, kw_only=True)
class Descriptors:
    """Two file descriptors that nobody else has, child processes included."""

    input: int
    output: int


@contextmanager
def private_descriptors() -> Iterator[Descriptors]:
    """Give stdin and stdout to the caller alone, for good: what is printed at exit is no message either."""
    private = Descriptors(input=os.dup(0), output=os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout.flush()
    try:
        yield private
    finally:
        os.close(private.input)
        os.close(private.output)
