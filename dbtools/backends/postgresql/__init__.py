"""The Backend of PostgreSQL, which uses asyncpg."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dbtools.backends import port
from dbtools.backends.port import CHANGE_LOCK_TIMEOUT, Facts, OnChange, Runner, Writer
from dbtools.backends.postgresql.connection.connections import check_session
from dbtools.backends.postgresql.connection.pipeline import ServerConnection
from dbtools.backends.postgresql.connection.urls import destination, with_full_paths, without_password
from dbtools.backends.postgresql.queries import inspection
from dbtools.backends.postgresql.queries.change_inspection import PostgresqlChangeInspector
from dbtools.backends.postgresql.queries.privileges import missing_privileges
from dbtools.backends.postgresql.registry import PostgresqlRecords, registry_of
from dbtools.backends.postgresql.schema import changes
from dbtools.backends.postgresql.schema.introspection import are_alike, read_catalog
from dbtools.backends.postgresql.schema.types import lexis
from dbtools.backends.postgresql.schema.vocabulary import read_offer
from dbtools.backends.postgresql.writing.grants import write_script
from dbtools.backends.processes import UNLIMITED
from dbtools.backends.records import Registry
from dbtools.backends.run_sql import SqlOffer, SqlRunner
from dbtools.backends.runs import NO_SESSION
from dbtools.policy.roles import NO_RULES, FunctionRules, Role
from dbtools.policy.writes import MissingPrivileges
from dbtools.queries import Permitted
from dbtools.schema.catalog import Catalog, Selection, Table
from dbtools.values.types import Family

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ["Backend"]

NO_CATALOG = "The catalog of the database cannot be read."
READING_CATALOG = 600.0  #: seconds to read the catalog; polls wait for it
REGISTRY_TIMEOUT = 3.0  #: seconds to read the registry; a refresh waits for it


class Backend(port.Backend):
    """A database on a PostgreSQL server."""

    facts = Facts(
        lexis=lexis,
        interval=changes.INTERVAL,
        claim_casts=None,
        implicit_casts={
            Family.DECIMAL: frozenset({Family.NUMBER}),
            Family.DATE: frozenset({Family.TIMESTAMP, Family.TIMESTAMPTZ}),
        },
        alike=are_alike,
        names_connections=True,
        announcement=changes.ANNOUNCEMENT,
        watch_script=changes.TRIGGER_SCRIPT,
    )

    def __init__(self, url: str, *, write_url: str = "", lock_timeout: float = CHANGE_LOCK_TIMEOUT) -> None:
        super().__init__(url, write_url=write_url, lock_timeout=lock_timeout)
        self._destination = destination(url)
        self._controls: dict[str, changes.Control] = {}  #: by URL
        self._search_path: tuple[str, ...] | None = None

    def _control_of(self, url: str) -> changes.Control:
        """Return the Control of the login of *url*."""
        return self._controls.setdefault(url, changes.Control(url))

    @property
    def _control(self) -> changes.Control:
        return self._control_of(self.url)

    @property
    def place(self) -> str:
        """The host, port, database and user, for messages."""
        return self._destination.place

    @staticmethod
    def absolute_url(url: str, folder: Path) -> str:
        """Return *url* with absolute paths of files; relative ones are relative to *folder*."""
        return with_full_paths(url, folder)

    def shareable_url(self) -> tuple[str, Mapping[str, str]]:
        """Return the URL without passwords, and the environment variables that it needs."""
        return without_password(self.url)

    def load_runner(self) -> Runner:
        """Import and return the Runner."""
        from dbtools.backends.postgresql.reading.runner import PostgresqlRunner

        return PostgresqlRunner(self.url)

    def load_writer(self) -> Writer:
        """Import and return the Writer."""
        from dbtools.backends.postgresql.writing.writer import PostgresqlWriter

        return PostgresqlWriter(self.write_url, self.lock_timeout)

    def load_sql_runner(self) -> SqlRunner:
        """Import and return the SqlRunner."""
        from dbtools.backends.postgresql.run_sql.runner import PostgresqlSqlRunner

        return PostgresqlSqlRunner(self.url)

    def open_engine(self) -> "AsyncEngine":
        """Return an engine that may write to the database."""
        from dbtools.backends.postgresql.reading.runner import open_engine

        return open_engine(self.url)

    async def introspect(self, selection: Selection, session: Mapping[str, str] = NO_SESSION) -> Catalog:
        """Return the catalog of what the login may read with the settings *session*."""

        async def read(connection: ServerConnection) -> Catalog:
            await check_session(connection, session)
            with connection.having(session):
                return await read_catalog(connection, selection)

        if session:
            return await self._control.answer(read, NO_CATALOG, READING_CATALOG)
        for each in self._controls.values():
            await each.renew()
        catalog = await self._control.answer(read, NO_CATALOG, READING_CATALOG)
        if self._search_path not in (None, catalog.search_path):
            # Open connections keep their old search path.
            await self.runner.close()
            await self.sql_runner.close()
        self._search_path = catalog.search_path
        return replace(catalog, warnings=(*catalog.warnings, *self._destination.warnings))

    def describe(
        self, session: Mapping[str, str] = NO_SESSION
    ) -> AbstractAsyncContextManager[inspection.SharingInspector]:
        """Return a context that checks SQL written by operators."""
        return inspection.describe(self._control, session)

    def describe_changes(
        self, session: Mapping[str, str] = NO_SESSION
    ) -> AbstractAsyncContextManager[inspection.SharingInspector]:
        """Return a context that checks queries that change rows, as the login of `write_url`."""
        return inspection.describe(self._control_of(self.write_url), session, PostgresqlChangeInspector)

    async def stamp(self) -> str:
        """Return the current stamp of the schema."""
        return await self._control.answer(changes.read_stamp, changes.UNANSWERED, changes.POLL_TIMEOUT)

    def listen(self, on_change: OnChange) -> AbstractAsyncContextManager[None]:
        """Call *on_change* on each notification, and when the connection is lost."""
        return self._control.watch(on_change)

    async def registry(self) -> Registry | None:
        """Return the content of the registry in the database, or None."""
        return await self._control.answer(registry_of, "The registry cannot be read.", REGISTRY_TIMEOUT)

    def open_records(self, timeout: float | None) -> PostgresqlRecords:
        """Return the store of the tables that dbtools keeps in the database."""
        return PostgresqlRecords(self.url, timeout)

    async def grants(
        self,
        catalog: Catalog,
        roles: Sequence[Role],
        queries: Sequence[Permitted],
        login: str,
        writer: str | None,
    ) -> str:
        """Return a script that grants *login* what *roles* and *queries* do, or *writer* what they change."""
        async with self.describe() as shared:
            return await shared.ask(
                lambda inspector: write_script(inspector, catalog, roles, queries, login, writer)
            )

    async def missing_privileges(
        self, tables: Sequence[Table], session: Mapping[str, str] = NO_SESSION
    ) -> MissingPrivileges:
        """Return which privileges the login of `write_url` lacks for the writes of *tables*."""
        place = destination(self.write_url).place
        async with inspection.describe(self._control_of(self.write_url), session) as shared:
            return await shared.ask(lambda inspector: missing_privileges(inspector, tables, place))

    async def offer(self, catalog: Catalog, functions: FunctionRules = NO_RULES) -> SqlOffer:
        """Return whether ad-hoc SQL may run: the login must only be able to read, in whatever role."""
        obstacles = (*catalog.posture, *(() if find_spec("resource") else (UNLIMITED,)))
        if obstacles:
            return SqlOffer(obstacle=" ".join(obstacles))
        read = partial(read_offer, path=catalog.search_path, rules=functions)
        return await self._control.answer(read, NO_CATALOG, READING_CATALOG)

    async def install_watch(self) -> None:
        """Run the watch script, as a superuser."""
        control, failing = changes.Control(self.url), "The event triggers cannot be created."
        try:
            await control.answer(changes.install_watch, failing, READING_CATALOG)
        finally:
            await control.close()

    async def close(self) -> None:
        """Close every connection."""
        for each in self._controls.values():
            await each.close()
        await super().close()
