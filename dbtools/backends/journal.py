"""The statements on `dbtools_write`, which make a change once. A Grammar in; a Journal of Plans out.

Each is run in the transaction of the change. The table is created by `dbtools registry upgrade`.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from dbtools.backends.plans import Plan
from dbtools.backends.port import JournalEntry, Row
from dbtools.backends.selects import plan_of
from dbtools.backends.sources import Grammar
from dbtools.catalog import Column
from dbtools.changes import EarlierCall, RowKeys, taken, used
from dbtools.statement import Output, QueryShape
from dbtools.types import ColumnType, Family

TABLE = "dbtools_write"
PRUNED = 100  #: outdated entries that one call removes at most
COLUMNS = ("id", "caller", "tool", "key", "arguments", "seconds", "affected", "keys")
OTHER = ColumnType(family=Family.OTHER, name="")


@dataclass(frozen=True, kw_only=True)
class Journal:
    """The statements on the journal of one database."""

    prune: Plan  #: removes entries that are older than the parameter `seconds`
    enter: Plan  #: returns a row, or none if the ID or the key is taken
    find: Plan  #: returns what the entry with the key has: arguments, seconds, affected and keys
    complete: Plan  #: adds affected and keys to the entry with an ID

    def includes(self, plan: Plan) -> bool:
        """Return whether *plan* is one of these."""
        return any(plan is each for each in (self.prune, self.enter, self.find, self.complete))


def journal_of(grammar: Grammar, schema: str) -> Journal:
    """Return the statements in *grammar* on the journal in *schema*."""
    table = sa.table(TABLE, *map(sa.column, COLUMNS), schema=schema)
    c = table.c
    old = sa.select(c.id).where(c.seconds < sa.bindparam("seconds")).limit(PRUNED)
    values: dict[str, sa.BindParameter[object]] = {name: sa.bindparam(name) for name in COLUMNS}
    same = [c[name] == values[name] for name in ("caller", "tool", "key")]
    entered = ("id", "caller", "tool", "key", "arguments", "seconds")
    enter = grammar.insert(table).values({name: values[name] for name in entered}).on_conflict_do_nothing()
    found = (c.arguments, c.seconds, c.affected, c["keys"])

    def plan(statement: object, *names: str) -> Plan:
        outputs = tuple(Output(term=Column(name=name, type=OTHER)) for name in names)
        shape = QueryShape(name=TABLE, pieces=(), outputs=outputs, types={}, casts={})
        return plan_of(shape, statement, grammar, {}, frozenset(), {})

    return Journal(
        # Other calls may be removing the same entries.
        prune=plan(sa.delete(table).where(c.id.in_(old.with_for_update(skip_locked=True)))),
        enter=plan(enter.returning(c.id), "id"),
        find=plan(sa.select(*found).where(*same), "arguments", "seconds", "affected", "keys"),
        complete=plan(
            sa.update(table)
            .where(c.id == values["id"])
            .values(affected=values["affected"], keys=values["keys"])
        ),
    )


def entered(entry: JournalEntry) -> Mapping[str, object]:
    """Return the parameters of `Journal.enter` and `Journal.find` for *entry*."""
    return {**entry._asdict(), "seconds": int(time.time())}


def completed(entry: JournalEntry, affected: int, keys: RowKeys | None) -> Mapping[str, object]:
    """Return the parameters of `Journal.complete` after a change of *affected* rows with *keys*."""
    return {"id": entry.id, "affected": affected, "keys": None if keys is None else json.dumps(keys)}


def earlier_of(entry: JournalEntry, found: Sequence[Row]) -> EarlierCall:
    """Return the call that has the key of *entry*, as *found*; raise Conflict or NotConfirmed."""
    if not found:
        raise used()
    ((arguments, seconds, affected, kept),) = found
    if arguments != entry.arguments:
        raise taken()
    keys: RowKeys | None = None
    if kept is not None:
        table, columns, rows = json.loads(str(kept))
        keys = RowKeys(tuple(table), tuple(columns), rows)
    return EarlierCall(affected=int(str(affected)), keys=keys, seconds=int(str(seconds)))
