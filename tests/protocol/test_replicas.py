"""Replicas: one continues what another began, and a restart loses no call."""

import asyncio
import datetime
import os
import shutil
import signal
import sqlite3
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from itertools import cycle
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.postgresql_server import free_port
from tests.protocol.client import PATIENCE, ROOT
from tests.protocol.http_server import HttpServer, call, http_server, modern

DDL = """
create table number (id integer primary key, square integer not null);
insert into number
with recursive n (i) as (select 1 union all select i + 1 from n where i < 60) select i, i * i from n;
"""
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
NAME = "db.example.com"  #: of the service in docs/deploy
OPEN = "[limits]\ncalls_per_minute = 100000\n"


@pytest.fixture
def url(url_of: Callable[[str], str]) -> str:
    return url_of(DDL)


class Replicas:
    """Servers of one configuration, each with a fixed port."""

    def __init__(self, path: Path, folder: Path) -> None:
        self._path = path
        self._folder = folder
        self._stacks: dict[int, AsyncExitStack] = {}
        self.servers: dict[int, HttpServer] = {}

    async def start(self, port: int) -> HttpServer:
        """Start the one at *port*."""
        stack = AsyncExitStack()
        folder = self._folder / str(port)
        folder.mkdir(exist_ok=True)
        server = await stack.enter_async_context(http_server(self._path, folder, port=port))
        self._stacks[port], self.servers[port] = stack, server
        return server

    async def end(self, port: int) -> int:
        """End the one at *port* as an operator does, and return its status."""
        status = await self.servers.pop(port).end()
        await self._stacks.pop(port).aclose()
        return status

    async def close(self) -> None:
        """End all."""
        for port in tuple(self.servers):
            await self.end(port)


@asynccontextmanager
async def _replicas(url: str, folder: Path, rest: str = OPEN, count: int = 2) -> AsyncIterator[Replicas]:
    path = folder / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{url}"\n[server]\nallowed_hosts = ["{NAME}"]\n{rest}')
    replicas = Replicas(path, folder)
    try:
        for _ in range(count):
            await replicas.start(free_port())
        yield replicas
    finally:
        await replicas.close()


async def test_pages_of_one_are_gone_on_with_at_another(url: str, tmp_path: Path) -> None:
    async with _replicas(url, tmp_path) as replicas, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(each.client()) for each in replicas.servers.values()]
        asked: dict[str, object] = {"limit": 7, "order_by": ["square desc"], "columns": ["id"]}
        seen: list[int] = []
        for client in cycle(clients):
            found = (await call(client, "list_number", asked))["structuredContent"]
            seen += [row[0] for row in found["rows"]]
            if not found["truncated"]:
                break
            asked["cursor"] = found["next_cursor"]

    assert seen == list(range(60, 0, -1))


