"""Calls as a server makes them, and what the audit log records of each."""

import json
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from dbtools import errors
from dbtools.records import AuditLog
from dbtools.server.calls import Calls, Limiter
from dbtools.service.toolbox import Toolbox
from tests.database.role_callers import Caller

Line = Mapping[str, Any]


class Kept:
    """A sink that keeps lines."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, lines: deque[bytes]) -> None:
        """Keep *lines*."""
        self.lines += lines
        lines.clear()

    def close(self) -> None:
        """Do nothing: nothing is open."""


@dataclass(kw_only=True)
class Logged:
    """A log of the calls of *caller*, perhaps by another *toolbox*."""

    caller: Caller
    changes: bool = True
    toolbox: Toolbox | None = None
    kept: Kept = field(default_factory=Kept)

    def __post_init__(self) -> None:
        """Open the log."""
        self._log = AuditLog([self.kept], arguments=False, changes=self.changes)
        self.calls = Calls(self.toolbox or self.caller.toolbox, Limiter(), self._log)

    def call(self, tool: str, **arguments: object) -> Line:
        """Return the line of a call of *tool*, answered or refused."""
        with suppress(errors.DbtoolsError):
            self.caller.portal.call(self.calls.call, self.caller.identity, tool, arguments)
        return self.last()

    def last(self) -> Line:
        """Return the line of the last call."""
        self._log.close()
        line: Line = json.loads(self.kept.lines[-1])
        return line
