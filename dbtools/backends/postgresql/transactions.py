"""Transactions that leave nothing behind, whatever happens in them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import asyncpg

PATIENCE = 2.0  #: seconds that a connection has to become clean before it is given up

#: The internal one is what a call meets on a connection that the server is ending at that moment.
DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)


def is_lost(error: Exception) -> bool:
    """Return whether the server or the network ended the connection."""
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        return state.startswith("08") or state in ("57P01", "57P02", "57P05", "25P03")
    return isinstance(error, ConnectionError | asyncpg.InterfaceError | asyncpg.InternalClientError)


@asynccontextmanager
async def rolled_back(connection: Any, begin: str) -> AsyncIterator[None]:
    """Run what is within after the statements *begin*, and undo it."""
    try:
        await connection.execute(begin)
        yield
    finally:
        await roll_back(connection)


async def roll_back(connection: Any) -> None:
    """Make *connection* clean within a bounded time, or end it: it never serves another call dirty."""
    with anyio.CancelScope(shield=True):
        try:
            async with asyncio.timeout(PATIENCE):
                await connection.execute("rollback")
        except (TimeoutError, *DRIVER_ERRORS):
            with suppress(OSError, asyncpg.InterfaceError):
                connection.terminate()