async def test_restart_of_one_after_the_other_loses_no_call_that_is_tried_again(
    url: str, tmp_path: Path
) -> None:
    async with _replicas(url, tmp_path) as replicas:
        ports = tuple(replicas.servers)

        async def squared(number: int) -> int:
            """Call as a client does that knows both, and tries the other where one is gone."""
            for port in cycle(ports):
                place = f"http://127.0.0.1:{port}"
                try:
                    async with httpx2.AsyncClient(base_url=place, timeout=PATIENCE) as client:
                        answer = await client.post(**_square(number))
                except httpx2.TransportError:
                    continue
                if answer.status_code != 503:
                    return _squared(answer)
            raise AssertionError

        answers = await _while_restarting(replicas, squared)

    assert all(square == number * number for number, square in answers)


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
async def test_proxy_of_the_documentation_loses_no_call_of_a_restart(url: str, tmp_path: Path) -> None:
    async with _replicas(url, tmp_path) as replicas, _nginx(tuple(replicas.servers), tmp_path) as client:

        async def squared(number: int) -> int:
            return _squared(await client.post(**_square(number)))

        answers = await _while_restarting(replicas, squared)

    assert all(square == number * number for number, square in answers)


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
async def test_notices_pass_the_proxy_of_the_documentation(
    sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    path = sqlite_database(DDL)
    listening = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    async with (
        _replicas(f"sqlite:///{path}", tmp_path) as replicas,
        _nginx(tuple(replicas.servers), tmp_path) as client,
        client.stream("POST", **listening) as stream,
    ):
        lines = (line async for line in stream.aiter_lines() if line.startswith("data: {"))
        with anyio.fail_after(PATIENCE):
            acknowledged = await anext(lines)
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("create table new (id)")
            changed = await anext(lines)

    assert "notifications/subscriptions/acknowledged" in acknowledged
    assert "notifications/tools/list_changed" in changed


def _square(number: int) -> dict[str, Any]:
    return modern("tools/call", {"name": "get_number", "arguments": {"id": number}})


def _squared(answer: httpx2.Response) -> int:
    assert answer.status_code == 200, answer.text
    found: int = answer.json()["result"]["structuredContent"]["row"]["square"]
    return found


async def _while_restarting(
    replicas: Replicas, squared: Callable[[int], Awaitable[int]]
) -> list[tuple[int, int]]:
    """Return what four clients were answered, who call all the while that each replica is restarted."""
    answers: list[tuple[int, int]] = []
    over = anyio.Event()

    async def work() -> None:
        for number in cycle(range(1, 61)):
            answers.append((number, await squared(number)))
            if over.is_set():
                return

    with anyio.fail_after(4 * PATIENCE):
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(work)
            for port in tuple(replicas.servers):
                assert await replicas.end(port) == 0
                before = len(answers)
                while len(answers) == before:  # until the other one answers
                    await anyio.lowlevel.checkpoint()
                await replicas.start(port)
            over.set()
    return answers


@asynccontextmanager
async def _nginx(ports: tuple[int, ...], folder: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """Run nginx as docs/deploy says, in front of *ports*, and give a client of it."""
    certificate, port = _certificate(folder), free_port()
    written = (ROOT / "docs" / "deploy" / "nginx.conf").read_text()
    for before, after in (
        ("127.0.0.1:8001", f"127.0.0.1:{ports[0]}"),
        ("127.0.0.1:8002", f"127.0.0.1:{ports[1]}"),
        ("listen 443", f"listen 127.0.0.1:{port}"),
        # No role may change rows here.
        ("http_503;", "http_503 non_idempotent;"),
        ("/etc/ssl/dbtools/fullchain.pem", str(certificate)),
        ("/etc/ssl/dbtools/key.pem", str(folder / "key.pem")),
    ):
        assert written.count(before) == 1
        written = written.replace(before, after)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {folder / kind};\n" for kind in kinds)
    main = folder / "main.conf"
    main.write_text(
        f"daemon off;\npid {folder / 'nginx.pid'};\nerror_log {folder / 'nginx.log'};\nevents {{}}\n"
        f"http {{\naccess_log off;\n{paths}{written}\n}}\n"
    )
    process = await asyncio.create_subprocess_exec(
        str(NGINX), "-c", str(main), "-p", str(folder), stdin=asyncio.subprocess.DEVNULL
    )
    trusted = ssl.create_default_context(cafile=str(certificate))
    try:
        async with httpx2.AsyncClient(
            base_url=f"https://localhost:{port}", headers={"Host": NAME}, verify=trusted, timeout=PATIENCE
        ) as client:
            await _answering(client)
            yield client
    finally:
        os.kill(process.pid, signal.SIGTERM)
        await process.wait()


async def _answering(client: httpx2.AsyncClient) -> None:
    with anyio.fail_after(PATIENCE):
        while True:
            try:
                if (await client.post(**_square(1))).status_code == 200:
                    return
            except httpx2.TransportError:
                await anyio.sleep(0.02)


def _certificate(folder: Path) -> Path:
    """Write a key and a certificate of localhost that it has signed itself, and return the latter."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    kept = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(kept)
    path = folder / "fullchain.pem"
    path.write_bytes(certificate.public_bytes(pem))
    return path
