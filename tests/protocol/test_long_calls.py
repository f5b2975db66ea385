"""Long calls report progress, and stop in the database when no client waits for them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest

from dbtools.backends.sqlite.reading.runner import CONNECTIONS
from dbtools.policy.roles import Caller
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


@pytest.fixture(scope="session")
def sleepy_url(postgresql_database: PostgresqlDatabase) -> Any:
    """Yield the URL of a PostgreSQL database with a view that sleeps."""
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


async def test_calls_are_reported_under_their_own_tokens_until_they_are_answered(path: Path) -> None:
    """The third call outlasts the first ones, so reports of theirs would come before its answer."""
    toolbox, database = open_toolbox(settings_for(path, timeout=BRIEF))
    async with connect(build_server(toolbox, Caller(), "")) as client:
        ids = [await client.start_call("list_slow", token=token) for token in ("one", 2)]
        silent = await client.start_call("list_slow")
        await client.answer(ids[0])
        await client.progress(2)
        last = await client.start_call("list_slow", token="last")
        answers = [await client.answer(id) for id in (*ids, silent, last)]

        assert ["timeout" in each["result"]["content"][0]["text"] for each in answers] == [True] * 4
        tokens = {m["params"]["progressToken"] for m in client.received if "method" in m}
        assert tokens == {"one", 2, "last"}
        for token, id in zip(("one", 2, "last"), (*ids, last), strict=True):
            reports = _reports(client, token)
            answered = next(at for at, m in enumerate(client.received) if m.get("id") == id)
            later = client.received[answered:]
            assert reports == [(float(second), BRIEF) for second in range(1, len(reports) + 1)]
            assert not [m for m in later if m.get("params", {}).get("progressToken") == token]
    await database.close()


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
async def test_quick_call_reports_nothing_and_may_fail(server: Serving, version: str) -> None:
    """Many clients ask for progress with every call."""
    async with connect(server, version=version) as client:
        await client.open()
        await client.answer(await client.start_call("list_person", token=0))
        wrong = await client.answer(await client.start_call("list_person", {"limit": 0}, token=1))
        unknown = await client.answer(await client.start_call("list_nobody", token=2))

    assert [each for each in client.received if "method" in each] == []
    assert "limit" in wrong["result"]["content"][0]["text"]
    assert unknown["error"]["code"] == -32602


#: How a client, or an operator, ends the server.
ENDS: dict[str, Callable[[ProcessClient], None]] = {
    "vanish": lambda client: client.vanish(),
    "hang up": lambda client: client.hang_up(),
    "terminate": lambda client: client.process.terminate(),
}


@pytest.mark.parametrize("end", ENDS)
async def test_end_of_the_client_stops_statements_in_postgresql(
    sleepy_url: str, tmp_path: Path, end: str
) -> None:
    async with spawn(sleepy_url, tmp_path) as client:
        await client.start_call("list_slow")
        await client.start_call("list_slow")
        await _until_active(sleepy_url, 2)
        ENDS[end](client)
        await _until_active(sleepy_url, 0)

        assert await client.status() == 0
        assert "Traceback" not in client.log.read_text()


@pytest.mark.parametrize("end", ["vanish", "terminate"])
async def test_server_ends_by_itself_although_a_statement_runs_in_sqlite(
    path: Path, tmp_path: Path, end: str
) -> None:
    """A thread that runs SQL would keep the process from ending (mcp.md, pitfall 13)."""
    async with spawn(path, tmp_path) as client:
        await client.start_call("list_slow", token="t")
        await client.progress("t")
        ENDS[end](client)

        assert await client.status() == 0
        log = client.log.read_text()
        assert "Traceback" not in log
        assert '"outcome":"cancelled"' in log
