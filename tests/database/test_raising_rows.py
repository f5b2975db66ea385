"""A hidden row changes no answer, even if an operator or a cell raises an error on it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest

from dbtools.settings.sections import GrantSection, TableSection
from tests.database.role_callers import NORTH, Ask, Grants, calling, calling_as
from tests.database.shop import Serve, Shop
from tests.database.twins import Side, Twins, open_twins
from tests.database.viewed_tables import shops as shops
from tests.postgresql_server import PostgresqlServer

COUNT = [{"function": "count", "name": "n"}]
OWNERS = """
create table owners (
    id integer primary key, shown integer not null, whole bigint, amount numeric, ratio double precision,
    day date, at timestamp, word text
);
create table things (id integer primary key, owner_id integer references owners (id), whole bigint);
create view shown_owners as select * from owners where shown = 1;
insert into owners values
    (1, 1, 5, 2.5, 0.5, '2024-02-29', '2024-02-29 12:00:00', 'one'),
    (2, 1, null, null, null, null, null, null),
    (3, 1, -7, 100.25, 1e10, '9999-12-31', '0001-01-01 00:00:00', '');
insert into things values (1, 1, 3), (2, 1, 4), (3, 3, null), (4, null, 9);
"""
#: Hidden rows at the ends of every type.
ENDS = {
    "sqlite": """
insert into owners values
    (11, 0, 9223372036854775807, 1e308, 1e308, '10000-01-01', '9999-12-31 23:59:59.999', 'x'),
    (12, 0, -9223372036854775808, 9e999, -9e999, '0000-01-01', '-4713-11-24 12:00:00', 'y'),
    (13, 0, 'text', 'text', 'text', 5, 2e19, x'ff');
insert into things values (11, 11, 9223372036854775807), (12, 12, -9223372036854775808), (13, 1, 1);
""",
    "postgresql": """
insert into owners values
    (11, 0, 9223372036854775807, 1e308, 1e308, '10000-01-01', '9999-12-31 23:59:59.999', 'x'),
    (12, 0, -9223372036854775808, 'NaN', '-Infinity', '0044-03-15 BC', '-infinity', 'y'),
    (13, 0, 9223372036854775807, 'NaN', 'NaN', '5874897-12-31', '294276-12-31', 'z');
