"""Clients start, or reach, the server that `dbtools connect` has added to them."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest

from dbtools.server.http.identity import hash_of, new_token
from tests.clients.node import PACKAGES, TIME, needs_node
from tests.clients.places import DDL
from tests.processes import forked
from tests.protocol.client import ROOT
from tests.protocol.http_server import http_server

PROGRAMS = PACKAGES / ".bin"
#: The command with which a client, without an account, connects to all its servers and lists them.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "claude-code": ("claude", "mcp", "list"),
    "gemini": ("gemini", "mcp", "list"),
}
REACHED: Mapping[str, str] = {"claude-code": "✔ Connected", "gemini": "- Connected"}
pytestmark = needs_node
every_client = pytest.mark.parametrize("client", COMMANDS)


def _environment(home: Path, **more: str) -> dict[str, str]:
    quiet = {"DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1", "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    return {"HOME": str(home), "PATH": path, "PYTHONPATH": str(ROOT), **quiet, **more}


def _run(home: Path, *words: str, **more: str) -> str:
    """Run a program at home, which has nothing else of this environment."""
    done = subprocess.run(
        words,
        cwd=home,
        env=_environment(home, **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIME,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def _connect(home: Path, *words: str) -> None:
    _run(home, *forked(), "connect", *words, "--write")


def _reached(home: Path, client: str, **more: str) -> list[str]:
    """Return the names of the servers that *client* has reached."""
    lines = _run(home, *COMMANDS[client], **more).splitlines()
    return [line.lstrip("✓ ").partition(":")[0] for line in lines if REACHED[client] in line]


@every_client
def test_client_starts_the_server_with_a_password(
    client: str, postgresql_database: Callable[[str], AbstractContextManager[str]], tmp_path: Path
) -> None:
    with postgresql_database(DDL["postgresql"]) as url:
        parts = urlsplit(url)
        user, _, host = parts.netloc.rpartition("@")
        with_password = parts._replace(netloc=f"{user.partition(':')[0]}:p%40ss@{host}").geturl()
        _connect(tmp_path, client, with_password, "--name", "shop")

        assert _reached(tmp_path, client) == ["shop"]


@every_client
async def test_client_brings_the_token_of_its_environment(
    client: str, sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    token = new_token()
    path = sqlite_database(DDL["sqlite"])
    tokens = json.dumps(hash_of(token))
    (tmp_path / "dbtools.toml").write_text(
        f'[database]\nurl = "{path}"\n[auth]\ntokens = [{{ sha256 = {tokens}, role = "default" }}]\n'
    )
    async with http_server(tmp_path / "dbtools.toml", tmp_path) as server:
        _connect(tmp_path, client, "--http", server.url, "--token-env", "SHOP_TOKEN", "--name", "shop")
        reached = await anyio.to_thread.run_sync(lambda: _reached(tmp_path, client, SHOP_TOKEN=token))
        others = await anyio.to_thread.run_sync(lambda: _reached(tmp_path, client, SHOP_TOKEN="wrong"))

    assert (reached, others) == (["shop"], [])
