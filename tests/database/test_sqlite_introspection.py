"""Introspection of tables, views and comments in SQLite files, including unusual ones."""

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given, strategies as st

from dbtools.backends.checks import Check, read_checks
from dbtools.backends.sqlite.schema.syntax import lexis
from dbtools.backends.sqlite.schema.types import column_type
from dbtools.schema.catalog import Catalog, Column, ForeignKey, Key, Selection, Table, TableKind, TextIndex
from tests.database.sqlite_catalog import (
    ANY,
    INTEGER,
    TEXT,
    connection as connection,
    names,
    read,
    read_table,
)

ROWID = column_type("integer", strict=False, rowid=True)


def test_table_is_read_with_types_comments_keys_and_limits(connection: sqlite3.Connection) -> None:
    ddl = """
    create table orders ( -- What was ordered
      id integer primary key,
      status text not null default 'new' -- Where it is
        check (status in ('new', 'paid')),
      quantity integer not null check (quantity > 0),
      rating real check (rating between 1 and 5),
      price decimal(10,2), -- Of one, in EUR
      total numeric generated always as (quantity * price),
      kept text as (upper(status)) stored,
      check (price > 0 and price < 1000)
    );
    insert into orders (status, quantity, price) values ('new', 1, 2), ('paid', 3, 4);
    """

    catalog = read(connection, ddl)

    orders = Table(
        name="orders",
        comment="What was ordered",
        columns=(
            Column(name="id", type=ROWID, nullable=False),
            Column(
                name="status",
                type=TEXT,
                nullable=False,
                default="'new'",
                comment="Where it is",
                choices=("new", "paid"),
            ),
            Column(name="quantity", type=INTEGER, nullable=False, minimum="1"),
            Column(name="rating", type=column_type("real", strict=False), minimum="1", maximum="5"),
            Column(
                name="price",
                type=column_type("decimal(10,2)", strict=False),
                comment="Of one, in EUR",
                minimum="> 0",
                maximum="< 1000",
            ),
            Column(name="total", type=column_type("numeric", strict=False), generated=True),
            Column(name="kept", type=TEXT, generated=True),
        ),
        keys=(Key(columns=("id",), primary=True),),
        row_estimate=2,
        row_identifier="rowid",
    )
    assert catalog == Catalog(tables=(orders,))
    assert catalog.warnings == ()


def test_tables_are_ordered_by_name(connection: sqlite3.Connection) -> None:
    catalog = read(
        connection, "create table b (x); create view Z as select 1; create table a (x); create table é (x)"
    )

    assert names(catalog) == ["Z", "a", "b", "é"]


NASTY = [
    "order",
    "with space",
    'double "quotes"',
    "single 'quotes'",
    "`back` [ticks]",
    "a/b\\c.d",
    "main.t",
    "1st",
    "tab\tand\nline",
    "--",
    "/*",
    "%_*?",
    "ÄÖÜ ß",
    "日本語",
    "👩‍🚀",
    "\u202eright",
    "x" * 200,
    "",
]


