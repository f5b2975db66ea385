"""`dbtools check --against`: how a migration would change the tools."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import anyio
import pytest

from dbtools.alembic import upgrade
from dbtools.records.registry import add
from tests.protocol.command_line import run

BEFORE = """
create table customers (id integer primary key, name text, secret text);
create table orders (id integer primary key, customer_id integer references customers (id));
"""
AFTER = """
create table customers (id integer primary key, label text, secret text, tier text);
create table reviews (id integer primary key, text text);
"""
CONFIGURATION = """
[queries]
directory = "queries"
[tools]
style = "typed"
[roles.all]
tables."*" = true
queries = ["*"]
[roles.some]
tables.customers = { columns = ["id", "secret"] }
"""
QUERIES = {
    "names.sql": "-- description: Names.\nselect name from customers",
    "ids.sql": "-- description: Ids.\nselect id from customers",
}

Open = Callable[[str], str]


@pytest.fixture
def open_database(
    dialect: str,
    sqlite_database: Callable[[str], Path],
    postgresql_database: Callable[[str], AbstractContextManager[str]],
) -> Iterator[Open]:
    """Yield a factory: DDL in, the URL of a database out."""
    with ExitStack() as stack:

        def open_database(ddl: str) -> str:
            if dialect == "sqlite":
                return f"sqlite:///{sqlite_database(ddl)}"
            return stack.enter_context(postgresql_database(ddl))

        yield open_database


def _configured(folder: Path, url: str, rest: str = CONFIGURATION) -> Path:
    (folder / "queries").mkdir()
    for name, text in QUERIES.items():
        (folder / "queries" / name).write_text(text)
    (folder / "dbtools.toml").write_text(f'[database]\nurl = "{url}"\n{rest}')
    return folder / "dbtools.toml"


def test_check_reports_what_a_migration_does_to_each_role(open_database: Open, tmp_path: Path) -> None:
    path = _configured(tmp_path, open_database(BEFORE))
    scratch = open_database(AFTER)

    checked = run("check", str(path), "--against", scratch, "--json")
    told = run("check", str(path), "--against", scratch)

    assert json.loads(checked.stdout)["changes"] == {
        "all": {
            "added": ["list_reviews", "get_reviews"],
            "changed": ["describe_tables", "aggregate_rows", "list_customers"],
            "removed": ["list_orders", "get_orders"],
            "broken": ["names"],
        },
        "some": {"added": [], "changed": [], "removed": [], "broken": []},
    }
    withdrawn = [each for each in json.loads(checked.stdout)["findings"] if each["code"] == "withdrawn"]
    assert [(each["file"], each["line"]) for each in withdrawn] == [
        (str(tmp_path / "queries" / "names.sql"), 2)
    ]
    assert (checked.exit_code, told.exit_code) == (1, 1)
    assert "\nrole all: added: list_reviews, get_reviews\n" in told.stdout
    assert "\nrole all: broken: names\n" in told.stdout
    assert "role some" not in told.stdout


def test_tables_are_reported_if_their_tools_are_not_listed(open_database: Open, tmp_path: Path) -> None:
    rest = CONFIGURATION.replace('style = "typed"', 'style = "generic"')
    path = _configured(tmp_path, open_database(BEFORE), rest)

    checked = run("check", str(path), "--against", open_database(AFTER), "--json")

    changes = json.loads(checked.stdout)["changes"]["all"]
    assert changes["added"] == ["list_reviews", "get_reviews"]
    assert changes["removed"] == ["list_orders", "get_orders"]
    assert {"list_rows", "describe_tables", "list_customers"} <= set(changes["changed"])


def test_check_against_the_same_schema_finds_nothing(open_database: Open, tmp_path: Path) -> None:
    path = _configured(tmp_path, open_database(BEFORE))

    told = run("check", str(path), "--against", open_database(BEFORE))

    assert told.exit_code == 0
    assert told.stdout.endswith("\nThe migration changes no tool.\n")


def test_queries_of_the_registry_that_is_served_are_held_against_the_scratch(open_database: Open) -> None:
    url = open_database(BEFORE)
    upgrade(url)
    anyio.run(add, url, {"one": "-- name: one\n-- description: One.\nselect name from customers\n"})

    checked = run("check", url, "--against", open_database(AFTER), "--json")

    assert json.loads(checked.stdout)["changes"]["default"]["broken"] == ["one"]


def test_registry_that_the_login_may_not_read_is_none(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    postgresql_login: Callable[[str, str], AbstractContextManager[str]],
) -> None:
    with postgresql_database(BEFORE) as url, postgresql_database(AFTER) as scratch:
        upgrade(url)
        with postgresql_login(url, "grant select on all tables in schema public to {}") as login:
            checked = run("check", login, "--against", scratch, "--json")

    assert checked.exit_code == 0
    assert "list_reviews" in json.loads(checked.stdout)["changes"]["default"]["added"]


def test_check_against_no_database_is_a_clear_error(open_database: Open, tmp_path: Path) -> None:
    path = _configured(tmp_path, open_database(BEFORE))

    checked = run("check", str(path), "--against", f"sqlite:///{tmp_path / 'gone.db'}")

    assert (checked.exit_code, checked.stdout) == (2, "")
    assert "The database file does not exist." in checked.stderr
