"""A role changes the rows that it was granted to change, and nothing else."""

import pytest

from dbtools.settings.sections import GrantSection
from tests.database.conftest import Serve
from tests.database.written_shop import GRANTS, ORDERS, Opens, opening, refused, stored

NEW = {"customer_id": 1, "number": "A-2"}
ALL = "select * from orders order by id"


@pytest.fixture
def opened(serve: Serve) -> Opens:
    """Give what opens a database that its caller may change."""
    return opening(serve)


def test_inserted_row_is_stored_with_defaults_and_presets(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        answer = caller.call("insert_orders", rows=[{"id": 9, **NEW}])
        found = stored(shop, "select * from orders where id = 9")

    assert found == [(9, 1, "A-2", "new", None, 1, "north", "ann", None)]
    assert answer == {
        "affected": 1,
        "dry_run": False,
        "columns": ["id", "customer_id", "number", "status", "note", "quantity", "region", "created_by"],
        "rows": [[9, 1, "A-2", "new", None, 1, "north", "ann"]],
    }


def test_updated_row_is_returned_as_stored(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        answer = caller.call("update_orders", id=1, set={"status": "paid", "note": None})
        found = stored(shop, "select status, note, quantity, margin from orders where id = 1")

    assert found == [("paid", None, 2, 40)]
    assert answer["rows"] == [[1, 1, "A-1", "paid", None, 2, "north", "eve"]]
    assert "before" not in answer


def test_deleted_row_is_returned_as_it_was(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        answer = caller.call("delete_orders", id=1)
        found = stored(shop, "select id from orders order by id")

    assert answer["affected"] == 1
    assert answer["rows"] == [[1, 1, "A-1", "new", "call", 2, "north", "eve"]]
    assert found == [(2,), (3,)]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        pytest.param("insert_orders", {"rows": [{"id": 9, **NEW}]}, id="insert"),
        pytest.param("update_orders", {"id": 1, "set": {"status": "paid"}}, id="update"),
        pytest.param("delete_orders", {"id": 1}, id="delete"),
    ],
)
def test_dry_run_shows_the_result_and_changes_nothing(
    tool: str, arguments: dict[str, object], opened: Opens, dialect: str
) -> None:
    with opened(dialect) as (caller, shop):
        before = stored(shop, ALL)
        dry = caller.call(tool, **arguments, dry_run=True)
        after = stored(shop, ALL)
        real = caller.call(tool, **arguments)

    assert after == before
    assert dry["dry_run"] is True
    assert (dry["affected"], dry["rows"]) == (real["affected"], real["rows"])


def test_dry_run_of_an_update_shows_the_row_before(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, _):
        answer = caller.call("update_orders", id=1, set={"status": "paid"}, dry_run=True)

    assert answer["before"] == [[1, 1, "A-1", "new", "call", 2, "north", "eve"]]


def test_dry_run_counts_what_changes_elsewhere_in_tables_that_are_shown(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, _):
        answer = caller.call("delete_orders", id=1, dry_run=True)

    assert "2 rows of order_lines" in str(answer["note"])


def test_dry_run_does_not_name_hidden_tables(opened: Opens, dialect: str) -> None:
    grants = {**GRANTS, "order_lines": False}
    with opened(dialect, grants) as (caller, _):
        answer = caller.call("delete_orders", id=1, dry_run=True)

    assert "rows elsewhere" in str(answer["note"])
    assert "order_lines" not in str(answer)
    assert "2" not in str(answer["note"])


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        pytest.param("update_orders", {"id": 2, "set": {"note": "x"}}, id="update"),
        pytest.param("delete_orders", {"id": 2}, id="delete"),
        pytest.param("update_orders", {"id": 77, "set": {"note": "x"}}, id="update of none"),
    ],
)
def test_row_outside_the_filter_does_not_exist(
    tool: str, arguments: dict[str, object], opened: Opens, dialect: str
) -> None:
    with opened(dialect) as (caller, shop):
        before = stored(shop, ALL)
        error = refused(caller, tool, **arguments)
        after = stored(shop, ALL)

    assert error.code == "no_row"
    assert str(error) == f"orders has no row with id '{arguments['id']}'."
    assert after == before


