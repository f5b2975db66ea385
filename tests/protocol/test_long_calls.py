"""Long calls report progress, and stop in the database when no client waits for them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest

from dbtools.backends.sqlite.runner import CONNECTIONS
from dbtools.policy import Caller
from dbtools.service.serving import open_toolbox
from dbtools.settings import DatabaseSection, Settings
from tests.protocol.client import (
    MODERN,
    PATIENCE,
    Client,
    ProcessClient,
    Serving,
    build_server,
    connect,
    spawn,
)
from tests.protocol.conftest import settings_for

PostgresqlDatabase = Callable[[str], AbstractContextManager[str]]
BRIEF = 2.0  #: seconds
ERAS = ("2025-06-18", MODERN)
SLEEPY = "create table quick (a integer); create view slow as select 1 as one from pg_sleep(600);"
ACTIVE = """
select count(*) from pg_stat_activity
where datname = current_database() and state = 'active' and query like '%"slow"%' and pid <> pg_backend_pid()
"""


@pytest.fixture
async def brief_server(path: Path) -> AsyncIterator[Serving]:
    """Give a server whose calls may take two seconds."""
    toolbox, database = open_toolbox(settings_for(path, timeout=BRIEF))
    yield build_server(toolbox, Caller(), "")
    await database.close()


@pytest.fixture(scope="session")
def sleepy_url(postgresql_database: PostgresqlDatabase) -> Any:
    """Give the URL of a PostgreSQL database with a view that sleeps."""
    with postgresql_database(SLEEPY) as url:
        yield url


async def _until_active(url: str, count: int) -> None:
    """Wait until *count* statements on the slow view run in the database at *url*."""
    connection = await asyncpg.connect(url)
    try:
        with anyio.fail_after(PATIENCE):
            while await connection.fetchval(ACTIVE) != count:
                await connection.execute("select pg_sleep(0.02)")
    finally:
        await connection.close()


def _reports(client: Client, token: object) -> list[tuple[float, float]]:
    """Return progress and total of each report for *token*."""
    notes = [message["params"] for message in client.received if "method" in message]
    return [(note["progress"], note["total"]) for note in notes if note["progressToken"] == token]


@pytest.mark.parametrize("version", ERAS)
async def test_long_call_reports_each_second_of_its_timeout(brief_server: Serving, version: str) -> None:
    async with connect(brief_server, version=version) as client:
        await client.open()
        id = await client.start_call("list_slow", token="t")
        answer = await client.answer(id)
        reports = _reports(client, "t")

        assert answer["result"]["isError"] is True
        assert "timeout" in answer["result"]["content"][0]["text"]
        assert reports
        assert reports == [(float(second), BRIEF) for second in range(1, len(reports) + 1)]


async def test_calls_are_reported_under_their_own_tokens_until_they_are_answered(
    brief_server: Serving,
) -> None:
    """The third call outlasts the first ones, so reports of theirs would come before its answer."""
    async with connect(brief_server) as client:
        ids = [await client.start_call("list_slow", token=token) for token in ("one", 2)]
        silent = await client.start_call("list_slow")
        await client.answer(ids[0])
        await client.progress(2)
        last = await client.start_call("list_slow", token="last")
        for id in (*ids, silent, last):
            await client.answer(id)

        tokens = {m["params"]["progressToken"] for m in client.received if "method" in m}
        assert tokens == {"one", 2, "last"}
        for token, id in zip(("one", 2, "last"), (*ids, last), strict=True):
            answered = next(at for at, m in enumerate(client.received) if m.get("id") == id)
            later = client.received[answered:]
            assert not [m for m in later if m.get("params", {}).get("progressToken") == token]


async def test_quick_call_reports_nothing(brief_server: Serving) -> None:
    async with connect(brief_server) as client:
        id = await client.start_call("list_person", token="t")
        await client.answer(id)

    assert _reports(client, "t") == []


@pytest.mark.parametrize("version", ERAS)
async def test_cancelled_calls_free_every_connection(server: Serving, version: str) -> None:
    """As many endless statements as there are connections: the next call waits for none of them."""
    async with connect(server, version=version) as client:
        await client.open()
        tokens = range(100, 100 + CONNECTIONS)
        ids = [await client.start_call("list_slow", token=token) for token in tokens]
        for token in tokens:
            await client.progress(token)
        for id in ids:
            await client.cancel(id)
        result = await client.call("list_person")

        assert result["structuredContent"]["row_count"] == 3
        assert not [message for message in client.received if message.get("id") in ids]


@pytest.mark.parametrize("version", ERAS)
async def test_cancelled_call_stops_in_postgresql(sleepy_url: str, version: str) -> None:
    toolbox, database = open_toolbox(Settings(database=DatabaseSection(url=sleepy_url)))
    async with connect(build_server(toolbox, Caller(), ""), version=version) as client:
        await client.open()
        id = await client.start_call("list_slow")
        await _until_active(sleepy_url, 1)
        await client.cancel(id)
        await _until_active(sleepy_url, 0)
        result = await client.call("list_quick")

        assert result["structuredContent"]["rows"] == []
        assert id not in [message.get("id") for message in client.received]
    await database.close()


@pytest.mark.parametrize("version", ERAS)
async def test_client_that_asked_for_progress_gets_the_error(server: Serving, version: str) -> None:
    """Many clients ask for progress with every call."""
    async with connect(server, version=version) as client:
        await client.open()
        wrong = await client.answer(await client.start_call("list_person", {"limit": 0}, token=1))
        unknown = await client.answer(await client.start_call("list_nobody", token=2))

    assert "limit" in wrong["result"]["content"][0]["text"]
    assert unknown["error"]["code"] == -32602


async def test_cancelled_call_leaves_the_others_alone(brief_server: Serving) -> None:
    async with connect(brief_server) as client:
        cancelled = await client.start_call("list_slow", token="a")
        kept = await client.start_call("list_slow", token="b")
        await client.progress("b")
        await client.cancel(cancelled)
        answer = await client.answer(kept)

        assert "timeout" in answer["result"]["content"][0]["text"]
        assert cancelled not in [message.get("id") for message in client.received]


def _vanish(client: ProcessClient) -> None:
    client.vanish()


def _hang_up(client: ProcessClient) -> None:
    client.hang_up()


def _terminate(client: ProcessClient) -> None:
    client.process.terminate()


@pytest.mark.parametrize("leave", [_vanish, _hang_up, _terminate])
async def test_end_of_the_client_stops_statements_in_postgresql(
    sleepy_url: str, tmp_path: Path, leave: Callable[[ProcessClient], None]
) -> None:
    async with spawn(sleepy_url, tmp_path) as client:
        await client.start_call("list_slow")
        await client.start_call("list_slow")
        await _until_active(sleepy_url, 2)
        leave(client)
        await _until_active(sleepy_url, 0)

        assert await client.status() == 0
        assert "Traceback" not in client.log.read_text()


@pytest.mark.parametrize("leave", [_vanish, _terminate])
async def test_server_ends_by_itself_although_a_statement_runs_in_sqlite(
    path: Path, tmp_path: Path, leave: Callable[[ProcessClient], None]
) -> None:
    """A thread that runs SQL would keep the process from ending (mcp.md, pitfall 13)."""
    async with spawn(path, tmp_path) as client:
        await client.start_call("list_slow", token="t")
        await client.progress("t")
        leave(client)

        assert await client.status() == 0
        log = client.log.read_text()
        assert "Traceback" not in log
        assert '"outcome":"cancelled"' in log
