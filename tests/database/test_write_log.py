"""The audit log of calls that change rows: numbers, values, and nothing that the role does not see."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import pytest

from dbtools.alembic import upgrade
from dbtools.settings.sections import GrantSection, RoleLimitsSection, RoleSection
from dbtools.values.types import Mask
from tests.database.logged_calls import Logged
from tests.database.role_callers import Grants
from tests.database.written_shop import DDL, GRANTS, ORDERS, Opens, stored

NEW = {"id": 9, "customer_id": 1, "number": "A-2"}
LOGGED_NEW = {
    **NEW,
    "status": "new",
    "note": None,
    "quantity": 1,
    "region": "north",
    "created_by": "ann",
}
LOGGED_FIRST = {
    "id": 1,
    "customer_id": 1,
    "number": "A-1",
    "status": "new",
    "note": "call",
    "quantity": 2,
    "region": "north",
    "created_by": "eve",
}


@pytest.mark.parametrize(
    ("tool", "arguments", "change"),
    [
        pytest.param(
            "update_orders",
            {"id": 1, "set": {"status": "paid", "quantity": 2, "note": None}},
            {
                "key": {"id": 1},
                "old": {"status": "new", "note": "call"},
                "new": {"status": "paid", "note": None},
            },
            id="update",
        ),
        pytest.param(
            "update_rows",
            {"table": "orders", "key": {"id": 1}, "set": {"quantity": 2}},
            {"key": {"id": 1}, "old": {}, "new": {}},
            id="update to the same",
        ),
        pytest.param(
            "insert_orders", {"rows": [NEW]}, {"key": {"id": 9}, "old": None, "new": LOGGED_NEW}, id="insert"
        ),
        pytest.param(
            "delete_orders", {"id": 1}, {"key": {"id": 1}, "old": LOGGED_FIRST, "new": None}, id="delete"
        ),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_changes_have_the_key_and_the_changed_columns(
    tool: str,
    arguments: Mapping[str, object],
    change: Mapping[str, object],
    dry_run: bool,
    opened: Opens,
    dialect: str,
) -> None:
    with opened(dialect) as (caller, _):
        line = Logged(caller=caller).call(tool, **arguments, dry_run=dry_run)

    assert line["changes"] == [change]
    assert (line["affected"], line["dry_run"], line["confirmed"]) == (1, dry_run, None)
    assert (line["outcome"], line["code"], line["rows"]) == ("ok", None, 1)


def test_repeated_call_is_logged_as_no_change(opened: Opens, dialect: str) -> None:
    with opened(dialect, fresh=True) as (caller, shop):
        upgrade(shop.url)
        logged = Logged(caller=caller)
        first, again = (
            logged.call("update_orders", id=1, set={"note": "x"}, idempotency_key="k") for _ in range(2)
        )

    assert (first["affected"], len(first["changes"])) == (1, 1)
    assert (again["affected"], again["changes"], again["outcome"]) == (0, None, "ok")


def test_values_are_left_out_unless_the_operator_wants_them(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, _):
        line = Logged(caller=caller, changes=False).call(
            "update_orders", id=1, set={"note": "sekret"}, expected={"status": "new"}, dry_run=False
        )

    assert (line["affected"], line["changes"]) == (1, None)
    assert line["arguments"] == {
        "id": "…",
        "set": {"note": "…"},
        "expected": {"status": "…"},
        "dry_run": False,
    }
    assert "sekret" not in str(line)


REFUSED: list[tuple[str, Mapping[str, object], str]] = [
    ("update_orders", {"id": 2, "set": {"note": "x"}}, "no_row"),
    ("update_orders", {"id": 1, "set": {"margin": 1}}, "unknown_argument"),
    ("update_orders", {"id": 1, "set": {"status": "sent"}}, "denied"),
    ("update_rows", {"table": "customers", "key": {}, "set": {}}, "denied"),
    ("delete_orders", {"id": 1, "expected": {"note": "x"}}, "conflict"),
    ("insert_orders", {"rows": [{**NEW, "number": "A-1"}]}, "constraint"),
    ("insert_orders", {"rows": [NEW] * 101}, "too_many_rows"),
    ("insert_orders", {}, "bad_argument"),
]


def test_refused_call_is_known_as_one_that_was_to_change_rows(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, _):
        for (tool, arguments, code), dry_run in product(REFUSED, (False, True)):
            line = Logged(caller=caller).call(tool, **arguments, dry_run=dry_run)

            assert (line["code"], line["dry_run"]) == (code, dry_run)
            assert (line["affected"], line["changes"]) == (None, None)


def test_calls_of_other_tools_are_no_changes(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, _):
        for tool in ("list_orders", "describe_tables", "delete_customers", "nonsense"):
            line = Logged(caller=caller).call(tool, dry_run=True)

            assert [line[key] for key in ("affected", "dry_run", "changes", "confirmed")] == [None] * 4


MASKS = {"note": Mask.REDACT, "created_by": Mask.NULL, "number": Mask.PARTIAL, "region": Mask.HASH}
MASKED = ORDERS.model_copy(update={"where": "quantity < 5", "mask": MASKS})


def test_masked_columns_are_logged_as_the_role_sees_them(opened: Opens, dialect: str) -> None:
    with opened(dialect, {**GRANTS, "orders": MASKED}) as (caller, _):
        logged = Logged(caller=caller)
        updated = logged.call("update_orders", id=1, set={"note": "sekret", "number": "Z-sekret"})
        deleted = logged.call("delete_orders", id=1)

    (change,) = updated["changes"]
    assert change == {
        "key": {"id": 1},
        "old": {"number": "***", "note": "***"},
        "new": {"number": "***", "note": "***"},
    }
    old = deleted["changes"][0]["old"]
    assert (old["note"], old["created_by"], old["number"]) == ("***", None, "Z…")
    assert not {"sekret", "north", "eve"} & set(str([updated, deleted]).replace("'", " ").split())


HIDING = {
    "sqlite": """
    create trigger t after update on orders begin
        update orders set margin = margin + 1, quantity = 4 where id = new.id;
    end;
    """,
    "postgresql": """
    create function f() returns trigger language plpgsql as $$
    begin new.margin := new.margin + 1; new.quantity := 4; return new; end $$;
    create trigger t before update on orders for each row execute function f();
    """,
}


def test_what_a_trigger_changes_is_logged_where_the_role_sees_it(opened: Opens, dialect: str) -> None:
    with opened(dialect, ddl=DDL + HIDING[dialect]) as (caller, shop):
        line = Logged(caller=caller).call("update_orders", id=1, set={"note": "x"})
        found = stored(shop, "select margin from orders where id = 1")

    assert found == [(41,)]
    assert line["changes"] == [
        {"key": {"id": 1}, "old": {"note": "call", "quantity": 2}, "new": {"note": "x", "quantity": 4}}
    ]


KEYS = """
    create table paired (a integer, b integer, v text, primary key (a, b));
    insert into paired values (1, 2, 'x');
    create table loose (v text);
