"""Changes as values: the shapes of writes, the transaction of a call, and the rows that it has changed."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeVar

from dbtools import errors
from dbtools.errors import listing
from dbtools.expressions.terms import Term
from dbtools.schema.catalog import Column, Location, Preset, RowFilter, Table, Writes
from dbtools.schema.uris import key_text
from dbtools.statements.select import Condition, Output, QueryShape, Select, versions_of
from dbtools.values.cells import masked_rows
from dbtools.values.types import ColumnType

KEPT = 24 * 3_600  #: seconds that the journal of a database keeps idempotency keys at least
T = TypeVar("T")


class WriteKind(StrEnum):
    """What is done to a row."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, kw_only=True)
class Write:
    """The shape of a change of one row, or of chosen rows, and what reads them before and after it."""

    kind: WriteKind
    table: Table
    columns: tuple[Column, ...] = ()  #: that the caller sets
    conditions: tuple[Condition, ...] = ()  #: which row: its key, then what the caller expects of it
    key_count: int = 0  #: how many of the conditions are the key
    chosen: Select | None = None  #: the rows, unless it is one with a key: in the order of their keys
    outputs: tuple[Output, ...]
    #: Of an upsert: the unique key by which a row that exists is found, and its update; None leaves it as is.
    conflict: tuple[Column, ...] = ()
    conflict_where: str = ""  #: SQL for the rows that the key is about; empty: all
    instead: "Write | None" = None

    def __hash__(self) -> int:
        """Hash by what usually differs: it is looked up at every call."""
        compared = (self.conditions, self.chosen, self.conflict)
        return hash((self.kind, self.table, self.columns, *compared))

    @property
    def writes(self) -> Writes:
        """What the role may change in the table."""
        assert self.table.writes is not None
        return self.table.writes

    @property
    def most(self) -> int:
        """The most rows that conditions may choose."""
        return self.writes.most or 1

    @property
    def target(self) -> Location:
        """The place of the table."""
        return self.table.location

    @property
    def presets(self) -> tuple[Preset, ...]:
        """The values that the change sets, whatever the caller says."""
        writes = self.writes
        by_kind = {WriteKind.INSERT: writes.insert_presets, WriteKind.UPDATE: writes.update_presets}
        return by_kind.get(self.kind, ())

    @property
    def variants(self) -> "tuple[Write, ...]":
        """The write itself, and the one that is made instead if the row exists."""
        return (self,) if self.instead is None else (self, self.instead)

    @property
    def parameters(self) -> Mapping[Column, str]:
        """The columns that the change sets, each with the parameter for its new value."""
        given = {column: assigned_parameter(column.name) for column in self.columns}
        # An upsert may preset a column to one value in a new row and to another one in an updated row.
        return given | {each.column: f"{self.kind}_{each.column.name}" for each in self.presets}

    @property
    def written(self) -> tuple[Column, ...]:
        """The columns that the change sets, or the one instead of it."""
        return tuple(dict.fromkeys(column for each in self.variants for column in each.parameters))

    @property
    def checks(self) -> tuple[RowFilter, ...]:
        """What the row must satisfy after the change, besides the row filter, unless it may leave that."""
        return () if self.kind is WriteKind.DELETE else self.writes.checks

    @property
    def comparisons(self) -> tuple[Condition, ...]:
        """All comparisons."""
        return self.conditions if self.chosen is None else self.chosen.comparisons

    @property
    def stable(self) -> frozenset[str]:
        """The outputs that are the same whenever it makes the same change: not what the database chooses."""
        shown = (output.term.name for output in self.outputs)
        return frozenset(shown if self.kind is WriteKind.DELETE else (each.name for each in self.written))

    @property
    def refers(self) -> bool:
        """Whether it may give the row foreign keys."""
        written = {each.name for each in self.written}
        foreign = {name for key in self.table.foreign_keys for name in key.columns}
        own = {*self.table.unique, *(name for key in self.table.keys for name in key.columns)}
        # The role may not see a foreign key; but rows can only refer to a key.
        is_update = self.kind is WriteKind.UPDATE
        return self.kind is WriteKind.INSERT or (is_update and bool(written & foreign or not written & own))

    @property
    def compared(self) -> tuple[Term, ...]:
        """The terms that are compared with values of the caller."""
        return tuple(each.term for each in self.comparisons if each.parameters)

    @property
    def claims(self) -> frozenset[str]:
        """The claims of the caller that row filters, the check and presets use."""
        filters = (*(table.filter for table in self.tables), *self.writes.checks)
        used = {each.claim for one in filters if one is not None for each in one.condition.parameters}
        used |= {each.claim for each in (*self.writes.insert_presets, *self.writes.update_presets)}
        return frozenset(claim for claim in used if claim is not None)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables that rules are about."""
        return (self.table,) if self.chosen is None else self.chosen.tables

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions of the tables, if they are known."""
        return tuple(version for table in self.tables for version in versions_of(table))


