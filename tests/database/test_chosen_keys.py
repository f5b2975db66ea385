"""Rows that match `where` and refer to each other, change their keys, or are kept by triggers."""

from collections.abc import Mapping
from typing import Any

import pytest

from dbtools.settings.sections import GrantSection
from tests.database.conftest import Serve
from tests.database.shop import rows_of
from tests.database.written_shop import Opens, opening, refused, stored


@pytest.fixture
def opened(serve: Serve) -> Opens:
    """Give what opens a database that its caller may change."""
    return opening(serve)


TREES = """
    create table nodes (
        id integer primary key, parent_id integer references nodes (id){0}, word text not null default 'a'
    );
    insert into nodes values (1, null, 'a'), (2, 1, 'a'), (3, 2, 'a'), (4, null, 'b'), (5, 4, 'a');
"""
TREE = GrantSection(delete=True, update=True, max_affected=9)


@pytest.mark.parametrize("action", ["", " on delete cascade", " on delete set null"])
def test_parents_are_deleted_together_with_their_children(action: str, opened: Opens, dialect: str) -> None:
    chosen = {"table": "nodes", "where": [{"column": "id", "op": "lte", "value": 3}]}
    with opened(dialect, {"nodes": TREE}, ddl=TREES.format(action)) as (caller, shop):
        preview = caller.call("delete_rows", **chosen, dry_run=True)
        answer = caller.call("delete_rows", **chosen)
        found = stored(shop, "select id from nodes order by id")

    assert (answer["affected"], found) == (3, [(4,), (5,)])
    assert rows_of(answer) == rows_of(preview) == [[1, None, "a"], [2, 1, "a"], [3, 2, "a"]]
    # A database may count a row that it changes before it deletes it.
    assert "set null" in action or preview["note"] == "Dry run: nothing was changed."


def test_parent_with_a_child_that_is_not_chosen_is_kept(opened: Opens, dialect: str) -> None:
    with opened(dialect, {"nodes": TREE}, ddl=TREES.format("")) as (caller, shop):
        error = refused(
            caller, "delete_rows", table="nodes", where=[{"column": "id", "op": "lte", "value": 2}]
        )
        found = stored(shop, "select count(*) from nodes")

    assert (error.code, found) == ("constraint", [(5,)])


KEYS = """
    create table places (
        room integer, seat text, up_room integer, up_seat text, word text, primary key (room, seat),
        foreign key (up_room, up_seat) references places (room, seat)
    ){0};
    insert into places values
        (1, 'b', null, null, 'one b'), (1, 'a', 1, 'b', 'one a'), (1, 'c', null, null, 'one c'),
        (2, 'c', null, null, 'two c'), (2, 'd', 2, 'c', 'two d');
"""


@pytest.mark.parametrize("form", ["", " without rowid"])
def test_rows_are_paired_if_a_part_of_their_keys_changes(form: str, opened: Opens, dialect: str) -> None:
    ddl = KEYS.format(form if dialect == "sqlite" else "")
    room: dict[str, Any] = {"table": "places", "where": [{"column": "room", "value": 1}]}
    moved = {"room": 3, "up_room": None}
    with opened(dialect, {"places": TREE}, ddl=ddl) as (caller, shop):
        answer: Mapping[str, Any] = caller.call("update_rows", **room, set=moved, dry_run=True)
        taken = refused(caller, "update_rows", **room, set={"room": 2, "up_room": None})
        caller.call("update_rows", **room, set=moved)
        found = stored(shop, "select room, seat, word from places order by 1, 2")

    assert [row[1] for row in answer["before"]] == [row[1] for row in answer["rows"]] == ["a", "b", "c"]
    assert [row[-1] for row in answer["rows"]] == ["one a", "one b", "one c"]
    assert taken.code == "constraint"
    assert found == [
        *((2, "c", "two c"), (2, "d", "two d")),
        *((3, "a", "one a"), (3, "b", "one b"), (3, "c", "one c")),
    ]


def test_referenced_keys_change_together_with_what_refers_to_them(opened: Opens, dialect: str) -> None:
    room: dict[str, Any] = {"table": "places", "where": [{"column": "room", "value": 2}]}
    with opened(dialect, {"places": TREE}, ddl=KEYS.format("")) as (caller, shop):
        left = refused(caller, "update_rows", **room, set={"room": 5})
        caller.call("update_rows", **room, set={"room": 5, "up_room": 5})
        found = stored(shop, "select room, seat, up_room, up_seat from places where room > 1 order by seat")

    assert left.code == "constraint"
    assert found == [(5, "c", 5, None), (5, "d", 5, "c")]


def test_only_row_may_get_a_new_key(opened: Opens, dialect: str) -> None:
    with opened(dialect, {"nodes": TREE}, ddl=TREES.format("")) as (caller, shop):
        answer = caller.call(
            "update_rows", table="nodes", where=[{"column": "id", "value": 3}], set={"id": 30, "word": "c"}
        )
        error = refused(caller, "update_rows", table="nodes", where=[{"none": "nodes"}], set={"id": 50})
        found = stored(shop, "select id, word from nodes order by id")

    assert rows_of(answer) == [[30, 2, "c"]]
    assert error.code == "constraint"
    assert found == [(1, "a"), (2, "a"), (4, "b"), (5, "a"), (30, "c")]


