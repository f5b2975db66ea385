"""The port between dbtools and a database: what a Backend is asked for, and the values that cross it.

A backend has two halves. The light one reads catalogs and is there at once. The other one, its Runner, runs
statements; it is loaded at the first call, since its imports take long.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import anyio

from dbtools.backends.plans import Plan
from dbtools.backends.records import RecordStore, Registry
from dbtools.catalog import Catalog, Column, Selection, Table
from dbtools.errors import CallError, ConfigurationError, Refused
from dbtools.policy import Role
from dbtools.results import ResultSet
from dbtools.sql import Fragment, Lexis, Parameter
from dbtools.statement import Shape
from dbtools.types import ColumnType, Family, quoted

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

NO_SESSION: Mapping[str, str] = {}
PATIENCE = 5.0  #: seconds in which a database says whether its schema is the same
NOT_READING = "This is not one statement that only reads: a query is a SELECT, with or without a WITH."


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is true of every database of one kind.

    Integers that are bound have at most 64 bits, signed: the type of a column states its own limits.
    """

    lexis: Lexis  #: how operators' SQL is written
    interval: float  #: seconds between two looks whether something has changed
    #: The SQL types that a claim is cast to, by the type that the configuration declares. None: the database
    #: itself gives each parameter a type.
    claim_casts: Mapping[str, str] | None
    #: Families of which the database casts values to another one of these by itself, which may be too small.
    implicit_casts: Mapping[Family, frozenset[Family]]
    names_connections: bool  #: whether connections have names, by which others see what they do
    announcement: str | None  #: the statement with which a migration announces itself
    watch_script: str | None  #: makes the database announce changes


class Label(NamedTuple):
    """How the database is told which request a statement belongs to."""

    comment: str = ""  #: SQL in front of it
    application: str = ""  #: the name of the connection while it runs: letters, digits and `-_.:`


class Run(NamedTuple):
    """A statement that is about to run."""

    plan: Plan
    values: Mapping[str, object]  #: the claims of filters among them
    limit: int  #: rows
    timeout: float  #: seconds after which the database stops it
    session: Mapping[str, str] = NO_SESSION  #: settings of the database for this statement alone
    stamp: str = ""  #: of the schema that it was made for, if that is known
    versions: Sequence[str] = ()  #: of the tables and queries that it reads, as of that schema
    label: Label = Label()

    @property
    def parameters(self) -> tuple[object, ...]:
        """The values in the order of their places, as the driver takes them."""
        return self.plan.bound(self.values, self.limit)


class Probe(NamedTuple):
    """What a database says of itself when a connection is tried."""

    version: str  #: with the name of its kind
    refuses_writes: bool  #: to whatever a call runs


class Runner(Protocol):
    """The half of a backend that runs statements, on connections that can only read."""

    def compile(self, shape: Shape) -> Plan:
        """Return the SQL of *shape*."""

    async def run(self, run: Run) -> ResultSet:
        """Return the rows of *run*, or raise a CallError.

        Raise SchemaChanged where what is read is not what the statement was made for: the schema is not as of
        the stamp, or the tables not as of their versions; either will do. A statement that a lost connection
        or a deadlock has ended is run again. When the task is cancelled the statement is stopped in the
        database before this returns.
        """

    async def stamp(self) -> str:
        """Return what `Catalog.stamp` of the schema is now, or raise a CallError."""

    async def ready(self) -> None:
        """Raise a CallError where no connection can be had."""

    async def probe(self) -> Probe:
        """Try to write as a call runs, which has to be refused; or raise a CallError."""

    @property
    def confirms(self) -> bool:
        """Whether each run compares the stamp, since that costs next to nothing."""

    async def close(self) -> None:
        """Close every connection."""


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


class Describe(Protocol):
    """Asks a database what operators' SQL means to it.

    Each verb raises Refused, with the database's own words for operators, if the database does not understand
    the SQL or the session may not read what the SQL names.
    """

    async def query(self, pieces: Sequence[str | Parameter], declared: Mapping[str, Declared]) -> Inspected:
        """Return what the query in *pieces* is, whose parameters are *declared*.

        A claim is not declared: it is what the database takes it for, else a text. Refused has the `offset`
        in the query; it is raised as well where the query does not only read.
        """

    async def condition(self, table: Table, condition: Fragment) -> tuple[str, ...]:
        """Return the types of the parameters of *condition* on the rows of *table*, in their order.

        None where the database gives them no types.
        """


