"""Mistakes in calls that change rows get an error that says what to write instead."""

import json
from collections.abc import Mapping

import pytest

from dbtools.settings.sections import GrantSection
from tests.database.conftest import Serve
from tests.database.role_callers import Grants
from tests.database.written_shop import Opens, opening, refused

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


@pytest.fixture
def opened(serve: Serve) -> Opens:
    """Give what opens a database that its caller may change."""
    return opening(serve)


@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        pytest.param(
            "insert_lines",
            {"rows": [{**LINE, "discont": 0}]},
            "rows[0] takes no column 'discont'. Did you mean discount? "
            "Columns: id, order_id, parent_id, price, discount, state, note.",
            id="misspelt column",
        ),
        pytest.param(
            "insert_lines",
            {"rows": [LINE, {"id": 10, "note": "x"}]},
            "rows[1] needs order_id, price.",
            id="missing columns",
        ),
        pytest.param(
            "insert_lines",
            {"rows": [{**LINE, "state": "Open"}]},
            "rows[0].state must be one of open, shut, not 'Open'. Did you mean open?",
            id="choice in another case",
        ),
        pytest.param("insert_lines", {"rows": []}, "rows must not be empty.", id="no rows"),
        pytest.param(
            "insert_lines",
            {"order_id": 1, "price": "2.50"},
            "There is no argument 'order_id'. "
            'The values of columns belong in rows, as in [{"name": "Ann"}]. '
            "Arguments: rows, on_conflict, dry_run, idempotency_key.",
            id="columns without rows",
        ),
        pytest.param(
            "update_lines",
            {"id": 1, "set": {"discount": 0}},
            "set takes no column 'discount'. Columns: price, note.",
            id="ungranted column",
        ),
        pytest.param(
            "update_lines",
            {"id": 1, "note": "x"},
            "There is no argument 'note'. "
            "New values of columns belong in set. "
            "Arguments: id, set, expected, dry_run, idempotency_key.",
            id="new value beside the key",
        ),
        pytest.param(
            "update_lines",
            {"id": 1, "set": {"note": "x"}, "dryRun": True},
            "There is no argument 'dryRun'. Did you mean dry_run? "
            "Arguments: id, set, expected, dry_run, idempotency_key.",
            id="misspelt argument",
        ),
        pytest.param(
            "delete_lines",
            {"id": "a\0"},
            "id must be valid Unicode text without NUL.",
            id="key with NUL",
        ),
        pytest.param(
            "delete_lines",
            {"where": {"id": 1}},
            "There is no argument 'where'. Arguments: id, expected, dry_run, idempotency_key.",
            id="where",
        ),
        pytest.param(
            "delete_lines",
            {"id": 1, "expected": {"notes": "x"}},
            "expected takes no column 'notes'. Did you mean note? "
            "Columns: id, order_id, parent_id, price, discount, state, note.",
            id="misspelt expected column",
        ),
        pytest.param(
            "delete_lines",
            {"id": 1, "expected": {"note": ["x"]}},
            "expected.note must be a text, not an array.",
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
        ["rows", "on_conflict", "dry_run", "idempotency_key"],
        ["id", "set", "expected", "dry_run", "idempotency_key"],
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
