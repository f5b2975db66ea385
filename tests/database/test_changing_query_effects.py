"""dbtools finds what a permitted query changes in other tables before it runs, and counts it in a preview."""

import asyncio
from collections.abc import Mapping
from typing import Any

from dbtools.alembic import upgrade
from dbtools.errors import series
from dbtools.policy.roles import Caller
from tests.database.helpdesk import DDL, DESK, ROLES, OpenDesk, answered, problems, stored
from tests.database.query_tables import known_of

HEADER = "-- name: change\n-- description: d.\n-- writes: 5\n"
POSTGRESQL = """
create function add_note(text) returns text language plpgsql set search_path = public as $$
begin insert into notes values ($1); return $1; end $$;
create function clear_notes() returns integer language plpgsql security definer
    set search_path = public as $$
begin delete from public.notes; perform set_config('lock_timeout', '1', false); return 1; end $$;
create function make_table() returns integer language plpgsql set search_path = public as $$
begin create table made (id integer); return 1; end $$;
create view open_tickets as select id, title, status from tickets where status = 'open';
create table events (day integer not null, word text) partition by list (day);
create table events_1 partition of events for values in (1);
create table events_2 partition of events for values in (2);
insert into events values (1, 'a'), (2, 'b');
create domain short as text check (length(value) < 9);
create table labels (id integer primary key, label short not null);
create table owners (id integer primary key);
create table owned (id integer, owner integer references owners (id) on update cascade on delete set null);
create table ruled (id integer);
create rule shadow as on delete to ruled do also insert into notes values ('gone');
insert into notes values ('first');
"""
#: SQL, and what `check` says that it changes.
EFFECTS: Mapping[str, tuple[str, str]] = {
    "function": (
        "update drafts set body = add_note(body) where id = 1",
        "updates drafts (body); and calls the function public.add_note, which may change more",
    ),
    "several changes": (
        "with gone as (delete from drafts where id = 1 returning ticket_id)\n"
        "insert into notes select 'of ' || ticket_id from gone returning body",
        "deletes from drafts; and inserts into notes",
    ),
    "view": (
        "update open_tickets set title = 'x' where id = 1",
        "updates open_tickets (title); updates tickets; "
        "and calls the function public.keep, which may change more",
    ),
    "partitions": ("update events set day = 2 where word = 'a' returning *", "updates events (day)"),
    "domain": ("insert into labels values (1, 'x') returning label", "inserts into labels"),
    "key": ("update owners set id = 2", "updates owners (id); and updates owned (owner)"),
    "set null": ("delete from owners", "deletes from owners; and updates owned (owner)"),
}


def test_server_reports_what_queries_change(desks: OpenDesk) -> None:
    names = {name.replace(" ", "_"): sql for name, (sql, _) in EFFECTS.items()}
    queries = "\n".join(HEADER.replace("change", name) + sql for name, sql in names.items())
    with desks("postgresql", queries, ROLES, ddl=DDL + POSTGRESQL) as shop:
        known = known_of(shop)

    told = [series(known[name]["changes"]) for name in names]
    assert told == [effects for _, effects in EFFECTS.values()]


def test_other_changes_in_a_with_count_as_elsewhere(desks: OpenDesk) -> None:
    with desks("postgresql", HEADER + EFFECTS["several changes"][0], ROLES, ddl=DDL + POSTGRESQL) as shop:
        preview = answered(shop, "change", {"dry_run": True}, **DESK)
        made = answered(shop, "change", {}, **DESK)

    assert (preview["affected"], preview["rows"]) == (1, [["of 1"]])
    assert "rows elsewhere" in preview["note"]
    assert (made["affected"], made["rows"]) == (1, [["of 1"]])


def test_moved_row_of_a_partition_counts_once(desks: OpenDesk) -> None:
    with desks("postgresql", HEADER + EFFECTS["partitions"][0], ROLES, ddl=DDL + POSTGRESQL) as shop:
        preview = answered(shop, "change", {"dry_run": True}, **DESK)

    assert preview == {
        "affected": 1,
        "dry_run": True,
        "columns": ["day", "word"],
        "rows": [[2, "a"]],
        "note": "Dry run: nothing was changed.",
    }


