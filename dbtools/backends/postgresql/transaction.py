"""The open transaction of a write. Plans and messages in; rows, and the numbers of changed rows, out."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import asyncpg

from dbtools.backends.plans import Plan
from dbtools.backends.port import Row, WriteRun
from dbtools.backends.postgresql.connections import is_lost
from dbtools.backends.postgresql.pipeline import (
    DRIVER_ERRORS,
    ServerConnection,
    end_prepare,
    messages,
    setting,
)
from dbtools.backends.postgresql.registry import SCHEMA
from dbtools.backends.postgresql.runner import SAME_SESSION, begin_transaction, rows_of, time_limit
from dbtools.backends.scripts import JOURNAL_TABLE
from dbtools.catalog import Location

#: What the transaction has done so far, by table; partitions count for their table.
CHANGE_COUNTS = """
select n.nspname::text, c.relname::text, c.relkind = 'p',
    pg_catalog.sum(s.n_tup_ins)::int8, pg_catalog.sum(s.n_tup_upd)::int8, pg_catalog.sum(s.n_tup_del)::int8
from pg_catalog.pg_stat_xact_user_tables as s
join pg_catalog.pg_class as c on c.oid = coalesce(pg_catalog.pg_partition_root(s.relid), s.relid)
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
where s.n_tup_ins + s.n_tup_upd + s.n_tup_del > 0
group by 1, 2, 3
"""
Counts = tuple[bool, int, int, int]  #: whether a table has partitions; its inserted, updated and deleted rows
NO_CHANGES: Counts = (False, 0, 0, 0)


class NotBegun(Exception):
    """The connection was lost before a transaction began on it."""


class OpenTransaction:
    """The open transaction of *run*; messages that need no answer are sent with the next statement."""

    def __init__(self, connection: ServerConnection, run: WriteRun) -> None:
        self._connection = connection
        self._run = run
        self._before = b""  #: the messages to send before the next statement
        self._is_begun = False

    async def begin(self, lock_timeout: bytes) -> None:
        """Begin the transaction, with the first statement if possible."""
        connection, run = self._connection, self._run
        begin = connection.begin + time_limit(run.timeout)
        if run.application:
            begin += setting({"application_name": run.application})
        if run.session or connection.local:
            # The settings of a role may be refused, and a pooler prepares statements in a transaction.
            with self._beginning():
                await begin_transaction(connection, run.session, begin, lock_timeout)
        else:
            self._before = begin + messages(SAME_SESSION, connection.marks) + lock_timeout

    @contextmanager
    def _beginning(self) -> Iterator[None]:
        """Raise NotBegun if the connection is lost before the server has answered anything."""
        try:
            yield
        except DRIVER_ERRORS as exc:
            if self._is_begun or not is_lost(exc):
                raise
            self._connection.terminate()
            raise NotBegun from exc
        self._is_begun = True

    def add(self, before: bytes) -> None:
        """Send the messages *before* with the next statement."""
        self._before += before

    async def run(self, plan: Plan, *runs: tuple[object, ...]) -> Sequence[Row]:
        """Return the rows of *plan*; without outputs, one row with the number of rows that it changed."""
        records, tag = await self._run_statement(plan.sql, *runs)
        return rows_of(records, plan) if plan.outputs else ((int(tag.rpartition(" ")[2]),),)

    async def rows(self, sql: str) -> Sequence[asyncpg.Record]:
        """Return the rows of *sql*."""
        return (await self._run_statement(sql))[0]

    async def _run_statement(
        self, sql: str, *runs: tuple[object, ...]
    ) -> tuple[Sequence[asyncpg.Record], str]:
        """Return the rows of *sql*, which is run with each of *runs* or once, and the last command tag."""
        connection, key = self._connection, (self._run.comment + sql, self._run.stamp)
        with self._beginning():
            prepared = connection.prepared(key)
            if prepared is None:
                prepared = await connection.prepare_key(key, ())
                if not self._is_begun:
                    await end_prepare(connection)
            before, self._before = self._before, b""
            records = await connection.run_each(prepared.statement, runs or [()], before)
            return records, str(prepared.statement.get_statusmsg())

    async def counts(self) -> Mapping[Location, Counts]:
        """Return how many rows have been changed, by table."""
        found = {(row[0], row[1]): (row[2], row[3], row[4], row[5]) for row in await self.rows(CHANGE_COUNTS)}
        found.pop((SCHEMA, JOURNAL_TABLE), None)
        return found


def changed_elsewhere(
    earlier: Mapping[Location, Counts], later: Mapping[Location, Counts], target: Location, affected: int
) -> Iterator[tuple[frozenset[Location], int]]:
    """Yield the tables with rows that have changed since *earlier*, besides those *affected* in *target*."""
    for place, (has_partitions, *counts) in later.items():
        _, *before = earlier.get(place, NO_CHANGES)
        inserted, updated, deleted = (now - then for now, then in zip(counts, before, strict=True))
        # A row that moves to another partition is deleted from one and inserted into the other.
        moved = min(inserted, deleted) if has_partitions else 0
        number = inserted + updated + deleted - moved - (affected if place == target else 0)
        if number > 0:
            yield frozenset({place}), number
