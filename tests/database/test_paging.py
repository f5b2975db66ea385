"""The pages of any conditions and order contain the rows of one plain query, each once and in order."""

import base64
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import asyncpg
import orjson
import pytest
from hypothesis import given, strategies as st

from dbtools.errors import BadCursor, BadValue
from tests.database.shop import Serve, Shop, Shops, literal, open_shops, quote, rows_of
from tests.database.test_values import examples

EXAMPLES = 25
MOST_ROWS = 20

COLUMNS = {
    "sqlite": (
        "number int, word text, ratio real, price decimal(8,2), day date, flag boolean, "
        "folded text collate nocase"
    ),
    "postgresql": (
        "number int, word text, ratio float8, price numeric(8,2), day date, flag bool, folded text"
    ),
}
#: Each has a column `uid` that names a row, whether the database knows it or not.
TABLES = (
    "create table keyed (uid int not null primary key, {columns})",
    "create table paired (uid int not null, {columns}, half text not null, primary key (half, uid))",
    "create table keyless (uid int, {columns})",
    "create table nullable (uid int unique, {columns})",
    "create view viewed as select * from keyed",
    "create view joined as select k.*, p.half from keyed as k left join paired as p on p.uid = k.uid",
)
OWN_TABLES = {
    "sqlite": (
        "create table rowless (uid int not null primary key, {columns}) without rowid",
        "create table identified (uid integer primary key, {columns})",
        "create table pairless (uid int not null, {columns}, half text not null collate nocase, "
        "primary key (half, uid)) without rowid",
        "create table shadowed (uid int, {columns}, rowid int, _rowid_ int, oid int)",
    ),
    "postgresql": (
        "create table whole (uid int primary key, {columns}) partition by range (uid)",
        "create table low partition of whole for values from (minvalue) to (10)",
        "create table high partition of whole for values from (10) to (maxvalue)",
    ),
}
DUPLICATES = "create table twice (a int, b text)"
LISTED = {"sqlite": ("rowless", "identified", "pairless", "shadowed"), "postgresql": ("whole",)}
EVERYWHERE = ("keyed", "paired", "keyless", "nullable", "viewed", "joined")
STORED_IN = {"viewed": "keyed", "joined": "keyed"}

