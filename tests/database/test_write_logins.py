"""A login that `dbtools grants` creates makes the changes of its roles; `check` reports what it lacks."""

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import asyncpg
import pytest
from click.testing import Result

from tests.database.granted_login import Shop, shop as shop
from tests.database.postgresql_catalog import connected
from tests.protocol.command_line import run

DDL = """
create sequence app.codes;
create table tickets (
    id serial primary key, region text not null, title text not null, status text not null default 'new',
    code integer default nextval('app.codes'), number integer generated always as identity,
    author text, margin integer
);
insert into tickets (region, title, margin) values ('north', 'a', 1), ('south', 'b', 2);
create table events (at text not null, word text);
insert into events values ('x', 'y');
"""
ROLES = """
[roles.support]
tables.regions = true
tables.events = { insert = ["at"] }
[roles.support.tables.tickets]
exclude = ["author", "margin"]
where = "region = :claims.region"
insert = ["id", "title"]
update = ["status"]
delete = true
check = "exists (select 1 from permits as p where p.who = :claims.who)"
preset = { region = ":claims.region", author = ":claims.who" }
"""
CALLER = ("--role", "support", "--claim", "region=north", "--claim", "who=eve")
FORBIDDEN = [
    "select margin from tickets",
    "update tickets set title = 'x'",
    "update tickets set region = 'x'",
    "update tickets set margin = 1",
    "insert into tickets (region, title, margin) values ('north', 'x', 1)",
    "insert into tickets (region, title, status) values ('north', 'x', 'x')",
    "truncate tickets",
    "insert into events (at, word) values ('x', 'y')",
    "update events set at = 'x'",
    "delete from events",
    "delete from regions",
    "update regions set name = 'x'",
    "select setval('tickets_id_seq', 1)",
    "create table public.mine (id integer)",
]


@pytest.fixture
def desk(shop: Shop) -> Shop:
    """Return a shop with tickets."""
    shop.execute(DDL)
    return shop


def writer_url(desk: Shop) -> str:
    """Return the URL of the login that changes rows."""
    return desk.own_url.replace(desk.login, f"{desk.login}_writer")


def script(desk: Shop, write_url: str = "", roles: str = ROLES) -> str:
    """Return the script for the role, with a second login if *write_url* is given."""
    result = run("grants", configured(desk, desk.url, write_url, roles), "--role", "support", *login(desk))
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def login(desk: Shop) -> tuple[str, str]:
    return ("--login", desk.login)


def configured(desk: Shop, url: str, write_url: str = "", roles: str = ROLES) -> str:
    """Write a configuration and return its path."""
    second = f'write_url = "{write_url}"\n' if write_url else ""
    desk.path.write_text(f'[database]\nurl = "{url}"\n{second}{roles}')
    return str(desk.path)


def call(path: str, tool: str, arguments: dict[str, object]) -> Result:
    """Return what `dbtools call` prints."""
    return run("call", path, tool, json.dumps(arguments), *CALLER, "--json")


def drop(desk: Shop) -> None:
    """Drop the login that changes rows."""
    desk.execute(f"drop owned by {desk.login}_writer; drop role {desk.login}_writer")


async def allowed_statements(url: str) -> list[str]:
    """Return the forbidden statements for which the login has the privileges."""
    allowed = []
    async with connected(url) as connection:
        for statement in FORBIDDEN:
            try:
                await connection.execute(f"begin read write; {statement}; rollback")
                allowed.append(statement)
            except asyncpg.InsufficientPrivilegeError:
                await connection.execute("rollback")
    return allowed


def everything_is_done(desk: Shop, path: str) -> None:
    """Assert that the role makes each of its changes."""
    inserted = call(path, "insert_tickets", {"rows": [{"title": "c"}]})
    updated = call(path, "update_tickets", {"id": 1, "set": {"status": "done"}})
    noted = call(path, "insert_events", {"rows": [{"at": "now"}]})
    deleted = call(path, "delete_tickets", {"id": 1})

    done = [json.loads(each.stdout)["affected"] for each in (inserted, updated, noted, deleted)]
    assert done == [1, 1, 1, 1]
    assert json.loads(inserted.stdout)["rows"] == [[3, "north", "c", "new", 3, 3]]


def problems(path: str) -> list[str]:
    """Return the findings of `dbtools check` without their places."""
    found = json.loads(run("check", path, "--json").stdout)["findings"]
    return [f"{each['level']} {each['code']}: {each['message']}" for each in found]


def test_one_login_makes_the_changes_of_its_role_and_no_others(desk: Shop) -> None:
    text = script(desk)
    desk.execute(text)
    desk.execute(text)
    path = configured(desk, desk.own_url)

    everything_is_done(desk, path)
    assert desk.server.portal.call(allowed_statements, desk.own_url) == []
    assert problems(path) == [
        "warning posture: The login may write to app.codes, public.events, public.tickets, "
        "public.tickets_id_seq. Callers may change rows: `dbtools grants` prints a second login for that, "
        "for [database] write_url."
    ]


