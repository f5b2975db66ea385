"""A role changes the rows that it may change, as it was granted, and nothing else."""

import json
from collections.abc import Mapping

import pytest

from dbtools import errors
from dbtools.settings.sections import GrantSection
from tests.database.conftest import Serve
from tests.database.role_callers import Caller, Grants
from tests.database.written_shop import GRANTS, ORDERS, Opens, opening, stored

NEW = {"customer_id": 1, "number": "A-2"}
ALL = "select * from orders order by id"


@pytest.fixture
def opened(serve: Serve) -> Opens:
    """Give what opens a database that its caller may change."""
    return opening(serve)


def refused(caller: Caller, tool: str, **arguments: object) -> errors.CallError:
    """Return the error with which *tool* refuses."""
    with pytest.raises(errors.CallError) as caught:
        caller.call(tool, **arguments)
    return caught.value


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


LINES: Grants = {"orders": True, "lines": GrantSection(insert=True, update=("price", "note"), delete=True)}
LINES_DDL = """
    create table orders (id integer primary key);
    insert into orders values (1);
    create table lines (
        id integer primary key,
        order_id integer not null references orders (id),
        parent_id integer references lines (id),
        price numeric(8, 2) not null check (price > 0),
        discount numeric(8, 2) not null default 0 check (discount between 0 and 0.5),
        state text check (state in ('open', 'shut')),
        note text
    );
    insert into lines values (1, 1, null, 5, 0, null, null), (2, 1, 1, 5, 0, null, null);
"""
LINE: Mapping[str, object] = {"id": 9, "order_id": 1, "price": "2.50"}


@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        pytest.param(
            "insert_lines",
            {"rows": [{**LINE, "discont": 0}]},
            "rows[0]: cannot set 'discont'. Did you mean discount? "
            "Columns: id, order_id, parent_id, price, discount, state, note.",
            id="misspelt column",
        ),
        pytest.param(
            "insert_lines",
            {"rows": [LINE, {"id": 10, "note": "x"}]},
            "rows[1]: needs order_id, price.",
            id="missing columns",
        ),
        pytest.param(
            "insert_lines",
            {"rows": [{**LINE, "state": "Open"}]},
            "rows[0].state: 'Open' is not one of open, shut. Did you mean open?",
            id="choice in another case",
        ),
        pytest.param("insert_lines", {"rows": []}, "rows: must not be empty.", id="no rows"),
        pytest.param(
            "update_lines",
            {"id": 1, "set": {"discount": 0}},
            "set: cannot set 'discount'. Columns: price, note.",
            id="ungranted column",
        ),
        pytest.param(
            "update_lines",
            {"id": 1, "note": "x"},
            "There is no argument 'note'. Put new values into set. Arguments: id, set, expected, dry_run.",
            id="new value beside the key",
        ),
        pytest.param(
            "update_lines",
            {"id": 1, "set": {"note": "x"}, "dryRun": True},
            "There is no argument 'dryRun'. Did you mean dry_run? Arguments: id, set, expected, dry_run.",
            id="misspelt argument",
        ),
        pytest.param(
            "delete_lines",
            {"where": {"id": 1}},
            "There is no argument 'where'. Arguments: id, expected, dry_run.",
            id="where",
        ),
        pytest.param(
            "delete_lines",
            {"id": 1, "expected": {"notes": "x"}},
            "expected: there is no column 'notes'. Did you mean note? "
            "Columns: id, order_id, parent_id, price, discount, state, note.",
            id="misspelt expected column",
        ),
        pytest.param(
            "delete_lines",
            {"id": 1, "expected": {"note": ["x"]}},
            "expected.note: must be a text, not an array.",
            id="expected array",
        ),
    ],
)
def test_mistake_is_refused_with_what_to_write(
    tool: str, arguments: dict[str, object], reason: str, opened: Opens, dialect: str
) -> None:
    with opened(dialect, LINES, ddl=LINES_DDL) as (caller, _):
        error = refused(caller, tool, **arguments)

    assert str(error) == reason


def test_values_are_described_before_dry_run(opened: Opens, dialect: str) -> None:
    with opened(dialect, LINES, ddl=LINES_DDL) as (caller, _):
        tools = caller.portal.call(caller.toolbox.view, caller.role).tools
    shown = (
        json.loads(tools["insert_lines"].definition.json),
        json.loads(tools["update_lines"].definition.json),
    )

    assert [list(each["inputSchema"]["properties"]) for each in shown] == [
        ["rows", "dry_run"],
        ["id", "set", "expected", "dry_run"],
    ]


def test_limits_of_given_values_are_named_if_a_check_refuses_them(opened: Opens, dialect: str) -> None:
    with opened(dialect, LINES, ddl=LINES_DDL) as (caller, _):
        inserted = refused(caller, "insert_lines", rows=[LINE, {**LINE, "id": 10, "discount": "0.9"}])
        updated = refused(caller, "update_lines", id=1, set={"price": 0, "note": "x"})

    assert inserted.hint.endswith("Limits: price > 0, discount >= 0 and <= 0.5.")
    assert updated.hint.endswith("Limits: price > 0.")


def test_foreign_keys_that_were_not_given_are_not_named(opened: Opens, dialect: str) -> None:
    with opened(dialect, LINES, ddl=LINES_DDL) as (caller, _):
        error = refused(caller, "insert_lines", rows=[{**LINE, "order_id": 77}])

    assert error.code == "constraint"
    assert "order_id" in str(error)
    assert "parent_id" not in str(error)


def test_denied_row_names_only_columns_that_may_be_set(opened: Opens, dialect: str) -> None:
    where = "order_id in (select id from orders where id = 1)"
    grants: Grants = {"lines": GrantSection(where=where, insert=("order_id", "price"), preset={"id": 9})}
    with opened(dialect, grants, ddl=LINES_DDL + "insert into orders values (2);") as (caller, _):
        error = refused(caller, "insert_lines", rows=[{"order_id": 2, "price": 1}])

    assert (error.code, error.hint) == ("denied", "Check order_id.")


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
