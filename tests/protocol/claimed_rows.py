"""A database whose rows depend on role and claims."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dbtools.cli import main

DDL = """
create table orders (id integer primary key, region text not null, tenant integer, margin integer, mail text);
insert into orders values (1, 'north', 1, 50, 'ada@example.com'), (2, 'south', 2, 60, 'bo@example.com'),
  (3, 'north', 2, 70, null), (4, 'o''hara=x', 3, 80, ''), (5, 'true', 4, 90, 'cy');
create table secret (id integer primary key, canary text);
insert into secret values (1, 'canary');
"""
#: the same with only what a clerk of the north sees
SMALL_DDL = """
create table orders (id integer primary key, region text not null, tenant integer, mail text);
insert into orders values (1, 'north', 1, 'ada@example.com'), (3, 'north', 2, null);
"""
SMALL = """
[database]
url = "small.db"
[roles.clerk]
tables.orders = { where = "region = :claims.region", mask = { mail = "partial" } }
"""
CONFIGURATION = """
[database]
url = "shop.db"
[roles.boss]
tables."*" = true
[roles.clerk]
tables.orders = { exclude = ["margin"], where = "region = :claims.region", mask = { mail = "partial" } }
[roles.tenant]
tables.orders = { columns = ["id"], where = "tenant = :claims.tenant or region = :claims.region" }
[roles.nobody]
"""
WRONG = """
[database]
url = "shop.db"
[roles.clerk]
tables.secret = true
tables.orders = { exclude = ["margn"] }
tables.ordrs = true
"""
BAD_FILTER = """
[database]
url = "shop.db"
[roles.clerk]
tables.secret = true
tables.orders = { where = "colour = 'red'" }
"""
REFUSED, WRONG_USE = 1, 2


@pytest.fixture
def folder(sqlite_database: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the current folder: a database, and configurations of it."""
    (tmp_path / "shop.db").symlink_to(sqlite_database(DDL))
    (tmp_path / "small.db").symlink_to(sqlite_database(SMALL_DDL))
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "dbtools.toml").write_text(CONFIGURATION)
    (tmp_path / "wrong.toml").write_text(WRONG)
    (tmp_path / "filter.toml").write_text(BAD_FILTER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DBTOOLS_ROLE", raising=False)
    monkeypatch.delenv("DBTOOLS_CLAIMS", raising=False)
    return tmp_path


def run(*words: str, environment: Mapping[str, str] | None = None) -> Result:
    """Run the command line in this process."""
    result = CliRunner().invoke(main, words, env=dict(environment or {}))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.stderr
    return result


CLERK = ("--role", "clerk")