def test_function_that_changes_the_session_affects_no_later_call(desks: OpenDesk) -> None:
    sql = "update drafts set body = 'x' where id = 1 and clear_notes() = 1"
    with desks("postgresql", HEADER + sql, ROLES, ddl=DDL + POSTGRESQL) as shop:
        made = [answered(shop, "change", {}, **DESK)["affected"] for _ in range(3)]
        left = stored(shop, "select body from notes")

    assert made == [1, 1, 1]
    assert left == []


def test_function_is_not_called_by_the_check(desks: OpenDesk) -> None:
    sql = "update drafts set body = 'x' where id = clear_notes()"
    ddl = DDL + POSTGRESQL + "alter function clear_notes() immutable;"
    with desks("postgresql", HEADER + sql, ROLES, ddl=ddl) as shop:
        told, left = problems(shop), stored(shop, "select body from notes")

    assert "DELETE is not allowed in a non-volatile function" in told[0]
    assert left == [("first",)]


def test_rule_that_adds_statements_withdraws_the_query(desks: OpenDesk) -> None:
    with desks("postgresql", HEADER + "delete from ruled", ROLES, ddl=DDL + POSTGRESQL) as shop:
        told, tools = problems(shop), shop.view("desk").tools

    assert "change" not in tools
    assert "rules are not supported" in told[0]


def test_view_of_a_file_cannot_be_changed(desks: OpenDesk) -> None:
    ddl = f"""{DDL}
        create view shown as select id, title from tickets;
        create trigger retitle instead of update on shown begin
            update tickets set title = new.title where id = new.id;
        end;
    """
    with desks("sqlite", f"{HEADER}update shown set title = 'x' where id = 1", ROLES, ddl=ddl) as shop:
        told = problems(shop)

    assert told == [
        "query change is withdrawn: SQLite does not count the rows that a change to a view affects."
    ]


def test_triggers_and_foreign_keys_of_a_file_are_reported(desks: OpenDesk) -> None:
    ddl = f"""{DDL}
        create trigger noted after delete on drafts begin insert into notes values (old.body); end;
    """
    sql = f"{HEADER}delete from tickets where id = 1"
    with desks("sqlite", sql, ROLES, ddl=ddl) as shop:
        told = known_of(shop)["change"]["changes"]
        preview = answered(shop, "change", {"dry_run": True}, **DESK)

    assert told == ["deletes from tickets", "deletes from drafts", "inserts into notes"]
    assert preview["affected"] == 1
    assert "rows elsewhere" in preview["note"]


def test_tables_that_the_role_sees_whole_are_named_in_the_preview(desks: OpenDesk, dialect: str) -> None:
    roles = f"{ROLES}[roles.desk.tables]\ndrafts = true\n"
    sql = f"{HEADER}delete from tickets where id = 1"
    with desks(dialect, sql, roles, triggers=False) as shop:
        preview = answered(shop, "change", {"dry_run": True}, **DESK)

    assert "Triggers and foreign keys would change 2 rows of drafts." in preview["note"]


def test_change_made_concurrently_with_one_key_happens_once(desks: OpenDesk, dialect: str) -> None:
    sql = f"{HEADER}insert into notes values ('once') returning body"
    caller = Caller(role="desk", identity="ann")

    async def all_at_once() -> list[Any]:
        asked = {"idempotency_key": "k"}
        calls = (shop.toolbox.call(caller, "change", asked) for _ in range(8))
        return [each.structured for each in await asyncio.gather(*calls)]

    with desks(dialect, sql, ROLES) as shop:
        upgrade(shop.bare_url)
        shop.refresh()
        told = shop.portal.call(all_at_once)
        kept = stored(shop, "select body from notes")

    assert kept == [("once",)]
    assert [each["affected"] for each in told] == [1] * 8
    assert sorted(each["rows"] for each in told) == [[]] * 7 + [[["once"]]]


def test_role_that_only_reads_opens_no_connection_that_writes(desks: OpenDesk, dialect: str) -> None:
    with desks(dialect) as shop:
        rows = shop.rows("notes_kept", {}, role="reader")
        refusal = shop.refusal("run_query", {"query": "add_note", "arguments": {"body": "x"}}, role="reader")
        writer = shop.database.writer.loaded

    assert (rows, writer) == ([], None)
    assert refusal.startswith("bad_argument: query: there is no query 'add_note'.")
