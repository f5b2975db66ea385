"""SQLite: a file, read through the standard library's driver."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from dbtools.backends import port
from dbtools.backends.port import NO_SESSION, Describe, Facts, Heard, Look, Runner, Subject
from dbtools.backends.records import Registry
from dbtools.backends.sqlite.files import Watched, encoded, location_of, read_file, stamp_of
from dbtools.backends.sqlite.inspection import Description
from dbtools.backends.sqlite.introspection import read_catalog
from dbtools.backends.sqlite.registry import SqliteRecords, read_registry
from dbtools.backends.sqlite.relations import are_alike
from dbtools.backends.sqlite.syntax import lexis
from dbtools.catalog import Catalog, Selection
from dbtools.errors import Refused

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

__all__ = ["Backend"]

SESSIONLESS = "A database file has no roles and no settings."
#: A misspelt path often leaves an empty file behind, and a new database is also empty.
EMPTY = "{} is empty, and served as a database without tables: is this the right file?"


class Backend(port.Backend):
    """A database file."""

    facts = Facts(
        lexis=lexis,
        interval=1.0,
        claim_casts={"integer": "integer", "boolean": "integer", "number": "real", "decimal": "numeric"},
        implicit_casts={},
        alike=are_alike,
        names_connections=False,
        announcement=None,
        watch_script=None,
    )

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._location = location_of(url)

    @property
    def place(self) -> str:
        """The path of the file as given."""
        return self._location.given

    @staticmethod
    def resolved(url: str, folder: Path) -> str:
        """Return *url* with the full path of the file, resolved against *folder*."""
        scheme, separator, rest = url.partition(":///")
        is_relative = separator and rest and not rest.startswith("/")
        return f"{scheme}:///{encoded(folder.absolute())}/{rest}" if is_relative else url

    def shareable(self) -> tuple[str, Mapping[str, str]]:
        """Return the URL with the full path of the file, so that it works in any folder."""
        return self.resolved(self.url, Path.cwd()), {}

    def load_runner(self) -> Runner:
        """Import the Runner."""
        runner: Runner = import_module("dbtools.backends.sqlite.runner").SqliteRunner(self._location)
        return runner

    def open_engine(self) -> "Engine | AsyncEngine":
        """Return an engine that can change the database."""
        runner = import_module("dbtools.backends.sqlite.runner")
        engine: Engine = runner.open_engine(self._location)
        return engine

    async def introspect(self, selection: Selection, session: Mapping[str, str] = NO_SESSION) -> Catalog:
        """Return the current catalog of the file."""
        if session:
            raise Refused(SESSIONLESS)
        return await asyncio.to_thread(read_file, self._location, partial(self._introspect, selection))

    def _introspect(self, selection: Selection, connection: sqlite3.Connection, file: str) -> Catalog:
        catalog = read_catalog(connection, selection, file)
        is_empty = self._location.path.stat().st_size == 0
        warnings = (EMPTY.format(self.place),) if is_empty else ()
        return replace(catalog, warnings=(*warnings, *catalog.warnings))

    @asynccontextmanager
    async def describe(self, session: Mapping[str, str] = NO_SESSION) -> AsyncIterator[Describe]:
        """Open a Description, without a session."""
        if session:
            raise Refused(SESSIONLESS)
        with closing(Description(self._location)) as description:
            yield description

    @asynccontextmanager
    async def listen(self, subject: Subject, heard: Heard) -> AsyncIterator[Look]:
        """Open what polls the state of *subject*; a file announces no changes."""
        stamp = partial(asyncio.to_thread, read_file, self._location, stamp_of)
        read = stamp if subject is Subject.SCHEMA else self.registry
        yield Watched(self._location, read).look

    async def registry(self) -> Registry | None:
        """Return the current content of the registry in the file, None if there is none."""
        return await asyncio.to_thread(read_registry, self._location)

    def open_records(self, patience: float | None) -> SqliteRecords:
        """Return the store of dbtools' own tables in the file."""
        return SqliteRecords(self._location, patience)
