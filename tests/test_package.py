"""The published package: the wheel and the source archive, and the wheel in a fresh environment."""

import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path, PurePosixPath
from typing import Any

import anyio
import asyncpg
import pytest
from mcp import Client, StdioServerParameters

import dbtools
from tests.postgresql_server import free_port

ROOT = Path(__file__).parents[1]
SERVED = re.compile(r"Serving .* at (http://\S+)")
SHOP = "create table goods (id integer primary key, name text); insert into goods values (1, 'tent');"
TIME = 300  #: seconds: a fresh environment is filled from an index
IN_ARCHIVE = {".ci", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "PKG-INFO", "README.md"} | {
    *("alembic.ini", "dbtools", "docs", "migrations", "pyproject.toml", "sample.db", "tests")
}
IN_PACKAGE = (
    "py.typed",
    "sample.db",
    "migrations/env.py",
    "migrations/registry/0001_registry.py",
    "alembic.py",
)


def _run(*words: object, folder: Path) -> str:
    """Run a program that knows nothing of this checkout, and return what it prints."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**kept, "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIME,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def _fill(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"drop table if exists goods; {SHOP}")
    finally:
        await connection.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def shop(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return a database as a user would name it: a file, or the URL of a server with TLS."""
    if request.param == "sqlite":
        yield str(request.getfixturevalue("sqlite_database")(SHOP))
        return
    secure = request.getfixturevalue("secure")
    url = secure.url("secure", "sslmode=verify-full&sslrootcert={files}/root.crt", host="localhost")
    anyio.run(_fill, url)
    yield url


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder of both archives."""
    folder = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, folder=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder of the programs of a fresh environment in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    # The package index is that of the user who runs the tests, which a file in their home may name.
    config = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "HOME", "PATH"))}
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", programs / "python", "install"),
            *("--quiet", "--disable-pip-version-check", "--no-compile", wheel),
        ],
        env=config,
        timeout=TIME,
        check=True,
    )
    return programs


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        tops = {name.partition("/")[0] for name in names}

    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "dbtools").rglob("*.py")}
    assert tops == {"dbtools", f"dbtools_mcp-{dbtools.__version__}.dist-info"}
    assert sources <= set(names)
    assert {f"dbtools/{name}" for name in IN_PACKAGE} <= set(names)
    assert not [name for name in names if "__pycache__" in name or "tests" in PurePosixPath(name).parts]


def test_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (place,) = [name for name in archive.namelist() if name.endswith("dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(place).decode())
        commands = archive.read(place.replace("METADATA", "entry_points.txt")).decode()

    assert (metadata["Name"], metadata["Requires-Python"]) == ("dbtools-mcp", ">=3.11")
    assert set(metadata.get_all("Provides-Extra", [])) == {"dev", "redis", "telemetry"}
    assert metadata.get_payload() == (ROOT / "README.md").read_text()
    assert {line.partition(" ")[0] for line in commands.splitlines() if "=" in line} == {
        "dbtools",
        "dbtools-mcp",
    }


def test_source_archive_holds_what_the_repository_does(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = [PurePosixPath(name).parts for name in archive.getnames()]

    assert {parts[1] for parts in names if len(parts) > 1} == IN_ARCHIVE
    assert not [parts for parts in names if {"__pycache__", "node_modules"} & set(parts)]


def test_no_document_installs_the_other_project() -> None:
    """`dbtools` on the index is another project."""
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*")]
    texts = [path.read_text() for path in documents if path.is_file() and path.suffix != ".pyc"]

    assert not [text for text in texts if "install dbtools" in text.replace("install dbtools-mcp", "")]
    assert not [text for text in texts if "install 'dbtools[" in text]


def test_command_of_a_fresh_environment_has_all_that_it_needs(programs: Path, tmp_path: Path) -> None:
    program = programs / "dbtools"
    _run(program, "sample", "shop.db", folder=tmp_path)
    _run(program, "registry", "upgrade", "shop.db", folder=tmp_path)
    _run(program, "init", "shop.db", folder=tmp_path)
    _run(program, "check", folder=tmp_path)

    program = programs / "dbtools-mcp"
    answer = _run(program, "call", "shop.db", "get_orders", "id=1002", "--json", folder=tmp_path)

    assert json.loads(answer)["row"]["customer_id"] == 2


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_readme_leads_to_a_connected_client(
    transport: str, shop: str, programs: Path, tmp_path: Path
) -> None:
    """Follow the lines of the README, with another client and another database."""
    journey = Journey(programs=programs, folder=tmp_path, database=shop)
    async with journey.connected(transport) as client:
        listed = await client.list_tools()
        called = await client.call_tool("get_goods", {"id": 1})

    assert "list_goods" in [tool.name for tool in listed.tools]
    assert called.structured_content == {"row": {"id": 1, "name": "tent"}}


@dataclass(frozen=True, kw_only=True)
class Journey:
    """A user with the README, a fresh environment and a database."""

    programs: Path
    folder: Path
    database: str

    @asynccontextmanager
    async def connected(self, transport: str) -> AsyncIterator[Client]:
        """Give the official client, connected as the README says."""
        if transport == "stdio":
            self._run(self._line("dbtools connect claude-code sample.db"))
            entry = self._entry()
            environment = {"HOME": str(self.folder), **entry.get("env", {})}
            command = StdioServerParameters(
                command=entry["command"], args=entry["args"], env=environment, cwd="/"
            )
            async with Client(command) as client:
                yield client
            return
        # The roles are those of the README's configuration.
        words = self._line("dbtools serve --role support")
        async with self._served([*words[:2], self.database, *words[words.index("--http") :]]) as url:
            self._run(self._line("dbtools connect claude-code --http"), url=url)
            async with Client(self._entry()["url"]) as client:
                yield client

    def _line(self, beginning: str) -> list[str]:
        """Return the line of the README with this *beginning*, for this client and this database."""
        lines = [line.strip() for line in (ROOT / "README.md").read_text().splitlines()]
        (line,) = [line for line in lines if line.startswith(beginning)]
        ours = {"claude-code": "mcp.json", "sample.db": self.database, "dbtools.toml": self.database}
        return [ours.get(word, word) for word in shlex.split(line)]

    def _run(self, words: list[str], url: str = "") -> None:
        words = [url if word.startswith("http://") else word for word in words]
        _run(self.programs / words[0], *words[1:], folder=self.folder)

    def _entry(self) -> dict[str, Any]:
        """Return what is in the client's file now."""
        (entry,) = json.loads((self.folder / ".mcp.json").read_text())["mcpServers"].values()
        return dict(entry)

    @asynccontextmanager
    async def _served(self, words: list[str]) -> AsyncIterator[str]:
        """Serve by the command in *words*, but on a free port, and give the URL that it prints."""
        words = [f"127.0.0.1:{free_port()}" if word.startswith("127.0.0.1:") else word for word in words]
        process = await anyio.open_process(
            [str(self.programs / words[0]), *words[1:]],
            cwd=self.folder,
            env={"HOME": str(self.folder), "PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
        )
        try:
            with anyio.fail_after(TIME):
                assert process.stderr is not None
                said = ""
                while not (found := SERVED.search(said)):
                    said += (await process.stderr.receive()).decode()
            yield found[1]
        finally:
            process.terminate()
            await process.wait()
