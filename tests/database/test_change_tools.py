"""Tools that change rows: what they offer, which are listed, and what they leave alone."""

from typing import Any

from dbtools.service.explanation import explain
from dbtools.settings.sections import GrantSection
from tests.database.role_callers import Caller
from tests.database.shop import rows_of
from tests.database.written_shop import GRANTS, ORDERS, Opens, stored

ODD = 'create table odd ("Order No" integer primary key, "Unit Price" integer);'


def schema_of(caller: Caller, tool: str) -> Any:
    return caller.portal.call(caller.toolbox.view, caller.role).tools[tool].definition.input_schema


def test_several_rows_are_offered_only_where_several_may_change(opened: Opens, dialect: str) -> None:
    found = []
    for most in (None, 3):
        grant = GrantSection(update=True, max_affected=most)
        with opened(dialect, {"odd": grant}, ddl=ODD) as (caller, _):
            generic, typed = (schema_of(caller, tool) for tool in ("update_rows", "update_odd"))
            listed = {each.name for each in caller.portal.call(caller.toolbox.list, caller.role)}
        found.append((generic["required"], typed["required"], "update_rows" in listed))
        assert list(typed["properties"]) == ["order_no", "set", "expected", "dry_run"]
        rows = generic["properties"].get("rows")
        assert rows is None or set(rows["items"]["properties"]) == {"order_no", "unit_price"}
        assert (rows is None) is (most is None)

    assert found == [(["table", "set"], ["order_no", "set"], False), (["table"], ["order_no", "set"], True)]


def test_explanation_of_chosen_rows_shows_all_statements(opened: Opens, dialect: str) -> None:
    where = [{"column": "customer.name", "op": "eq", "value": "Ann"}]
    arguments = {"table": "orders", "where": where, "set": {"note": "x"}}
    grants = {**GRANTS, "orders": ORDERS.model_copy(update={"check": None})}
    with opened(dialect, grants) as (caller, _):
        toolbox, database, identity = caller.toolbox, caller.database, caller.identity
        found = caller.portal.call(explain, toolbox, database, identity, "update_rows", arguments)

    assert found.reason == (
        "The role may update rows of orders and read the rows of orders that pass its filter and all rows of "
        "customers."
    )
    assert found.sql is not None
    assert [each.split()[0] for each in found.sql.split(";\n")] == ["SELECT", "UPDATE", "SELECT"]
    assert {"north", "Ann"} <= {*found.parameters}


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
    where = [
        {"column": "lower(body)", "op": "ne", "value": "y"},
        {"column": "body", "op": "gt", "value": "a"},
    ]
    with opened("sqlite", grants, ddl=ddl) as (caller, _):
        answer = caller.call("update_rows", table="notes", where=where, set={"word": "b"})

    assert rows_of(answer) == [[2, "north", "short", "b"]]


def test_reads_of_a_role_that_may_write_refuse_to_write(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, _):
        caller.call("update_orders", id=1, set={"note": "x"})
        runner = caller.portal.call(caller.database.runner)
        probe = caller.portal.call(runner.probe)

    assert probe.refuses_writes


def test_changes_are_made_after_new_statistics_of_their_tables(opened: Opens) -> None:
    """The server then analyses all prepared statements again."""
    rows = [{"id": 1, "number": "A-1", "customer_id": 1, "note": "x"}, {"number": "N", "customer_id": 1}]
    with opened("postgresql") as (caller, shop):
        for id in (8, 9):
            rows[1] |= {"id": id, "number": str(id)}
            assert caller.call("insert_orders", rows=rows, on_conflict="update")["affected"] == 2
            shop.bare.execute("analyze")


INDEXED = """
    create table things (id integer primary key, v text);
    create virtual table words using fts5 (v, content = 'things', content_rowid = 'id');
    create trigger changed after update on things begin
        insert into words (words, rowid, v) values ('delete', old.id, old.v);
        insert into words (rowid, v) values (new.id, new.v);
    end;
    insert into things values (1, 'one');
    insert into words (rowid, v) values (1, 'one');
"""


def test_full_text_index_follows_a_change(opened: Opens) -> None:
    with opened("sqlite", {"things": GrantSection(update=True)}, ddl=INDEXED) as (caller, shop):
        answer = caller.call("update_things", id=1, set={"v": "fresh"})
        words = stored(shop, "select rowid from words where words match 'fresh'")

    assert (rows_of(answer), words) == ([[1, "fresh"]], [(1,)])
