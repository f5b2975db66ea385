"""`dbtools init` and `dbtools sample`: what they write passes `dbtools check`, and hides likely secrets."""

import os
import pty
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, chdir, closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from dbtools.cli import main
from tests.processes import FRESH
from tests.protocol.client import PATIENCE, ROOT
from tests.protocol.terminal import on_terminal

SHOP = """
create table customer (id integer primary key, full_name text, password_hash text, age integer);
create table "an ""odd"" name" ("it's a key" integer primary key, "Api Key" text, "line
break" text);
create table visits (at text);
insert into customer values (1, 'Ann', 'x', 40), (2, 'Bo', 'y', 50);
"""
NUMBERS = "create table reading (value integer);"


def _environment(**more: str) -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def _run(folder: Path, *words: str, status: int = 0, **environment: str) -> str:
    """Run dbtools in *folder*, in this process, and return what it says on both streams."""
    with chdir(folder):
        done = CliRunner().invoke(main, words, env=environment)
    assert done.exit_code == status, done.output
    return done.output


Database = Callable[[str], AbstractContextManager[str]]


def _file(folder: Path, ddl: str) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        connection.executescript(ddl)


def test_what_is_written_passes_check_and_hides_secrets(
    postgresql_database: Database, tmp_path: Path
) -> None:
    with postgresql_database(SHOP) as url:
        said = _run(tmp_path, "init", url)
        checked, tools = _run(tmp_path, "check"), _run(tmp_path, "tools")
        called = _run(tmp_path, "call", "find_customer", "pattern=AN%")

    settings = tomllib.loads((tmp_path / "dbtools.toml").read_text())
    assert settings["roles"]["default"]["tables"] == {
        "*": True,
        "customer": {"exclude": ["password_hash"]},
        'an "odd" name': {"exclude": ["Api Key"]},
    }
    assert "customer.password_hash" in said
    assert ": error: " not in checked
    assert "find_customer" in tools
    assert "Ann" in called


@pytest.mark.parametrize("ddl", ["select 1;", NUMBERS])
def test_database_without_texts_has_an_example_too(
    ddl: str, url_of: Callable[[str], str], tmp_path: Path
) -> None:
    _run(tmp_path, "init", url_of(ddl))

    assert ": error: " not in _run(tmp_path, "check")


def test_nothing_is_asked_in_a_pipe(tmp_path: Path) -> None:
    assert "Name the database" in _run(tmp_path, "init", status=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["dbtools.toml", "queries/example.sql"])
def test_what_is_there_is_not_overwritten(name: str, tmp_path: Path) -> None:
    _file(tmp_path, SHOP)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")

    said = _run(tmp_path, "init", "shop.db", status=2)

    assert f"{name} already exists" in said
    assert (tmp_path / name).read_text() == "mine"


def test_password_is_left_to_the_environment(postgresql_url: str, tmp_path: Path) -> None:
    parts = urlsplit(postgresql_url)
    user, _, host = parts.netloc.rpartition("@")
    url = parts._replace(netloc=f"{user.partition(':')[0]}:sekret@{host}").geturl()

    said = _run(tmp_path, "init", url)

    assert "sekret" not in said + (tmp_path / "dbtools.toml").read_text()
    assert "PGPASSWORD" in said
    assert ": error: " not in _run(tmp_path, "check", PGPASSWORD="sekret")


def test_person_at_a_terminal_is_asked(tmp_path: Path) -> None:
    _file(tmp_path, SHOP)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*FRESH, "init"], cwd=tmp_path, env=_environment(), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    os.write(ours, b"\nn\nOur shop.\n")
    status = process.wait(PATIENCE)
    os.close(ours)

    settings = tomllib.loads((tmp_path / "dbtools.toml").read_text())
    assert status == 0
    assert settings["database"] == {"url": "shop.db", "description": "Our shop."}
    assert settings["roles"]["default"]["tables"] == {"*": True}


def test_sample_is_in_the_package(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "dbtools", tmp_path / "dbtools")
    (tmp_path / "dbtools" / "sample.db").write_text("the one of the wheel")

    (tmp_path / "new").mkdir()
    program = (sys.executable, "-m", "dbtools", "sample", "new/new.db")
    subprocess.run(program, cwd=tmp_path, timeout=PATIENCE, check=True)
    _run(tmp_path / "new", "sample", "ours.db")

    assert (tmp_path / "new" / "new.db").read_text() == "the one of the wheel"
    assert (tmp_path / "new" / "ours.db").read_bytes() == (ROOT / "sample.db").read_bytes()


def test_server_without_a_configuration_names_secrets_in_one_line(tmp_path: Path) -> None:
    _file(tmp_path, SHOP)

    said = _run(tmp_path, "serve", "shop.db")

    (line,) = [line for line in said.splitlines() if "may hold secrets" in line]
    assert "customer.password_hash" in line
    assert "name it in dbtools.toml" in line
    _run(tmp_path, "init", "shop.db")
    assert "secrets" not in _run(tmp_path, "serve")


def test_server_at_a_terminal_prints_how_to_connect_a_client(path: Path, tmp_path: Path) -> None:
    (tmp_path / "my shop.toml").write_text(f'[database]\nurl = "{path}"\n[roles.clerk]\ntables."*" = true\n')
    with on_terminal("serve", "my shop.toml", "--role", "clerk", "--claim", "x=1", folder=tmp_path) as screen:
        screen.wait_for("Press Ctrl-C to stop")
        screen.interrupt()
        screen.end()

    (line,) = [line for line in screen.shown.decode().splitlines() if "connect claude-code" in line]
    words = shlex.split(line.removeprefix("To connect a client: "))
    place = str(tmp_path / "my shop.toml")
    assert words[-8:] == ["connect", "claude-code", place, "--role", "clerk", "--claim", "x=1", "--write"]
