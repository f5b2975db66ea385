"""The call log in a SQLite registry: entries in, rows of `dbtools_call` out, and back."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from dbtools.backends.sqlite.location import connect, location_of
from dbtools.errors import DatabaseUnavailable

INSERT = """
insert into main.dbtools_call (
    time, identity, role, tool, arguments, rows, bytes, truncated, duration, outcome, code, protocol, client
)
values (
    strftime('%Y-%m-%d %H:%M:%f', :time), :identity, :role, :tool, :arguments, :rows, :bytes, :truncated,
    :duration, :outcome, :code, :protocol, :client
)
"""
SELECT = """
select
    id,
    strftime('%Y-%m-%dT%H:%M:%fZ', time) as time,
    identity, role, tool, iif(json_valid(arguments), arguments, 'null') as arguments, rows, bytes, truncated,
    duration, outcome, code, protocol, client
from main.dbtools_call
where id > :after
and id not in (select value from json_each(:seen))
and time >= strftime('%Y-%m-%d %H:%M:%f', :since)
order by id
limit 500
"""
HAS_CALLS = "select count(*) from main.sqlite_schema where type = 'table' and name = 'dbtools_call'"


class CallReader:
    """Reads calls from the registry in the file at *url*."""

    def __init__(self, url: str) -> None:
        self._location = location_of(url)
        self._connection: sqlite3.Connection | None = None

    def read(self, after: int, seen: Sequence[int], since: str) -> Sequence[tuple[int, Mapping[str, object]]]:
        """Return some of the calls that come *after* a number and are not *seen*, *since* a time."""
        if self._connection is None:
            self._connection = connect(self._location)
            self._connection.text_factory = lambda text: text.decode(errors="replace")
            self._connection.row_factory = sqlite3.Row
        try:
            if not self._connection.execute(HAS_CALLS).fetchone()[0]:
                raise DatabaseUnavailable("The database has no registry.")
            wanted = {"after": after, "seen": json.dumps(seen), "since": since}
            found = self._connection.execute(SELECT, wanted).fetchall()
        except sqlite3.Error as exc:
            raise DatabaseUnavailable("The calls in the registry cannot be read.") from exc
        return [_call(dict(row)) for row in found]

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


def _call(row: dict[str, Any]) -> tuple[int, Mapping[str, object]]:
    truncated = None if row["truncated"] is None else bool(row["truncated"])
    return row.pop("id"), {**row, "arguments": json.loads(row["arguments"]), "truncated": truncated}


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
