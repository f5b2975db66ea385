"""`check` says what permitted queries change, and withdraws those that are not one change."""

from collections.abc import Mapping, Sequence

import pytest

from tests.database.helpdesk import CLOSE, DESK, NOTE, REMOVE, OpenDesk, answered, opening, problems, stored
from tests.database.query_shop import ServeQueries
from tests.database.query_tables import findings_of

UNACCEPTED = '[roles.desk]\nqueries = ["*"]\n'
INTENDED = "If that is intended, write { name = "
NOT_CHANGING = "A query with -- writes is a single INSERT, UPDATE or DELETE, with or without a WITH."


@pytest.fixture
def opened(serve_queries: ServeQueries) -> OpenDesk:
    """Give what serves a help desk."""
    return opening(serve_queries)


def changes_of(
    opened: OpenDesk, dialect: str, sql: str, roles: str = UNACCEPTED, **given: object
) -> list[str]:
    """Return what `dbtools check` says about changes."""
    with opened(dialect, sql, roles, **given) as shop:
        found = findings_of(shop)
    return [str(each["message"]) for each in found if each["code"] == "changes_rows"]


def test_check_warns_of_what_a_query_changes(opened: OpenDesk, dialect: str) -> None:
    told = changes_of(opened, dialect, CLOSE + NOTE + REMOVE)

    beyond = {
        "sqlite": "updates tickets (closed_by, status); and inserts into history",
        "postgresql": "updates tickets (closed_by, status); and calls the function public.keep, "
        "which may change more",
    }
    assert told == [
        f'role desk, queries: add_note inserts into notes. {INTENDED}"add_note", accept_writes = true }}.',
        f"role desk, queries: close_ticket {beyond[dialect]}. "
        f'{INTENDED}"close_ticket", accept_writes = true }}.',
        "role desk, queries: remove_ticket deletes from tickets; and deletes from drafts. "
        f'{INTENDED}"remove_ticket", accept_writes = true }}.',
    ]


@pytest.mark.parametrize(
    "grant", ['"*", { name = "add_*", accept_writes = true }', '{ name = "*", accept_writes = true }']
)
def test_accepted_changes_are_not_reported(grant: str, opened: OpenDesk, dialect: str) -> None:
    told = changes_of(opened, dialect, NOTE, f"[roles.desk]\nqueries = [{grant}]\n")

    assert told == []


def test_reading_of_hidden_columns_is_reported_as_for_other_queries(opened: OpenDesk, dialect: str) -> None:
    sql = "-- name: peek\n-- description: d.\n-- writes: 1\nupdate tickets set title = 'x' returning secret"
    roles = (
        '[roles.desk]\ntables.tickets = { exclude = ["secret"] }\n'
        'queries = [{ name = "peek", accept_writes = true }]\n'
    )
    with opened(dialect, sql, roles) as shop:
        found = [str(each["message"]) for each in findings_of(shop)]

    assert len(found) == 1
    assert "peek reads" in found[0]
    assert "secret of tickets, which the role does not see" in found[0]


HEADER = "-- name: smuggle\n-- description: d.\n-- writes: 1\n"
REFUSED: Mapping[str, Sequence[str]] = {
    "both": [
        "select 1 as one",
        "with x as (select 1 as a) select a from x",
        "create table t (id integer)",
        "drop table tickets",
        "/* insert */ select 1 as one",
        "insert into missing values (1)",
        "begin",
        "vacuum",
        "explain delete from tickets",
        "update tickets set missing = 1",
    ],
    "sqlite": [
        "pragma user_version = 3",
        "attach 'x.db' as x",
        "replace into notes values ('x')",
        "insert or replace into notes values ('x')",
        "update or replace notes set body = 'x'",
        "insert into labels values ('x')",
        "delete from sqlite_master",
        "update sqlite_schema set sql = ''",
        "insert into notes select load_extension('x')",
    ],
    "postgresql": [
        "copy notes from program 'id'",
        "copy tickets to '/tmp/x'",
        "with x as (delete from notes returning body) select body from x",
        "select id from tickets for update",
        "merge into notes using tickets on true when matched then delete",
        "do $$ begin end $$",
        "truncate notes",
        "notify x",
        "call f()",
        "lock table tickets",
        "set role postgres",
        "execute __asyncpg_stmt_1__",
        "insert into notes select set_config('role', 'none', false)",
        "insert into notes select pg_notify('x', 'y')::text",
        "insert into notes select lo_create(1)::text",
        "insert into notes select query_to_xml('select 1', true, true, '')::text",
        "insert into notes select pg_read_file('/etc/passwd')",
    ],
}


