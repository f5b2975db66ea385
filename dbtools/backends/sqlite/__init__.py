"""The Backend of SQLite, which reads a file with the driver of the standard library."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dbtools.backends import port
from dbtools.backends.port import CHANGE_LOCK_TIMEOUT, NO_DBTOOLS_WRITE, Facts, Inspector, Runner, Writer
from dbtools.backends.processes import UNLIMITED
from dbtools.backends.records import Registry
from dbtools.backends.run_sql import SqlOffer, SqlRunner
from dbtools.backends.runs import NO_SESSION
from dbtools.backends.sqlite.connection.files import (
    location_of,
    opening_error,
    read_file,
    recover,
    remove_side_files,
    stamp_of,
    write_obstacle,
)
from dbtools.backends.sqlite.connection.urls import with_full_path
from dbtools.backends.sqlite.queries.change_inspection import hindrances, inspect_change, unprepared_changes
from dbtools.backends.sqlite.queries.inspection import SqliteInspector, open_for_inspection
from dbtools.backends.sqlite.registry import SqliteRecords, has_journal, registry_of
from dbtools.backends.sqlite.schema.introspection import read_catalog
from dbtools.backends.sqlite.schema.relations import may_refer
from dbtools.backends.sqlite.schema.syntax import lexis
from dbtools.errors import Refused
from dbtools.policy.roles import NO_RULES, FunctionRules
from dbtools.policy.writes import MissingPrivileges
from dbtools.schema.catalog import Catalog, Selection, Table

if TYPE_CHECKING:
    from sqlalchemy import Engine

__all__ = ["Backend"]

SESSIONLESS = "A database file has no roles and no settings."
#: A misspelt path often leaves an empty file behind, and a new database is also empty.
EMPTY = "{} is empty, and served as a database without tables: is this the right file?"


IMMUTABLE = (
    "immutable=1 in the URL: changes that another program makes are not noticed, and make answers wrong. "
    "Without it, SQLite notices them."
)


class Backend(port.Backend):
    """A database file."""

    facts = Facts(
        lexis=lexis,
        interval=1.0,
        claim_casts={"integer": "integer", "boolean": "integer", "number": "real", "decimal": "numeric"},
        implicit_casts={},
        alike=may_refer,
    )

    def __init__(self, url: str, *, write_url: str = "", lock_timeout: float = CHANGE_LOCK_TIMEOUT) -> None:
        super().__init__(url, write_url=write_url, lock_timeout=lock_timeout)
        self._file = location_of(url)

    @property
    def place(self) -> str:
        """The path of the file as given."""
        return self._file.given

    @staticmethod
    def absolute_url(url: str, folder: Path) -> str:
        """Return *url* with the full path of the file, resolved against *folder*."""
        return with_full_path(url, folder)

    def load_runner(self) -> Runner:
        """Import and return the Runner."""
        from dbtools.backends.sqlite.reading.runner import SqliteRunner

        return SqliteRunner(self._file)

    def load_writer(self) -> Writer:
        """Import and return the Writer."""
        from dbtools.backends.sqlite.writing.writer import SqliteWriter

        return SqliteWriter(location_of(self.write_url), self.lock_timeout)

    def load_sql_runner(self) -> SqlRunner:
        """Import and return the SqlRunner."""
        from dbtools.backends.sqlite.run_sql.runner import SqliteSqlRunner

        return SqliteSqlRunner(self._file)

    def open_engine(self) -> "Engine":
        """Return an engine that can change or create the file."""
        from dbtools.backends.sqlite.reading.runner import open_engine

        return open_engine(self._file)

    async def recover(self) -> None:
        """Let SQLite roll back what is in a journal that a program has left."""
        await asyncio.to_thread(recover, self._file)

    async def introspect(self, selection: Selection, session: Mapping[str, str] = NO_SESSION) -> Catalog:
        """Return the current catalog of the file."""
        if session:
            raise Refused(SESSIONLESS)
        return await asyncio.to_thread(read_file, self._file, partial(self._introspect, selection))

    def _introspect(self, selection: Selection, connection: sqlite3.Connection, file: str) -> Catalog:
        catalog = read_catalog(connection, selection, file)
        is_empty = self._file.path.stat().st_size == 0
        warnings = [EMPTY.format(self.place)] if is_empty else []
        if self._file.immutable:
            warnings.append(IMMUTABLE)
        return replace(catalog, warnings=(*warnings, *catalog.warnings))

    @asynccontextmanager
    async def describe(self, session: Mapping[str, str] = NO_SESSION) -> AsyncIterator[Inspector]:
        """Open an Inspector, without a session."""
        if session:
            raise Refused(SESSIONLESS)
        with closing(SqliteInspector(self._file)) as inspector:
            yield inspector

    @asynccontextmanager
    async def describe_changes(self, session: Mapping[str, str] = NO_SESSION) -> AsyncIterator[Inspector]:
        """Open an Inspector of changes, or raise Refused if the file cannot be changed."""
        if session:
            raise Refused(SESSIONLESS)
        why = await asyncio.to_thread(write_obstacle, location_of(self.write_url), self._file)
        if why:
            raise Refused(why)
        with closing(SqliteInspector(self._file, inspect_change)) as inspector:
            yield inspector

    async def missing_privileges(
        self, tables: Sequence[Table], session: Mapping[str, str] = NO_SESSION
    ) -> MissingPrivileges:
        """Return why the file of `write_url` cannot be changed, and whether it lacks a journal."""
        why = await asyncio.to_thread(write_obstacle, location_of(self.write_url), self._file)
        if why:
            return MissingPrivileges({table.location: why for table in tables})
        try:
            return await asyncio.to_thread(self._missing_privileges, tables)
        except sqlite3.Error as exc:
            raise opening_error(self._file, exc) from exc

    def _missing_privileges(self, tables: Sequence[Table]) -> MissingPrivileges:
        with closing(open_for_inspection(self._file, mode="rw")) as connection:
            return MissingPrivileges(
                unprepared_changes(connection, tables),
                "" if has_journal(connection) else NO_DBTOOLS_WRITE,
                hindrances(connection, tables),
            )

    async def offer(self, catalog: Catalog, functions: FunctionRules = NO_RULES) -> SqlOffer:
        """Offer run_sql if this system can limit the memory of a process."""
        obstacle = "" if find_spec("resource") else UNLIMITED
        return SqlOffer(server=f"SQLite {sqlite3.sqlite_version}", obstacle=obstacle)

    async def stamp(self) -> str:
        """Return the current stamp of the schema."""
        return await asyncio.to_thread(read_file, self._file, stamp_of)

    async def registry(self) -> Registry | None:
        """Return the current content of the registry in the file, None if there is none."""
        return await asyncio.to_thread(read_file, self._file, registry_of)

    def open_records(self, timeout: float | None) -> SqliteRecords:
        """Return the store of dbtools' own tables in the file."""
        return SqliteRecords(self._file, timeout)

    async def close(self) -> None:
        """Close every connection, and leave no files that reading has made."""
        await super().close()
        await asyncio.to_thread(remove_side_files, self._file)
