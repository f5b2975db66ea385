"""The port between dbtools and a database: the interface of a Backend, and the values that cross it.

The Backend itself reads catalogs, and is imported at the start. Its Runner, Writer and SqlRunner run
statements; each is imported when it is first needed, because importing them takes long.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import anyio

from dbtools.answers.results import ResultSet
from dbtools.backends.compiled import Compiled, CompiledWrite
from dbtools.backends.records import RecordStore, Registry
from dbtools.backends.run_sql import SqlOffer, SqlRunner
from dbtools.backends.runs import NO_SESSION, Run, WriteResult, WriteRun
from dbtools.errors import ConfigurationError, Refused
from dbtools.policy.roles import NO_RULES, FunctionRules, Role
from dbtools.policy.writes import MissingPrivileges
from dbtools.queries import Effects, Permitted
from dbtools.schema.catalog import Catalog, Column, RowFilter, Selection, Table
from dbtools.schema.sql import Fragment, Lexis, Parameter
from dbtools.statements.select import Shape
from dbtools.statements.write import WriteShape
from dbtools.values.types import ColumnType, Family, quote

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

CHANGE_LOCK_TIMEOUT = 2.0  #: seconds that a change waits for a lock
NEVER_CHANGED = "dbtools does not change databases of this kind."
KEEPS_NO_REGISTRY = "This database keeps no registry."
NO_DBTOOLS_WRITE = "The database has no table dbtools_write: `dbtools registry upgrade URL` creates it."
NOT_CHANGING = "A query with -- writes is a single INSERT, UPDATE or DELETE, with or without a WITH."
NOT_READING = "This is not a single read-only statement: a query is a SELECT, with or without a WITH."


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What all databases of one kind have in common."""

    lexis: Lexis  #: how operators' SQL is written
    interval: float  #: seconds between two polls for changes
    #: The SQL type to cast a claim to, by its declared type. None: the database infers types of parameters.
    claim_casts: Mapping[str, str] | None
    #: The families to which the database may implicitly cast each family, with a risk of overflow.
    implicit_casts: Mapping[Family, frozenset[Family]]
    #: Whether "=" compares a column with one that refers to it as their foreign key does, without an error.
    alike: Callable[[Column, Column], bool]
    names_connections: bool = False  #: whether connections have an application name
    announcement: str | None = None  #: the statement by which a migration announces itself
    watch_script: str | None = None  #: SQL that makes the database announce changes


class Probe(NamedTuple):
    """The result of trying a connection."""

    version: str  #: such as "PostgreSQL 16.2"
    refuses_writes: bool


class Runner(Protocol):
    """The part of a backend that runs statements, on connections that can only read."""

    def compile(self, shape: Shape) -> Compiled:
        """Return the SQL of *shape*."""

    async def run(self, run: Run) -> ResultSet:
        """Return the rows of *run*, or raise a CallError.

        Raise SchemaChanged if the stamp, or the version of a table, differs from that of the run. Repeat a
        statement that a lost connection or a deadlock has ended. When the task is cancelled, stop the
        statement in the database before returning.
        """

    async def ready(self) -> None:
        """Raise a CallError if no connection is available."""

    async def probe(self) -> Probe:
        """Try to write on a connection that serves calls, or raise a CallError."""

    async def close(self) -> None:
        """Close every connection."""


class Writer(Protocol):
    """The part of a backend that changes rows, on separate connections."""

    def compile(self, shape: WriteShape) -> CompiledWrite:
        """Return the SQL of *shape*."""

    async def write(self, run: WriteRun) -> WriteResult:
        """Run the steps of *run*, and commit if it keeps the result.

        Raise a CallError if nothing was changed, and UnknownOutcome if that is not known. NoRow: a key shows
        no row; Conflict: it has other values than expected, or another call has the idempotency key; Denied:
        the row would not satisfy the role's row filter or check afterwards; NotConfirmed: the confirmation
        was used before. Never run a step twice. A cancellation during COMMIT has no effect.
        """

    async def close(self) -> None:
        """Close every connection."""


