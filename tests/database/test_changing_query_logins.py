"""Permitted queries that change rows need privileges of the login that writes, and only of that one."""

import json
from collections.abc import Iterator

import pytest

from tests.database.granted_login import Shop, shop as shop
from tests.protocol.command_line import run

DDL = """
create table tickets (id serial primary key, title text not null, status text not null default 'new');
create table drafts (ticket_id integer not null references tickets (id) on delete cascade, body text);
insert into tickets (title) values ('a'), ('b');
insert into drafts values (1, 'x');
"""
QUERIES = """
-- name: close_ticket
-- description: d.
-- writes: 1
-- param id: integer  Which.
update tickets set status = 'closed' where id = :id returning id
;
-- name: open_ticket
-- description: d.
-- writes: 1
-- param title: text  What.
insert into tickets (title) values (:title) returning id, status
;
-- name: remove_ticket
-- description: d.
-- writes: 1
-- param id: integer  Which.
delete from tickets where id = :id
;
-- name: titles
-- description: d.
select title from tickets order by title
"""
ROLES = """
[queries]
directory = "queries"
[roles.desk]
queries = ["*"]
"""


@pytest.fixture
def desk(shop: Shop) -> Iterator[Shop]:
    """Yield a shop with queries, whose second login is dropped in the end."""
    shop.execute(DDL)
    folder = shop.path.parent / "queries"
    folder.mkdir()
    (folder / "desk.sql").write_text(QUERIES)
    yield shop
    writer = f"{shop.login}_writer"
    shop.execute(
        f"do $$ begin if exists (select from pg_roles where rolname = '{writer}') then "
        f"drop owned by {writer}; drop role {writer}; end if; end $$"
    )


def script(desk: Shop, write_url: str = "") -> str:
    """Return the script for the role."""
    path = configured(desk, desk.url, write_url)
    result = run("grants", path, "--role", "desk", "--login", desk.login)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def configured(desk: Shop, url: str, write_url: str = "") -> str:
    """Write a configuration and return where."""
    second = f'write_url = "{write_url}"\n' if write_url else ""
    desk.path.write_text(f'[database]\nurl = "{url}"\n{second}{ROLES}')
    return str(desk.path)


def writer_url(desk: Shop) -> str:
    """Return the URL of the login that changes rows."""
    return desk.own_url.replace(desk.login, f"{desk.login}_writer")


def affected(path: str, tool: str, arguments: dict[str, object]) -> object:
    """Return how many rows a call has changed, or the error."""
    result = run("call", path, tool, json.dumps(arguments), "--role", "desk", "--json")
    return json.loads(result.stdout)["affected"] if result.exit_code == 0 else result.stderr


def grants_to(text: str, login: str) -> set[str]:
    """Return the grants on tables and sequences in the script *text* to *login*."""
    end = f' to "{login}";'
    lines = (line.strip() for line in text.splitlines())
    return {
        line.removesuffix(end)
        for line in lines
        if line.endswith(end) and (" on table " in line or " on sequence " in line)
    }


def test_login_that_reads_gets_no_privilege_to_write(desk: Shop) -> None:
    text = script(desk, writer_url(desk))
    reading, writing = (grants_to(text, name) for name in (desk.login, f"{desk.login}_writer"))

    assert reading == {'grant select ("title") on table "public"."tickets"'}
    assert writing == {
        'grant select ("id", "status") on table "public"."tickets"',
        'grant insert ("title") on table "public"."tickets"',
        'grant update ("status") on table "public"."tickets"',
        'grant delete on table "public"."tickets"',
        'grant usage on sequence "public"."tickets_id_seq"',
    }


def test_query_that_gives_a_numbered_column_takes_the_sequence_from_no_other(desk: Shop) -> None:
    given = "-- writes: 1\n-- param id: integer  i.\ninsert into tickets (id, title) values (:id, 'imported')"
    (desk.path.parent / "queries" / "more.sql").write_text(
        f"-- name: import_ticket\n-- description: d.\n{given}"
    )
    writing = grants_to(script(desk, writer_url(desk)), f"{desk.login}_writer")

    assert 'grant insert ("id", "title") on table "public"."tickets"' in writing
    assert 'grant usage on sequence "public"."tickets_id_seq"' in writing


