"""The published package: the wheel and the source archive, and the wheel in a fresh environment."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
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
README = (ROOT / "README.md").read_text()
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
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env=_environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIME,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _environment(home: Path) -> dict[str, str]:
    """Return the environment of the tests without what names this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
    # What pip has downloaded is kept, and what is imported is compiled then.
    return {
        "PIP_CACHE_DIR": str(Path.home() / ".cache" / "pip"),
        **kept,
        "HOME": str(home),
        "PIP_COMPILE": "0",
    }


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
    folder = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, folder=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the programs of a fresh environment in which the wheel is installed."""
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
    assert metadata.get_payload() == README
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


async def test_readme_connects_a_client_over_stdio(shop: str, programs: Path, tmp_path: Path) -> None:
    (line,) = re.findall("`(dbtools connect claude-code sample.db [^`]*)`", " ".join(README.split()))
    ours = {"claude-code": "mcp.json", "sample.db": shop}
    program, *words = [ours.get(word, word) for word in shlex.split(line)]
    _run(programs / program, *words, folder=tmp_path)
    entry = _entry(tmp_path)
    environment = {"HOME": str(tmp_path), **entry.get("env", {})}
    command = StdioServerParameters(command=entry["command"], args=entry["args"], env=environment, cwd="/")
    async with Client(command) as client:
        listed = await client.list_tools()
        called = await client.call_tool("get_goods", {"id": 1})

    assert "list_goods" in [tool.name for tool in listed.tools]
    assert called.structured_content == {"row": {"id": 1, "name": "tent"}}


async def test_line_of_the_readme_serves_the_sample_from_a_clone(tmp_path: Path) -> None:
    clone = tmp_path / "my clone"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".*", "tests", "node_modules", "__pycache__"))
    (line,) = [
        line for line in README.splitlines() if line.endswith("dbtools serve sample.db --http 127.0.0.1:8000")
    ]
    line = line.replace("8000", str(free_port()))
    async with _served(line, clone) as said:
        connect, ask = re.findall("To .*?: (.*)", said)
        _run(*shlex.split(connect.replace("claude-code", "mcp.json")), folder=tmp_path)
        asked = _run(*shlex.split(ask), folder=tmp_path)
        async with Client(_entry(tmp_path)["url"]) as client:
            called = await client.call_tool("get_orders", {"id": 1002})
    installed = (clone / ".venv" / "bin" / "dbtools").stat().st_mtime_ns
    async with _served(line, clone):
        again = (clone / ".venv" / "bin" / "dbtools").stat().st_mtime_ns

    assert "3 rows" in asked
    assert called.structured_content["row"]["customer_id"] == 2
    assert again == installed


def _entry(folder: Path) -> dict[str, Any]:
    """Return what is in the client's file in *folder*."""
    (entry,) = json.loads((folder / ".mcp.json").read_text())["mcpServers"].values()
    return dict(entry)


@asynccontextmanager
async def _served(line: str, clone: Path) -> AsyncIterator[str]:
    """Run *line* in a shell in *clone*, and give what it has printed when it serves."""
    words, environment = ["sh", "-c", line], _environment(clone)
    async with await anyio.open_process(
        words, cwd=clone, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            with anyio.fail_after(TIME):
                assert process.stderr is not None
                said = ""
                while "To ask" not in said or not said.endswith("\n"):
                    said += (await process.stderr.receive()).decode()
            yield said
        finally:
            os.killpg(process.pid, signal.SIGTERM)
