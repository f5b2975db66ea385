"""What SQLite's tables become, read from real databases."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dbtools.backends.checks import Check, read_checks
from dbtools.backends.sqlite.guard import secure
from dbtools.backends.sqlite.introspection import LONGEST_NAME, read_catalog
from dbtools.backends.sqlite.syntax import lexis
from dbtools.backends.sqlite.types import column_type
from dbtools.catalog import Catalog, Column, ForeignKey, Key, Selection, Table, TableKind

INTEGER = column_type("integer", strict=False)
ROWID = column_type("integer", strict=False, rowid=True)
TEXT = column_type("text", strict=False)
ANY = column_type("", strict=False)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    """Give an empty database."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield connection


def read(connection: sqlite3.Connection, ddl: str, selection: Selection | None = None) -> Catalog:
    connection.executescript(ddl)
    return read_catalog(connection, selection or Selection())


def read_table(connection: sqlite3.Connection, ddl: str, name: str = "t") -> Table:
    return {table.name: table for table in read(connection, ddl).tables}[name]


def names(catalog: Catalog) -> list[str]:
    return [table.name for table in catalog.tables]


def test_table_is_read_with_all_that_is_said_of_it(connection: sqlite3.Connection) -> None:
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


def test_tables_are_in_the_order_of_their_names(connection: sqlite3.Connection) -> None:
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
    connection: sqlite3.Connection,
    columns: str,
    nullable: bool,
    key: tuple[str, ...] | None,
    identifier: str,
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
    [
        ("a", "rowid"),
        ("RowId text", "_rowid_"),
        ("rowid, _ROWID_", "oid"),
        ("rowid, _rowid_, oid", None),
    ],
)
def test_row_identifier_is_a_name_that_no_column_has(
    connection: sqlite3.Connection, columns: str, identifier: str | None
) -> None:
    assert read_table(connection, f"create table t ({columns})").row_identifier == identifier


def test_foreign_keys_are_read(connection: sqlite3.Connection) -> None:
    ddl = """
    create table Place (Country text, City text, code integer unique, primary key (Country, City));
    create table t (
      id integer primary key,
      parent integer references t,
      country text,
      city text,
      code integer references place (CODE),
      gone integer references missing (id),
      wrong integer references place (absent),
      short integer references place,
      foreign key (country, city) references PLACE,
      foreign key (city, country) references Place (city, country)
    );
    """

    assert read_table(connection, ddl).foreign_keys == (
        ForeignKey(columns=("parent",), target_schema="", target="t", target_columns=("id",)),
        ForeignKey(columns=("code",), target_schema="", target="Place", target_columns=("code",)),
        ForeignKey(
            columns=("country", "city"), target_schema="", target="Place", target_columns=("Country", "City")
        ),
        ForeignKey(
            columns=("city", "country"), target_schema="", target="Place", target_columns=("City", "Country")
        ),
    )


def test_foreign_key_that_is_said_twice_is_one(connection: sqlite3.Connection) -> None:
    ddl = """
    create table p (id integer primary key);
    create table t (
      p integer references p references P (ID) on delete cascade,
      foreign key (p) references p
    );
    """

    assert read_table(connection, ddl).foreign_keys == (
        ForeignKey(columns=("p",), target_schema="", target="p", target_columns=("id",)),
    )


def matches(connection: sqlite3.Connection, key: ForeignKey) -> list[int]:
    """Return how many rows of the target each row of t is joined with, in t's order."""
    pairs = zip(key.target_columns, key.columns, strict=True)
    rows = connection.execute(f"""
        select count(j."{key.target_columns[0]}")
        from t left join "{key.target}" as j
        on {" and ".join(f'j."{there}" = t."{here}"' for there, here in pairs)}
        group by t.n order by t.n
    """)
    return [number for (number,) in rows]


