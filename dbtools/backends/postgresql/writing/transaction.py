"""The open transaction of a write. Plans and messages in; rows, and the numbers of changed rows, out.

What operators' SQL means is confirmed as for reads: its statements are prepared in a transaction before, and
fail if the server has analysed them since. They may have changed rows by then, which are rolled back.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import asyncpg

from dbtools.backends.compiled import Compiled, CompiledWrite
from dbtools.backends.postgresql.connection.connections import is_lost
from dbtools.backends.postgresql.connection.pipeline import (
    DRIVER_ERRORS,
    Prepared,
    ServerConnection,
    StatementKey,
    end_prepare,
    is_failure_of,
    messages,
)
from dbtools.backends.postgresql.reading.runner import (
    GUARD,
    SAME_SESSION,
    UNSURE,
    Unsure,
    another_transaction,
    begin_transaction,
    key_of,
    limited_begin,
    rows_of,
)
from dbtools.backends.postgresql.registry import SCHEMA
from dbtools.backends.postgresql.schema.changes import are_named
from dbtools.backends.query_syntax import CHANGE
from dbtools.backends.runs import Row, WriteRun
from dbtools.backends.steps import JOURNAL_TABLE
from dbtools.schema.catalog import Location
from dbtools.statements.select import QueryShape
from dbtools.statements.write import WriteShape

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
#: Whether a change to the table $2 in the schema $1 may change rows elsewhere: counting looks at every table.
REACHES_OTHERS = """
select c.relkind not in ('r', 'p') or c.relhasrules or exists (
    select
    from pg_catalog.pg_trigger as t
    where not t.tgisinternal and t.tgenabled <> 'D' and t.tgrelid in (
        select c.oid union all select p.relid from pg_catalog.pg_partition_tree(c.oid) as p
    )
) or exists (
    select
    from pg_catalog.pg_constraint as k
    where k.confrelid = c.oid and k.contype = 'f'
        and (k.confdeltype in ('c', 'n', 'd') or k.confupdtype in ('c', 'n', 'd'))
)
from pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
where n.nspname = $1 and c.relname = $2
"""
Counts = tuple[bool, int, int, int]  #: whether a table has partitions; its inserted, updated and deleted rows
NO_CHANGES: Counts = (False, 0, 0, 0)
#: As a SELECT without OFFSET: a statement that changes rows, and one that reads them and may lock them.
CHANGED_ROWS = f"with {CHANGE} as (\n{{}}\n)\nselect * from {CHANGE}"
READ_ROWS = "select * from (\n{}\n) as q"


class NotBegun(Exception):
    """The connection was lost before a transaction began on it."""


class OpenTransaction:
    """The open transaction of *run*; messages that need no answer are sent with the next statement."""

    def __init__(self, connection: ServerConnection, run: WriteRun) -> None:
        self._connection = connection
        self._run = run
        self._before = b""  #: the messages to send before the next statement
        self._is_begun = False
        plans = [plan for plan, _ in run.steps] if are_named(run.versions) else []
        #: By the SQL of a plan, that with a guard.
        self._guarded = {plan.sql: sql for each in plans for plan, sql in _guarded_statements(each)}
        self._new: dict[StatementKey, Prepared] = {}

    async def begin(self, lock_timeout: bytes) -> None:
        """Begin the transaction, with the first statement if possible."""
        connection, run, moment = self._connection, self._run, ""
        begin, session = limited_begin(connection, run.context), run.context.session
        if session or connection.local:
            # The settings of a role may be refused, and a pooler prepares statements in a transaction.
            with self._beginning():
                moment = await begin_transaction(connection, session, begin, lock_timeout)
        else:
            self._before = begin + messages(SAME_SESSION, connection.marks) + lock_timeout
        missing = [
            key
            for key in map(self._key, self._guarded.values())
            if connection.prepared_statement(key) is None
        ]
        if not missing:
            return
        with self._beginning():
            moment = moment or await begin_transaction(connection, session, begin)
            for key in missing:
                self._new[key] = await connection.prepare_key(key, (moment,))
        self._before = another_transaction(tuple(run.versions), begin + lock_timeout, session)

    def _key(self, sql: str) -> StatementKey:
        context = self._run.context
        written = context.comment + sql
        if sql in self._guarded.values():
            return key_of(self._connection, written, context)
        return written, context.stamp

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

    async def run(self, plan: Compiled, *runs: tuple[object, ...]) -> Sequence[Row]:
        """Return the rows of *plan*; without outputs, one row with the number of rows that it changed."""
        records, tag = await self._run_statement(self._guarded.get(plan.sql, plan.sql), *runs)
        if plan.outputs:
            return rows_of(records, plan)
        return [tuple(record) for record in records] or ((int(tag.rpartition(" ")[2]),),)

    async def rows(self, sql: str, *values: object) -> Sequence[asyncpg.Record]:
        """Return the rows of *sql* with *values*."""
        return (await self._run_statement(sql, values))[0]

    async def reaches_others(self, shape: WriteShape) -> bool:
        """Return whether the change of *shape* may change rows elsewhere."""
        if isinstance(shape, QueryShape):
            return True
        rows = await self.rows(REACHES_OTHERS, *shape.target)
        return not rows or bool(rows[0][0])

    async def _run_statement(
        self, sql: str, *runs: tuple[object, ...]
    ) -> tuple[Sequence[asyncpg.Record], str]:
        """Return the rows of *sql*, which is run with each of *runs* or once, and the last command tag."""
        connection, key = self._connection, self._key(sql)
        with self._beginning():
            prepared = self._new.get(key) or connection.prepared_statement(key)
            if prepared is None:
                prepared = await connection.prepare_key(key, ())
                if not self._is_begun:
                    await end_prepare(connection)
            before, self._before = self._before, b""
            values = [(*each, *prepared.guard) for each in runs or [()]]
            try:
                records = await connection.run_each(prepared.statement, values, before)
            except asyncpg.UndefinedObjectError as exc:
                if not is_failure_of(exc, UNSURE):
                    raise
                # The others name the same tables.
                for another in map(self._key, self._guarded.values()):
                    connection.forget(another)
                raise Unsure from exc
        for each in self._new.values():
            each.is_confirmed = True
        return records, str(prepared.statement.get_statusmsg())

    async def counts(self) -> Mapping[Location, Counts]:
        """Return how many rows have been changed, by table."""
        found = {(row[0], row[1]): (row[2], row[3], row[4], row[5]) for row in await self.rows(CHANGE_COUNTS)}
        found.pop((SCHEMA, JOURNAL_TABLE), None)
        return found


def _guarded_statements(plan: CompiledWrite) -> Iterator[tuple[Compiled, str]]:
    """Yield the statements of *plan*, each with its SQL that ends with the guard."""
    changes = (plan.change, plan.attempt, plan.instead)
    for each in (*plan.statements, *([plan.unlocked] if plan.unlocked else [])):
        form = CHANGED_ROWS if any(each is change for change in changes) else READ_ROWS
        # The change of a query is a SELECT already.
        sql = each.sql if isinstance(plan.shape, QueryShape) else form.format(each.sql)
        yield each, sql + GUARD.format(len(each.parameters) + 1)


def other_changes(
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