UPSERTED = """
[roles.support.tables.tickets]
exclude = ["margin", "author", "code", "number"]
insert = ["id", "title", "status"]
preset = { region = "north" }
"""


@pytest.mark.parametrize(("grant", "how"), [("", "ignore"), ('update = ["status", "title"]', "update")])
def test_login_of_the_script_can_upsert(grant: str, how: str, desk: Shop) -> None:
    roles = UPSERTED + grant
    desk.execute(script(desk, roles=roles))
    path = configured(desk, desk.own_url, roles=roles)
    rows = [{"id": 2, "title": "B"}, {"id": 7, "title": "C"}]
    results = [call(path, "insert_tickets", {"rows": rows, "on_conflict": how}) for _ in range(2)]

    affected = [json.loads(each.stdout)["affected"] for each in results]
    assert affected == ([1, 0] if how == "ignore" else [2, 2])
    listed = call(path, "list_tickets", {"columns": ["id", "title"], "order_by": ["id"]})
    expected = [[1, "a"], [2, "b" if how == "ignore" else "B"], [7, "C"]]
    assert json.loads(listed.stdout)["rows"] == expected


def test_second_login_makes_the_changes_and_the_first_one_only_reads(desk: Shop) -> None:
    text = script(desk, writer_url(desk))
    desk.execute(text)
    desk.execute(text)
    try:
        path = configured(desk, desk.own_url, writer_url(desk), f"[server]\nstrict = true\n{ROLES}")
        everything_is_done(desk, path)
        found = problems(path)
        allowed = desk.server.portal.call(allowed_statements, writer_url(desk))
        desk.execute(f"set role {desk.login}_writer; select id, region from tickets; select who from permits")
        for hidden in ("id from regions", "author from tickets", "reason from permits"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                desk.execute(f"set role {desk.login}_writer; select {hidden}")
    finally:
        drop(desk)

    assert found == []
    assert allowed == []
    assert f"Two logins, '{desk.login}' for url and '{desk.login}_writer' for write_url" in text
    assert text.count("\\password") == 2


def test_script_of_a_role_that_only_reads_makes_one_login(desk: Shop) -> None:
    roles = "[roles.support]\ntables.tickets = true\n"
    text = script(desk, writer_url(desk), roles)

    assert text == script(desk, "", roles)
    assert "insert" not in text
    assert "Triggers" not in text


def test_set_role_has_the_grants_of_both_logins(desk: Shop) -> None:
    runs_as = f"{desk.login}_clerk"
    roles = ROLES.replace("[roles.support]\n", f'[roles.support]\nset_role = "{runs_as}"\n')
    try:
        desk.execute(script(desk, writer_url(desk), roles))
        path = configured(desk, desk.own_url, writer_url(desk), roles)
        everything_is_done(desk, path)
    finally:
        drop(desk)
        desk.execute(f"drop owned by {runs_as}; drop role {runs_as}")


#: A privilege that is revoked, what is then reported, and the table that cannot be changed.
REVOKED = (
    ("insert (title) on tickets", "lacks insert (title).", "tickets"),
    ("update (status) on tickets", "lacks update (status).", "tickets"),
    ("delete on tickets", "lacks delete.", "tickets"),
    ("select (xmin) on tickets", "lacks select (xmin).", "tickets"),
    ("select (id, code) on tickets", "lacks select (code, id).", "tickets"),
    ("usage on sequence app.codes", "lacks usage of sequences (app.codes).", "tickets"),
    ("select (who) on permits", "permission denied for table permits.", "tickets"),
    ("insert (at) on events", "lacks insert (at).", "events"),
    ("select (ctid) on events", "lacks select (ctid).", "events"),
)


def test_missing_privilege_withholds_changes_but_not_reads(desk: Shop) -> None:
    text, path = script(desk, writer_url(desk)), configured(desk, desk.own_url, writer_url(desk))
    try:
        for revoked, lacks, lost in REVOKED:
            desk.execute(f"{text}; revoke {revoked} from {desk.login}_writer")
            (problem,) = problems(path)
            names = {each["name"] for each in json.loads(run("tools", path, *CALLER, "--json").stdout)}

            assert problem.startswith(
                f"error lacks_privilege: role support, tables.{lost}: {lost} cannot be changed: "
            )
            assert f"as {desk.login}_writer" in problem
            assert lacks in problem
            assert "`dbtools grants` prints a script" in problem
            assert f"insert_{lost}" not in names
            assert names & {"insert_tickets", "insert_events"}
            assert call(path, f"list_{lost}", {}).exit_code == 0
    finally:
        drop(desk)


def test_login_that_only_reads_is_reported_once_for_a_writable_database(
    desk: Shop, postgresql_login: Callable[[str, str], AbstractContextManager[str]]
) -> None:
    with postgresql_login(desk.url, "grant select on regions, tickets to {}") as url:
        path = configured(desk, url, roles="writable = true\n")
        (found,) = (each for each in problems(path) if "lacks" in each)

    assert found.startswith(
        "error lacks_privilege: [database] writable: regions, tickets cannot be changed: "
    )
    assert "regions: 127.0.0.1" in found
    assert "lacks delete, insert (budget, id, name), update (budget, id, name)." in found


def test_login_that_cannot_connect_is_reported_and_tried_again_by_each_change(desk: Shop) -> None:
    path = configured(desk, desk.url, "postgresql://nobody@127.0.0.1:1/shop")
    found = problems(path)
    read = call(path, "list_tickets", {})
    changed = call(path, "delete_tickets", {"id": 1})

    assert any("the login that changes rows cannot be checked: 127.0.0.1:1" in each for each in found)
    assert run("check", path).exit_code == 1
    assert read.exit_code == 0
    assert "127.0.0.1:1" in changed.stderr


def test_login_that_cannot_set_the_role_changes_nothing(
    desk: Shop, postgresql_login: Callable[[str, str], AbstractContextManager[str]]
) -> None:
    runs_as = f"{desk.login}_clerk"
    roles = ROLES.replace("[roles.support]\n", f'[roles.support]\nset_role = "{runs_as}"\n')
    desk.execute(f"create role {runs_as}; grant select on all tables in schema public to {runs_as}")
    try:
        with postgresql_login(desk.url, "select") as writing:
            path = configured(desk, desk.url, writing, roles)
            found = problems(path)
            tools = json.loads(run("tools", path, *CALLER, "--json").stdout)
    finally:
        desk.execute(f"drop owned by {runs_as}; drop role {runs_as}")

    assert any("cannot be checked" in each and runs_as in each for each in found)
    assert [each["name"] for each in tools if "tickets" in each["name"]] == ["list_tickets", "get_tickets"]


def test_strict_server_asks_for_a_second_login(desk: Shop) -> None:
    desk.execute(script(desk))
    result = run("tools", configured(desk, desk.own_url, roles=f"[server]\nstrict = true\n{ROLES}"), *CALLER)

    assert result.exit_code == 2
    assert (
        "prints a second login for that, for [database] write_url. [server] strict = false" in result.stderr
    )


@pytest.fixture
def file(sqlite_database: Callable[[str], Path]) -> Path:
    """Return a database file."""
    return sqlite_database("create table t (id integer primary key, word text)")


def findings_of(file: Path, url: str, write_url: str = "") -> tuple[list[str], bool]:
    """Return the findings about a role on *file*, and whether it may change the table."""
    path = file.parent / "file.toml"
    second = f'write_url = "{write_url}"\n' if write_url else ""
    path.write_text(f'[database]\nurl = "{url}"\n{second}[roles.r]\ntables.t = {{ insert = true }}\n')
    tools = json.loads(run("tools", str(path), "--role", "r", "--json").stdout)
    return problems(str(path)), "insert_t" in {each["name"] for each in tools}


def test_file_that_can_be_written_has_no_findings(file: Path) -> None:
    assert findings_of(file, f"sqlite:///{file}") == ([], True)


def test_immutable_file_is_not_changed(file: Path) -> None:
    found, can = findings_of(file, f"sqlite:///{file}?immutable=1")
    twice = findings_of(file, f"sqlite:///{file}?immutable=1", f"sqlite:///{file}")

    assert "t cannot be changed: immutable=1 in the URL says that no program changes the file." in found[0]
    assert not can
    assert not twice[1]


def test_other_file_is_not_changed(file: Path, sqlite_database: Callable[[str], Path]) -> None:
    other = sqlite_database("create table t (id integer primary key, word text)")
    found, can = findings_of(file, f"sqlite:///{file}", f"sqlite:///{other}")

    assert "write_url names another file than url." in found[0]
    assert not can


@pytest.mark.parametrize(
    ("closed", "says"),
    [
        pytest.param("file", "may not write the database file.", id="file"),
        pytest.param("folder", "may not write to the folder of the file", id="folder"),
    ],
)
def test_file_that_the_user_may_not_write_is_not_changed(
    file: Path, closed: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = file if closed == "file" else file.parent
    allowed = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: (mode == os.R_OK or path != place) and allowed(path, mode)
    )
    found, can = findings_of(file, f"sqlite:///{file}")

    assert says in found[0]
    assert not can


def test_write_url_is_not_opened_without_a_grant(desk: Shop) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/shop"
    path = configured(desk, desk.url, nowhere, "[roles.support]\ntables.tickets = true\n")

    assert [each for each in problems(path) if "posture" not in each] == []
    assert call(path, "list_tickets", {}).exit_code == 0