@pytest.mark.parametrize(
    ("ddl", "matched"),
    [
        pytest.param(
            """create table p (id integer primary key); insert into p values (1), (2);
            create table t (n integer primary key, a references p);
            insert into t values (1, 1), (2, '01'), (3, 1.0), (4, 9), (5, null), (6, x'31');""",
            [1, 1, 1, 0, 0, 0],
            id="rowid",
        ),
        pytest.param(
            """create table p (id integer primary key desc); insert into p values (1), (null), (null);
            create table t (n integer primary key, a int references p);
            insert into t values (1, 1), (2, null);""",
            [1, 0],
            id="integer that is not the rowid",
        ),
        pytest.param(
            """create table p (id text primary key); insert into p values ('a'), ('A'), (null), (null);
            create table t (n integer primary key, a text references p);
            insert into t values (1, 'a'), (2, null), (3, 'b');""",
            [1, 0, 0],
            id="primary key with nulls",
        ),
        pytest.param(
            """create table p (id int, code text unique); insert into p values (1, 'a'), (2, null), (3, null);
            create table t (n integer primary key, a text references p (code));
            insert into t values (1, 'a'), (2, null);""",
            [1, 0],
            id="unique with nulls",
        ),
        pytest.param(
            """create table p (x int, y int); create unique index i on p (y desc, x);
            insert into p values (1, 2), (2, 1), (1, 1), (null, 1), (null, 1);
            create table t (n integer primary key, a int, b int, foreign key (b, a) references p (x, y));
            insert into t values (1, 2, 1), (2, 1, 2), (3, 2, 2), (4, 1, null);""",
            [1, 1, 0, 0],
            id="other order and descending",
        ),
        pytest.param(
            """create table p (x int unique, y int); insert into p values (1, 2), (2, 1);
            create table t (n integer primary key, a int, b int, foreign key (a, b) references p (x, y));
            insert into t values (1, 1, 2), (2, 1, 1);""",
            [1, 0],
            id="more than unique",
        ),
        pytest.param(
            """create table p (id integer primary key, y int); insert into p values (1, 2), (2, 1);
            create table t (n integer primary key, a int, b int, foreign key (b, a) references p (y, id));
            insert into t values (1, 1, 2), (2, 1, 1);""",
            [1, 0],
            id="more than the rowid",
        ),
        pytest.param(
            """create table p (x text, y int, z, primary key (y, x)) without rowid;
            insert into p values ('a', 1, 0), ('b', 1, 0), ('a', 2, 0);
            create table t (n integer primary key, a, b text, foreign key (a, b) references p);
            insert into t values (1, 1, 'a'), (2, '1', 'b'), (3, 2, 'b');""",
            [1, 1, 0],
            id="without rowid and implied",
        ),
        pytest.param(
            """create table t (n integer primary key, a integer references t);
            insert into t values (1, 1), (2, 1), (3, null), (4, 9);""",
            [1, 1, 0, 0],
            id="to itself",
        ),
        pytest.param(
            """create table p (id int, half int as (id / 2) unique); insert into p (id) values (1), (2), (4);
            create table t (n integer primary key, a int as (n - 1) stored references p (half));
            insert into t (n) values (1), (2), (3), (4);""",
            [1, 1, 1, 0],
            id="generated",
        ),
        pytest.param(
            """create table p (id text collate nocase primary key); insert into p values ('a'), ('B');
            create table t (n integer primary key, a text references p);
            insert into t values (1, 'a'), (2, 'A'), (3, 'b');""",
            [1, 1, 1],
            id="collated by the target",
        ),
        pytest.param(
            """create table p (id text primary key); insert into p values ('a'), ('A');
            create table t (n integer primary key, a text collate nocase references p);
            insert into t values (1, 'a'), (2, 'A');""",
            [1, 1],
            id="collated by the source alone",
        ),
        pytest.param(
            """create table "the p" ("" int, "an ä" text, unique ("An ä", ""));
            insert into "the p" values (1, 'a'), (2, 'a');
            create table t (
              n integer primary key, "a b" text, "1" int,
              foreign key ("a b", "1") references "THE P" ("AN ä", "")
            );
            insert into t values (1, 'a', 2), (2, 'b', 1);""",
            [1, 0],
            id="odd names",
        ),
        pytest.param(
            """create table p (id any primary key) strict; insert into p values (1), ('1'), ('01');
            create table t (n integer primary key, a any references p) strict;
            insert into t values (1, 1), (2, '1'), (3, '01'), (4, 1.0), (5, '1.0');""",
            [1, 1, 1, 1, 0],
            id="strict and any",
        ),
    ],
)
def test_join_along_a_joinable_foreign_key_finds_one_row_at_most(
    connection: sqlite3.Connection, ddl: str, matched: list[int]
) -> None:
    (key,) = read_table(connection, ddl).foreign_keys

    assert key.joinable
    assert matches(connection, key) == matched


TWO_ROWS = """
insert into p values ('a', 'b'), ('A', 'c');
create table t (n integer primary key, a text references p (x));
insert into t values (1, 'a');
"""


@pytest.mark.parametrize(
    ("ddl", "matched"),
    [
        pytest.param(f"create table p (x text collate nocase, y); {TWO_ROWS}", 2, id="not unique"),
        pytest.param(
            f"create table p (x text collate nocase, y); create index i on p (x); {TWO_ROWS}", 2, id="index"
        ),
        pytest.param(
            f"create table p (x text collate nocase, y, unique (x, y)); {TWO_ROWS}", 2, id="with another"
        ),
        pytest.param(
            "create table p (x text collate nocase, y); create unique index i on p (x) where y = 'b';"
            + TWO_ROWS,
            2,
            id="partial",
        ),
        pytest.param(
            "create table p (x text collate nocase, y); create unique index i on p (x, lower(y));" + TWO_ROWS,
            2,
            id="expression",
        ),
        pytest.param(
            f"create table p (x text collate nocase, y, unique (x collate binary)); {TWO_ROWS}", 2, id="finer"
        ),
        pytest.param(
            f"create table p (x text collate 'NoCase', y, unique (x collate rtrim)); {TWO_ROWS}",
            2,
            id="finer in another way",
        ),
        pytest.param(
            "create table p (x text primary key, y); insert into p values ('1', 0), ('01', 0);"
            "create table t (n integer primary key, a integer references p); insert into t values (1, 1);",
            2,
            id="number to a text",
        ),
        pytest.param(
            "create table p (x primary key, y); insert into p values ('1', 0), (1, 0);"
            "create table t (n integer primary key, a integer references p); insert into t values (1, 1);",
            2,
            id="number to anything",
        ),
        pytest.param(
            "create table p (x any primary key) strict; insert into p values ('1'), (1);"
            "create table t (n integer primary key, a real references p); insert into t values (1, 1);",
            2,
            id="number to any",
        ),
        pytest.param(
            "create table p (x text, y int, unique (x, y)); insert into p values ('1', 1), ('01', 1);"
            "create table t (n integer primary key, a int, b int, foreign key (b, a) references p (y, x));"
            "insert into t values (1, 1, 1);",
            2,
            id="one of two columns",
        ),
        pytest.param(
            "create table p (x text primary key); insert into p values ('1');"
            "create table t (n integer primary key, a references p); insert into t values (1, 1);",
            0,
            id="anything to a text",
        ),
    ],
)
def test_foreign_key_that_a_join_would_not_follow_is_not_joinable(
    connection: sqlite3.Connection, ddl: str, matched: int
) -> None:
    (key,) = read_table(connection, ddl).foreign_keys

    assert not key.joinable
    assert matches(connection, key) == [matched]


