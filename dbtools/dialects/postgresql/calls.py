"""The call log in a PostgreSQL registry: entries in, rows of `dbtools_call` out, on the thread of the log."""

import asyncio
import json
from collections.abc import Mapping, Sequence

import asyncpg

from dbtools.dialects.postgresql.location import connect
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
