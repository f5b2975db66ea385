"""Tables whose triggers, rules and constraints change more: the answer is what is stored."""

from typing import Any

import pytest

from dbtools import errors
from dbtools.settings.sections import GrantSection
from tests.database.conftest import Serve
from tests.database.role_callers import Caller
from tests.database.shop import Shop
from tests.database.written_journal import writing

TABLE = """
create table things (id integer primary key, v text, w text not null default 'kept');
insert into things values (1, 'one', 'kept'), (2, 'two', 'kept');
"""
STORED = [(1, "one", "kept"), (2, "two", "kept")]


def _function(body: str, when: str) -> str:
    """Return a trigger on PostgreSQL that runs *body* *when* something happens."""
    return f"""
    create function act() returns trigger language plpgsql as $$ begin {body} end $$;
    create trigger acting {when} on things for each row execute function act();
    """


def _trigger(body: str, when: str) -> str:
    """Return the same on SQLite."""
    return f"create trigger acting {when} on things begin {body}; end;"


UPDATE: tuple[str, dict[str, Any]] = ("update_things", {"id": 1, "set": {"v": "new"}})
INSERT: tuple[str, dict[str, Any]] = ("insert_things", {"rows": [{"id": 9, "v": "new"}]})
DELETE: tuple[str, dict[str, Any]] = ("delete_things", {"id": 1})
AGAIN = "pg_trigger_depth() = 1"
#: DDL by dialect, a call, and the row in its answer, which is then stored; or the code of its error.
CASES: dict[str, tuple[dict[str, str], tuple[str, dict[str, Any]], list[object] | str]] = {
    "update that is suppressed": (
        {
            "postgresql": _function("return null;", "before update"),
            "sqlite": _trigger("select raise(ignore)", "before update"),
        },
        UPDATE,
        "constraint",
    ),
    "insert that is suppressed": (
        {
            "postgresql": _function("return null;", "before insert"),
            "sqlite": _trigger("select raise(ignore)", "before insert"),
        },
        INSERT,
        "constraint",
    ),
    "delete that is suppressed": (
        {
            "postgresql": _function("return null;", "before delete"),
            "sqlite": _trigger("select raise(ignore)", "before delete"),
        },
        DELETE,
        "constraint",
    ),
    "change that is refused": (
        {
            "postgresql": _function("raise exception 'SECRET %', old.w;", "before update"),
            "sqlite": _trigger("select raise(abort, 'SECRET')", "before update"),
        },
        UPDATE,
        "constraint",
    ),
    "other column": (
        {
            "postgresql": _function("new.w = 'changed'; return new;", "before update"),
            "sqlite": _trigger("update things set w = 'changed' where id = new.id", "after update of v"),
        },
        UPDATE,
        [1, "new", "changed"],
    ),
    "value of an inserted row": (
        {
            "postgresql": _function("new.v = upper(new.v); return new;", "before insert"),
            "sqlite": _trigger("update things set v = upper(v) where id = new.id", "after insert"),
        },
        INSERT,
        [9, "NEW", "kept"],
    ),
    "same row updated afterwards": (
        {
            "postgresql": _function(
                f"if {AGAIN} then update things set v = 'after' where id = new.id; end if; return null;",
                "after update",
            ),
            "sqlite": _trigger("update things set v = 'after' where id = new.id", "after update of v"),
        },
        UPDATE,
        [1, "after", "kept"],
    ),
    "same row deleted afterwards": (
        {
            "postgresql": _function("delete from things where id = new.id; return null;", "after update"),
            "sqlite": _trigger("delete from things where id = new.id", "after update"),
        },
        UPDATE,
        "denied",
    ),
    "row moved out of the filter": (
        {
            "postgresql": _function("new.w = 'hidden'; return new;", "before update"),
            "sqlite": _trigger("update things set w = 'hidden' where id = new.id", "after update of v"),
        },
        UPDATE,
        "denied",
    ),
    "key that the trigger changes before": (
        {"postgresql": _function("new.id = new.id + 100; return new;", "before update")},
        UPDATE,
        [101, "new", "kept"],
    ),
    "key that the trigger changes afterwards": (
        {
            "postgresql": _function(
                f"if {AGAIN} then update things set id = 101 where id = new.id; end if; return null;",
                "after update",
            ),
            "sqlite": _trigger("update things set id = 101 where id = new.id", "after update of v"),
        },
        UPDATE,
        "denied",
    ),
    "row that is not deleted, but marked": (
        {
            "postgresql": _function(
                "update things set w = 'gone' where id = old.id; return null;", "before delete"
            ),
            "sqlite": _trigger(
                "update things set w = 'gone' where id = old.id; select raise(ignore)", "before delete"
            ),
        },
        DELETE,
        "constraint",
    ),
    "rule instead of a change": (
        {"postgresql": "create rule no as on update to things do instead nothing"},
        UPDATE,
        "refused",
    ),
    "rule beside a change": (
        {
            "postgresql": "create table log (id integer);"
            "create rule also as on update to things do also insert into log values (old.id)"
        },
        UPDATE,
        [1, "new", "kept"],
    ),
}
GRANT = GrantSection(insert=True, update=("v",), delete=True, where="w <> 'hidden'")


