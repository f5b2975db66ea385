"""Why an HTTP server does not start, and the messages."""

import socket
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest

from dbtools.policy.roles import Caller
from dbtools.server.http.app import HttpApp, ListenAddress, Startup
from dbtools.server.running import Reporter
from dbtools.settings import DatabaseSection, Settings
from tests.processes import FRESH
from tests.protocol.client import PATIENCE, ROOT
from tests.protocol.command_line import run


def test_address_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answer = run("serve", str(ROOT / "sample.db"), "--http", f"127.0.0.1:{taken.getsockname()[1]}")

    assert answer.exit_code == 2
    assert "Cannot listen at 127.0.0.1" in answer.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_server_that_cannot_count_calls_does_not_start(workers: str, path: Path, tmp_path: Path) -> None:
    configuration = tmp_path / "dbtools.toml"
    limits = '[limits]\nstorage = "redis://127.0.0.1:1"\ncalls_per_minute = 5\n'
    configuration.write_text(f'[database]\nurl = "{path}"\n{limits}')
    command = (*FRESH, "serve", str(configuration), "--http", "127.0.0.1:0", "--workers", workers)

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=2 * PATIENCE, check=False)

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