WORDS = ("", "a", "A", "b", "aB", "ab", "%", "_", "é", "z" * 401, "z" * 401 + "a")
NUMBERS = ("-2", "0", "1", "2", "9")
VALUES: Mapping[str, tuple[str, ...]] = {
    "number": NUMBERS,
    "word": WORDS,
    "ratio": ("-0.5", "0", "0.1", "1e300", "2.5"),
    "price": ("-1.50", "0", "0.10", "999999.99"),
    "day": ("2023-12-31", "2024-01-01", "2024-02-29"),
    "flag": ("true", "false"),
    "folded": ("a", "A", "b", "B", ""),
}
TEXTUAL = {"word", "day", "folded"}


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition, as arguments and as SQL that says the same by itself."""

    argument: Mapping[str, object]
    sql: str


@dataclass(frozen=True, kw_only=True)
class Asked:
    conditions: tuple[Condition, ...]
    match: str
    order: tuple[tuple[str, str], ...]

    def arguments(self) -> dict[str, object]:
        return {
            "columns": ["uid"],
            "where": [each.argument for each in self.conditions],
            "match": self.match,
            "order_by": [f"{column} {direction}" for column, direction in self.order],
        }

    def where(self) -> str:
        joint = " and " if self.match == "all" else " or "
        return joint.join(f"({each.sql})" for each in self.conditions) or "1 = 1"

    def ranks(self) -> str:
        """Return the place of each row in the order as SQL: rows that are equal in it have one place."""
        steps = ", ".join(f"{quote(column)} {direction} nulls last" for column, direction in self.order)
        return f"dense_rank() over (order by {steps or '1'})"


def _written(column: str, value: str) -> str:
    return literal(value) if column in TEXTUAL else value


COMPARED = {"eq": "=", "ne": "<>", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    column = draw(st.sampled_from(tuple(VALUES)))
    plain = ("eq", "ne", "in", "not_in", "is_null")
    operator = draw(
        st.sampled_from(plain if column == "flag" else (*plain, "lt", "lte", "gt", "gte", "between"))
    )
    name = quote(column)
    values = draw(st.lists(st.sampled_from(VALUES[column]), min_size=2, max_size=2))
    first, second = (_written(column, value) for value in values)
    match operator:
        case "is_null":
            wanted = draw(st.booleans())
            sql = f"{name} is null" if wanted else f"{name} is not null"
            return Condition(argument={"column": column, "op": operator, "value": wanted}, sql=sql)
        case "in" | "not_in" | "between":
            argument = {"column": column, "op": operator, "values": values}
            many = {"in": f"{name} in ({first}, {second})", "not_in": f"{name} not in ({first}, {second})"}
            return Condition(
                argument=argument, sql=many.get(operator, f"{name} between {first} and {second}")
            )
        case _:
            argument = {"column": column, "op": operator, "value": values[0]}
            return Condition(argument=argument, sql=f"{name} {COMPARED[operator]} {first}")


ORDERS = st.lists(
    st.tuples(st.sampled_from((*VALUES, "uid")), st.sampled_from(("asc", "desc"))),
    max_size=3,
    unique_by=lambda step: step[0],
).map(tuple)
ASKED = st.builds(
    Asked,
    conditions=st.lists(conditions(), max_size=2).map(tuple),
    match=st.sampled_from(("all", "any")),
    order=ORDERS,
)
LIMITS = st.lists(st.integers(1, 6), min_size=1, max_size=4)
ROWS = st.lists(
    st.tuples(*(st.none() | st.sampled_from(values) for values in VALUES.values())), max_size=MOST_ROWS
)


FORGED = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([2**63, -1, 0, 5, 10**9, 10**9 + 1]),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.sampled_from(["2024-02-29", "1.5", "NaN", "infinity", "294277-01-01", "0000-00-00", "1e9999"]),
    st.sampled_from(
        [{"b": "AP8="}, {"b": "?"}, {"f": "nan"}, {"f": "-inf"}, {"f": "x"}, {"s": "YQ=="}, [], [1], {}]
    ),
)


def _coded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    ddl = {
        dialect: ";\n".join((*TABLES, *OWN_TABLES[dialect], DUPLICATES)).format(columns=columns)
        for dialect, columns in COLUMNS.items()
    }
    with open_shops(serve, ddl) as shops:
        yield shops


def _fill(shop: Shop, table: str, rows: Sequence[Sequence[str | None]]) -> None:
    shop.bare.execute(f"delete from {table}")
    names = ", ".join(("uid", *VALUES, *(["half"] if table.startswith("pair") else [])))
    lines = []
    for uid, row in enumerate(rows):
        cells = [
            "null" if value is None else _written(column, value)
            for column, value in zip(VALUES, row, strict=True)
        ]
        # A quarter of the rows share the first half of their key, whatever its case.
        half = [literal("AbaB"[uid % 4])] if table.startswith("pair") else []
        lines.append(f"({', '.join([str(uid), *cells, *half])})")
    if lines:
        shop.bare.execute(f"insert into {table} ({names}) values {', '.join(lines)}")


@pytest.mark.parametrize(
    ("dialect", "table"),
    [(dialect, table) for dialect, tables in LISTED.items() for table in (*EVERYWHERE, *tables)],
)
@examples(EXAMPLES)
@given(rows=ROWS, asked=ASKED, limits=LIMITS)
def test_pages_are_the_rows_of_one_query(
    table: str, rows: list[tuple[str | None, ...]], asked: Asked, limits: list[int], shop: Shop
) -> None:
    _fill(shop, STORED_IN.get(table, table), rows)
    rank: dict[int, int] = dict(
        shop.bare.rows(f"select uid, {asked.ranks()} from {table} where {asked.where()}")
    )

    pages = list(shop.pages(f"list_{table}", limits, asked.arguments()))

    found = [int(str(row[0])) for page in pages for row in rows_of(page)]
    assert sorted(found) == sorted(rank)
    assert [rank[uid] for uid in found] == sorted(rank.values())
    assert [("next_cursor" in page) for page in pages] == [page["truncated"] for page in pages]
    assert [len(rows_of(page)) for page in pages[:-1]] == [
        limits[at % len(limits)] for at in range(len(pages) - 1)
    ]
    assert rows_of(pages[-1]) or not rank


@examples(EXAMPLES)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["null", "1", "2"]), st.sampled_from(["null", "'a'"])), max_size=12
    ),
    limits=LIMITS,
)
def test_rows_that_are_wholly_alike_come_as_often_as_they_are_there(
    rows: list[tuple[str, str]], limits: list[int], shop: Shop
) -> None:
    shop.bare.execute("delete from twice")
    for a, b in rows:
        shop.bare.execute(f"insert into twice values ({a}, {b})")

    pages = shop.pages("list_twice", limits, {})

    found = Counter(tuple(row) for page in pages for row in rows_of(page))
    assert found == Counter(shop.bare.rows("select a, b from twice"))


@pytest.fixture
def filled(shop: Shop) -> Shop:
    rows = [(str(uid % 3), "ab"[uid % 2], None, "0.10", "2024-02-29", "true", "a") for uid in range(9)]
    for table in ("keyed", "keyless"):
        _fill(shop, table, rows)
    return shop


@pytest.mark.parametrize("table", ["keyed", "keyless"])
@examples(60)
@given(skip=FORGED, values=st.none() | st.lists(FORGED, min_size=6, max_size=6) | FORGED)
def test_changed_cursor_is_refused_or_only_a_place(
    table: str, skip: object, values: object, filled: Shop
) -> None:
    arguments = {"order_by": ["number", "word", "ratio", "price desc", "day"], "limit": 2}
    cursor = str(filled.page(table, **arguments)["next_cursor"])
    mark, _, _ = orjson.loads(base64.urlsafe_b64decode(cursor + "=="))
    forged = _coded(orjson.dumps([mark, skip, values]))

    try:
        found = filled.rows(table, **arguments, cursor=forged)
    except (BadCursor, BadValue):
        return

    assert all(row in filled.rows(table) for row in found)


def test_pages_go_on_where_rows_have_come_and_gone(filled: Shop) -> None:
    first = filled.page("keyed", limit=4)
    filled.bare.execute("delete from keyed where uid in (1, 3, 5)")
    filled.bare.execute("insert into keyed (uid) values (-1), (100)")

    rest = filled.rows("keyed", cursor=first["next_cursor"])

    assert [row[0] for row in rows_of(first)] == [0, 1, 2, 3]
    assert [row[0] for row in rest] == [4, 6, 7, 8, 100]


OTHER_RULES = {
    "sqlite": """
    create table t (name text not null collate nocase, uid int);
    create unique index by_bytes on t (name collate binary);
    """,
    "postgresql": """
    create collation folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
    create table t (name text not null collate folded, uid int);
    create unique index by_bytes on t (name collate "C");
    """,
}


def test_index_that_tells_more_texts_apart_than_the_column_is_no_key(dialect: str, serve: Serve) -> None:
    try:
        with serve(dialect, OTHER_RULES[dialect]) as shop:
            shop.bare.execute("insert into t values ('a', 1), ('A', 2), ('b', 3), ('B', 4), ('b ', 5)")
            pages = list(shop.pages("list_t", [1], {"order_by": ["name"]}))
    except asyncpg.FeatureNotSupportedError:
        pytest.skip("this server was built without ICU")

    assert sorted(str(row[1]) for page in pages for row in rows_of(page)) == ["1", "2", "3", "4", "5"]
