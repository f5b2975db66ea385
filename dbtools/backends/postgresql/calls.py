"""The call log in a PostgreSQL registry: entries in, rows of `dbtools_call` out, and back."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from dbtools.backends.postgresql.location import connect
from dbtools.backends.postgresql.registry import PATIENCE as PINNED, trusted_tables
from dbtools.errors import DatabaseUnavailable

PATIENCE = 2.0  #: seconds that the server has to take some calls
INSERT = """
insert into dbtools.dbtools_call (
    time, identity, role, tool, arguments, rows, bytes, truncated, duration, outcome, code, protocol, client
)
select
    time, identity, role, tool, arguments, rows, bytes, truncated, duration, outcome, code, protocol, client
from pg_catalog.jsonb_populate_recordset(null::dbtools.dbtools_call, $1::pg_catalog.text::pg_catalog.jsonb)
"""
SELECT = """
select
    id,
    pg_catalog.to_char(time at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as time,
    identity, role, tool, coalesce(arguments::pg_catalog.text, 'null') as arguments, rows, bytes, truncated,
    duration, outcome, code, protocol, client
from dbtools.dbtools_call
where id > $1
and id <> all ($2::pg_catalog.int8[])
and time >= $3::pg_catalog.text::pg_catalog.timestamptz
order by id
limit 500
"""


class CallReader:
    """Reads calls from the registry in the database at *url*, with a loop of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._runner = asyncio.Runner()
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    def read(self, after: int, seen: Sequence[int], since: str) -> Sequence[tuple[int, Mapping[str, object]]]:
        """Return some of the calls that come *after* a number and are not *seen*, *since* a time."""
        try:
            found = self._runner.run(self._read(after, seen, since))
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as exc:
            raise DatabaseUnavailable("The calls in the registry cannot be read.") from exc
        return [(call.pop("id"), {**call, "arguments": json.loads(call["arguments"])}) for call in found]

    async def _read(self, after: int, seen: Sequence[int], since: str) -> list[dict[str, Any]]:
        if self._connection is None:
            self._connection = await connect(self._url)
        async with self._connection.transaction(isolation="repeatable_read", readonly=True):
            await self._connection.execute(PINNED)
            if not await trusted_tables(self._connection, "dbtools_call"):
                raise DatabaseUnavailable("The database has no registry.")
            return [dict(call) for call in await self._connection.fetch(SELECT, after, seen, since)]

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.terminate()
        self._runner.close()


class CallWriter:
    """Writes calls to the registry in the database at *url*, with a loop of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    def write(self, calls: Sequence[Mapping[str, object]]) -> None:
        """Write *calls*, all or none, or raise OSError."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        try:
            self._loop.run_until_complete(asyncio.wait_for(self._write(calls), PATIENCE))
        except (OSError, TimeoutError, DatabaseUnavailable) as exc:
            self._end()
            raise OSError(f"the registry takes no calls: {exc}") from exc
        except (asyncpg.PostgresError, asyncpg.InterfaceError) as exc:
            self._end()
            raise OSError(f"the registry takes no calls: {exc.args[0]}") from exc

    async def _write(self, calls: Sequence[Mapping[str, object]]) -> None:
        if self._connection is None:
            self._connection = await connect(self._url)
        # What no text of the server may hold has been made visible by whoever wrote the entry.
        await self._connection.execute(INSERT, json.dumps(calls).replace("\\u0000", "\\ufffd"))

    def _end(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        self._end()
        loop, self._loop = self._loop, None
        if loop is not None:
            # What the connection's end has left to do.
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()