def test_row_must_satisfy_the_check_after_a_change(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        before = stored(shop, ALL)
        updated = refused(caller, "update_orders", id=1, set={"status": "sent"})
        inserted = refused(caller, "insert_orders", rows=[{"id": 9, **NEW, "status": "sent"}])
        after = stored(shop, ALL)

    assert (updated.code, inserted.code) == ("denied", "denied")
    assert "status" in updated.hint
    assert after == before


def test_row_must_stay_in_the_filter(opened: Opens, dialect: str) -> None:
    grants = {**GRANTS, "customers": GrantSection(where="region = :claims.region", update=("region", "name"))}
    with opened(dialect, grants) as (caller, shop):
        error = refused(caller, "update_customers", id=1, set={"region": "south"})
        found = stored(shop, "select region from customers where id = 1")

    assert error.code == "denied"
    assert found == [("north",)]


def test_expected_values_are_compared_before_the_change(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        stale = refused(caller, "update_orders", id=1, set={"note": "x"}, expected={"status": "paid"})
        deleted = refused(caller, "delete_orders", id=1, expected={"note": None})
        caller.call("update_orders", id=1, set={"note": "x"}, expected={"status": "new", "note": "call"})
        found = stored(shop, "select note from orders where id = 1")

    assert (stale.code, deleted.code) == ("conflict", "conflict")
    assert found == [("x",)]


def test_rows_are_inserted_all_or_none(opened: Opens, dialect: str) -> None:
    rows = [{"id": 9, **NEW}, {"id": 10, "customer_id": 1, "number": "A-1"}]
    with opened(dialect) as (caller, shop):
        error = refused(caller, "insert_orders", rows=rows)
        found = stored(shop, "select count(*) from orders")

    assert error.code == "constraint"
    assert found == [(3,)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            {"number": "A-1"}, "orders already has a row with this number. Nothing was changed.", id="unique"
        ),
        pytest.param(
            {"number": "B-1"},
            "orders already has a row with this number. Nothing was changed.",
            id="hidden row",
        ),
    ],
)
def test_constraint_is_named_without_another_rows_data(
    arguments: dict[str, object], message: str, opened: Opens, dialect: str
) -> None:
    with opened(dialect) as (caller, _):
        error = refused(caller, "insert_orders", rows=[{"id": 9, **NEW, **arguments}])

    assert (error.code, error.message) == ("constraint", message)


def test_foreign_key_names_its_columns(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, _):
        error = refused(caller, "insert_orders", rows=[{"id": 9, "customer_id": 77, "number": "A-2"}])

    assert error.code == "constraint"
    assert "customer_id" in str(error)


def test_row_that_hidden_rows_refer_to_is_kept_and_they_are_not_named(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, _):
        error = refused(caller, "delete_orders", id=3)

    assert error.message == "Other rows refer to this row. Nothing was changed."


def test_preset_and_ungranted_columns_are_unknown_arguments(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, _):
        codes = [
            refused(caller, "insert_orders", rows=[{"id": 9, **NEW, name: "x"}]).code
            for name in ("region", "created_by", "margin", "nonsense")
        ]
        codes += [
            refused(caller, "update_orders", id=1, set={name: "x"}).code
            for name in ("region", "created_by", "margin", "id")
        ]

    assert set(codes) == {"unknown_argument"}


def test_missing_claim_of_a_preset_denies_the_call(opened: Opens, dialect: str) -> None:
    with opened(dialect, region="north") as (caller, shop):
        error = refused(caller, "insert_orders", rows=[{"id": 9, **NEW}])
        found = stored(shop, "select count(*) from orders")

    assert error.code == "denied"
    assert found == [(3,)]


def test_role_without_write_grants_has_no_tool_that_writes(opened: Opens, dialect: str) -> None:
    with opened(dialect, {"orders": True, "customers": True}) as (caller, _):
        tools = caller.tools()

    assert not [name for name in tools if name.startswith(("insert", "update", "delete"))]


def test_generic_tools_do_the_same(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        caller.call("insert_rows", table="orders", rows=[{"id": 9, **NEW}])
        caller.call("update_rows", table="orders", key={"id": 9}, set={"note": "x"})
        caller.call("delete_rows", table="orders", key={"id": 1})
        found = stored(shop, "select id, note from orders order by id")
        error = refused(caller, "insert_rows", table="customers", rows=[{"id": 9}])

    assert found == [(2, None), (3, None), (9, "x")]
    assert error.code == "denied"


def test_no_more_rows_than_granted_are_inserted(opened: Opens, dialect: str) -> None:
    grants = {**GRANTS, "orders": ORDERS.model_copy(update={"max_affected": 2})}
    rows = [{"id": 10 + each, "customer_id": 1, "number": f"N-{each}"} for each in range(3)]
    with opened(dialect, grants) as (caller, shop):
        error = refused(caller, "insert_orders", rows=rows)
        found = stored(shop, "select count(*) from orders")

    assert error.code == "too_many_rows"
    assert found == [(3,)]


def test_reads_of_a_role_that_may_write_refuse_to_write(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, _):
        caller.call("update_orders", id=1, set={"note": "x"})
        runner = caller.portal.call(caller.database.runner)
        probe = caller.portal.call(runner.probe)

    assert probe.refuses_writes


def test_foreign_key_to_a_hidden_table_is_not_taken_for_a_reference(opened: Opens, dialect: str) -> None:
    grants = {name: grant for name, grant in GRANTS.items() if name not in ("customers", "order_lines")}
    with opened(dialect, grants) as (caller, _):
        error = refused(caller, "update_orders", id=1, set={"customer_id": 99})

    assert "refers to no existing row. Nothing was changed." in str(error)