def _stored(shop: Shop) -> list[tuple[object, ...]]:
    return shop.bare.rows("select * from things order by id")


def _answer(caller: Caller, tool: str, arguments: dict[str, Any]) -> object:
    """Return the row in the answer, or the code of an error that says enough, and not too much."""
    try:
        answer = caller.call(tool, **arguments)
    except errors.CallError as exc:
        says = "Nothing was changed." in str(exc) and "SECRET" not in str(exc)
        return exc.code if says else str(exc)
    rows = answer["rows"]
    assert isinstance(rows, list)
    assert answer["affected"] == len(rows) == 1
    return rows[0]


@pytest.mark.parametrize(
    ("case", "dialect"),
    [
        pytest.param(name, dialect, id=f"{name}-{dialect}")
        for name, case in CASES.items()
        for dialect in case[0]
    ],
)
def test_answer_is_what_is_stored_or_nothing_is_changed(case: str, dialect: str, serve: Serve) -> None:
    ddl, (tool, arguments), expected = CASES[case]
    with serve(dialect, TABLE + ddl[dialect]) as shop, writing(shop, GRANT) as caller:
        found = _answer(caller, tool, arguments)
        stored = _stored(shop)

    assert found == expected
    if isinstance(expected, str):
        assert stored == STORED
    else:
        assert tuple(expected) in stored


COPY = "insert into copies values (new.v);"


@pytest.mark.parametrize(
    ("constraint", "v"),
    [("unique", "x"), ("not null", None), ("check (v > 'b')", "a"), ("references wards (name)", "y")],
)
def test_constraint_of_another_table_is_not_reported_as_one_of_the_table(
    constraint: str, v: str | None, serve: Serve, dialect: str
) -> None:
    wards = "create table wards (name text primary key); insert into wards values ('x');"
    copies = f"{wards} create table copies (v text {constraint}); insert into copies values ('x');"
    trigger = {"sqlite": _trigger, "postgresql": _function}[dialect]
    body = {"sqlite": COPY.rstrip(";"), "postgresql": f"{COPY} return new;"}[dialect]
    ddl = TABLE + copies + trigger(body, "after insert")
    with serve(dialect, ddl) as shop, writing(shop) as caller, pytest.raises(errors.CallError) as caught:
        caller.call("insert_things", rows=[{"id": 9, "v": v}])

    # SQLite does not report whose check or foreign key it is.
    vague = {"a": "A CHECK constraint does not", "y": "A foreign key refers to no existing row"}
    why = vague.get(str(v), "") if dialect == "sqlite" else ""
    assert caught.value.code == "constraint"
    assert str(caught.value).startswith(why or "A constraint of the database does not")


DEFERRED = {
    "sqlite": """
    create table things (
        id integer primary key, v integer references others (id) deferrable initially deferred
    );
    """,
    "postgresql": """
    create table things (
        id integer primary key, v integer references others (id) deferrable initially deferred
    );
    """,
}
CHECKING = """
create function act() returns trigger language plpgsql as $$ begin
    if new.v = 13 then raise exception 'SECRET'; end if;
    return null;
end $$;
create constraint trigger acting after insert or update on things deferrable initially deferred
    for each row execute function act();
insert into others values (13);
"""


def test_deferred_foreign_key_is_checked_before_the_answer(serve: Serve, dialect: str) -> None:
    ddl = "create table others (id integer primary key); insert into others values (1);" + DEFERRED[dialect]
    with serve(dialect, ddl) as shop, writing(shop) as caller:
        refused = _answer(caller, "insert_things", {"rows": [{"id": 1, "v": 1}, {"id": 2, "v": 77}]})
        stored = _stored(shop)
        found = _answer(caller, "insert_things", {"rows": [{"id": 1, "v": 1}]})

    assert (refused, stored) == ("constraint", [])
    assert found == [1, 1]


def test_deferred_constraints_are_checked_in_a_dry_run(serve: Serve) -> None:
    ddl = "create table others (id integer primary key);" + DEFERRED["postgresql"] + CHECKING
    with serve("postgresql", ddl) as shop, writing(shop) as caller:
        key = _answer(caller, "insert_things", {"rows": [{"id": 1, "v": 77}], "dry_run": True})
        trigger = _answer(caller, "insert_things", {"rows": [{"id": 1, "v": 13}], "dry_run": True})
        stored = _stored(shop)

    assert (key, trigger, stored) == ("constraint", "constraint", [])