insert into things values (11, 11, 9223372036854775807), (12, 12, -9223372036854775808), (13, 1, 1);
""",
}
SHOWN: Grants = {
    "owners": GrantSection(where="shown = 1"),
    "things": GrantSection(where="id < 10"),
    "shown_owners": GrantSection(),
}
EXPRESSIONS = (
    "whole + 1",
    "whole - 2",
    "whole * whole",
    "-whole",
    "abs(whole)",
    "whole * 1000000000000000000",
    "ratio * 1e290",
    "ratio * ratio * ratio",
    "amount * amount",
    "amount / ratio",
    "whole / 0",
    "round(ratio * 1000, 2)",
    "day + 4000000",
    "day - whole",
    "at + ratio",
    "day - at",
    "(at - 1):month",
    "coalesce(ratio, 0)",
    "coalesce(amount, ratio)",
    "coalesce(day, '2000-01-01')",
    "coalesce(whole, 1)",
)
OF_RELATED_ROWS = (
    "sum(things.whole)",
    "sum(things.whole * 2)",
    "max(things.whole * -1)",
    "count(things) * 2",
    "sum(things.id + 1)",
)


@pytest.fixture(scope="module")
def owners(serve: Serve, dialect: str) -> Iterator[Twins]:
    poor = Side(ddl=OWNERS, grants=SHOWN)
    with open_twins(serve, dialect, replace(poor, ddl=OWNERS + ENDS[dialect]), poor) as twins:
        yield twins


def _asks(expression: str) -> Iterator[Ask]:
    """Yield calls in which *expression* stands in each of its places."""
    own, things = {"table": "owners", "columns": ["id"]}, {"table": "things", "columns": ["id"]}
    along = re.sub(r"\b(whole|ratio|amount|day|at)\b", r"owner.\1", expression)
    known = {"column": expression, "op": "is_null", "value": "false"}
    yield calling("list_rows", table="shown_owners", columns=["id"], where=[known])
    yield calling("list_rows", table="owners", columns=["id", expression])
    yield calling("list_rows", **own, where=[known])
    yield calling("list_rows", **own, order_by=[expression], limit=2)
    yield calling("list_rows", **own, where=[{"column": expression, "op": "ne", "value_column": expression}])
    yield calling("aggregate_rows", table="owners", group_by=[expression], measures=COUNT)
    yield calling("aggregate_rows", table="owners", measures=[{"function": "max", "column": expression}])
    for value in ("9000000000000000000", "9999-12-31"):
        # Nothing is found, so the note shows the range of the values.
        yield calling("list_rows", **own, where=[{"column": expression, "op": "gt", "value": value}])
    yield calling("list_rows", table="things", columns=["id", along])
    yield calling("list_rows", **things, where=[{**known, "column": along}])


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_hidden_row_changes_no_answer_of_an_expression(expression: str, owners: Twins) -> None:
    codes = {owners.outcome(ask)[0] for ask in _asks(expression)}

    assert "answer" in codes


@pytest.mark.parametrize("expression", OF_RELATED_ROWS)
def test_hidden_row_changes_nothing_that_refers_to_a_row(expression: str, owners: Twins) -> None:
    own = {"table": "owners", "columns": ["id"]}
    positive = [{"column": "whole + 1", "op": "gt", "value": "0"}]
    codes = {
        owners.outcome(ask)[0]
        for ask in (
            calling("list_rows", table="owners", columns=["id", expression]),
            calling("list_rows", **own, order_by=[f"{expression} desc"]),
            calling("list_rows", **own, where=[{"some": "things", "where": positive}]),
            calling("list_rows", **own, where=[{"none": "things", "where": positive}]),
        )
    }

    assert codes == {"answer"}


def test_overflow_of_a_visible_row_is_an_error_of_the_call(owners: Twins) -> None:
    ask = calling("list_rows", table="owners", columns=["whole * 9223372036854775807"])

    assert owners.outcome(ask)[0] == "out_of_range"


def test_rows_that_may_not_be_aggregated_are_not_through_others(serve: Serve, dialect: str) -> None:
    grants = {"owners": GrantSection(aggregate=False), "things": GrantSection()}
    ask = calling("list_rows", table="owners", columns=["max(things.owner.whole)"])
    with serve(dialect, OWNERS) as shop, calling_as(shop, grants) as caller:
        assert caller.outcome(ask)[0] == "denied"


#: A filter that a planner puts behind a caller's conditions, since it costs more.
SEEN = "exists (select 1 from seen as s where s.gid = {table}.gid)"
CELLS = """
create table owners (
    id integer primary key, gid integer, amount numeric, ratio double precision, day date, since date
);
create table seen (gid integer primary key);
insert into seen values (1);
insert into owners values (1, 1, 5, 0.5, '2024-03-05', '2024-03-04');
"""
INVALID_UTF_8 = "cast(x'ff' as text)"  #: which a function of Python cannot take
#: A hidden row with cells that cannot be converted.
BROKEN = {
    "sqlite": f"insert into owners values (2, 2{f', {INVALID_UTF_8}' * 4});",
    "postgresql": "insert into owners values (2, 2, 1e400, 1, '2024-03-05', '2024-03-04');",
}


@pytest.mark.parametrize(
    "condition",
    [
        {"column": "amount", "op": "gt", "value_column": "ratio"},
        {"column": "coalesce(amount, ratio)", "op": "gt", "value": "0"},
        {"column": "coalesce(day, '2000-01-01')", "op": "gt", "value": "2000-01-02"},
        {"column": "day", "op": "gt", "value_column": "since"},
    ],
)
@pytest.mark.parametrize("where", [SEEN.format(table="owners"), "gid in (select s.gid from seen as s)"])
def test_cell_of_a_hidden_row_that_cannot_be_converted_changes_nothing(
    where: str, condition: Mapping[str, str], serve: Serve, dialect: str
) -> None:
    poor = Side(ddl=CELLS, grants={"owners": GrantSection(where=where)})
    rich = replace(poor, ddl=CELLS + BROKEN[dialect])
    with open_twins(serve, dialect, rich, poor) as twins:
        code, _ = twins.outcome(calling("list_rows", table="owners", columns=["id"], where=[condition]))

    assert code == "answer"


def test_key_that_a_view_computes_is_not_compared_in_its_hidden_rows(serve: Serve, dialect: str) -> None:
    key = {"sqlite": "abs(whole)", "postgresql": "100 / whole"}[dialect]
    raising = {"sqlite": "-9223372036854775808", "postgresql": "0"}[dialect]
    ddl = f"""
    create table owners (id integer primary key);
    create table seen (gid integer primary key);
    create table things (id integer primary key, gid integer, whole bigint);
    create view shown as select id, cast({key} as integer) as owner_id from things
        where {SEEN.format(table="things")};
    insert into owners values (10), (100);
    insert into seen values (1);
    insert into things values (5, 1, 10);
    """
    poor = Side(
        ddl=ddl,
        grants={"owners": True, "shown": True},
        tables={"shown": TableSection(references={"owner_id": "owners.id"})},
    )
    rich = replace(poor, ddl=f"{ddl} insert into things values (6, 2, {raising});")
    with open_twins(serve, dialect, rich, poor) as twins:
        _, told = twins.outcome(calling("list_rows", table="owners", columns=["sum(shown.id)"]))

    assert "[5]" in str(told)


COLUMNS = "id integer primary key, name text, region text"
#: Two cells of JSON or text, of which only the second raises an error where it is read as a number.
ORDINARY = {"sqlite": "'{\"a\": 1}'", "postgresql": "'1'"}
ODD = "'odd'"
#: How a level is read from a cell.
LEVEL = {"sqlite": "json_extract(raw, '$.a')", "postgresql": "raw::int"}
#: The same in a view, and in a generated column.
READINGS = {
    "view": f"""
    create table raws ({COLUMNS}, raw text);
    insert into raws values {{rows}};
    create view readings as select id, name, region as region_of, {{level}} as level from raws;
    create table owners (id integer primary key, reading_id integer);
    """,
    "generated column": f"""
    create table readings ({COLUMNS.replace("region", "region_of")}, raw text);
    insert into readings values {{rows}};
    alter table readings add column level integer generated always as ({{level}}) virtual;
    create table owners (id integer primary key, reading_id integer references readings);
    """,
}
PERMITS = "create table permits (region text); insert into permits values ('north');"
PERMITTED = GrantSection(
    where="exists (select 1 from permits p where p.region = region_of)",
    columns=("id", "name", "region_of", "level"),
)


def _questions(path: str) -> Iterator[Sequence[Mapping[str, object]]]:
    """Yield conditions that only the hidden row may meet."""
    level = f"{path}level"
    yield [{"column": level, "op": "is_null", "value": "false"}]
    yield [{"column": level, "value": "1"}]
    yield [{"column": level, "op": "ne", "value": "7"}]
    yield [{"column": f"{path}name", "value": "hidden"}, {"column": level, "op": "ne", "value": "7"}]
    yield [{"column": f"{path}id", "value": "2"}, {"column": level, "op": "gt", "value": "0"}]


@pytest.mark.parametrize("sort", READINGS)
def test_error_of_a_hidden_row_tells_nothing_of_it(
    sort: str, dialect: str, serve: Serve, postgresql_server: PostgresqlServer
) -> None:
    if (dialect, sort) == ("postgresql", "generated column") and postgresql_server.version < 18:
        pytest.skip("virtual columns came with version 18")

    def side(cell: str) -> Side:
        rows = f"(1, 'seen', 'north', {ORDINARY[dialect]}), (2, 'hidden', 'south', {cell})"
        ddl = READINGS[sort].format(rows=rows, level=LEVEL[dialect])
        references = "insert into owners values (1, 1), (2, 2);"
        return Side(ddl=PERMITS + ddl + references, grants={"readings": PERMITTED, "owners": True})

    tables = [("readings", "")] + ([("owners", "reading.")] if sort != "view" else [])
    with open_twins(serve, dialect, side(ODD), side(ORDINARY[dialect])) as twins:
        for table, path in tables:
            for where in _questions(path):
                for match in ("all", "any"):
                    asked = {"table": table, "where": where, "match": match}
                    twins.outcome(calling("list_rows", **asked))
                    twins.outcome(calling("aggregate_rows", **asked, measures=COUNT))
        code, _ = twins.outcome(calling("list_rows", table="readings", order_by=["level"]))

    assert code == "answer"


#: Filters that fail for the row that is hidden, by dialect.
FAILING = [
    ("sqlite", "json_extract(level, '$.a') > 0"),
    ("postgresql", "level::int > 0"),
    ("postgresql", "coalesce(region, (select number::text from numbers)) is null or level::int > 0"),
    ("postgresql", "region = 'north' or exact < \"binary\""),
    (
        "postgresql",
        "region = 'north' or region in ('west', (select n.region from numbers n where n.id = readings.id))",
    ),
    ("sqlite", "region = 'north' or exists (select 1 from levels where number = id and level_of > 0)"),
    ("postgresql", "region = 'north' or exists (select 1 from levels where number = id and level_of > 0)"),
]


@pytest.mark.parametrize(("dialect", "where"), FAILING)
def test_error_of_a_filter_does_not_depend_on_a_callers_conditions(
    dialect: str, where: str, serve: Serve
) -> None:
    ddl = f"""
        create table readings ({COLUMNS}, level text, exact numeric, "binary" float);
        insert into readings values
            (1, 'seen', 'north', {ORDINARY[dialect]}, 1, 2), (2, 'hidden', 'south', {ODD}, 1e400, 2);
        create table numbers (id integer, number integer, region text);
        insert into numbers values (2, 1, 'south'), (2, 2, 'south');
        create view levels as
            select id as number, {LEVEL[dialect].replace("raw", "level")} as level_of from readings;
        create table owners (id integer primary key, reading_id integer references readings);
        insert into owners values (1, 1), (2, 2);
    """
    grants: Grants = {"readings": GrantSection(where=where), "owners": True}
    with serve(dialect, ddl) as shop, calling_as(shop, grants, excluded=("levels",)) as caller:
        for table, path in (("readings", ""), ("owners", "reading.")):
            found = {
                caller.outcome(
                    calling("list_rows", table=table, where=[{"column": f"{path}name", "value": name}])
                )
                for name in ("hidden", "seen", "nobody")
            }

            assert len(found) == 1
            assert {code for code, _ in found} != {"answer"}


@pytest.mark.parametrize(
    ("where", "guarded"),
    [("region = :claims.region", False), ("lower(region) = :claims.region", True), ("abs(id) > 0", True)],
)
def test_only_what_may_raise_an_error_is_read_behind_a_barrier(where: str, guarded: bool, shop: Shop) -> None:
    grants = {"customers": GrantSection(where=where), "plain": GrantSection(where="id > 0")}
    with calling_as(shop, grants, NORTH) as caller:
        view = shop.portal.call(caller.toolbox.view, caller.role)
        seen = {table.name: table.needs_barrier for table in view.catalog.tables}

    assert seen == {"customers": guarded, "plain": True}
