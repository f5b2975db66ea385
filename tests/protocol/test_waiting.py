"""A server that starts while its database is away answers with the reason, and recovers by itself."""

import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from anyio.streams.text import TextReceiveStream

from dbtools.errors import DatabaseUnavailable
from tests.postgresql_server import LOGIN, Cluster, NoServerError, execute, free_port, open_cluster
from tests.protocol.changing import ERAS, hearing
from tests.protocol.client import PATIENCE, ROOT
from tests.protocol.command_line import run
from tests.protocol.http_server import call, http_server, modern

AWAY = str(DatabaseUnavailable())
DDL = "create table thing (id integer primary key); insert into thing values (1)"


class Away:
    """A database server that is not running."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._port = free_port()
        self.is_running = False
        self.url = f"postgresql://{LOGIN}@127.0.0.1:{self._port}/postgres"

    async def begin(self) -> None:
        """Start it."""
        await anyio.to_thread.run_sync(self._cluster.start_at, self._port)
        self.is_running = True


@pytest.fixture(scope="module")
def filled() -> Iterator[Cluster]:
    """Yield a server with a table, which has been stopped."""
    try:
        with open_cluster() as cluster:
            url = f"postgresql://{LOGIN}@127.0.0.1:{cluster.start()}/postgres"
            for statements in (DDL, "checkpoint"):  # it will be stopped without one
                anyio.run(execute, url, statements)
            cluster.stop()
            yield cluster
    except NoServerError as exc:
        pytest.skip(str(exc))


@pytest.fixture
def away(filled: Cluster) -> Iterator[Away]:
    """Yield it with a free port, and stop it in the end."""
    away = Away(filled)
    yield away
    if away.is_running:
        filled.stop()


@pytest.mark.parametrize("version", ERAS)
async def test_client_over_stdio_gets_the_reason_and_then_the_tools(
    version: str, away: Away, tmp_path: Path
) -> None:
    async with hearing(away.url, tmp_path, version) as client:
        error = await client.client.error("tools/list")
        refused = await client.client.call("list_thing")
        await away.begin()
        await client.told()
        tools = await client.tools()
        answer = await client.client.call("list_thing")
        log = (tmp_path / "stderr.txt").read_text()

    assert error["message"] == AWAY
    assert (refused["isError"], refused["content"][0]["text"]) == (True, AWAY)
    assert "list_thing" in tools
    assert answer["structuredContent"]["rows"] == [[1]]
    assert log.count("nothing listens on this port") == 1
    assert log.count("The database answers.") == 1


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["one process", "workers"])
async def test_server_over_http_is_alive_and_not_ready_until_the_database_answers(
    options: tuple[str, ...], away: Away, tmp_path: Path
) -> None:
    async with (
        http_server(away.url, tmp_path, *options, until="/healthz") as server,
        server.client() as client,
    ):
        alive, ready = await client.get("/healthz"), await client.get("/readyz")
        listed = (await client.post(**modern("tools/list"))).json()
        refused = await call(client, "list_thing")
        await away.begin()
        with anyio.fail_after(PATIENCE):
            while True:
                later = await client.get("/readyz")
                if later.status_code == 200:
                    break
                await anyio.sleep(0.05)
        answers = [await call(client, "list_thing") for _ in range(4)]

    assert (alive.status_code, ready.status_code) == (200, 503)
    assert (ready.json()["ready"], ready.json()["reasons"]) == (False, [AWAY])
    assert "127.0.0.1" not in ready.text
    assert listed["error"]["message"] == AWAY
    assert refused["isError"]
    assert "reasons" not in later.json()
    assert answers[0]["structuredContent"]["rows"] == [[1]]


@pytest.mark.parametrize("options", [(), ("--http", "127.0.0.1:0")], ids=["stdio", "HTTP"])
def test_what_waiting_cannot_heal_ends_the_server(
    options: tuple[str, ...], postgresql_url: str, tmp_path: Path
) -> None:
    for target in (postgresql_url.rpartition("/")[0] + "/missing", f"sqlite:///{tmp_path / 'missing.db'}"):
        answer = run("serve", target, *options)

        assert (answer.exit_code, answer.stdout) == (2, "")
        assert "database" in answer.stderr


STRICT = '[database]\nurl = "{url}"\n[server]\nstrict = true\n'  # a superuser may do more than read


@pytest.mark.parametrize(
    "options",
    [(), ("--http", "127.0.0.1:0"), ("--http", "127.0.0.1:0", "--workers", "2")],
    ids=["stdio", "HTTP", "workers"],
)
async def test_what_may_not_be_served_ends_a_server_that_has_waited(
    options: tuple[str, ...], away: Away, tmp_path: Path
) -> None:
    path = tmp_path / "dbtools.toml"
    path.write_text(STRICT.format(url=away.url))
    command = [sys.executable, "-m", "dbtools", "serve", str(path), *options]
    log = ""
    with anyio.fail_after(PATIENCE):
        async with await anyio.open_process(command, cwd=ROOT) as process:
            assert process.stderr is not None
            async for text in TextReceiveStream(process.stderr):
                has_begun, log = "waits for the database" in log, log + text
                if "waits for the database" in log and not has_begun:
                    await away.begin()
            status = await process.wait()

    assert status == 2
    assert "is a superuser" in log
