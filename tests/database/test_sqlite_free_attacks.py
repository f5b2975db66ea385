"""Ad-hoc SQL on SQLite neither reads nor detects anything that is hidden."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from dbtools.backends.sqlite.run_sql.refusals import RULES, checked_sql
from dbtools.errors import SqlRefused
from tests.database.free_attacks import BEFORE, CHANGES, PLACES, attacks
from tests.database.free_clinic import POOR, RICH
from tests.database.role_callers import calling
from tests.database.shop import Serve
from tests.database.twins import Twins, open_twins

RANDOM_NAME = re.compile(r"x[0-9a-f]{32}")
#: What only SQLite says.
ENGINE = re.compile(r"no such|not authorized|prohibited|near \"|misuse of|SQLITE_")


@pytest.fixture(scope="module")
def twins(serve: Serve) -> Iterator[Twins]:
    with open_twins(serve, "sqlite", RICH, POOR, sql=True) as twins:
        yield twins


def test_attack_shows_nothing_and_is_answered_as_if_nothing_were_hidden(twins: Twins) -> None:
    codes = set()
    for sql in attacks():
        code, text = twins.outcome(calling("run_sql", sql=sql))
        codes.add(code)

        assert not RANDOM_NAME.search(str(text)), sql
        assert code == "answer" or not ENGINE.search(str(text)), sql
    assert codes == {"answer", "sql_refused", "bad_argument"}
    assert all(rule and not rule.endswith(".") for _, rule, _ in RULES)


def test_change_after_common_table_expressions_is_no_select(twins: Twins) -> None:
    for before in BEFORE[1:]:
        for change in CHANGES[:16]:
            sql = (before + change).replace("{t}", "orders")
            code, text = twins.rich.outcome(calling("run_sql", sql=sql))

            assert code == "sql_refused", sql
            assert "This is not a SELECT (position" in str(text), sql


def is_table(sql: str) -> bool:
    """Return whether SQLite reads its schema as a table for *sql*."""
    read = []

    def note(action: int, first: str | None, *_: str | None) -> int:
        read.append(action == sqlite3.SQLITE_READ and first == "sqlite_master")
        return sqlite3.SQLITE_OK

    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript("create table a (v); create table b (v)")
        connection.execute("select 1 from json_each('[]')")  # reads the schema once
        connection.set_authorizer(note)
        # A table of five columns after IN is an error, after its columns were reported.
        with suppress(sqlite3.OperationalError):
            connection.execute(f"explain {sql}").close()
    return any(read)


def is_refused(sql: str) -> bool:
    try:
        checked_sql(sql)
    except SqlRefused:
        return True
    return False


def test_text_is_refused_as_a_table_exactly_where_sqlite_takes_it_for_one() -> None:
    statements = [each.replace("{t}", "'sqlite_master'") for each in PLACES]
    differing = [sql for sql in statements if is_refused(sql) != is_table(sql)]

    assert differing == []
    assert 15 < sum(map(is_table, statements)) < len(statements) - 30


@pytest.mark.parametrize("name", ["sqlite_stmt", "sqlite_temp_master", "pragma_database_list"])
def test_tables_of_the_engine_are_refused_before_anything_runs(name: str) -> None:
    for written in (name, name.upper(), f'"{name}"', f"\ufeff{name}", f"main.\ufeff\ufeff{name}"):
        assert is_refused(f"select count(*) from {written}")