@pytest.mark.parametrize("name", NASTY)
def test_any_name_is_read(connection: sqlite3.Connection, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    ddl = f"""
    create table {quoted} ({quoted} integer primary key, -- the key
      up integer references {quoted}, other text not null unique);
    insert into {quoted} values (1, null, 'a');
    """

    table = Table(
        name=name,
        columns=(
            Column(name=name, type=ROWID, nullable=False, comment="the key"),
            Column(name="up", type=INTEGER),
            Column(name="other", type=TEXT, nullable=False),
        ),
        keys=(Key(columns=(name,), primary=True), Key(columns=("other",))),
        foreign_keys=(ForeignKey(columns=("up",), target_schema="", target=name, target_columns=(name,)),),
        row_estimate=1,
        row_identifier="rowid",
    )
    assert read(connection, ddl) == Catalog(tables=(table,))


def test_internal_tables_are_hidden(connection: sqlite3.Connection) -> None:
    ddl = """
    create table t (a integer primary key autoincrement);
    create virtual table words using fts5(a);
    create virtual table boxes using rtree(id, x0, x1);
    create table alembic_version (a);
    create table dbtools_version (a);
    create table DBTOOLS_query (a);
    create table dbtools_call (a);
    create table Dbtools_Write (a);
    create table dbtools_mine (a);
    create temp table temporary (a);
    attach ':memory:' as other;
    create table other.foreign_one (a);
    insert into t default values;
    analyze;
    """

    assert names(read(connection, ddl)) == ["boxes", "dbtools_mine", "t", "words"]


def test_selection_is_applied(connection: sqlite3.Connection) -> None:
    ddl = """
    create table b (id integer primary key);
    create table a1 (b integer references b);
    create table a2 (x);
    create view broken as select * from missing;
    """

    catalog = read(connection, ddl, Selection(include=("a*",), exclude=("a2",)))

    assert [(table.name, table.foreign_keys) for table in catalog.tables] == [("a1", ())]
    assert catalog.warnings == ()


@pytest.mark.parametrize(
    ("column", "choices", "minimum", "maximum"),
    [
        pytest.param("A text check (a in ('x', 'y'))", ("x", "y"), None, None, id="choices"),
        pytest.param("a integer check (a in (1, 2))", ("1", "2"), None, None, id="choices of integers"),
        pytest.param("a integer check (a > 0 and a < 10)", (), "1", "9", id="exclusive bounds of integers"),
        pytest.param("a integer check (a > 0.5)", (), "> 0.5", None, id="integer above a fraction"),
        pytest.param("a real check (a > 0 and a <= 1.5)", (), "> 0", "1.5", id="bounds of numbers"),
        pytest.param("a date check (a >= '2020-01-01')", (), "2020-01-01", None, id="bound of dates"),
        pytest.param("a text check (a >= 'A')", (), "A", None, id="bound of texts"),
        pytest.param("a integer check (a >= 1) check (a >= 0)", (), "1", None, id="two bounds"),
        pytest.param("a text collate nocase check (a in ('x', 'y'))", (), None, None, id="collated choices"),
        pytest.param("a text check (a >= 5)", (), None, None, id="number as a bound of texts"),
        pytest.param("a integer check (a in ('x', 'y'))", (), None, None, id="texts as choices of integers"),
        pytest.param("a integer check (a >= 'x')", (), None, None, id="text as a bound of integers"),
        pytest.param("a date check (a > 0)", (), None, None, id="number as a bound of dates"),
        pytest.param("a boolean check (a in (0, 1))", (), None, None, id="choices of booleans"),
        pytest.param("a check (a >= 1)", (), None, None, id="bound of anything"),
        pytest.param("a blob check (a = 'x')", (), None, None, id="choices of bytes"),
    ],
)
def test_limits_come_from_check_constraints(
    connection: sqlite3.Connection,
    column: str,
    choices: tuple[str, ...],
    minimum: str | None,
    maximum: str | None,
) -> None:
    (found,) = read_table(connection, f"create table t ({column})").columns

    assert (found.choices, found.minimum, found.maximum) == (choices, minimum, maximum)


def test_comments_stay_with_their_columns_when_columns_are_added(connection: sqlite3.Connection) -> None:
    ddl = """
    create table t (
      a text, -- the a
      b text, -- the b
      c text -- the c
    );
    alter table t add column d text /* the d */ default 'x';
    alter table t rename column a to "new a";
    alter table t drop column b;
    """

    assert [(column.name, column.comment) for column in read_table(connection, ddl).columns] == [
        ("new a", "the a"),
        ("c", "the c"),
        ("d", "the d"),
    ]


def test_comment_does_not_move_to_a_new_column(connection: sqlite3.Connection) -> None:
    ddl = """
    create table t (
      a text, -- the a
      b text, -- the b
      primary key (a)
    );
    alter table t add column c text;
    """

    assert [(column.name, column.comment) for column in read_table(connection, ddl).columns] == [
        ("a", "the a"),
        ("b", ""),
        ("c", ""),
    ]


def test_view_is_read(connection: sqlite3.Connection) -> None:
    ddl = """
    create table t (id integer primary key, day date not null);
    create view v as -- Days and more
    select id, day, count(*) as n from t;
    """

    assert read_table(connection, ddl, "v") == Table(
        name="v",
        kind=TableKind.VIEW,
        comment="Days and more",
        definition="select id, day, count(*) as n from t",
        columns=(
            Column(name="id", type=INTEGER),
            Column(name="day", type=column_type("date", strict=False)),
            Column(name="n", type=column_type(type_of_count(connection), strict=False)),
        ),
    )


def type_of_count(connection: sqlite3.Connection) -> str:
    """Return the type that this version of SQLite gives a column without one."""
    (declared,) = connection.execute("select type from pragma_table_xinfo('v') where name = 'n'").fetchone()
    return str(declared)


def test_virtual_tables_are_read(connection: sqlite3.Connection) -> None:
    ddl = """
    create virtual table words -- To search
    using fts5(body, lang unindexed, tokenize = 'porter');
    create virtual table boxes using rtree(id, x0, x1, +label text);
    create virtual table tokens using fts5vocab(words, 'row');
    """

    tables = {table.name: table for table in read(connection, ddl).tables}

    body = frozenset({"body"})
    index = TextIndex(reads=body, document='"rowid"', source="words", weighs=body)
    assert tables["words"] == Table(
        name="words",
        kind=TableKind.VIRTUAL,
        comment="To search",
        columns=(Column(name="body", type=ANY, text_index=index), Column(name="lang", type=ANY)),
        row_identifier="rowid",
    )
    assert [column.name for column in tables["boxes"].columns] == ["id", "x0", "x1", "label"]
    assert (tables["boxes"].row_identifier, tables["tokens"].row_identifier) == ("rowid", None)


@pytest.mark.parametrize(
    ("rows", "estimate"),
    [
        pytest.param("", 0, id="empty"),
        pytest.param("insert into t (a) values (10), (11), (12);", 3, id="range of rowids"),
        pytest.param("insert into t (a) values (1), (9000000000000000000);", None, id="keys far apart"),
        pytest.param(
            "insert into t (a) values (-9223372036854775808), (9223372036854775807);", None, id="overflow"
        ),
    ],
)
def test_rows_are_estimated_without_counting(
    connection: sqlite3.Connection, rows: str, estimate: int | None
) -> None:
    table = read_table(connection, f"create table t (a integer primary key, b text); {rows}")

    assert table.row_estimate == estimate


def test_rows_are_not_estimated_in_a_database_of_many_tables(connection: sqlite3.Connection) -> None:
    catalog = read(connection, "".join(f"create table t{number} (a);" for number in range(201)))

    assert {table.row_estimate for table in catalog.tables} == {None}


CELLS = (None, -1, 0, 0.5, 1, 2, 5, "", "a", "b", "zz")
LITERALS = st.sampled_from(["-1", "0", "0.5", "1", "2", "'a'", "'b'", "''", "null", "y", "(1)"])
EQUAL, ORDERED = ("==", "<>", "is", "+"), ("=", "<", "<=", ">", ">=")
OPERANDS = st.sampled_from(["x", "y", "(x)", '"x"', "[y]", "length(x)", "-x"])
COMPARISONS = st.one_of(
    st.builds("{} {} {}".format, OPERANDS, st.sampled_from(EQUAL + ORDERED), LITERALS),
    st.builds("{} {} {}".format, LITERALS, st.sampled_from(ORDERED), OPERANDS),
    st.builds(
        "{} {} ({})".format, OPERANDS, st.sampled_from(["in", "not in"]), st.lists(LITERALS).map(", ".join)
    ),
    st.builds(
        "{} {} {} and {}".format, OPERANDS, st.sampled_from(["between", "not between"]), LITERALS, LITERALS
    ),
    st.builds("{} {} null".format, OPERANDS, st.sampled_from(["is", "is not"])),
)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from(["and", "or"]), inner),
        st.builds("({})".format, inner),
        st.builds("not {}".format, inner),
        st.builds("case when {} then {} else {} end".format, inner, inner, inner),
    ),
    max_leaves=6,
)


@given(CONDITIONS)
def test_rows_that_a_constraint_allows_are_within_its_limits(condition: str) -> None:
    checks = read_checks(f"({condition})", lexis)
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"create table t (x, y, check ({condition}))")
        cells = [(x, y) for x in CELLS for y in CELLS]
        connection.executemany("insert or ignore into t values (?, ?)", cells)
        rows = connection.execute("select x, y from t").fetchall()

        wrong = [
            (row, check)
            for check in checks
            for row in rows
            if not admits(connection, check, row["xy".index(check.column)])
        ]

    assert wrong == []


def admits(connection: sqlite3.Connection, check: Check, cell: object) -> bool:
    if cell is None or check.operator == "=":
        return cell is None or str(cell) in check.literals
    compared = f"select ? {check.operator} ?"
    return bool(connection.execute(compared, (cell, value_of(check.literals[0]))).fetchone()[0])


def value_of(literal: str) -> float | str:
    try:
        return float(literal)
    except ValueError:
        return literal
