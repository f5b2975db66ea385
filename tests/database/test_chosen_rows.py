"""A call changes all rows that meet its conditions or none, and only rows that the role sees."""

from collections.abc import Mapping
from typing import Any

import pytest

from dbtools.service.explanation import explain
from dbtools.settings.sections import GrantSection
from dbtools.types import Mask
from tests.database.conftest import Serve
from tests.database.role_callers import calling
from tests.database.shop import rows_of
from tests.database.written_shop import DDL, GRANTS, ORDERS, Opens, opening, refused, stored

MORE = """
    delete from secrets;
    insert into orders values
        (4, 1, 'A-4', 'new', 'rope', 7, 'north', 'eve', 10),
        (5, 1, 'A-5', 'paid', null, 9, 'north', 'eve', 10),
        (6, 3, 'C-6', 'new', 'tent', 3, 'north', 'eve', 10),
        (7, 2, 'B-7', 'new', null, 4, 'south', 'eve', 10);
"""
THREE = ORDERS.model_copy(update={"max_affected": 3, "check": None})
SEVERAL = {**GRANTS, "orders": THREE}
ALL = "select * from orders order by id"


@pytest.fixture
def opened(serve: Serve) -> Opens:
    """Give what opens a database whose caller may change three orders in one call."""
    opened = opening(serve)
    return lambda dialect, grants=SEVERAL, **options: opened(
        dialect, grants, **{"ddl": DDL + MORE, **options}
    )


def where(column: str, value: object, op: str = "eq") -> dict[str, Any]:
    """Return the arguments that choose rows by *column*."""
    return {"table": "orders", "where": [{"column": column, "op": op, "value": value}]}