KEEPING = {
    "sqlite": """
    create trigger keeping before {0} on nodes when old.id = 3 begin select raise(ignore); end;
    """,
    "postgresql": """
    create function keep() returns trigger language plpgsql as $$ begin return null; end $$;
    create trigger keeping before {0} on nodes for each row when (old.id = 3) execute function keep();
    """,
}


@pytest.mark.parametrize(("kind", "more"), [("update", {"set": {"word": "z"}}), ("delete", {})])
def test_trigger_that_keeps_one_row_keeps_all(
    kind: str, more: dict[str, Any], opened: Opens, dialect: str
) -> None:
    ddl = TREES.format("") + KEEPING[dialect].format(kind)
    with opened(dialect, {"nodes": TREE}, ddl=ddl) as (caller, shop):
        earlier = stored(shop, "select * from nodes order by id")
        chosen = {"table": "nodes", "where": [{"none": "nodes"}]}
        error = refused(caller, f"{kind}_rows", **chosen, **more)

        assert stored(shop, "select * from nodes order by id") == earlier
        assert error.code == {"sqlite": "constraint", "postgresql": "busy"}[dialect]
        assert "trigger" in str(error)


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param("code text not null unique, n integer", id="no primary key"),
        pytest.param("code text primary key, n integer", id="text key"),
        pytest.param("n integer primary key, code text not null unique", id="hidden key"),
    ],
)
def test_rows_of_odd_tables_are_chosen(columns: str, opened: Opens, dialect: str) -> None:
    rows = """('b', 1, 'x'), ('a', 2, 'x'), ('c', 3, 'y'), ('d''"', 4, 'x')"""
    ddl = f"create table odd ({columns}, word text); insert into odd (code, n, word) values {rows};"
    grant = GrantSection(columns=("code", "word"), update=("word",), delete=True, max_affected=3)
    chosen: dict[str, Any] = {"table": "odd", "where": [{"column": "word", "value": "x"}]}
    with opened(dialect, {"odd": grant}, ddl=ddl) as (caller, shop):
        updated = caller.call("update_rows", **chosen, set={"word": "x"})
        deleted = caller.call("delete_rows", **chosen)
        found = stored(shop, "select code from odd")

    assert rows_of(updated) == rows_of(deleted) == [["a", "x"], ["b", "x"], ["d'\"", "x"]]
    assert found == [("c",)]


PARTED = """
    create table parted (region text, id integer, word text, primary key (region, id))
        partition by list (region);
    create table north partition of parted for values in ('north');
    create table south partition of parted for values in ('south');
    create table rest partition of parted default;
    insert into parted values ('north', 1, 'x'), ('south', 1, 'x'), ('north', 2, 'y'), ('south', 3, 'x');
"""


def test_chosen_rows_of_a_partitioned_table_change_and_move(opened: Opens) -> None:
    chosen = {"table": "parted", "where": [{"column": "word", "value": "x"}]}
    with opened("postgresql", {"parted": TREE}, ddl=PARTED) as (caller, shop):
        taken = refused(caller, "update_rows", **chosen, set={"region": "east"})
        updated = caller.call("update_rows", **chosen, set={"word": "z"})
        moved = caller.call(
            "update_rows",
            table="parted",
            where=[{"column": "id", "op": "gte", "value": 2}],
            set={"region": "east"},
        )
        deleted = caller.call("delete_rows", table="parted", where=[{"column": "region", "value": "east"}])
        found = stored(shop, "select region, id, word from parted order by 1, 2")

    assert taken.code == "constraint"
    assert rows_of(updated) == [["north", 1, "z"], ["south", 1, "z"], ["south", 3, "z"]]
    assert rows_of(moved) == [["east", 2, "y"], ["east", 3, "z"]]
    assert deleted["affected"] == 2
    assert found == [("north", 1, "z"), ("south", 1, "z")]


MOVING = {
    "sqlite": """
    create table moving (id integer primary key, word text);
    create trigger moves after update of word on moving when new.id = 2 begin
        update moving set id = 20 where id = 2;
    end;
    """,
    "postgresql": """
    create table moving (id integer not null unique, word text);
    create function move() returns trigger language plpgsql as $$ begin
        update moving set id = 20 where id = 2; return null;
    end $$;
    create trigger moves after update of word on moving for each row when (new.id = 2)
        execute function move();
    """,
}


def test_trigger_that_moves_one_row_keeps_all(opened: Opens, dialect: str) -> None:
    ddl = f"{MOVING[dialect]} insert into moving values (1, 'a'), (2, 'a'), (3, 'a');"
    with opened(dialect, {"moving": TREE}, ddl=ddl) as (caller, shop):
        chosen = {"table": "moving", "where": [{"column": "word", "value": "a"}]}
        error = refused(caller, "update_rows", **chosen, set={"word": "b"})
        found = stored(shop, "select id, word from moving order by id")

    assert error.code == "refused"
    assert found == [(1, "a"), (2, "a"), (3, "a")]
