"""The database that is served: its catalog, and a pool of connections that can only read."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from dbtools import errors
from dbtools.backends import dialect_of, load_driver
from dbtools.backends.inspected import Reads
from dbtools.catalog import Catalog, Selection, Table
from dbtools.policy import Role
from dbtools.sql import Fragment

if TYPE_CHECKING:
    from dbtools.backends.driver import Driver, Fetched, Label, Plan, Pool
    from dbtools.backends.inspected import Inspect
    from dbtools.backends.registered import Registry
    from dbtools.backends.watched import Look


NO_SESSION: Mapping[str, str] = {}


class Database:
    """One database by its URL; nothing is opened before it is needed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._dialect = dialect_of(url)
        self._reader = self._dialect.Reader(url)
        self._driver: Driver | None = None
        self._pool: Pool | None = None
        self._search_path: tuple[str, ...] | None = None
        self._opening = anyio.Lock()

    async def introspect(self, selection: Selection, session: Mapping[str, str] = NO_SESSION) -> Catalog:
        """Return what the database holds now, as it is seen with the settings *session*; or raise Refused."""
        if not session:
            catalog = await self._reader.read(selection)
            if self._search_path not in (None, catalog.search_path):
                # Names mean something else now; on connections that are open they mean what they did.
                await self.reopen()
            self._search_path = catalog.search_path
            return catalog
        return await self._dialect.introspect(self.url, selection, session)

    async def registry(self) -> "Registry | None":
        """Return what its registry holds now, None where there is none; or raise DatabaseUnavailable."""
        return await self._reader.registry()

    async def grants(self, catalog: Catalog, roles: Sequence[Role], reads: Reads, login: str) -> str:
        """Return an SQL script for a *login* that reads what *roles* and their queries read, and no more."""
        return await self._dialect.grants(self.url, catalog, roles, reads, login)

    async def driver(self) -> "Driver":
        """Return the driver, imported on a thread at the first call since that takes long."""
        if self._driver is None:
            async with self._opening:
                if self._driver is None:
                    driver = await anyio.to_thread.run_sync(load_driver, self.url)
                    self._pool = driver.open_pool(self.url)
                    self._driver = driver
        return self._driver

    async def casts(
        self, table: Table, condition: Fragment, session: Mapping[str, str] = NO_SESSION
    ) -> tuple[str, ...]:
        """Return the types of the claims in *condition* on the rows of *table*, or raise Refused.

        *session* are the settings of the database under which the condition is evaluated.
        """
        driver = await self.driver()

        async def cast() -> tuple[str, ...]:
            async with self.connection() as connection:
                return await driver.casts(connection, table, condition, session)

        try:
            return await cast()
        except driver.errors as exc:
            if not driver.is_lost(exc):
                raise
        # It has waited in the pool while the database was away.
        await self.reopen()
        try:
            return await cast()
        except driver.errors as exc:
            raise errors.DatabaseUnavailable from exc

    def inspector(self, session: Mapping[str, str] = NO_SESSION) -> "AbstractAsyncContextManager[Inspect]":
        """Lend what asks of queries, with the settings *session*; or raise DatabaseUnavailable."""
        return self._dialect.inspector(self.url, session)

    @property
    def interval(self) -> float:
        """How many seconds there are between two looks whether something has changed."""
        return self._dialect.INTERVAL

    def watcher(self, heard: "Callable[[], None]") -> "AbstractAsyncContextManager[Look]":
        """Lend what tells the stamp of the schema; *heard* is called when the database tells of a change."""
        return self._dialect.watcher(self.url, heard)

    def connection(self) -> AbstractAsyncContextManager[object]:
        """Lend one of the driver's connections."""
        return self._pool.connection() if self._pool is not None else self._first_connection()

    @asynccontextmanager
    async def _first_connection(self) -> AsyncIterator[object]:
        await self.driver()
        assert self._pool is not None
        async with self._pool.connection() as connection:
            yield connection

    def look_up(
        self, plan: "Plan", parameters: Sequence[object], *, limit: int, stamp: str, label: "Label"
    ) -> "Fetched | None":
        """Return what *plan*, which reads a row by its key, finds at once; None: it is to be fetched."""
        if self._pool is None:
            return None
        return self._pool.look_up(plan, parameters, limit=limit, stamp=stamp, label=label)

    async def reopen(self) -> None:
        """Forget the connections that wait in the pool: the server has ended them."""
        if self._pool is not None:
            await self._pool.reopen()

    async def close(self) -> None:
        """Close every connection."""
        await self._reader.close()
        if self._pool is not None:
            await self._pool.close()
