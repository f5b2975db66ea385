"""Statements in one round trip, the internals of asyncpg that this needs, and how transactions end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager

import asyncpg
import pytest

from dbtools.backends.postgresql.connection.connections import connect, end
from dbtools.backends.postgresql.connection.pipeline import (
    END_TIMEOUT,
    STATEMENTS,
    ServerConnection,
    messages,
    parse_message,
    roll_back,
)
from tests.conftest import Clock

SET = "select where set_config($1, $2, false) is null"
FAIL = "select where 1 / $1::int = 0"


@pytest.fixture
async def connection(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
) -> AsyncIterator[ServerConnection]:
    with postgresql_database("create schema s") as url:
        connection = await connect(url)
        yield connection
        await end(connection)


async def test_messages_around_a_statement_run_in_their_order_and_only_its_rows_are_returned(
    connection: ServerConnection,
) -> None:
    statement = await connection.prepare("select current_setting('app.x') || $1")
    before, behind = messages(SET, "app.x", "it's \\ ü"), messages(SET, "app.x", "after")

    rows = await connection.run(statement, ["!"], before, behind)

    assert [tuple(row) for row in rows] == [("it's \\ ü!",)]
    assert await connection.fetchval("select current_setting('app.x')") == "after"
    assert [tuple(row) for row in await connection.fetch("select 1")] == [(1,)]


async def test_rows_of_one_text_arrive_in_one_round_trip(connection: ServerConnection) -> None:
    explained = messages("explain (format json) select $1::pg_catalog.text", "ü")

    plan, *others = await connection.texts(
        explained + messages("values ('a'), ('')") + parse_message("select 1 / 0")
    )

    assert "Result" in plan
    assert others == ["a", ""]


@pytest.mark.parametrize("at", ["before", "behind"])
async def test_error_around_a_statement_ends_it_and_leaves_the_connection_usable(
    at: str, connection: ServerConnection
) -> None:
    statement = await connection.prepare("select 1")
    around = (messages(FAIL, "0"), b"") if at == "before" else (b"", messages(FAIL, "0"))

    with pytest.raises(asyncpg.DivisionByZeroError):
        await connection.run(statement, [], *around)
    again = await connection.run(statement, [], messages(SET, "app.x", "y"), b"")

    assert [tuple(row) for row in again] == [(1,)]


async def test_messages_are_not_kept_where_the_values_are_not_taken(connection: ServerConnection) -> None:
    statement = await connection.prepare("select $1::int")

    with pytest.raises(asyncpg.DataError):
        await connection.run(statement, ["text"], messages(FAIL, "0"), b"")

    assert await connection.fetchval("select 1") == 1


async def test_connection_ends_where_asyncpg_writes_something_else(connection: ServerConnection) -> None:
    connection.transport.around = b"", b""

    with pytest.raises(asyncpg.InternalClientError, match="other messages"):
        await connection.execute("select 1")

    assert connection.is_closed()


async def test_text_that_is_none_is_refused_by_the_server(connection: ServerConnection) -> None:
    with pytest.raises(asyncpg.CharacterNotInRepertoireError):
        await connection.send(messages(SET, "app.x", "\ud800"))
    with pytest.raises(asyncpg.CharacterNotInRepertoireError):
        await connection.send(messages(SET, "app.x", "\0"))


async def test_statements_not_used_for_long_are_given_up(connection: ServerConnection) -> None:
    used_again = "select 0", ""
    for number in range(STATEMENTS + 1):
        await connection.prepare_key((f"select {number}", ""), ())
        assert connection.prepared_statement(used_again) is not None
    await connection.prepare("select 'asyncpg closes what is given up now'")

    numbers = range(STATEMENTS + 1)
    missing = [at for at in numbers if connection.prepared_statement((f"select {at}", "")) is None]
    kept = await connection.fetch("select statement from pg_prepared_statements")
    assert missing == [1]
    assert "select 1" not in [row["statement"] for row in kept]


class Hanging:
    """Stands in for a connection whose server does not answer, however long *clock* runs."""

    terminated = False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def execute(self, sql: str) -> None:
        """Wait for ever."""
        self._clock.advance(END_TIMEOUT)
        await asyncio.Event().wait()

    def terminate(self) -> None:
        """End."""
        self.terminated = True


async def test_connection_whose_server_does_not_answer_is_ended(clock: Clock) -> None:
    connection = Hanging(clock)

    await roll_back(connection)

    assert connection.terminated


class Resting:
    """Stands in for a connection whose rollback goes on until it is *released*."""

    terminated = False

    def __init__(self) -> None:
        self.asked, self.released = asyncio.Event(), asyncio.Event()

    async def execute(self, sql: str) -> None:
        """Wait until it is released."""
        self.asked.set()
        await self.released.wait()

    def terminate(self) -> None:
        """End."""
        self.terminated = True


async def test_rollback_that_is_cancelled_goes_on_and_is_waited_for() -> None:
    connection = Resting()
    rollback = asyncio.create_task(roll_back(connection))
    await connection.asked.wait()
    for _ in range(2):
        rollback.cancel()
        await asyncio.sleep(0)
    waits = not rollback.done()
    connection.released.set()
    with pytest.raises(asyncio.CancelledError):
        await rollback

    assert waits
    assert not connection.terminated
