"""A statement that takes very long to check disturbs no other call, and the server can end meanwhile."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import anyio
import httpx2
import psutil  # type: ignore[import-untyped]
import pytest

from tests.protocol.client import PATIENCE
from tests.protocol.http_server import call, http_server, modern

#: sqlglot would need years.
BAD = f"select 1 from things a {'join things a ' * 45}"
BUSY = 1.5  #: seconds of the processor, more than it takes to start
READS = "grant select on all tables in schema public to {}"


@pytest.fixture(scope="module")
def url(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    postgresql_login: Callable[[str, str], AbstractContextManager[str]],
) -> Iterator[str]:
    """Yield the URL of a database with a login that may only read."""
    with (
        postgresql_database("create table things (id integer primary key)") as owner,
        postgresql_login(owner, READS) as url,
    ):
        yield url


def _checking(server: int) -> list[psutil.Process]:
    """Return the processes of the *server* that check statements and are busy with one."""
    found = psutil.Process(server).children(recursive=True)
    checking = [each for each in found if any("answering.py" in word for word in each.cmdline())]
    return [each for each in checking if each.cpu_times().user > BUSY]


async def test_server_answers_and_ends_while_a_bad_statement_is_checked(url: str, tmp_path: Path) -> None:
    path = tmp_path / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{url}"\n[limits]\ntimeout = "60s"\n')
    program = (sys.executable, "-m", "dbtools")  # with its processes as children
    async with (
        http_server(path, tmp_path, program=program) as server,
        server.client() as bad,
        server.client() as other,
    ):

        async def ask() -> None:
            with suppress(httpx2.TransportError):
                await bad.post(**modern("tools/call", {"name": "run_sql", "arguments": {"sql": BAD}}))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            with anyio.fail_after(PATIENCE):
                while not (checking := _checking(server.process.pid)):
                    await anyio.lowlevel.checkpoint()
            health = await other.get("/healthz")
            listed = await call(other, "list_things")
            still = [each.is_running() for each in checking]
            status = await server.end(signal.SIGTERM)

    assert health.status_code == 200
    assert listed["structuredContent"]["row_count"] == 0
    assert still == [True]
    assert status == 0
    assert [each for each in checking if each.is_running()] == []


async def test_bad_statement_times_out_with_the_reason(url: str, tmp_path: Path) -> None:
    path = tmp_path / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{url}"\n[limits]\ntimeout = "1s"\n')
    async with http_server(path, tmp_path) as server, server.client() as client:
        await call(client, "run_sql", {"sql": "select 1"})
        answer = await call(client, "run_sql", {"sql": BAD})

    assert answer["isError"]
    assert "timeout of 1 seconds" in answer["content"][0]["text"]
    assert "fewer joins" in answer["content"][0]["text"]