WriteShape = Write | QueryShape


def chooses(shape: WriteShape) -> bool:
    """Return whether conditions choose the rows."""
    return isinstance(shape, Write) and shape.chosen is not None


def assigned_parameter(name: str) -> str:
    """Return the parameter for the value that the caller gives to the column *name*."""
    return f"set_{name}"


@dataclass(slots=True, kw_only=True)
class Transaction:
    """Writes that happen together or not at all."""

    writes: Sequence[tuple[WriteShape, Mapping[str, object]]]  #: each with its values; or one query
    dry_run: bool = False  #: whether to roll back at the end
    missing: Sequence[str] = ()  #: of each write with a key: the message if no row has it
    idempotency_key: str = ""
    confirms: bool = False  #: whether a person, or else a token, must confirm it
    token: str = ""  #: of a preview, with which the caller confirms
    timeout: float = math.inf  #: seconds, if less than the role's limit


class RowKeys(NamedTuple):
    """The key of some rows of a table."""

    table: Location
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]  #: the values as texts


class EarlierCall(NamedTuple):
    """An earlier call with the same idempotency key and the same arguments, which made the change."""

    affected: int
    keys: RowKeys | None  #: of its rows; None if they cannot be read again
    seconds: int  #: when it was made, since 1970


def used_confirmation() -> errors.NotConfirmed:
    """Return the error of a confirmation that has been used."""
    message = "This confirmation has been used already."
    return errors.NotConfirmed(message, hint="Read the rows before you ask for another preview.")


def taken_key() -> errors.Conflict:
    """Return the error of a key that belongs to another change."""
    message = "A call with other arguments has used this idempotency_key."
    return errors.Conflict(message, hint="Use a new key for another change.")


def repeated_key(key: Iterable[Column], at: int, first: int) -> errors.BadValue:
    """Return the error of two rows of a call, at the places *first* and *at*, with the same *key*."""
    message = f"rows[{at}] has the same {listing(each.name for each in key)} as rows[{first}]."
    return errors.BadValue(message, hint="Give each row once.")


def running_call() -> errors.Busy:
    """Return the error of a call while an earlier call with its idempotency key is still running."""
    message = "Another call is running, perhaps one with this idempotency_key; this one changed nothing."
    return errors.Busy(message, hint="Repeat the call with the same key.")


def keys_of(shape: WriteShape, rows: Sequence[Sequence[object]]) -> RowKeys | None:
    """Return the keys of the changed *rows*; None if the rows cannot be read again by them."""
    if not isinstance(shape, Write):
        return None
    places = {output.term: at for at, output in enumerate(shape.outputs)}
    key = [places[column] for column in shape.table.key_columns]
    if not key or shape.kind is WriteKind.DELETE:
        return None
    keys = [[key_text(row[at]) or "" for at in key] for row in rows]
    if not all(map(all, keys)):
        return None
    return RowKeys(shape.table.location, tuple(column.name for column in shape.table.key_columns), keys)


def without_none(rows: Sequence[T | None]) -> tuple[T, ...]:
    """Return those of *rows* that there are."""
    return tuple(row for row in rows if row is not None)


def mask_existing_rows(
    types: Sequence[ColumnType], rows: Sequence[tuple[object, ...] | None], key: bytes
) -> tuple[tuple[object, ...] | None, ...]:
    """Return *rows* with the masks of *types* applied, and None where there is no row."""
    return tuple(pair_rows(masked_rows(types, without_none(rows), key), rows))


def pair_rows(rows: Iterable[T], before: Sequence[object]) -> Iterator[T | None]:
    """Yield *rows*, another form of the first rows of *before*, with None wherever *before* has None."""
    shown = iter(rows)
    for old in before:
        row = None if old is None else next(shown, None)
        if row is None and old is not None:
            return
        yield row