def test_anything_but_one_change_is_withdrawn(opened: OpenDesk, dialect: str) -> None:
    unexpected = []
    for sql in [*REFUSED["both"], *REFUSED[dialect]]:
        with opened(dialect, HEADER + sql) as shop:
            before = stored(shop, "select count(*) from tickets")
            told, tools = problems(shop), shop.view("desk").tools
            if "smuggle" in tools or len(told) != 1 or stored(shop, "select count(*) from tickets") != before:
                unexpected.append((sql, told))

    assert unexpected == []


@pytest.mark.parametrize(
    "sql",
    [
        "delete from notes; delete from tickets",
        "delete from notes;\n-- \ndelete from tickets",
        "delete from notes /* ; */; drop table tickets",
    ],
)
def test_several_statements_are_a_mistake_in_the_file(sql: str, opened: OpenDesk, dialect: str) -> None:
    with opened(dialect, HEADER + sql) as shop:
        told = findings_of(shop)

    assert [each["code"] for each in told if "smuggle" in str(each["message"])] == ["bad_query"]


def test_query_that_writes_without_saying_so_is_withdrawn(opened: OpenDesk, dialect: str) -> None:
    with opened(dialect, NOTE.replace("-- writes: 1\n", "")) as shop:
        told = problems(shop)

    assert len(told) == 1
    assert told[0].endswith("To change rows, declare how many at most: -- writes: N.")


def test_check_does_not_run_a_query(opened: OpenDesk, dialect: str) -> None:
    with opened(dialect, "-- name: clear\n-- description: d.\n-- writes: 9\ndelete from tickets") as shop:
        tools = shop.view("desk").tools
        found = stored(shop, "select count(*) from tickets")
        shop.refresh()
        left = stored(shop, "select count(*) from drafts")

    assert "clear" in tools
    assert (found, left) == ([(3,)], [(3,)])


def test_variants_must_return_the_same_columns(opened: OpenDesk, dialect: str) -> None:
    sql = (
        f"{HEADER}-- param by: text?  Who.\nupdate tickets set title = 'x' where id = 1\n"
        "returning id /*? , :by as name ?*/"
    )
    with opened(dialect, sql) as shop:
        told = problems(shop)

    assert told == ["query smuggle is withdrawn: Its columns must not depend on its optional clauses."]


def test_change_after_a_with_returns_its_rows(opened: OpenDesk, dialect: str) -> None:
    sql = """
-- name: close_oldest
-- description: d.
-- writes: 1
-- param region: text  Of which region.
with oldest as (select min(id) as id from tickets where region = :region)
update tickets set status = 'closed' where id = (select id from oldest)
returning tickets.id, upper(title) as title, (select count(*) from drafts) as drafts
"""
    with opened(dialect, sql) as shop:
        answer = answered(shop, "close_oldest", {"region": "south"}, **DESK)

    assert answer["columns"] == ["id", "title", "drafts"]
    assert answer["rows"] == [[3, "SCREEN", 3]]


def test_upsert_is_a_change(opened: OpenDesk, dialect: str) -> None:
    sql = """
-- name: keep_draft
-- description: d.
-- writes: 1
-- param id: integer  Which.
-- param body: text  What.
insert into drafts (id, ticket_id, body) values (:id, 2, :body)
on conflict (id) do update set body = excluded.body
returning *
"""
    with opened(dialect, sql) as shop:
        first = shop.rows("keep_draft", {"id": 9, "body": "a"}, **DESK)
        second = shop.rows("keep_draft", {"id": 9, "body": "b"}, **DESK)
    told = changes_of(opened, dialect, sql)

    assert (first, second) == ([[9, 2, "a"]], [[9, 2, "b"]])
    assert len(told) == 1
    assert "keep_draft inserts into drafts; and updates drafts (body)." in told[0]