def test_role_that_sets_a_numbered_column_takes_the_sequence_from_no_other(desk: Shop) -> None:
    rules = 'tables.tickets = { exclude = ["id"], insert = ["title"], preset = { id = 7 } }'
    desk.path.write_text(
        f'[database]\nurl = "{desk.url}"\n'
        '[roles.some]\ntables.tickets = { insert = ["title"] }\n'
        f"[roles.one]\n{rules}\n"
    )
    words = ("grants", str(desk.path), "--role", "some", "--role", "one", "--login", desk.login)
    granted = grants_to(run(*words).stdout, desk.login)

    assert 'grant insert ("id", "title") on table "public"."tickets"' in granted
    assert 'grant usage on sequence "public"."tickets_id_seq"' in granted


@pytest.mark.parametrize("logins", [1, 2])
def test_granted_logins_run_the_queries(logins: int, desk: Shop) -> None:
    second = writer_url(desk) if logins == 2 else ""
    desk.execute(script(desk, second))
    path = configured(desk, desk.own_url, second)
    found = json.loads(run("check", path, "--json").stdout)["findings"]
    calls: dict[str, dict[str, object]] = {
        "open_ticket": {"title": "c"},
        "close_ticket": {"id": 1},
        "remove_ticket": {"id": 1},
    }
    done = [affected(path, tool, arguments) for tool, arguments in calls.items()]

    assert [each for each in found if each["code"] not in ("posture", "no_sql")] == []
    assert done == [1, 1, 1]


def test_query_without_its_privilege_is_withdrawn(desk: Shop) -> None:
    desk.execute(script(desk, writer_url(desk)))
    desk.execute(
        f"revoke update (status) on tickets from {desk.login}_writer; "
        f"revoke usage on sequence tickets_id_seq from {desk.login}_writer"
    )
    path = configured(desk, desk.own_url, writer_url(desk))
    found = json.loads(run("check", path, "--json").stdout)["findings"]
    listed = json.loads(run("tools", path, "--role", "desk", "--json").stdout)

    assert [each["message"] for each in found if each["code"] == "withdrawn"] == [
        "query close_ticket is withdrawn: permission denied for table tickets. "
        "`dbtools grants` prints a script that grants it.",
        "query open_ticket is withdrawn: The login lacks usage of the sequence public.tickets_id_seq. "
        "`dbtools grants` prints a script that grants it.",
    ]
    assert {each["name"] for each in listed} == {"remove_ticket", "titles"}


def test_login_that_only_reads_writes_nothing(desk: Shop) -> None:
    desk.execute(script(desk, writer_url(desk)))
    path = configured(desk, desk.own_url)
    found = json.loads(run("check", path, "--json").stdout)["findings"]
    withdrawn = [each["message"] for each in found if each["code"] == "withdrawn"]

    assert [message.split()[1] for message in withdrawn] == ["close_ticket", "open_ticket", "remove_ticket"]
    assert all("permission denied" in message for message in withdrawn)


def test_login_without_temporary_tables_still_says_which_tables_change(desk: Shop) -> None:
    desk.execute(script(desk, writer_url(desk)))
    database = desk.own_url.rpartition("/")[2].partition("?")[0]
    desk.execute(f'revoke temporary on database "{database}" from public')
    path = configured(desk, desk.own_url, writer_url(desk))
    told = json.loads(run("check", path, "--json").stdout)["queries"]

    assert {name: facts["changes"] for name, facts in told.items()} == {
        "close_ticket": ["updates tickets (status)"],
        "open_ticket": ["inserts into tickets"],
        "remove_ticket": ["deletes from tickets", "deletes from drafts"],
        "titles": [],
    }
