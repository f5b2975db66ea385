"""SQLite files with relations and names that cannot be read, and files that are locked."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dbtools.backends.sqlite.connection.files import secure
from dbtools.backends.sqlite.schema.introspection import LONGEST_IDENTIFIER, read_catalog
from dbtools.schema.catalog import Column, Selection
from tests.database.sqlite_catalog import TEXT, connection as connection, names, read


def test_relations_that_cannot_be_read_are_left_out(connection: sqlite3.Connection) -> None:
    ddl = """
    create table t (a integer primary key);
    create table source (a);
    create view v as select a from t;
    create view broken as select a from source;
    create view "on 'it'" as select * from broken;
    create view unknown as select no_function(a) as a from t;
    drop table source;
    pragma writable_schema = on;
    insert into sqlite_schema (type, name, tbl_name, rootpage, sql) values
      ('table', 'no_module', 'no_module', 0, 'create virtual table no_module using nosuch(a)'),
      ('table', 'no_tokens', 'no_tokens', 0, 'create virtual table no_tokens using fts5(a, tokenize = x)');
    pragma writable_schema = reset;
    """

    catalog = read(connection, ddl)

    assert names(catalog) == ["t", "v"]
    assert [warning.split(" is left out: ")[0] for warning in catalog.warnings] == [
        "view 'broken'",
        "virtual table 'no_module'",
        "virtual table 'no_tokens'",
        "view 'on 'it''",
        "view 'unknown'",
    ]


def test_view_that_only_fails_when_it_is_selected_from_stays(connection: sqlite3.Connection) -> None:
    ddl = "create table t (a); create view v as select abs(-9223372036854775807 - 1) as a from t"

    assert names(read(connection, ddl)) == ["t", "v"]


def write_definition(connection: sqlite3.Connection, name: str, sql: bytes) -> None:
    connection.execute("pragma writable_schema = on")
    connection.execute("update sqlite_schema set sql = cast(? as text) where name = ?", (sql, name))
    connection.execute("pragma writable_schema = reset")
    connection.commit()


def test_comment_that_is_no_utf8_is_read_as_far_as_it_goes(connection: sqlite3.Connection) -> None:
    connection.executescript("create table t (a text); create view broken as select * from missing")
    write_definition(connection, "t", b"create table t (a text default 'gr\xfcn' -- die L\xe4nge\n)")

    catalog = read_catalog(connection, Selection())

    (table,) = catalog.tables
    assert table.columns == (Column(name="a", type=TEXT, default="'gr\ufffdn'", comment="die L\ufffdnge"),)
    assert len(catalog.warnings) == 1
    assert connection.text_factory is str


def test_table_with_a_name_that_is_no_utf8_is_left_out(connection: sqlite3.Connection) -> None:
    connection.executescript("create table t (a text); create table u (a text)")
    write_definition(connection, "t", b"create table t (\xe4 text)")

    catalog = read_catalog(connection, Selection())

    assert names(catalog) == ["u"]
    assert catalog.warnings == ("table 't' is left out: its name or that of a column is not valid text.",)


def test_table_with_a_name_that_fits_into_no_answer_is_left_out(connection: sqlite3.Connection) -> None:
    long, longest = "n" * (LONGEST_IDENTIFIER + 1), "n" * LONGEST_IDENTIFIER
    connection.executescript(f"""
    create table "{long}" (a text);
    create table "{longest}" ("{longest}" text);
    create table u (a text, "{long}" text);
    """)

    catalog = read_catalog(connection, Selection())

    assert names(catalog) == [longest]
    assert [warning.rpartition(": ")[2] for warning in catalog.warnings] == [
        f"its name or that of a column has more than {LONGEST_IDENTIFIER} characters."
    ] * 2


def test_nested_views_are_worked_out_once(connection: sqlite3.Connection) -> None:
    """SQLite asks the authorizer of each column that it reads, except where it only names columns."""
    levels = 11  # 2,048 times the table: more than a statement may read
    connection.execute("create table v0 (id integer primary key, a text)")
    for level in range(levels):
        connection.execute(
            f"create view v{level + 1} as select a.* from v{level} as a join v{level} as b using (id)"
        )
    asked = []

    def note(*event: object) -> int:
        asked.append(event)
        return sqlite3.SQLITE_OK

    connection.set_authorizer(note)
    catalog = read_catalog(connection, Selection())
    secure(connection)

    assert len(catalog.tables) == levels + 1
    assert len(asked) < 1_000


def test_locked_database_is_not_taken_for_an_empty_one(sqlite_database: Callable[[str], Path]) -> None:
    path = sqlite_database("create table t (a)")
    with closing(sqlite3.connect(path)) as writer, closing(sqlite3.connect(path, timeout=0)) as reader:
        writer.execute("begin exclusive")

        with pytest.raises(sqlite3.OperationalError):
            read_catalog(reader, Selection())


def test_interrupt_is_not_taken_for_a_broken_table(connection: sqlite3.Connection) -> None:
    connection.executescript("".join(f"create table t{number} (a);" for number in range(50)))
    connection.set_progress_handler(lambda: True, 200)

    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        read_catalog(connection, Selection())


def test_connection_is_left_outside_of_a_transaction(connection: sqlite3.Connection) -> None:
    read(connection, "create table t (a)")

    assert not connection.in_transaction