def test_chosen_rows_are_updated_and_returned_in_the_order_of_their_keys(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        answer = caller.call("update_rows", **where("status", "new"), set={"note": "x"})
        found = stored(shop, "select id, note from orders order by id")

    assert answer["affected"] == 3
    assert [row[:1] + row[3:5] for row in rows_of(answer)] == [
        [1, "new", "x"],
        [4, "new", "x"],
        [6, "new", "x"],
    ]
    assert found == [(1, "x"), (2, None), (3, None), (4, "x"), (5, None), (6, "x"), (7, None)]


def test_dry_run_shows_each_row_before_and_after_in_one_order(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        earlier = stored(shop, ALL)
        answer: Mapping[str, Any] = caller.call(
            "update_rows", **where("status", "new"), set={"note": "x"}, dry_run=True
        )
        later = stored(shop, ALL)

    assert earlier == later
    assert [(row[0], row[4]) for row in answer["before"]] == [(1, "call"), (4, "rope"), (6, "tent")]
    assert [(row[0], row[4]) for row in answer["rows"]] == [(1, "x"), (4, "x"), (6, "x")]


def test_chosen_rows_are_deleted_and_returned_as_they_were(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        answer = caller.call("delete_rows", **where("quantity", 6, "gt"))
        found = stored(shop, "select id from orders order by id")

    assert (answer["affected"], [row[0] for row in rows_of(answer)]) == (2, [4, 5])
    assert found == [(1,), (2,), (3,), (6,), (7,)]


@pytest.mark.parametrize(
    ("conditions", "chosen"),
    [
        pytest.param([{"column": "customer.name", "value": "Cid"}], [3, 6], id="path"),
        pytest.param([{"column": "quantity * 2", "op": "gte", "value": "14"}], [4, 5], id="expression"),
        pytest.param([{"column": "quantity", "op": "gt", "value_column": "id"}], [1, 3, 4, 5], id="column"),
        pytest.param(
            [{"any": [{"column": "id", "value": 5}, {"column": "note", "op": "contains", "value": "TEN"}]}],
            [5, 6],
            id="any",
        ),
        pytest.param([{"some": "order_lines"}], [1], id="some"),
        pytest.param(
            [{"some": "order_lines", "where": [{"column": "product", "value": "lamp"}]}], [], id="some hidden"
        ),
        pytest.param(
            [{"none": "order_lines"}, {"column": "status", "op": "ne", "value": "sent"}], [4, 5, 6], id="none"
        ),
        pytest.param([{"column": "count(order_lines)", "op": "gte", "value": 2}], [1], id="count"),
        pytest.param([{"column": "note", "op": "is_null", "value": "true"}], [3, 5], id="null"),
        pytest.param([{"column": "id", "op": "in", "values": [2, 3, 4, 9]}], [3, 4], id="in"),
    ],
)
def test_conditions_are_those_of_lists(
    conditions: list[dict[str, Any]], chosen: list[int], opened: Opens, dialect: str
) -> None:
    grants = {**SEVERAL, "orders": THREE.model_copy(update={"max_affected": 4})}
    arguments: dict[str, Any] = {"table": "orders", "where": conditions}
    with opened(dialect, grants) as (caller, shop):
        listed = caller.rows("list_rows", **arguments)
        deleted = caller.rows("delete_rows", **arguments, dry_run=True)
        updated = caller.rows("update_rows", **arguments, set={"note": "me"})
        found = stored(shop, "select id from orders where note = 'me' order by id")

    assert [row[0] for row in listed] == chosen
    assert deleted == listed
    assert [row[0] for row in updated] == chosen
    assert found == [(id,) for id in chosen]


def test_match_any_joins_conditions_with_or(opened: Opens, dialect: str) -> None:
    conditions = [{"column": "id", "value": 1}, {"column": "number", "value": "C-6"}]
    with opened(dialect) as (caller, _):
        answer = caller.call("delete_rows", table="orders", where=conditions, match="any", dry_run=True)

    assert [row[0] for row in rows_of(answer)] == [1, 6]


@pytest.mark.parametrize(("tool", "more"), [("update_rows", {"set": {"note": "x"}}), ("delete_rows", {})])
def test_more_rows_than_one_call_may_change_are_left_as_they_are(
    tool: str, more: dict[str, Any], opened: Opens, dialect: str
) -> None:
    with opened(dialect) as (caller, shop):
        earlier = stored(shop, ALL)
        four = refused(caller, tool, **where("id", 5, "lte"), **more)
        five = refused(caller, tool, **where("id", 6, "lte"), **more, dry_run=True)
        later = stored(shop, ALL)

    assert (four.code, earlier) == ("too_many_rows", later)
    assert str(four) == (
        "where matches more than 3 rows, the most that one call may change. Nothing was changed. "
        "Narrow where."
    )
    assert str(five) == str(four)


def test_one_row_may_be_chosen_unless_the_grant_says_otherwise(opened: Opens, dialect: str) -> None:
    with opened(dialect, {**GRANTS, "orders": ORDERS}) as (caller, _):
        one = caller.call("update_rows", **where("number", "A-4"), set={"note": "x"})
        two = refused(caller, "update_rows", **where("customer.name", "Cid"), set={"note": "x"})

    assert (one["affected"], two.code) == (1, "too_many_rows")
    assert "more than 1 row, " in str(two)


@pytest.mark.parametrize("confirm", [True, False])
def test_no_row_is_no_error_and_needs_no_confirmation(confirm: bool, opened: Opens, dialect: str) -> None:
    grants = {**SEVERAL, "orders": THREE.model_copy(update={"confirm": confirm})}
    with opened(dialect, grants) as (caller, _):
        updated = caller.call("update_rows", **where("id", 77), set={"note": "x"})
        hidden = caller.call("update_rows", **where("id", 2), set={"note": "x"})
        deleted = caller.call("delete_rows", **where("id", 77))

    assert (updated["affected"], updated["dry_run"], updated["rows"]) == (0, False, [])
    assert updated["note"] == deleted["note"] == "No row matches where."
    assert hidden == updated


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param({"where": []}, "where must not be empty. Name at least one condition", id="empty"),
        pytest.param({}, "key is missing. Or choose rows with where.", id="neither"),
        pytest.param(
            {"key": {"id": 1}, "where": [{"column": "id", "value": 1}]},
            "key must not be passed together with where",
            id="both",
        ),
        pytest.param(
            {"expected": {"id": 1}, "where": [{"column": "id", "value": 1}]},
            "expected must not be passed together with where",
            id="expected",
        ),
        pytest.param({"key": {"id": 1}, "match": "any"}, "match is only for where", id="match"),
        pytest.param({"where": [{}]}, "where[0] needs column, any, some or none", id="no column"),
        pytest.param(
            {"where": [{"column": "margin", "value": 1}]},
            "where[0].column: orders has no column 'margin'",
            id="hidden",
        ),
        pytest.param({"where": [{"column": "note", "value": "x"}]}, "where[0]: note is masked", id="masked"),
        pytest.param(
            {"where": [{"some": "secrets"}]},
            "where[0].some: orders has no related rows 'secrets'",
            id="hidden relation",
        ),
    ],
)
def test_key_or_conditions_choose_the_rows(
    arguments: dict[str, Any], message: str, opened: Opens, dialect: str
) -> None:
    masked = THREE.model_copy(update={"mask": {"note": Mask.NULL}})
    with opened(dialect, {**SEVERAL, "orders": masked}) as (caller, shop):
        earlier = stored(shop, ALL)
        errors = [
            refused(caller, tool, table="orders", **arguments, **more)
            for tool, more in (("update_rows", {"set": {"quantity": 5}}), ("delete_rows", {}))
        ]
        later = stored(shop, ALL)

    assert earlier == later
    for error in errors:
        assert str(error).startswith(message)
        assert "secret" not in str(error).replace(message, "").replace("'secrets'", "")


def test_all_chosen_rows_must_satisfy_the_check(opened: Opens, dialect: str) -> None:
    check = {"check": "status <> 'paid' or quantity < 8"}
    grants = {**SEVERAL, "orders": THREE.model_copy(update=check)}
    with opened(dialect, grants) as (caller, shop):
        earlier = stored(shop, ALL)
        error = refused(caller, "update_rows", **where("quantity", 6, "gte"), set={"note": "x"})
        later = stored(shop, ALL)
        answer = caller.call("update_rows", **where("status", "new"), set={"note": "x"})

    assert (error.code, later) == ("denied", earlier)
    assert error.hint == "Check status, quantity."
    assert answer["affected"] == 3


def test_all_chosen_rows_must_stay_in_the_filter(opened: Opens, dialect: str) -> None:
    grants = {"orders": GrantSection(where="quantity < 9", update=("quantity",), max_affected=9)}
    with opened(dialect, grants) as (caller, shop):
        earlier = stored(shop, ALL)
        error = refused(caller, "update_rows", **where("id", 4, "gte"), set={"quantity": 9})

        assert (error.code, stored(shop, ALL)) == ("denied", earlier)


def test_constraint_leaves_all_chosen_rows_as_they_are(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        earlier = stored(shop, ALL)
        error = refused(caller, "update_rows", **where("status", "new"), set={"number": "X"})

        assert (error.code, stored(shop, ALL)) == ("constraint", earlier)
        assert str(error).startswith("orders already has a row with this number. Nothing was changed.")


def test_explanation_shows_all_statements(opened: Opens, dialect: str) -> None:
    arguments = {**where("customer.name", "Ann"), "set": {"note": "x"}}
    with opened(dialect) as (caller, _):
        toolbox, database, identity = caller.toolbox, caller.database, caller.identity
        found = caller.portal.call(explain, toolbox, database, identity, "update_rows", arguments)

    assert found.allowed
    assert found.reason == (
        "The role may update rows of orders and read the rows of orders that pass its filter and all rows of "
        "customers."
    )
    assert found.sql is not None
    assert [each.split()[0] for each in found.sql.split(";\n")] == ["SELECT", "UPDATE", "SELECT"]
    assert {"north", "Ann"} <= {*found.parameters}


def test_value_that_may_be_misunderstood_is_noted(opened: Opens, dialect: str) -> None:
    ddl = "create table visits (id integer primary key, at timestamp);"
    with opened(dialect, {"visits": GrantSection(delete=True)}, ddl=ddl) as (caller, _):
        answer = caller.call("delete_rows", table="visits", where=[{"column": "at", "value": "2024-03-05"}])

    assert str(answer["note"]).startswith(
        "No row matches where. at has a time of day: to compare whole days, write at:day as the column."
    )


def test_generic_tools_are_listed_besides_typed_ones_if_they_may_change_several_rows(
    opened: Opens, dialect: str
) -> None:
    def listed(caller: Any) -> set[str]:
        return {each.name for each in caller.portal.call(caller.toolbox.list, caller.role)}

    with opened(dialect) as (several, _), opened(dialect, {**GRANTS, "orders": ORDERS}) as (one, _):
        tools = {"update_orders", "delete_orders"}

        assert listed(several) >= tools | {"update_rows", "delete_rows"}
        assert listed(one) & (tools | {"update_rows", "delete_rows"}) == tools


@pytest.mark.parametrize(
    "condition", [{"column": "count(order_lines)", "op": "gt", "value": 1}, {"some": "order_lines"}]
)
def test_rows_that_may_not_be_aggregated_are_not_counted(
    condition: dict[str, Any], opened: Opens, dialect: str
) -> None:
    grants = {**SEVERAL, "order_lines": GrantSection(aggregate=False)}
    with opened(dialect, grants) as (caller, _):
        arguments: dict[str, Any] = {"table": "orders", "where": [condition]}
        listed = caller.outcome(calling("list_rows", **arguments))
        deleted = caller.outcome(calling("delete_rows", **arguments, dry_run=True))

    assert (listed[0] == "denied") == ("column" in condition)
    assert listed[0] == deleted[0]


def test_large_cells_of_hidden_rows_are_not_loaded(opened: Opens) -> None:
    large = 17 * 2**20
    ddl = f"""
    create table notes (id integer primary key, region text, body text, word text);
    insert into notes values (1, 'south', replace(hex(zeroblob({large // 2})), '0', 'x'), 'a');
    insert into notes values (2, 'north', 'short', 'a');
    """
    # SQLite would evaluate a subquery after the conditions.
    filter = "exists (select 1 from notes as other where other.id = notes.id and other.region = 'north')"
    grants = {"notes": GrantSection(where=filter, update=("word",), max_affected=9)}
    with opened("sqlite", grants, ddl=ddl) as (caller, _):
        answer = caller.call(
            "update_rows",
            table="notes",
            where=[
                {"column": "lower(body)", "op": "ne", "value": "y"},
                {"column": "body", "op": "gt", "value": "a"},
            ],
            set={"word": "b"},
        )

    assert rows_of(answer) == [[2, "north", "short", "b"]]
