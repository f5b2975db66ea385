"""A real PgBouncer in front of PostgreSQL, in transaction mode. A URL in, that of PgBouncer out."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest

from tests.postgresql_server import free_port

OLDEST = (1, 21)  #: the first version that keeps prepared statements
#: Every transaction of a client may run in another session of the server, or all clients share one.
SPREAD = {"server_round_robin": "1"}
SHARED = {"default_pool_size": "1"}


def _find_program() -> str | None:
    """Return the path of the program, or None if there is none that is new enough."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        return None
    command = (program, "--version")
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[1]
    return program if tuple(map(int, version.split(".")[:2])) >= OLDEST else None


PROGRAM = _find_program()
#: Skips a test without the program before it begins: a skip within a portal would end the portal.
needs_pgbouncer = pytest.mark.skipif(PROGRAM is None, reason="PgBouncer 1.21 or later is not installed")


@asynccontextmanager
async def pgbouncer(url: str, **settings: str) -> AsyncIterator[str]:
    """Yield the URL of a PgBouncer with *settings* in front of the server at *url*, for all of its logins."""
    assert PROGRAM is not None
    place, port = urlsplit(url), free_port()
    lines: Mapping[str, str] = {
        "listen_addr": "127.0.0.1",
        "listen_port": str(port),
        "unix_socket_dir": "",
        "auth_type": "trust",
        "auth_user": str(place.username),
        "auth_dbname": place.path.removeprefix("/"),
        "auth_query": "select rolname::text, ''::text from pg_catalog.pg_roles where rolname = $1",
        "pool_mode": "transaction",
        "max_prepared_statements": "100",
        **settings,
    }
    text = "\n".join(f"{name} = {value}" for name, value in lines.items())
    servers = f"[databases]\n* = host={place.hostname} port={place.port}\n[pgbouncer]\n"
    with _written(f"{servers}{text}\n") as path:
        command = [PROGRAM, *(["-u", "nobody"] if os.geteuid() == 0 else []), path]
        async with await anyio.open_process(command, stderr=subprocess.PIPE) as process, _reading(process):
            try:
                yield place._replace(netloc=f"{place.username}@127.0.0.1:{port}").geturl()
            finally:
                process.terminate()


@contextmanager
def _written(text: str) -> Iterator[str]:
    """Yield the path of a temporary file with *text* that anyone may read."""
    with tempfile.NamedTemporaryFile("w", prefix="pgbouncer-") as file:
        Path(file.name).chmod(0o644)
        file.write(text)
        file.flush()
        yield file.name


@asynccontextmanager
async def _reading(process: anyio.abc.Process) -> AsyncIterator[None]:
    """Wait until *process* listens, and read what it logs, so that it need not wait."""
    messages = process.stderr
    assert messages is not None
    told = b""
    while b"process up" not in told:
        told += await messages.receive()

    async def read() -> None:
        async for _ in messages:
            pass

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        yield
        group.cancel_scope.cancel()