#: The schema, the table or view, and the column; empty if the database has no schemas, or only rows are read.
ColumnPlace = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A parameter as the file of a query declares it."""

    type: str  #: integer number decimal text boolean date time timestamp uuid json
    array: bool

    def __str__(self) -> str:
        """Return the type as written in the file."""
        return f"{self.type}[]" if self.array else self.type


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """One query as the database understands it."""

    columns: tuple[Column, ...]  #: with name and type only
    parameters: Mapping[str, ColumnType]  #: an array for a list
    casts: Mapping[str, str]  #: the SQL names of these types, if the database needs casts
    #: Everything that is read, perhaps more; of views only those that the query names. None: unknown.
    reads: frozenset[ColumnPlace] | None
    functions: tuple[str, ...]  #: user functions, whose reads are unknown
    effects: Effects | None = None  #: None: it only reads
    versions: tuple[str, ...] = ()  #: of the tables that are read, if they have versions


class Inspector(Protocol):
    """Asks a database what operators' SQL means.

    Each verb raises Refused, with the database's message for the operator, if the SQL is invalid or the
    session lacks a privilege.
    """

    async def query(self, pieces: Sequence[str | Parameter], declared: Mapping[str, Declared]) -> Inspected:
        """Return the query in *pieces*, whose parameters are *declared*, as the database understands it.

        A claim is not declared: it has the type that the database infers, or is text. Raise Refused, with the
        `offset` in the query, if it is invalid or does more than read.
        """

    async def condition(self, table: Table, condition: Fragment) -> RowFilter:
        """Return *condition* on *table* with the types of its parameters, as the database understands it."""


OnChange = Callable[[], None]  #: called when the database announces a change


T = TypeVar("T", bound=Runner | Writer | SqlRunner)


class LazyPart(Generic[T]):
    """A part of a backend, which is imported in a thread when it is first needed."""

    def __init__(self, load: Callable[[], T], loading: anyio.Lock) -> None:
        self._load = load  #: imports it, without opening a connection
        self._loading = loading  #: of all parts, which import the same modules
        self.loaded: T | None = None  #: once it is needed

    async def __call__(self) -> T:
        """Return the part."""
        if self.loaded is None:
            async with self._loading:
                if self.loaded is None:
                    self.loaded = await anyio.to_thread.run_sync(self._load)
        return self.loaded

    async def close(self) -> None:
        """Close the connections of the part, if it has been loaded."""
        if self.loaded is not None:
            await self.loaded.close()


class Backend(ABC):
    """One database by its URL. Connections open when they are needed.

    Every verb raises DatabaseUnavailable if the database cannot be reached or read.
    """

    facts: Facts

    def __init__(self, url: str, *, write_url: str = "", lock_timeout: float = CHANGE_LOCK_TIMEOUT) -> None:
        """Raise ConfigurationError if *url* is invalid.

        *write_url*: of the connections that change rows, by default *url*; *lock_timeout*: the seconds that a
        change waits for a lock.
        """
        self.url = url
        self.write_url = write_url or url
        self.lock_timeout = lock_timeout
        loading = anyio.Lock()
        self.runner = LazyPart(self.load_runner, loading)
        self.writer = LazyPart(self.load_writer, loading)
        self.sql_runner = LazyPart(self.load_sql_runner, loading)

    @property
    @abstractmethod
    def place(self) -> str:
        """The location of the database and the login, for messages: never a password."""

    @staticmethod
    def absolute_url(url: str, folder: Path) -> str:
        """Return *url* with its relative paths resolved against *folder*."""
        return url

    def shareable_url(self) -> tuple[str, Mapping[str, str]]:
        """Return a URL without passwords that works in any folder, and the variables that it needs."""
        return self.absolute_url(self.url, Path.cwd()), {}

    @abstractmethod
    def load_runner(self) -> Runner:
        """Import and return the Runner, without opening a connection."""

    def load_writer(self) -> Writer:
        """Import and return the Writer, without opening a connection; raise Refused if there is none."""
        raise Refused(NEVER_CHANGED)

    def load_sql_runner(self) -> SqlRunner:
        """Import and return the SqlRunner, without opening a connection; raise Refused if there is none."""
        raise Refused("dbtools does not run callers' SQL on databases of this kind.")

    async def offer(self, catalog: Catalog, functions: FunctionRules = NO_RULES) -> SqlOffer:
        """Return whether the login, which sees *catalog*, can have run_sql under the rules *functions*."""
        return SqlOffer()

    def open_engine(self) -> "Engine | AsyncEngine":
        """Return an engine that can change the database, for migrations only."""
        raise ConfigurationError(KEEPS_NO_REGISTRY)

    async def recover(self) -> None:
        """Roll back what a program that stopped has half written, unless the database does that by itself.

        This writes, so it is only for a database in which callers may change rows.
        """
        return

    @abstractmethod
    async def introspect(self, selection: Selection, session: Mapping[str, str] = NO_SESSION) -> Catalog:
        """Return the current catalog as seen with the settings *session*, or raise Refused."""

    @abstractmethod
    def describe(self, session: Mapping[str, str] = NO_SESSION) -> AbstractAsyncContextManager[Inspector]:
        """Open an Inspector with the settings *session*, or raise Refused."""

    def describe_changes(
        self, session: Mapping[str, str] = NO_SESSION
    ) -> AbstractAsyncContextManager[Inspector]:
        """Open an Inspector of queries that change rows, for the login of `write_url`."""
        raise Refused(NEVER_CHANGED)

    @abstractmethod
    async def stamp(self) -> str:
        """Return the current `Catalog.stamp`."""

    def listen(self, on_change: OnChange) -> AbstractAsyncContextManager[None]:
        """Return a context in which *on_change* is called on each announcement, if there are any."""
        return nullcontext()

    async def registry(self) -> Registry | None:
        """Return the current content of the registry, None if there is no registry."""
        return None

    def open_records(self, timeout: float | None) -> RecordStore:
        """Return the store of dbtools' own tables, without opening a connection.

        *timeout*: seconds that a write may wait; None leaves it to the database.
        """
        raise ConfigurationError(KEEPS_NO_REGISTRY)

    async def grants(
        self,
        catalog: Catalog,
        roles: Sequence[Role],
        queries: Sequence[Permitted],
        login: str,
        writer: str | None,
    ) -> str:
        """Return an SQL script for a *login* that can do what *roles* and their *queries* do.

        *writer*: another login, which makes the changes.
        Raise ConfigurationError if the database has no logins or cannot say what is read.
        """
        raise ConfigurationError(
            "This database has no logins: anyone who can read its file can read all of it.",
            hint="Roles limit what callers see and change.",
        )

    async def missing_privileges(
        self, tables: Sequence[Table], session: Mapping[str, str] = NO_SESSION
    ) -> MissingPrivileges:
        """Return what the login of `write_url` lacks for the writes of *tables*.

        The login has the settings *session*; raise Refused if the database does not accept them.
        """
        return MissingPrivileges({table.location: NEVER_CHANGED for table in tables})

    async def install_watch(self) -> None:
        """Run the watch script in the database."""
        raise ConfigurationError("This database does not announce changes.")

    async def close(self) -> None:
        """Close every connection."""
        for each in (self.runner, self.writer, self.sql_runner):
            await each.close()


def temporary_refusal(message: str) -> Refused:
    """Return the error of SQL that cannot be checked now, because the database is busy."""
    return Refused(message, hint="It will be checked again in a moment.", temporary=True)


def check_names(names: Iterable[str]) -> None:
    """Raise Refused if there are no columns, or if two have the same name."""
    number = Counter(names)
    if not number:
        raise Refused("The query has no columns.")
    for name, times in number.items():
        if times > 1:
            raise Refused(f"{times} columns are named {quote(name)}.", hint="Name each with AS.")
