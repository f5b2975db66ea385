"""Why a SQLite file cannot be read, each with a real cause: the message names path, fact and remedy."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dbtools.backends import open_backend
from dbtools.backends.sqlite.connection.files import connect, location_of
from dbtools.cli import main
from dbtools.errors import DatabaseUnavailable

NOBODY = 65534


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, sqlite_database: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder: a database, and files that are none."""
    sqlite_database("create table person (id integer primary key)").rename(tmp_path / "shop.db")
    (tmp_path / "data").mkdir()
    (tmp_path / "empty.db").touch()
    (tmp_path / "text.db").write_text("id,name\n1,Adaé\n" * 1000)
    (tmp_path / "short.db").write_text("id,name\n")
    (tmp_path / "encrypted.db").write_bytes(os.urandom(4 * 4096))
    (tmp_path / "archive.db").write_bytes(b"PK\x03\x04" + bytes(5000))
    (tmp_path / "damaged.db").write_bytes((tmp_path / "shop.db").read_bytes()[:100] + b"\xff" * 4000)
    os.mkfifo(tmp_path / "pipe.db")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _run(*words: str) -> Result:
    return CliRunner().invoke(main, words)


@pytest.mark.parametrize(
    ("target", "said", "step"),
    [
        ("text.db", "text.db: This is a text file", ".import FILE TABLE"),
        ("short.db", "short.db: This is a text file", ".import FILE TABLE"),
        ("encrypted.db", "encrypted.db: This is not a SQLite database, or an encrypted one", "sqlcipher"),
        ("archive.db", "archive.db: This is not a SQLite database, or an encrypted one", "sqlcipher"),
        ("damaged.db", "damaged.db: The database file is damaged", ".recover"),
        ("data", "'data' is a folder", "TARGET is a database file"),
        ("pipe.db", "'pipe.db' is not a regular file", "TARGET is a database file"),
        ("shp.db", "There is no file 'shp.db'", "Did you mean shop.db"),
        ("dta/shop.db", "There is no file 'dta/shop.db'", "There is no folder dta. Did you mean data?"),
        ("shp.toml", "shp.toml: there is no such file", ""),
        ("sqlite:///shp.db", "shp.db: The database file does not exist", "Did you mean shop.db"),
        ("sqlite:///data", "data: This is a folder", "Name the file in it"),
        ("sqlite:///pipe.db", "pipe.db: This is not a regular file", ""),
        ("sqlite:////nowhere/shop.db", "/nowhere/shop.db: The database file does not", "no folder /nowhere"),
    ],
)
def test_file_that_cannot_be_read_is_named_as_given(target: str, said: str, step: str) -> None:
    result = _run("tools", target)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"dbtools: {said}")
    assert step in result.stderr


def test_full_path_is_named_in_full(folder: Path) -> None:
    result = _run("tools", str(folder / "text.db"))

    assert result.stderr.startswith(f"dbtools: {folder / 'text.db'}: This is a text file")
    assert open_backend(f"sqlite:///{folder / 'shop.db'}").place == str(folder / "shop.db")
    assert open_backend("sqlite:///shop.db").place == "shop.db"


def test_empty_file_is_served_with_a_hint() -> None:
    served, checked = _run("tools", "empty.db"), _run("check", "empty.db")

    assert served.exit_code == 0
    assert "warning: empty.db is empty, and served as a database without tables" in checked.stdout


def test_locked_file_is_named(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "shop.db", isolation_level=None)) as other:
        other.execute("begin exclusive")
        with pytest.raises(DatabaseUnavailable) as caught:
            connect(location_of("sqlite:///shop.db"), lock_timeout=0)

    assert str(caught.value).startswith("shop.db: The database file is locked by another program. Try again")


@pytest.mark.parametrize("closed", ["shop.db", "."])
def test_file_without_read_permission_is_named(folder: Path, closed: str) -> None:
    (folder / closed).chmod(0)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        with pytest.raises(DatabaseUnavailable) as caught:
            connect(location_of(f"sqlite:///{folder / 'shop.db'}"))
    finally:
        if is_root:
            os.seteuid(0)
        (folder / closed).chmod(0o700)

    assert str(caught.value).startswith(f"{folder / 'shop.db'}: This user may not read the database file.")


@pytest.mark.parametrize("target", ["shop.db", "./shop.db", "data/dbtools.toml", "sqlite:///shop.db"])
def test_database_in_place_of_a_command_is_served_by_another(target: str) -> None:
    result = _run(target)

    assert (result.exit_code, result.stdout) == (2, "")
    assert f"dbtools serve {'URL' if '://' in target else target}" in result.stderr


def test_url_in_place_of_a_command_is_not_repeated() -> None:
    result = _run("postgresql://ann:sekret@db/shop")

    assert "dbtools serve URL" in result.stderr
    assert "sekret" not in result.stderr


def test_shared_url_has_the_full_path(folder: Path) -> None:
    assert open_backend("sqlite:///shop.db?immutable=1").shareable_url() == (
        f"sqlite:///{folder}/shop.db?immutable=1",
        {},
    )