class Subject(Enum):
    """What of a database may change while it is served."""

    SCHEMA = auto()
    REGISTRY = auto()


#: Looks once: returns what differs when something has changed, or raises DatabaseUnavailable.
Look = Callable[[], Awaitable[Hashable]]
Heard = Callable[[], None]  #: called when the database announces a change


class Backend(ABC):
    """One database by its URL; nothing is opened before it is needed.

    Every verb raises DatabaseUnavailable where the database cannot be reached or read.
    """

    facts: Facts

    def __init__(self, url: str) -> None:
        """Raise ConfigurationError where *url* names no database of this kind."""
        self.url = url
        self._runner: Runner | None = None
        self._loading = anyio.Lock()

    @property
    @abstractmethod
    def place(self) -> str:
        """Where the database is and who reads it, for people: never a password."""

    @staticmethod
    def resolved(url: str, folder: Path) -> str:
        """Return *url* with the relative paths of files in it made absolute below *folder*."""
        return url

    def shareable(self) -> tuple[str, Mapping[str, str]]:
        """Return the URL without its password, and the variables of the environment that opening it takes."""
        return self.url, {}

    async def runner(self) -> Runner:
        """Return what runs statements, imported on a thread at the first call since that takes long."""
        if self._runner is None:
            async with self._loading:
                if self._runner is None:
                    self._runner = await anyio.to_thread.run_sync(self.load_runner)
        return self._runner

    @abstractmethod
    def load_runner(self) -> Runner:
        """Import what runs statements, and return it; no connection is opened yet."""

    @abstractmethod
    def open_engine(self) -> "Engine | AsyncEngine":
        """Return an engine that may change the database: only migrations take one."""

    @abstractmethod
    async def introspect(self, selection: Selection, session: Mapping[str, str] = NO_SESSION) -> Catalog:
        """Return what the database holds now, as it is seen with the settings *session*; or raise Refused."""

    @abstractmethod
    def describe(self, session: Mapping[str, str] = NO_SESSION) -> AbstractAsyncContextManager[Describe]:
        """Lend what asks the database of operators' SQL, with the settings *session*; or raise Refused."""

    @abstractmethod
    def listen(self, subject: Subject, heard: Heard) -> AbstractAsyncContextManager[Look]:
        """Lend what tells the state of *subject*, again and again: of the schema, the stamp."""

    @abstractmethod
    async def registry(self) -> Registry | None:
        """Return what the registry in the database holds now, None where there is none."""

    @abstractmethod
    def open_records(self, patience: float | None) -> RecordStore:
        """Return the tables that dbtools keeps in the database; nothing is opened yet.

        *patience*: seconds that a write may wait; None leaves it to the database.
        """

    async def grants(self, catalog: Catalog, roles: Sequence[Role], reads: Reads, login: str) -> str:
        """Return an SQL script for a *login* that reads what *roles* and their queries read of *catalog*.

        Raise ConfigurationError if the database has no logins or does not say what is read.
        """
        raise ConfigurationError(
            "This database has no logins: whoever may read its file may read all of it.",
            hint="dbtools opens it for reading only, and roles narrow what its callers see.",
        )

    async def install_watch(self) -> None:
        """Run the watch script in the database."""
        raise ConfigurationError("This database does not announce changes.")

    async def close(self) -> None:
        """Close every connection."""
        if self._runner is not None:
            await self._runner.close()


async def is_current(runner: Runner, stamp: str) -> bool:
    """Return whether the schema is still as of *stamp*; also where nobody can tell."""
    with anyio.move_on_after(PATIENCE), suppress(CallError):
        return await runner.stamp() == stamp
    return True


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
    """Raise Refused if there are no columns, or if two share a name: an answer could not tell them apart."""
    number = Counter(names)
    if not number:
        raise refusal("The query has no columns.")
    for name, times in number.items():
        if times > 1:
            raise refusal(f"{times} columns are named {quoted(name)}.", hint="Name each with AS.")