"""
EVERY = GrantSection(insert=True, update=True, delete=True)


@pytest.mark.parametrize(
    ("grant", "table", "row", "key"),
    [
        pytest.param(EVERY, "paired", {"a": 1, "b": 9}, {"a": 1, "b": 9}, id="whole"),
        pytest.param(
            GrantSection(exclude=("a",), insert=True, preset={"a": 7}),
            *("paired", {"b": 9}, {"b": 9}),
            id="in part",
        ),
        pytest.param(
            GrantSection(mask={"a": Mask.REDACT}, insert=True),
            *("paired", {"a": 1, "b": 9}, {"a": "***", "b": 9}),
            id="masked",
        ),
        pytest.param(
            GrantSection(columns=("v",), insert=True, preset={"a": 7, "b": 8}),
            *("paired", {"v": "x"}, None),
            id="hidden",
        ),
        pytest.param(GrantSection(insert=True), "loose", {"v": "x"}, None, id="no key"),
    ],
)
def test_key_has_the_columns_that_the_role_sees(
    grant: GrantSection,
    table: str,
    row: Mapping[str, object],
    key: Mapping[str, object] | None,
    opened: Opens,
    dialect: str,
) -> None:
    with opened(dialect, {table: grant}, ddl=KEYS) as (caller, _):
        line = Logged(caller=caller).call(f"insert_{table}", rows=[row])

    assert line["changes"][0]["key"] == key


def test_key_that_is_changed_is_logged_as_it_was(opened: Opens, dialect: str) -> None:
    with opened(dialect, {"paired": EVERY}, ddl=KEYS) as (caller, _):
        line = Logged(caller=caller).call("update_paired", a=1, b=2, set={"b": 3})

    assert line["changes"] == [{"key": {"a": 1, "b": 2}, "old": {"b": 2}, "new": {"b": 3}}]


def test_changes_are_bounded(opened: Opens, dialect: str) -> None:
    rows = [{"a": at, "b": at, "v": "x" * 600} for at in range(60)]
    with opened(dialect, {"paired": EVERY}, ddl=KEYS) as (caller, _):
        line = Logged(caller=caller).call("insert_paired", rows=rows)

    assert (line["affected"], len(line["changes"]), line["changes"][-1]) == (60, 51, "…")
    assert line["changes"][49] == {
        "key": {"a": 49, "b": 49},
        "old": None,
        "new": {"a": 49, "b": 49, "v": "x" * 500 + "…"},
    }


def test_long_cell_that_the_call_sets_counts_as_changed(opened: Opens, dialect: str) -> None:
    with opened(dialect, {"paired": EVERY}, ddl=KEYS) as (caller, _):
        logged = Logged(caller=caller)
        logged.call("update_paired", a=1, b=2, set={"v": "x" * 3_000 + "a"})
        line = logged.call("update_paired", a=1, b=2, set={"v": "x" * 3_000 + "b"})

    (change,) = line["changes"]
    assert change["old"] == change["new"] == {"v": "x" * 500 + "…"}


WIDE = f"create table wide (id integer primary key, {', '.join(f'column_{at} text' for at in range(60))});"


def test_row_that_is_too_large_for_the_answer_is_changed_and_logged(opened: Opens, dialect: str) -> None:
    narrow = RoleSection(tables={"wide": EVERY}, limits=RoleLimitsSection(max_tokens=500))
    with opened(dialect, {"wide": EVERY}, ddl=WIDE, roles={"narrow": narrow}) as (caller, shop):
        logged = Logged(caller=replace(caller, role="narrow"))
        line = logged.call("insert_wide", rows=[{"id": 1, "column_0": "x" * 90}])
        found = stored(shop, "select id from wide")

    assert found == [(1,)]
    assert (line["outcome"], line["affected"], line["rows"], line["truncated"]) == ("ok", 1, 0, True)
    assert line["changes"][0]["new"]["id"] == 1


def test_upsert_logs_the_old_values_of_the_rows_that_it_updates(opened: Opens, dialect: str) -> None:
    known = {"id": 1, "customer_id": 1, "number": "A-1", "note": "x"}
    with opened(dialect) as (caller, _):
        line = Logged(caller=caller).call("insert_orders", rows=[NEW, known], on_conflict="update")
        rows = [known, {**NEW, "id": 10, "number": "A-3"}]
        ignored = Logged(caller=caller).call("insert_orders", rows=rows, on_conflict="ignore")

    assert line["changes"] == [
        {"key": {"id": 9}, "old": None, "new": LOGGED_NEW},
        {"key": {"id": 1}, "old": {"note": "call"}, "new": {"note": "x"}},
    ]
    assert (line["affected"], ignored["affected"]) == (2, 1)
    assert [each["key"] for each in ignored["changes"]] == [{"id": 10}]


def test_redacted_arguments_of_an_upsert_keep_its_words(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, _):
        log = Logged(caller=caller)
        line = log.call("insert_orders", rows=[NEW], on_conflict="update", conflict_key=["id"])
        odd = log.call("insert_orders", rows=[NEW], on_conflict="secret", conflict_key=["secret"])

    names = {"on_conflict": "update", "conflict_key": ["id"]}
    assert line["arguments"] == {"rows": [dict.fromkeys(NEW, "…")], **names}
    assert "secret" not in str(odd["arguments"])


def test_changes_of_chosen_rows_are_logged_in_pairs(opened: Opens, dialect: str) -> None:
    where = [{"column": "region", "value": "north"}]
    shown: Grants = {"orders": ORDERS.model_copy(update={"max_affected": 4, "check": None})}
    with opened(dialect, {**GRANTS, **shown}) as (caller, shop):
        log = Logged(caller=caller)
        chosen: dict[str, object] = {"table": "orders", "where": where}
        shop.bare.execute("delete from secrets")
        line = log.call("update_rows", **chosen, set={"note": "call"})
        deleted = log.call("delete_rows", **chosen, dry_run=True)

    assert line["arguments"] == {
        "table": "orders",
        "where": [{"column": "region", "value": "…"}],
        "set": {"note": "…"},
    }
    assert line["affected"] == 2
    assert line["changes"] == [
        {"key": {"id": 1}, "old": {}, "new": {}},
        {"key": {"id": 3}, "old": {"note": None}, "new": {"note": "call"}},
    ]
    assert [(each["old"]["id"], each["new"]) for each in deleted["changes"]] == [(1, None), (3, None)]
