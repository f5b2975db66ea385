"""The rows of a change: their keys, by which they can be read again, and which rows were there before."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from dbtools.catalog import Location
from dbtools.links import key_text
from dbtools.statement import Change, Write, WriteKind

T = TypeVar("T")


class RowKeys(NamedTuple):
    """The key of some rows of a table."""

    table: Location
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]  #: the values as texts


class Earlier(NamedTuple):
    """An earlier call with the same idempotency key and the same arguments, which made the change."""

    affected: int
    keys: RowKeys | None  #: of its rows; None if they cannot be read again
    seconds: int  #: when it was made, since 1970


def keys_of(shape: Change, rows: Sequence[Sequence[object]]) -> RowKeys | None:
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


def known(before: Sequence[T | None]) -> tuple[T, ...]:
    """Return the rows that there were *before* an upsert."""
    return tuple(row for row in before if row is not None)


def paired(rows: Iterable[T], before: Sequence[object]) -> Iterator[T | None]:
    """Yield *rows*, which are the first of those known *before* in another form, with None in its places."""
    shown = iter(rows)
    for old in before:
        row = None if old is None else next(shown, None)
        if row is None and old is not None:
            return
        yield row
