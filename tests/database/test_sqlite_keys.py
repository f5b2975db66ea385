"""Keys of SQLite: which columns identify a row."""

import sqlite3

import pytest

from dbtools.backends.sqlite.schema.types import column_type
from dbtools.schema.catalog import Column, Key, Table
from tests.database.sqlite_catalog import ANY, INTEGER, TEXT, connection as connection, read_table


@pytest.mark.parametrize(
    ("columns", "nullable", "key", "identifier"),
    [
        pytest.param("a integer primary key", False, ("a",), "rowid", id="rowid"),
        pytest.param("a INTEGER, primary key (a desc)", False, ("a",), "rowid", id="rowid by a constraint"),
        pytest.param("a integer primary key desc", True, ("a",), "rowid", id="integer that is not the rowid"),
        pytest.param("a int primary key", True, ("a",), "rowid", id="int"),
        pytest.param("a text primary key", True, ("a",), "rowid", id="text"),
        pytest.param("a text primary key not null", False, ("a",), "rowid", id="not null"),
        pytest.param("a text", True, None, "rowid", id="no key"),
    ],
)
def test_primary_key_may_hold_null(
    connection: sqlite3.Connection, columns: str, nullable: bool, key: tuple[str, ...] | None, identifier: str
) -> None:
    table = read_table(connection, f"create table t ({columns})")

    assert table.columns[0].nullable is nullable
    assert table.keys == ((Key(columns=key, primary=True),) if key else ())
    assert table.row_identifier == identifier


def test_table_without_rowid_is_read(connection: sqlite3.Connection) -> None:
    table = read_table(connection, "create table t (a text, b integer, c, primary key (b, a)) without rowid")

    assert table == Table(
        name="t",
        columns=(
            Column(name="a", type=TEXT, nullable=False),
            Column(name="b", type=INTEGER, nullable=False),
            Column(name="c", type=ANY),
        ),
        keys=(Key(columns=("b", "a"), primary=True),),
    )


def test_strict_table_is_read(connection: sqlite3.Connection) -> None:
    ddl = "create table t (a text primary key, b int, c any, d real, e blob) strict"

    assert read_table(connection, ddl).columns == (
        Column(name="a", type=column_type("text", strict=True), nullable=False),
        Column(name="b", type=column_type("int", strict=True)),
        Column(name="c", type=column_type("any", strict=True)),
        Column(name="d", type=column_type("real", strict=True)),
        Column(name="e", type=column_type("blob", strict=True)),
    )


def test_unique_keys_without_nulls_are_keys(connection: sqlite3.Connection) -> None:
    ddl = """
    create table t (
      id integer primary key,
      a text not null,
      b text not null unique,
      c text unique,
      d integer not null,
      unique (d, a),
      unique (a, c)
    );
    create unique index i1 on t (a);
    create unique index i2 on t (d) where d > 0;
    create unique index i3 on t (lower(b));
    create unique index i4 on t (b);
    create index i5 on t (d);
    """

    assert read_table(connection, ddl).keys == (
        Key(columns=("id",), primary=True),
        Key(columns=("b",)),
        Key(columns=("d", "a")),
        Key(columns=("a",)),
    )


@pytest.mark.parametrize(
    ("column", "keys"),
    [
        pytest.param("collate nocase unique", (Key(columns=("a",)),), id="its own"),
        pytest.param("collate nocase, unique (a collate binary)", (), id="finer"),
        pytest.param("collate nocase, unique (a collate rtrim)", (), id="finer in another way"),
        pytest.param(", unique (a collate nocase)", (Key(columns=("a",)),), id="coarser"),
        pytest.param("unique check (a collate nocase <> 'x')", (Key(columns=("a",)),), id="collated check"),
    ],
)
def test_index_is_a_key_if_it_tells_no_more_texts_apart_than_its_column(
    connection: sqlite3.Connection, column: str, keys: tuple[Key, ...]
) -> None:
    assert read_table(connection, f"create table t (a text not null {column})").keys == keys


@pytest.mark.parametrize(
    ("columns", "identifier"),
    [("a", "rowid"), ("RowId text", "_rowid_"), ("rowid, _ROWID_", "oid"), ("rowid, _rowid_, oid", None)],
)
def test_row_identifier_is_a_name_that_no_column_has(
    connection: sqlite3.Connection, columns: str, identifier: str | None
) -> None:
    assert read_table(connection, f"create table t ({columns})").row_identifier == identifier
