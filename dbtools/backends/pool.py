"""SQLAlchemy's pool of connections, lent as the driver's own."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.pool import AsyncAdaptedQueuePool
from sqlalchemy.util import greenlet_spawn

from dbtools import errors
from dbtools.telemetry import note_wait

PATIENCE = 5.0  #: seconds that a call waits for a connection


class EnginePool:
    """The pool of an engine."""

    def __init__(
        self,
        scheme: str,
        connect: Callable[[], Awaitable[Any]],
        *,
        size: int,
        is_usable: Callable[[Any], bool],
        prepare: Any = None,
    ) -> None:
        self._is_usable = is_usable
        # As create_async_engine makes it, whose package imports the whole ORM (SQLAlchemy 2.1).
        self._engine: sa.Engine = sa.create_engine(
            scheme,
            creator=lambda: self._engine.dialect.loaded_dbapi.connect(async_creator_fn=connect),
            poolclass=AsyncAdaptedQueuePool,
            pool_size=size,
            max_overflow=0,
            pool_timeout=PATIENCE,
            # What was used last is warm: its thread, its pages, its prepared statements.
            pool_use_lifo=True,
            pool_reset_on_return=None,
            isolation_level="AUTOCOMMIT",
        )
        if prepare is not None:
            # Not in *connect*, whose errors SQLAlchemy replaces by its own, and leaves the connection open.
            event.listen(self._engine, "connect", lambda adapted, _: adapted.run_async(prepare))

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """Lend a connection, or raise Busy where none comes free in time."""
        pool, began = self._engine.pool, time.monotonic()
        try:
            pooled = await greenlet_spawn(pool.connect)
        except sa.exc.TimeoutError as exc:
            raise errors.Busy("All connections to the database are busy.", hint="Try again.") from exc
        note_wait(time.monotonic() - began)
        try:
            yield pooled.driver_connection
        finally:
            await self._take_back(pooled, pool)

    async def _take_back(self, pooled: Any, pool: Any) -> None:
        if not self._is_usable(pooled.driver_connection):
            self._leave(pooled)
            return
        try:
            if pool is not self._engine.pool:
                # The pool was replaced meanwhile: the old one would never close what comes back.
                with anyio.CancelScope(shield=True):
                    await greenlet_spawn(pooled.invalidate)
        finally:
            # Nothing is reset, so nothing waits: the connection goes back into its queue.
            pooled.close()

    def _leave(self, pooled: Any) -> None:
        """Let another connection take the place of one that ends by itself: to close it would be to wait."""
        pooled.detach()

    async def dispose(self) -> None:
        """Close the connections that nobody uses; those in use are closed when they come back."""
        await greenlet_spawn(self._engine.dispose)
