"""Whether a PostgreSQL database has changed: its schema, and the registry in it. A URL in, answers out.

Whoever migrates may tell, by NOTIFY in the same transaction: an event trigger does, or a hook of Alembic. Who
is not told looks, which no privilege is needed for, and which leaves nothing set on the connection.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import anyio
import asyncpg

from dbtools.backends.port import Look
from dbtools.backends.postgresql.fingerprint import ENDED, fingerprint
from dbtools.backends.postgresql.location import connect
from dbtools.backends.postgresql.pooled import is_pooled
from dbtools.backends.postgresql.registry import registry_of
from dbtools.backends.postgresql.transactions import DRIVER_ERRORS, rolled_back
from dbtools.errors import DatabaseUnavailable

CHANNEL = "dbtools_schema"
INTERVAL = 2.0  #: seconds between two looks
PATIENCE = 10.0  #: seconds that one look may take
#: Compiling takes longer than looking. Nothing is set for longer: a pooler lends the connection to others.
BEGIN = "begin read only; set local jit = off"

T = TypeVar("T")


@asynccontextmanager
async def watcher(url: str, heard: Callable[[], None]) -> AsyncIterator[Look]:
    """Lend what tells the stamp of the schema; a notification, and a lost connection, are *heard*."""
    async with _connection(url) as connection:
        await listen(connection, heard)

        async def look() -> Hashable:
            return await _answer(_looked(connection))

        yield look


async def _looked(connection: Any) -> str:
    async with rolled_back(connection, BEGIN):
        return await fingerprint(connection)


async def listen(connection: Any, heard: Callable[[], None]) -> None:
    """Have *heard* called when the database tells of a change, where it can, and when the connection ends."""
    connection.add_termination_listener(lambda _: heard())
    if is_pooled(connection):
        # It would listen on a connection that is soon another's.
        return
    # A server in recovery lets nobody listen: the looks remain.
    with suppress(asyncpg.PostgresError):
        await connection.add_listener(CHANNEL, lambda *_: heard())


@asynccontextmanager
async def registry_watcher(url: str, heard: Callable[[], None]) -> AsyncIterator[Look]:
    """Lend what tells what the registry holds: it is read where anybody has written anything.

    A notification is *heard*, as of the schema.
    """
    async with _connection(url) as connection:
        await listen(connection, heard)
        seen: tuple[Hashable, Hashable] = None, None

        async def look() -> Hashable:
            nonlocal seen
            ended = await _answer(connection.fetchval(ENDED))
            if ended != seen[0]:
                seen = ended, await _registry(connection)
            return seen[1]

        yield look


async def _registry(connection: Any) -> Hashable:
    try:
        return await _answer(registry_of(connection))
    except DatabaseUnavailable as exc:
        if exc.__cause__ is not None:
            raise
        # It is there, and not for this login, or not to be trusted: that may change as well.
        return str(exc)


async def _answer(asked: Awaitable[T]) -> T:
    """Return what the server answers, or raise DatabaseUnavailable."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await asked
    except (TimeoutError, *DRIVER_ERRORS) as exc:
        raise DatabaseUnavailable("The database does not answer whether it has changed.") from exc


@asynccontextmanager
async def _connection(url: str) -> AsyncIterator[Any]:
    connection = await connect(url)
    try:
        yield connection
    finally:
        with anyio.CancelScope(shield=True), suppress(TimeoutError, *DRIVER_ERRORS):
            await connection.close(timeout=2)
