"""What a dialect must do to run statements: the seam between `database`, `execution` and the drivers."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from dbtools.catalog import Table
from dbtools.errors import CallError
from dbtools.sql import Fragment
from dbtools.statement import Output, Select, Shape
from dbtools.types import TEXTUAL, ColumnType, Family, Operator

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

CELLS_HELD = 32 * 2**20  #: characters and bytes of one result


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A compiled shape: SQL, and how its values go in."""

    shape: Shape
    sql: str
    parameters: tuple[str, ...]  #: names in the order of their places
    types: Mapping[str, ColumnType]  #: of the parameters that are values of a column
    lists: frozenset[str]  #: the parameters that are lists
    constants: Mapping[str, object]  #: the values that are the same in every call
    claims: Mapping[str, str]  #: the parameters that are claims of the caller

    @property
    def outputs(self) -> tuple[Output, ...]:
        """What is read."""
        return self.shape.outputs

    @cached_property
    def shortest(self) -> int:
        """The characters or bytes up to which no cell is cut."""
        return min((each.longest for each in self.outputs if each.longest is not None), default=0)

    @cached_property
    def patterns(self) -> Mapping[str, Operator]:
        """The parameters that are patterns, with their operators."""
        return {
            each.parameters[0]: each.operator
            for each in self.shape.comparisons
            if each.operator in TEXTUAL and each.term.type.family is not Family.ARRAY
        }

    @cached_property
    def is_lookup(self) -> bool:
        """Whether it reads one row of a table by its key."""
        return isinstance(self.shape, Select) and self.shape.is_lookup


@dataclass(frozen=True, kw_only=True)
class Label:
    """How the database is told which request a statement belongs to."""

    comment: str = ""  #: SQL in front of it
    application: str = ""  #: the name that the connection has meanwhile, of letters, digits and `-_.:`


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """Rows with one cell an output, and whether the statement has more."""

    rows: tuple[tuple[object, ...], ...]
    more: bool


class Pool(Protocol):
    """Connections that can only read."""

    def connection(self) -> AbstractAsyncContextManager[object]:
        """Lend one of the driver's connections, or raise Busy or DatabaseUnavailable."""

    def look_up(
        self, plan: Plan, parameters: Sequence[object], *, limit: int, stamp: str, label: Label
    ) -> Fetched | None:
        """Return what *plan*, which reads a row by its key, finds at once with the bound *parameters*.

        None where nothing can be read without waiting, or anything is not as it should be, the schema not as
        of *stamp* for one: the plan is to be fetched then.
        """

    async def reopen(self) -> None:
        """Forget the connections that nobody uses."""

    async def close(self) -> None:
        """Close every connection."""


class Driver(Protocol):
    """The half of a dialect that runs statements."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The exceptions that the driver raises."""

    @property
    def confirms(self) -> bool:
        """Whether each fetch looks whether the schema is still the same, since that costs next to nothing."""

    def open_pool(self, url: str) -> Pool:
        """Return a pool of connections to the database at *url*; the first call opens the first."""

    def open_engine(self, url: str) -> "Engine | AsyncEngine":
        """Return an engine that may change the database at *url*: only migrations take one."""

    async def casts(
        self, connection: object, table: Table, condition: Fragment, session: Mapping[str, str]
    ) -> tuple[str, ...]:
        """Return the types that the database gives the parameters of *condition*, in their order.

        Where it knows none, since its values have types of their own, there are none. Raise Refused, with the
        database's own words, which are for operators, where it does not understand the condition, or does not
        let whoever has the settings *session* read what is in it.
        """

    def compile(self, shape: Shape) -> Plan:
        """Return the SQL of *shape*."""

    def bound(self, plan: Plan, values: Mapping[str, object], limit: int) -> tuple[object, ...]:
        """Return *values* in the order of *plan*'s parameters, as the driver takes them."""

    async def fetch(
        self,
        connection: object,
        plan: Plan,
        values: Mapping[str, object],
        *,
        limit: int,
        timeout: float,
        session: Mapping[str, str],
        stamp: str,
        versions: Sequence[str],
        label: Label,
    ) -> Fetched:
        """Run *plan* on the driver's *connection*; at most *limit* rows, stopped after *timeout* seconds.

        For this statement alone the database has the settings *session*, where it has any. Raise
        SchemaChanged where what is read is not what the statement was made for: the schema is not as of
        *stamp*, if that is known, or the tables not as of *versions*; either will do. The *label* is shown
        to whoever looks at what the database does; a name only where its dialect says that there are any.
        When the task is cancelled the statement is stopped in the database, and the connection is usable
        again when this returns; where that fails the connection is closed.
        """

    async def stamp(self, connection: object) -> str:
        """Return what `Catalog.stamp` of the schema is now."""

    def translate(self, error: Exception) -> CallError:
        """Return what *error* means to a caller, without its text: that quotes data."""

    def is_lost(self, error: Exception) -> bool:
        """Return whether *error* says that the connection is gone, so that another may be tried once."""

    def is_victim(self, error: Exception) -> bool:
        """Return whether the database has stopped the statement for another's sake: it may be run again."""

    def is_stale(self, error: Exception) -> bool:
        """Return whether *error* says that a prepared statement has outlived its schema."""
