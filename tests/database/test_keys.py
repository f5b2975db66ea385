"""A key of any type works in pages, lookups and links."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from dbtools.schema.uris import row_uri
from tests.database.shop import Serve, Shop, literal, rows_of
from tests.database.test_values import KIND, TYPES, examples
from tests.database.test_values_sqlite import VALUES
from tests.postgresql_server import PostgresqlServer

EXAMPLES = 8
MOST_ROWS = 8
LONGEST = 390  #: characters of a number that an argument may have
LIMITS = st.lists(st.integers(1, 4), min_size=1, max_size=3)

BRACES = str.maketrans("[]", "{}")
POSTGRESQL = (
    *(
        "int2",
        "int8",
        "numeric",
        "float4",
        "float8",
        "bool",
        "text",
        "varchar(40)",
        "name",
        "mood",
        "positive",
    ),
    *("date", "time", "timetz", "timestamp", "timestamptz", "interval", "uuid", "bytea", "int4range"),
    *("inet", "cidr", "macaddr", "bit(8)", "varbit", "money", "oid", "pg_lsn", "tsvector", "tstzrange"),
)
UNSORTED = {"bytea"}  #: is ordered, and yet no caller may ask for it
#: Types that no argument is read as, so that no tool gets a row by them.
WITHOUT_GET = {
    "jsonb": KIND["jsonb"].values,
    "int4[]": st.lists(st.integers(-9, 9), max_size=3).map(lambda items: str(items).translate(BRACES)),
    "text[]": st.sampled_from(["{}", "{NULL}", '{"a,b","\\""}', "{{a,b},{c,d}}", "{null,NULL}"]),
    "pair": st.sampled_from(["(1,a)", "(1,)", '(2,"a,b")', "(,)"]),
}
SQLITE = (
    *(
        "integer not null",
        "int not null",
        "text not null",
        "real not null",
        "blob not null",
        "numeric not null",
    ),
    *(
        "decimal(10,2) not null",
        "boolean not null",
        "date not null",
        "text not null collate nocase",
        "not null",
    ),
    *("text", "int"),
)
PAIR = "create type pair as (a int, b text);"
ENDS = ("", "without rowid")


@pytest.fixture(scope="module")
def postgresql(serve: Serve) -> Iterator[Shop]:
    """Yield a database with a table `kN` whose key is of each type N, and `aN` without a tool that gets."""
    tables = [f"create table k{at} (k {name} primary key, uid int);" for at, name in enumerate(POSTGRESQL)]
    others = [f"create table a{at} (k {name} primary key, uid int);" for at, name in enumerate(WITHOUT_GET)]
    with serve("postgresql", "\n".join((TYPES, PAIR, *tables, *others))) as shop:
        yield shop


@pytest.fixture(scope="module")
def sqlite(serve: Serve) -> Iterator[Shop]:
    """Yield a database with tables `kN` and, without rowid, `wN` whose key is of each declared type N."""
    tables = [
        f"create table {letter}{at} (k {declared} primary key, uid int) {end}"
        for at, declared in enumerate(SQLITE)
        for letter, end in zip("kw", ENDS, strict=True)
    ]
    with serve("sqlite", ";\n".join(tables)) as shop:
        yield shop


@pytest.mark.parametrize(
    ("table", "name"), [pytest.param(f"k{at}", name, id=name) for at, name in enumerate(POSTGRESQL)]
)
@examples(EXAMPLES)
@given(data=st.data(), limits=LIMITS, direction=st.sampled_from(["asc", "desc"]))
def test_rows_page_by_a_key_of_any_type(
    table: str, name: str, data: st.DataObject, limits: list[int], direction: str, postgresql: Shop
) -> None:
    values = data.draw(st.lists(KIND[name].values.filter(_is_short), max_size=MOST_ROWS))
    _fill(postgresql, table, name, values)
    order = {} if name in UNSORTED else {"order_by": [f"k {direction}"]}
    expected = postgresql.bare.rows(f"select uid from {table} order by k {'' if not order else direction}")

    pages = postgresql.pages(f"list_{table}", limits, order)

    found = [row for page in pages for row in rows_of(page)]
    assert [(uid,) for _, uid in found] == expected
    assert all(postgresql.get(table, k=key)["uid"] == uid for key, uid in found)


@pytest.mark.parametrize(
    ("table", "name"), [pytest.param(f"a{at}", f"{name}", id=name) for at, name in enumerate(WITHOUT_GET)]
)
@examples(EXAMPLES)
@given(data=st.data(), limits=LIMITS)
def test_rows_page_where_the_key_is_no_argument(
    table: str, name: str, data: st.DataObject, limits: list[int], postgresql: Shop
) -> None:
    values = data.draw(st.lists(WITHOUT_GET[name], max_size=MOST_ROWS))
    _fill(postgresql, table, name, values)

    pages = postgresql.pages(f"list_{table}", limits, {})

    found = [int(str(uid)) for page in pages for _, uid in rows_of(page)]
    assert sorted(found) == [uid for (uid,) in postgresql.bare.rows(f"select uid from {table} order by uid")]


def _fill(shop: Shop, table: str, name: str, values: list[str]) -> None:
    shop.bare.execute(f"truncate {table}")
    shop.bare.execute(
        f"""
        insert into {table}
        select v::{name}, i from unnest($1::text[]) with ordinality as u (v, i)
        on conflict do nothing
        """,
        values,
    )


def _is_short(text: str) -> bool:
    return len(text) < LONGEST


@pytest.mark.parametrize("letter", ["k", "w"])
@pytest.mark.parametrize("at", [pytest.param(at, id=declared) for at, declared in enumerate(SQLITE)])
@examples(EXAMPLES)
@given(values=st.lists(VALUES, max_size=MOST_ROWS), limits=LIMITS, direction=st.sampled_from(["asc", "desc"]))
def test_rows_page_by_a_key_that_holds_anything(
    letter: str, at: int, values: list[tuple[str, object]], limits: list[int], direction: str, sqlite: Shop
) -> None:
    table = f"{letter}{at}"
    sqlite.bare.execute(f"delete from {table}")
    for uid, (place, value) in enumerate(values):
        # Some are there already, some keys forbid nulls, and one takes integers only.
        with suppress(sqlite3.IntegrityError):
            sqlite.bare.execute(f"insert into {table} values ({place}, ?)", value, uid)
    # No caller may ask for an order by bytes; by a key they are ordered all the same.
    order = {} if "blob" in SQLITE[at] else {"order_by": [f"k {direction}"]}
    rank = f"dense_rank() over (order by k {direction if order else 'asc'} nulls last)"
    expected: dict[int, int] = dict(sqlite.bare.rows(f"select uid, {rank} from {table}"))

    pages = sqlite.pages(f"list_{table}", limits, order)

    found = [int(str(uid)) for page in pages for _, uid in rows_of(page)]
    assert sorted(found) == sorted(expected)
    assert [expected[uid] for uid in found] == sorted(expected.values())


def test_links_lead_to_the_rows_of_any_key(dialect: str, serve: Serve) -> None:
    ddl = "create table t (a varchar(40) not null, b int not null, v text, primary key (a, b))"
    keys = [("", 0), ("a,b", 1), ("a/b?c#d%2F", 2), ("ä🦉 \n", 3), ("..", 4), ("null", 5)]
    with serve(dialect, ddl) as shop:
        for a, b in keys:
            shop.bare.execute(f"insert into t values ({literal(a)}, {b}, {literal('v' * 2_100)})")
        links = [link.uri for link in shop.call("list_t", {"order_by": ["b"]}).links]
        uris = [uri for uri in (row_uri("t", key) for key in keys) if uri is not None]

        cells = [shop.read(uri).content for uri in links]
        rows = [json.loads(shop.read(uri).content)["row"] for uri in uris]

    assert cells == [b"v" * 2_100] * len(links)
    assert len(links) == len(uris)
    assert [(row["a"], row["b"]) for row in rows] == [key for key in keys if row_uri("t", key) is not None]


def test_rows_page_by_an_endless_interval(serve: Serve, postgresql_server: PostgresqlServer) -> None:
    if postgresql_server.version < 17:
        pytest.skip("this server has no infinite intervals")
    ddl = (
        "create table t (k interval primary key); insert into t values ('infinity'), ('1 day'), ('-infinity')"
    )
    with serve("postgresql", ddl) as shop:
        pages = list(shop.pages("list_t", [1], {}))
        got = shop.get("t", k="infinity")

    assert [rows_of(page) for page in pages] == [[["-infinity"]], [["P1D"]], [["infinity"]]]
    assert got == {"k": "infinity"}
