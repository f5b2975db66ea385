"""`dbtools check --connect`: what each step reports on each database, and how it reports faults."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from dbtools import __version__
from dbtools.backends.port import Probe
from dbtools.backends.sqlite import Backend
from dbtools.cli import main
from dbtools.service.checking import findings_of_connection

SHOP = "create table goods (id integer primary key, name text); insert into goods values (1, 'tent');"
ROLES = """
[roles.clerk]
tables.goods = { where = "name = :claims.name" }
"""


def _check(*words: str) -> Result:
    result = CliRunner().invoke(main, ("check", "--connect", *words))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_each_step_is_a_line_with_its_outcome(url_of: Callable[[str], str]) -> None:
    url = url_of(SHOP)
    result = _check(url)

    lines = result.stdout.splitlines()
    kind = "SQLite" if url.startswith("sqlite") else "PostgreSQL"
    assert result.exit_code == 0
    # Whether run_sql is offered depends on the login.
    tools = 5 if kind == "SQLite" else 4
    assert [line for line in lines if "superuser" not in line and "can only read" not in line] == [
        *(line for line in lines if line.startswith((f"ok: dbtools {__version__}, Python", f"ok: {kind} "))),
        "ok: The database refused a test write.",
        "ok: The database has 1 table with 2 columns.",
        *(
            line
            for line in lines
            if line.startswith(f"ok: role default: sees 1 table with 2 columns; its {tools} tools cost ")
        ),
        *(line for line in lines if line.startswith("ok: role default: list_rows on goods answers in ")),
    ]
    assert len(lines) == (7 if kind == "SQLite" else 8)  # another warning, since run_sql is not offered
    assert "ok" not in {each["level"] for each in json.loads(_check(url, "--json").stdout)["findings"]}


def test_login_that_can_only_read_is_ok(
    postgresql_url: str, postgresql_login: Callable[..., object], open_database: object
) -> None:
    with postgresql_login(postgresql_url, "grant usage on schema public to {}") as url:  # type: ignore[attr-defined]
        result = _check(url)

    assert "ok: The connection can only read." in result.stdout
    assert "warning: No role sees a table, so no call was tried." in result.stdout


def test_role_that_needs_claims_is_not_called(sqlite_database: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "dbtools.toml").write_text(f'[database]\nurl = "{sqlite_database(SHOP)}"\n{ROLES}')
    result = _check(str(tmp_path / "dbtools.toml"))

    assert result.exit_code == 0
    assert "warning: role clerk: its row filters need claims" in result.stdout
    assert "dbtools call --role clerk --claim NAME=VALUE list_rows table=goods" in result.stdout


def test_database_that_is_not_there_is_no_finding() -> None:
    result = _check("sqlite:////nowhere/shop.db")

    assert (result.exit_code, result.stdout) == (2, "")


class Writable:
    """What runs statements on a database that lets itself be written to."""

    async def probe(self) -> Probe:
        """Return that a write was not refused."""
        return Probe(version="SQLite 3", refuses_writes=False)


class WritableBackend(Backend):
    """Such a database."""

    def load_runner(self) -> Any:
        """Return the runner."""
        return Writable()


async def test_database_that_takes_a_write_is_an_error(sqlite_database: Callable[[str], Path]) -> None:
    found = await findings_of_connection(WritableBackend(f"sqlite:///{sqlite_database(SHOP)}"))

    assert [(each.level, each.code) for each in found] == [("ok", "connection"), ("error", "not_read_only")]
