"""The call log in a SQLite registry: entries in, rows of `dbtools_call` out, on the thread of the log."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from dbtools.dialects.sqlite.location import location_of

INSERT = """
insert into main.dbtools_call (
    time, identity, role, tool, arguments, rows, bytes, truncated, duration, outcome, code, protocol, client
)
values (
    strftime('%Y-%m-%d %H:%M:%f', :time), :identity, :role, :tool, :arguments, :rows, :bytes, :truncated,
    :duration, :outcome, :code, :protocol, :client
)
"""


class CallWriter:
    """Writes calls to the registry in the file at *url*."""

    def __init__(self, url: str) -> None:
        self._uri = f"file:{quote(str(location_of(url).path))}?mode=rw"
        self._connection: sqlite3.Connection | None = None

    def write(self, calls: Sequence[Mapping[str, object]]) -> None:
        """Write *calls*, all or none, or raise OSError."""
        try:
            if self._connection is None:
                self._connection = sqlite3.connect(
                    self._uri, uri=True, isolation_level=None, timeout=2.0, check_same_thread=False
                )
            with self._connection as connection:
                connection.execute("begin immediate")
                rows = [{**call, "arguments": json.dumps(call["arguments"])} for call in calls]
                connection.executemany(INSERT, rows)
        except sqlite3.Error as exc:
            self.close()
            raise OSError(f"the registry takes no calls: {exc}") from exc

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
