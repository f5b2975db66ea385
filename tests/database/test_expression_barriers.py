"""No operator of an expression is applied to a hidden row, so an overflow there changes no answer."""

from collections.abc import Iterator, Mapping

import pytest

from dbtools.settings.sections import GrantSection, TableSection
from tests.database.role_callers import Caller, Outcome, calling, calling_as
from tests.database.shop import DIALECTS, Serve, Shops, open_shops

DDL = """
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
HIDDEN = {
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
GRANTS = {
    "owners": GrantSection(where="shown = 1"),
    "things": GrantSection(where="id < 10"),
    "shown_owners": GrantSection(),
}
RAISING = (
    *("whole + 1", "whole - 2", "whole * whole", "-whole", "abs(whole)", "whole * 9223372036854775807"),
    *("ratio * 1e300", "ratio * ratio * ratio", "amount * amount", "amount / ratio", "whole / 0"),
    *("round(ratio * 1000, 2)", "day + 4000000", "day - whole", "at + ratio", "day - at", "(at - 1):month"),
    *("coalesce(ratio, 0)", "coalesce(amount, ratio)", "coalesce(day, '2000-01-01')", "coalesce(whole, 1)"),
)


@pytest.fixture(scope="module")
def rich(serve: Serve) -> Iterator[Shops]:
    """Give the databases with hidden rows at the ends of every type."""
    with open_shops(serve, {name: DDL + HIDDEN[name] for name in DIALECTS}) as shops:
        yield shops


@pytest.fixture(scope="module")
def poor(serve: Serve) -> Iterator[Shops]:
    """Give the databases without them."""
    with open_shops(serve, dict.fromkeys(DIALECTS, DDL)) as shops:
        yield shops


def _calls(expression: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield calls in which *expression* stands in each of its places."""
    own: dict[str, object] = {"table": "owners"}
    related = expression
    for name in ("whole", "ratio", "amount", "day", "at"):
        related = related.replace(name, f"owner.{name}")
    condition = {"column": expression, "op": "is_null", "value": "false"}
    yield "list_rows", {"table": "shown_owners", "columns": ["id"], "where": [condition]}
    yield "list_rows", own | {"columns": ["id", expression]}
    yield "list_rows", own | {"columns": ["id"], "where": [condition]}
    yield "list_rows", own | {"columns": ["id"], "order_by": [expression], "limit": 2}
    yield "list_rows", own | {"where": [{"column": expression, "op": "ne", "value_column": expression}]}
    yield "aggregate_rows", own | {"group_by": [expression], "measures": [{"function": "count"}]}
    yield "aggregate_rows", own | {"measures": [{"function": "max", "column": expression}]}
    for value in ("9000000000000000000", "9999-12-31"):
        # Nothing is found, so the note shows the range of the values.
        beyond = {"column": expression, "op": "gt", "value": value}
        yield "list_rows", own | {"columns": ["id"], "where": [beyond]}
    yield "list_rows", {"table": "things", "columns": ["id", related]}
    yield "list_rows", {"table": "things", "columns": ["id"], "where": [condition | {"column": related}]}


@pytest.mark.parametrize("expression", RAISING)
def test_hidden_row_changes_no_answer_of_an_expression(
    rich: Shops, poor: Shops, dialect: str, expression: str
) -> None:
    with calling_as(rich(dialect), GRANTS) as one, calling_as(poor(dialect), GRANTS) as other:
        for tool, arguments in _calls(expression):
            assert _outcome(one, tool, arguments) == _outcome(other, tool, arguments), (tool, arguments)


def test_range_of_an_expression_is_that_of_visible_rows(rich: Shops, dialect: str) -> None:
    asked = {"column": "whole * 2", "op": "gt", "value": "100"}
    with calling_as(rich(dialect), GRANTS) as caller:
        page = caller.call("list_rows", table="owners", where=[asked])

    assert page["note"] == "whole * 2 runs from -14 to 10."


@pytest.mark.parametrize(
    "expression",
    [
        "sum(things.whole)",
        "sum(things.whole * 2)",
        "max(things.whole * -1)",
        "count(things) * 2",
        "sum(things.id + 1)",
    ],
)
def test_hidden_row_changes_nothing_that_refers_to_a_row(
    rich: Shops, poor: Shops, dialect: str, expression: str
) -> None:
    some = {"some": "things", "where": [{"column": "whole + 1", "op": "gt", "value": "0"}]}
    calls: list[dict[str, object]] = [
        {"table": "owners", "columns": ["id", expression]},
        {"table": "owners", "columns": ["id"], "order_by": [f"{expression} desc"]},
        {"table": "owners", "columns": ["id"], "where": [some]},
        {"table": "owners", "columns": ["id"], "where": [{**some, "some": "", "none": "things"}]},
    ]
    with calling_as(rich(dialect), GRANTS) as one, calling_as(poor(dialect), GRANTS) as other:
        for arguments in calls:
            assert _outcome(one, "list_rows", arguments) == _outcome(other, "list_rows", arguments), arguments


def test_overflow_of_a_visible_row_is_an_error_of_the_call(poor: Shops, dialect: str) -> None:
    arguments: dict[str, object] = {"table": "owners", "columns": ["whole * 9223372036854775807"]}
    with calling_as(poor(dialect), GRANTS) as caller:
        assert _outcome(caller, "list_rows", arguments)[0] == "out_of_range"


