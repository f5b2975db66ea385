"""Foreign keys of SQLite, and which of them can be joined."""

import sqlite3
from contextlib import suppress
from itertools import product

import pytest

from dbtools.schema.catalog import ForeignKey
from tests.database.sqlite_catalog import connection as connection, read_table


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