def test_dry_run_says_which_constraints_sqlite_does_not_check(serve: Serve) -> None:
    others = "create table others (id integer primary key);"
    row = {"rows": [{"id": 1, "v": 77}], "dry_run": True}
    notes = []
    for things in (DEFERRED["sqlite"], "create table things (id integer primary key, v integer);"):
        with serve("sqlite", others + things) as shop, writing(shop) as caller:
            notes.append(caller.call("insert_things", **row)["note"])

    assert "Deferred foreign keys were not checked." in str(notes[0])
    assert notes[1] == "Dry run: nothing was changed."


#: Other kinds of tables, a call, the row in its answer, and what is then stored.
KINDS: dict[str, tuple[str, str, tuple[str, dict[str, Any]], object, list[tuple[object, ...]]]] = {
    "partitions": (
        "postgresql",
        """
        create table things (id integer, v text, primary key (id, v)) partition by list (v);
        create table old partition of things for values in ('one');
        create table fresh partition of things for values in ('new');
        insert into things values (1, 'one');
        """,
        ("update_things", {"id": 1, "v": "one", "set": {"v": "new"}}),
        [1, "new"],
        [(1, "new")],
    ),
    "partitions without a key": (
        "postgresql",
        """
        create table things (id integer, v text) partition by list (v);
        create table fresh partition of things for values in ('new');
        """,
        ("insert_things", {"rows": [{"id": 1, "v": "new"}]}),
        [1, "new"],
        [(1, "new")],
    ),
    "no key": (
        "postgresql",
        "create table things (id integer, v text); insert into things values (1, 'new');",
        ("insert_things", {"rows": [{"id": 1, "v": "new"}]}),
        [1, "new"],
        [(1, "new"), (1, "new")],
    ),
    "generated and identity columns": (
        "postgresql",
        """
        create table things (
            id integer generated always as identity primary key, v text,
            w text generated always as (upper(v)) stored
        );
        """,
        ("insert_things", {"rows": [{"v": "new"}]}),
        [1, "new", "NEW"],
        [(1, "new", "NEW")],
    ),
    "no key, in a file": (
        "sqlite",
        "create table things (id integer, v text); insert into things values (1, 'new');",
        ("insert_things", {"rows": [{"id": 1, "v": "new"}]}),
        [1, "new"],
        [(1, "new"), (1, "new")],
    ),
    "autoincrement": (
        "sqlite",
        "create table things (id integer primary key autoincrement, v text);",
        ("insert_things", {"rows": [{"v": "new"}]}),
        [1, "new"],
        [(1, "new")],
    ),
    "without rowid": (
        "sqlite",
        """
        create table things (id text, v text, primary key (id)) without rowid;
        insert into things values ('a', 'one');
        """,
        ("update_things", {"id": "a", "set": {"v": "new"}}),
        ["a", "new"],
        [("a", "new")],
    ),
    "generated column": (
        "sqlite",
        """
        create table things (id integer primary key, v text, w text generated always as (upper(v)) stored);
        insert into things (id, v) values (1, 'one');
        """,
        ("update_things", {"id": 1, "set": {"v": "new"}}),
        [1, "new", "NEW"],
        [(1, "new", "NEW")],
    ),
    "full-text index": (
        "sqlite",
        """
        create table things (id integer primary key, v text);
        create virtual table words using fts5 (v, content = 'things', content_rowid = 'id');
        create trigger added after insert on things begin
            insert into words (rowid, v) values (new.id, new.v);
        end;
        create trigger changed after update on things begin
            insert into words (words, rowid, v) values ('delete', old.id, old.v);
            insert into words (rowid, v) values (new.id, new.v);
        end;
        insert into things values (1, 'one');
        """,
        ("update_things", {"id": 1, "set": {"v": "fresh"}}),
        [1, "fresh"],
        [(1, "fresh")],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_row_of_any_kind_of_table_is_returned_as_stored(kind: str, serve: Serve) -> None:
    dialect, ddl, (tool, arguments), row, expected = KINDS[kind]
    grant = GrantSection.model_validate({tool.partition("_")[0]: True})
    with serve(dialect, ddl) as shop, writing(shop, grant) as caller:
        found = _answer(caller, tool, arguments)
        stored = _stored(shop)
        words = shop.bare.rows("select rowid from words where words match 'fresh'") if "words" in ddl else []

    assert (found, stored) == (row, expected)
    assert words == ([(1,)] if "words" in ddl else [])


def test_preview_counts_a_row_that_moves_to_another_partition_once(serve: Serve) -> None:
    _, ddl, (tool, arguments), _, _ = KINDS["partitions"]
    with serve("postgresql", ddl) as shop, writing(shop) as caller:
        note = caller.call(tool, **arguments, dry_run=True)["note"]

    assert note == "Dry run: nothing was changed."
