"""What a database says of a query before it is ever called, as values."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dbtools.catalog import Column
from dbtools.errors import Refused
from dbtools.sql import Parameter
from dbtools.types import ColumnType, quoted

NOT_READING = "This is not one statement that only reads: a query is a SELECT, with or without a WITH."


class Read(NamedTuple):
    """A column that a query reads."""

    schema: str  #: none where the database has no schemas
    table: str  #: or the view that the query names: what that reads itself is not told
    column: str  #: none where rows are read and no column of the table's own


Reads = Collection[tuple[str, str, str]]  #: such places


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What the file of a query declares of a parameter."""

    type: str  #: integer number decimal text boolean date time timestamp uuid json
    array: bool

    def __str__(self) -> str:
        """Return the type as it is written."""
        return f"{self.type}[]" if self.array else self.type


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """What a database says of one query."""

    columns: tuple[Column, ...]  #: with name, type and nullable, and nothing else
    parameters: Mapping[str, ColumnType]  #: that the database takes them for; of lists, their arrays
    casts: Mapping[str, str]  #: the SQL names of these types, where the database wants them
    reads: frozenset[Read] | None  #: at least what is read; None where the database does not tell
    functions: tuple[str, ...]  #: not the system's, where reads are told: what they read is not among that
    versions: tuple[str, ...] = ()  #: of the tables that are read, where each has one


class Inspect(Protocol):
    """What asks a database of queries."""

    async def __call__(
        self, pieces: Sequence[str | Parameter], declared: Mapping[str, Declared], /
    ) -> Inspected:
        """Return what the database says of the query in *pieces*, whose parameters are *declared*.

        A claim is not declared: it is what the database takes it for, else a text. Raise Refused, with the
        database's own words and their `offset` in the query, where it does not work, or does not only read.
        """


def refusal(message: str, *, hint: str = "", offset: int | None = None) -> Refused:
    """Return the error of a query that does not work, with where in its text that shows."""
    refused = Refused(message, hint=hint)
    refused.offset = offset
    return refused


def passing_refusal(message: str) -> Refused:
    """Return the error of a query that cannot be looked at now, since the database is busy."""
    refused = Refused(message, hint="It is looked at again in a moment.")
    refused.passes = True
    return refused


def check_names(names: Iterable[str]) -> None:
    """Raise Refused where there are no columns, or two by one name: an answer could not tell them apart."""
    number = Counter(names)
    if not number:
        raise refusal("The query has no columns.")
    for name, times in number.items():
        if times > 1:
            raise refusal(f"{times} columns are named {quoted(name)}.", hint="Name each with AS.")