DECLARED = ("int", "real", "numeric", "text", "blob", "")
KEYS = (
    *("1", "'1'", "'01'", "1.0", "' 1 '", "x'31'", "'a'", "'A'", "''", "0", "-0.0", "1.5", "'1.50'", "'1e0'"),
    *("9007199254740993", "9007199254740992.0", "'9007199254740993'", "9e999", "'9e999'"),
    *("9223372036854775807", "'9223372036854775808'", "9.2233720368547758e18"),
)


@pytest.mark.parametrize("options", ["", "without rowid"])
@pytest.mark.parametrize(("target", "source"), [*product(DECLARED, DECLARED)])
def test_join_along_a_foreign_key_that_is_joinable_finds_the_row_that_it_means(
    connection: sqlite3.Connection, target: str, source: str, options: str
) -> None:
    ddl = f"""
    create table p (id {target} primary key) {options};
    create table t (n integer primary key, a {source} references p);
    pragma foreign_keys = on;
    """
    (key,) = read_table(connection, ddl).foreign_keys
    for literal in KEYS:
        connection.execute(f"insert or ignore into p values ({literal})")
    for literal in KEYS:
        with suppress(sqlite3.IntegrityError):
            connection.execute(f"insert into t (a) values ({literal})")

    assert key.joinable or target != source
    assert not key.joinable or set(matches(connection, key)) == {1}


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
        pytest.param("a boolean check (a in (0, 1))", (), None, None, id="choices of truth"),
        pytest.param("a check (a >= 1)", (), None, None, id="bound of anything"),
        pytest.param("a blob check (a = 'x')", (), None, None, id="choices of bytes"),
    ],
)
def test_limits_are_those_of_check_constraints(
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


def test_no_comment_moves_to_a_column_that_was_added(connection: sqlite3.Connection) -> None:
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

    assert tables["words"] == Table(
        name="words",
        kind=TableKind.VIRTUAL,
        comment="To search",
        columns=(Column(name="body", type=ANY), Column(name="lang", type=ANY)),
        row_identifier="rowid",
    )
    assert [column.name for column in tables["boxes"].columns] == ["id", "x0", "x1", "label"]
    assert (tables["boxes"].row_identifier, tables["tokens"].row_identifier) == ("rowid", None)


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
    long, longest = "n" * (LONGEST_NAME + 1), "n" * LONGEST_NAME
    connection.executescript(f"""
    create table "{long}" (a text);
    create table "{longest}" ("{longest}" text);
    create table u (a text, "{long}" text);
    """)

    catalog = read_catalog(connection, Selection())

    assert names(catalog) == [longest]
    assert [warning.rpartition(": ")[2] for warning in catalog.warnings] == [
        f"its name or that of a column has more than {LONGEST_NAME} characters."
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


@pytest.mark.parametrize(
    ("rows", "estimate"),
    [
        pytest.param("", 0, id="empty"),
        pytest.param("insert into t (a) values (10), (11), (12);", 3, id="range of rowids"),
        pytest.param("insert into t (a) values (1), (9000000000000000000);", None, id="keys from elsewhere"),
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


def test_rows_of_very_many_tables_are_not_estimated(connection: sqlite3.Connection) -> None:
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
def test_rows_that_a_constraint_admits_are_within_what_is_read_of_it(condition: str) -> None:
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
    if cell is None or (check.choices and str(cell) in check.choices):
        return True
    bounds = [
        (check.minimum, ">" if check.exclusive_minimum else ">="),
        (check.maximum, "<" if check.exclusive_maximum else "<="),
    ]
    compared = [
        connection.execute(f"select ? {operator} ?", (cell, value_of(bound))).fetchone()[0]
        for bound, operator in bounds
        if bound is not None
    ]
    return not check.choices and all(compared)


def value_of(literal: str) -> float | str:
    try:
        return float(literal)
    except ValueError:
        return literal