def _outcome(caller: Caller, tool: str, arguments: dict[str, object]) -> Outcome:
    return caller.outcome(calling(tool, **arguments))


def test_conversion_of_a_hidden_number_reveals_nothing(serve: Serve) -> None:
    ddl = """
    create table owners (id integer primary key, gid integer, amount numeric, ratio double precision);
    create table seen (gid integer);
    insert into seen values (1);
    insert into owners values (1, 1, 5, 0.5), (2, 1, 1, 2);
    """
    grants = {"owners": GrantSection(where="gid in (select s.gid from seen as s)")}
    condition = {"column": "amount", "op": "gt", "value_column": "ratio"}
    asked: dict[str, object] = {"table": "owners", "columns": ["id"], "where": [condition]}
    with serve("postgresql", ddl) as shop, calling_as(shop, grants) as caller:
        before = _outcome(caller, "list_rows", asked)
        shop.bare.execute("insert into owners values (3, 2, 1e400, 1)")

        assert before[0] == "answer"
        assert _outcome(caller, "list_rows", asked) == before


@pytest.mark.parametrize(
    "condition",
    [
        {"column": "coalesce(amount, ratio)", "op": "gt", "value": "0"},
        {"column": "coalesce(day, '2000-01-01')", "op": "gt", "value": "2000-01-02"},
        {"column": "day", "op": "gt", "value_column": "since"},
    ],
)
def test_cell_that_cannot_be_converted_in_a_hidden_row_reveals_nothing(
    serve: Serve, dialect: str, condition: Mapping[str, str]
) -> None:
    ddl = """
    create table owners (id integer primary key, gid integer, amount numeric, ratio double precision,
        day date, since date);
    create table seen (gid integer primary key);
    insert into seen values (1);
    insert into owners values (1, 1, 5, 0.5, '2024-03-05', '2024-03-04');
    """
    broken = "cast(x'ff' as text)"  #: invalid UTF-8, which a function of Python cannot take
    cells = {"sqlite": ", ".join([broken] * 4), "postgresql": "1e400, 1, '2024-03-05', '2024-03-04'"}
    # A condition that the database asks after cheaper ones.
    grants = {"owners": GrantSection(where="exists (select 1 from seen as s where s.gid = owners.gid)")}
    asked: dict[str, object] = {"table": "owners", "columns": ["id"], "where": [condition]}
    with serve(dialect, ddl) as shop, calling_as(shop, grants) as caller:
        before = _outcome(caller, "list_rows", asked)
        shop.bare.execute(f"insert into owners values (2, 2, {cells[dialect]})")

        assert before[0] == "answer"
        assert _outcome(caller, "list_rows", asked) == before


def test_key_that_a_view_computes_is_not_compared_in_its_hidden_rows(serve: Serve, dialect: str) -> None:
    key = {"sqlite": "abs(whole)", "postgresql": "100 / whole"}[dialect]
    ddl = f"""
    create table owners (id integer primary key);
    create table seen (gid integer primary key);
    create table things (id integer primary key, gid integer, whole bigint);
    create view shown as select id, cast({key} as integer) as owner_id from things
        where exists (select 1 from seen as s where s.gid = things.gid);
    insert into owners values (10), (100);
    insert into seen values (1);
    insert into things values (5, 1, 10);
    """
    hidden = {"sqlite": "-9223372036854775808", "postgresql": "0"}[dialect]
    tables = {"shown": TableSection(references={"owner_id": "owners.id"})}
    grants = {"owners": GrantSection(), "shown": GrantSection()}
    asked: dict[str, object] = {"table": "owners", "columns": ["sum(shown.id)"]}
    with serve(dialect, ddl) as shop, calling_as(shop, grants, tables=tables) as caller:
        before = _outcome(caller, "list_rows", asked)
        shop.bare.execute(f"insert into things values (6, 2, {hidden})")

        assert "5" in str(before)
        assert _outcome(caller, "list_rows", asked) == before


def test_rows_that_may_not_be_aggregated_are_not_through_others(poor: Shops, dialect: str) -> None:
    grants = {"owners": GrantSection(aggregate=False), "things": GrantSection()}
    asked: dict[str, object] = {"table": "owners", "columns": ["max(things.owner.whole)"]}
    with calling_as(poor(dialect), grants) as caller:
        assert _outcome(caller, "list_rows", asked)[0] == "denied"


def test_measures_within_conditions_on_related_rows_count_their_own(serve: Serve, dialect: str) -> None:
    ddl = """
    create table regions (code integer primary key);
    create table accounts (code integer primary key, region_code integer references regions (code));
    create table bookings (code integer, account_code integer references accounts (code));
    insert into regions values (1), (2);
    insert into accounts values (10, 1), (20, 2);
    insert into bookings values (10, 10), (20, 10), (30, 20);
    """
    grants = {
        "regions": GrantSection(),
        "accounts": GrantSection(),
        "bookings": GrantSection(exclude=("code",)),
    }
    condition = {"column": "count(bookings)", "op": "gte", "value": "2"}
    with serve(dialect, ddl) as shop, calling_as(shop, grants) as caller:
        rows = caller.rows("list_rows", table="regions", where=[{"some": "accounts", "where": [condition]}])

    assert rows == [[1]]
