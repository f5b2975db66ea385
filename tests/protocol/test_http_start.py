"""Why an HTTP server does not start, and the messages."""

import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import anyio
import pytest

from dbtools.policy import Caller
from dbtools.server.http import HttpApp, ListenAddress, Startup
from dbtools.server.running import Reporter
from dbtools.settings import DatabaseSection, Settings
from tests.protocol.client import PATIENCE, ROOT
from tests.protocol.http_server import HttpServer
from tests.protocol.http_servers import changing as changing, server as server, shared as shared


@pytest.mark.parametrize(
    "options", [("--http", "nowhere"), ("--http", "127.0.0.1:99999"), ("--workers", "2")]
)
async def test_wrong_options_are_reported(
    options: tuple[str, ...], shared: HttpServer, tmp_path: Path
) -> None:
    from tests.protocol.command_line import run

    answer = run("serve", "sample.db", *options)

    assert (answer.exit_code, answer.stdout) == (2, "")
    assert "--" in answer.stderr


async def test_address_in_use_is_reported(shared: HttpServer) -> None:
    command = [sys.executable, "-m", "dbtools", "serve", "sample.db", "--http", f"127.0.0.1:{shared.port}"]

    ended = await anyio.run_process(command, check=False, cwd=ROOT)

    assert ended.returncode == 2
    assert b"Cannot listen at 127.0.0.1" in ended.stderr


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:8000"])
async def test_listener_that_others_reach_wants_to_know_them(address: str) -> None:
    from tests.protocol.command_line import run

    answer = run("serve", "sample.db", "--http", address)

    assert answer.exit_code == 2
    assert "must require authentication" in answer.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_server_that_cannot_count_calls_does_not_start(workers: str, path: Path, tmp_path: Path) -> None:
    configuration = tmp_path / "dbtools.toml"
    limits = '[limits]\nstorage = "redis://127.0.0.1:1"\ncalls_per_minute = 5\n'
    configuration.write_text(f'[database]\nurl = "{path}"\n{limits}')
    command = (sys.executable, "-m", "dbtools", "serve", str(configuration), "--http", "127.0.0.1:0")

    ended = subprocess.run(
        (*command, "--workers", workers), cwd=ROOT, capture_output=True, timeout=PATIENCE, check=False
    )

    assert ended.returncode == 2
    assert b"[limits] storage: calls cannot be counted there" in ended.stderr


async def test_worker_that_cannot_start_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sent: list[str] = []

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    startup = Startup(
        settings=Settings(database=DatabaseSection(url=f"sqlite:///{tmp_path / 'gone.db'}")),
        anonymous=Caller(),
        operator=create_autospec(Reporter),
        address=ListenAddress(host="127.0.0.1", port=0),
        stateless=False,
        workers=2,
    )
    await HttpApp(startup)({"type": "lifespan"}, receive, send)

    assert sent == ["lifespan.startup.failed"]
    assert capsys.readouterr().err == f"dbtools: {tmp_path / 'gone.db'}: The database file does not exist.\n"
