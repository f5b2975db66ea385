"""`dbtools check --connect`: what each step reports on each database, and how it reports faults."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from dbtools import __version__
from dbtools.backends.port import Probe
from dbtools.backends.sqlite import Backend
from dbtools.cli import main
from dbtools.service.checking import findings_of_connection

SHOP = "create table goods (id integer primary key, name text); insert into goods values (1, 'tent');"


Login = AbstractContextManager[str]
Database = Callable[[str], Login]


def _check(*words: str) -> Result:
    result = CliRunner().invoke(main, ("check", "--connect", *words))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_each_step_is_a_line_with_its_outcome(postgresql_database: Database) -> None:
    with postgresql_database(SHOP) as url:
        lines = _check(url).stdout.splitlines()

    texts = [re.sub(r" cost .*| in \d.*", "", line) for line in lines]
    assert texts[0].startswith(f"ok: dbtools {__version__}, Python")
    assert texts[1].startswith("ok: PostgreSQL ")
    assert "ok: The database refused a test write." in texts
    # Whether run_sql is offered depends on the login.
    assert "ok: role default: sees 1 table with 2 columns; its 4 tools" in texts
    assert "ok: role default: list_rows on goods answers" in texts
    assert len(lines) == 8


def test_login_that_can_only_read_is_ok(postgresql_url: str, postgresql_login: Callable[..., Login]) -> None:
    with postgresql_login(postgresql_url, "grant usage on schema public to {}") as url:
        result = _check(url)

    assert "ok: The connection can only read." in result.stdout
    assert "warning: No role sees a table, so no call was tried." in result.stdout


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
