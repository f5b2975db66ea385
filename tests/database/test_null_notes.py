"""Notes on nulls in conditions on related rows, and in those that choose the rows of a change."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from dbtools.settings.sections import GrantSection
from tests.database.role_callers import Grants, calling_as
from tests.database.shop import Serve
from tests.database.written_shop import Opens

DDL = """
create table guests (id int not null primary key, name text);
create table visits (
    id int not null primary key, guest_id int references guests (id), region text, paid int, due int
);
insert into guests values (1, 'Ann'), (2, 'Bob'), (3, 'Cid'), (4, null);
insert into visits values
    (1, 1, 'north', 5, 1), (2, 1, 'north', null, 1), (3, 2, 'north', null, 1), (4, 3, 'south', null, null),
    (5, 3, 'north', 7, 1);
"""
UNPAID = {"column": "paid", "op": "ne", "value": "7"}
NORTH = {"column": "region", "value": "north"}
OPEN: Grants = {"guests": True, "visits": True}
FILTERED: Grants = {"guests": True, "visits": GrantSection(where="region = 'north'")}
UNCOUNTED: Grants = {"guests": True, "visits": GrantSection(aggregate=False)}
Condition = Mapping[str, object]


def some(*where: Condition, **more: object) -> Condition:
    return {"some": "visits", "where": list(where), **more}


def none(*where: Condition, **more: object) -> Condition:
    return {"none": "visits", "where": list(where), **more}


def told(number: int, what: str = "left out", column: str = "visits.paid") -> str:
    rows, are = ("row", "is") if number == 1 else ("rows", "are")
    return f"{number} {rows} with null in {column} {are} {what}."


@pytest.mark.parametrize(
    ("grants", "condition", "ids", "note"),
    [
        # Ann has a visit that is paid, too; Bob and Cid have only others.
        pytest.param(OPEN, some(UNPAID), [1], told(2), id="some"),
        pytest.param(FILTERED, some(UNPAID), [1], told(1), id="some, hidden nulls"),
        pytest.param(UNCOUNTED, some(UNPAID), [1], None, id="some, rows that may not be counted"),
        pytest.param(OPEN, some(UNPAID, NORTH), [1], told(1), id="some, and another condition"),
        pytest.param(OPEN, some(UNPAID, NORTH, match="any"), [1, 2, 3], None, id="some, or another"),
        pytest.param(OPEN, some({"any": [UNPAID]}), [1], told(2), id="some, any"),
        pytest.param(
            OPEN, some({"column": "paid", "op": "not_in", "values": ["7"]}), [1], told(2), id="some, not_in"
        ),
        pytest.param(OPEN, some({"column": "paid", "value": "5"}), [1], None, id="some, eq"),
        pytest.param(OPEN, none(UNPAID), [2, 3, 4], told(2, "included"), id="none"),
        pytest.param(FILTERED, none(UNPAID), [2, 3, 4], told(1, "included"), id="none, hidden nulls"),
        pytest.param(OPEN, none(UNPAID, NORTH), [2, 3, 4], told(1, "included"), id="none, and another"),
        pytest.param(
            OPEN,
            none({"column": "due", "op": "ne", "value": "1"}),
            [1, 2, 3, 4],
            told(1, "included", "visits.due"),
            id="none, another column",
        ),
        pytest.param(OPEN, none(NORTH), [4], None, id="none, eq"),
    ],
)
def test_note_counts_rows_by_the_nulls_of_related_rows(
    grants: Grants, condition: Condition, ids: Sequence[int], note: str | None, serve: Serve, dialect: str
) -> None:
    with serve(dialect, DDL) as shop, calling_as(shop, grants) as caller:
        answer = caller.call("list_guests", columns=["id"], where=[condition], order_by=["id"])
        count = {"table": "guests", "measures": [{"function": "count"}], "where": [condition]}
        total = caller.call("aggregate_rows", **count) if note else {}

    assert answer["rows"] == [[id] for id in ids]
    assert answer.get("note") == note
    assert total.get("note") == note


WRITES = GrantSection(where="region = 'north'", update=("paid", "due"), delete=True, max_affected=10)
CHANGES: Mapping[str, Mapping[str, object]] = {"update_rows": {"set": {"due": 2}}, "delete_rows": {}}


@pytest.mark.parametrize("tool", CHANGES)
@pytest.mark.parametrize("confirm", [False, True])
@pytest.mark.parametrize(
    ("where", "aggregate", "note"),
    [
        pytest.param([UNPAID], True, told(2, column="paid"), id="ne"),
        pytest.param([UNPAID], False, "", id="rows that may not be counted"),
        pytest.param(
            [{"any": [UNPAID, {"column": "id", "value": "2"}]}], True, told(1, column="paid"), id="any"
        ),
        pytest.param(
            [{"column": "paid + 1", "op": "ne", "value": "8"}],
            True,
            told(2, column="paid + 1"),
            id="expression",
        ),
        pytest.param([{"column": "paid", "value": "5"}], True, "", id="eq"),
    ],
)
def test_change_by_conditions_says_which_nulls_it_leaves_out(
    tool: str,
    confirm: bool,
    where: list[object],
    aggregate: bool,
    note: str,
    opened: Opens,
    dialect: str,
) -> None:
    grant = WRITES.model_copy(update={"confirm": confirm, "aggregate": aggregate})
    with opened(dialect, {"visits": grant}, ddl=DDL) as (caller, _):
        arguments = {"table": "visits", "where": where, **CHANGES[tool]}
        dry = caller.call(tool, **arguments, dry_run=True)
        made = caller.call(tool, **arguments)

    preview: Any = made.get("preview", made)
    assert str(dry.get("note")).removeprefix("Dry run: nothing was changed.").strip() == note
    assert str(preview.get("note", "")) == note


def test_nulls_that_a_change_stores_are_not_counted(opened: Opens, dialect: str) -> None:
    with opened(dialect, {"visits": WRITES}, ddl=DDL) as (caller, _):
        answer = caller.call("update_rows", table="visits", where=[UNPAID], set={"paid": None})

    assert (answer["affected"], answer["note"]) == (1, told(2, column="paid"))
