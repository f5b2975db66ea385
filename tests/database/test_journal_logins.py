"""Who may use the journal of writes, and what `check` and `dbtools grants` say about it."""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import asyncpg
import pytest
from click.testing import Result

from dbtools.alembic import upgrade
from dbtools.findings import FindingCode
from dbtools.service.serving import snapshot_of
from dbtools.service.snapshot import DATABASE
from dbtools.settings import settings_of
from tests.database.granted_login import Shop, shop as shop
from tests.database.keyed_writes import UPDATE, Keeps, opened as opened
from tests.database.written_journal import writing
from tests.database.written_shop import refused
from tests.postgresql_server import PostgresqlServer
from tests.protocol.command_line import run

ROLES = """
[roles.support]
tables.regions = { insert = true, update = ["name"], confirm = true }
tables.permits = { insert = true }
"""
RUNS_AS = ROLES.replace("[roles.support]\n", '[roles.support]\nset_role = "CLERK"\n')
PREFIX = (
    "warning no_journal: role support, tables.regions.confirm: confirmations are kept in the memory of one "
)
LACKS = "lacks privileges on dbtools.dbtools_write. `dbtools grants` prints a script that grants it."
KEYED: dict[str, object] = {"rows": [{"customer_id": 7}], "idempotency_key": "k"}


@pytest.fixture
def desk(shop: Shop) -> Iterator[Shop]:
    """Yield a shop whose second login and role are dropped at the end."""
    yield shop
    for name in (f"{shop.login}_writer", f"{shop.login}_clerk"):
        shop.execute(
            f"do $$ begin if exists (select from pg_roles where rolname = '{name}') then "
            f"reassign owned by {name} to current_user; drop owned by {name}; drop role {name}; "
            "end if; end $$"
        )


def writer_url(desk: Shop) -> str:
    """Return the URL of the login that changes rows."""
    return desk.own_url.replace(desk.login, f"{desk.login}_writer")


def configured(desk: Shop, url: str, write_url: str, roles: str = ROLES) -> str:
    """Write a configuration and return where."""
    desk.path.write_text(f'[database]\nurl = "{url}"\nwrite_url = "{write_url}"\n{roles}')
    return str(desk.path)


def granted(desk: Shop, roles: str = ROLES) -> tuple[str, str]:
    """Run the script for both logins; return it, and the path of a configuration with them."""
    path = configured(desk, desk.url, writer_url(desk), roles)
    result = run("grants", path, "--role", "support", "--login", desk.login)
    assert (result.exit_code, result.stderr) == (0, "")
    desk.execute(result.stdout)
    return result.stdout, configured(desk, desk.own_url, writer_url(desk), roles)


def insert(path: str, **more: object) -> Result:
    """Return what a call with a key prints."""
    asked = json.dumps({**KEYED, **more})
    return run("call", path, "insert_permits", asked, "--role", "support", "--json")


def problems(path: str) -> list[str]:
    """Return the findings of `dbtools check` about the journal."""
    found = json.loads(run("check", path, "--json").stdout)["findings"]
    told = (f"{each['level']} {each['code']}: {each['message']}" for each in found)
    return [each for each in told if "journal" in each or "lacks" in each]


def permits(desk: Shop) -> int:
    """Return how many rows the calls have made."""
    return len(desk.server.portal.call(_rows, desk.url, "select from permits where customer_id = 7"))


async def _rows(url: str, sql: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


@pytest.mark.parametrize("roles", [ROLES, RUNS_AS], ids=["logins", "set_role"])
def test_login_of_the_script_uses_the_journal(desk: Shop, roles: str) -> None:
    upgrade(desk.url)
    text, path = granted(desk, roles.replace("CLERK", f"{desk.login}_clerk"))
    first, again = (json.loads(insert(path).stdout) for _ in range(2))
    found = problems(path)

    assert found == []
    assert text.count('grant delete on table "dbtools"."dbtools_write" to') == (1 if roles is ROLES else 2)
    assert "in memory" not in text
    assert (first["affected"], "note" in first, again["affected"]) == (1, False, 1)
    # Both are separate processes: only the database knows the key.
    assert again["note"].startswith("An earlier call with this idempotency_key made the change at ")
    assert permits(desk) == 1


def test_login_that_only_reads_may_not_read_the_journal(desk: Shop) -> None:
    upgrade(desk.url)
    granted(desk)
    asked = f"select has_table_privilege('{desk.login}', 'dbtools.dbtools_write', 'select, insert, update')"

    assert desk.server.portal.call(_rows, desk.url, asked) == [(False,)]


def test_script_without_a_registry_runs_and_says_what_is_left(desk: Shop) -> None:
    text, path = granted(desk)
    found = problems(path)
    made = json.loads(insert(path, idempotency_key="").stdout)

    assert 'grant usage on schema "dbtools"' not in text
    assert "-- - Without the table dbtools_write, each server keeps confirmations" in text
    (problem,) = found
    assert problem.startswith(PREFIX)
    assert problem.endswith("`dbtools registry upgrade URL` creates it.")
    assert (made["affected"], permits(desk)) == (1, 1)


@pytest.mark.parametrize(
    "revoked",
    [
        "usage on schema dbtools",
        "select on dbtools.dbtools_write",
        "insert on dbtools.dbtools_write",
        "update on dbtools.dbtools_write",
        "delete on dbtools.dbtools_write",
    ],
)
def test_login_that_lacks_a_privilege_on_the_journal_takes_no_key(desk: Shop, revoked: str) -> None:
    upgrade(desk.url)
    _, path = granted(desk)
    desk.execute(f"revoke {revoked} from {desk.login}_writer")
    (problem,) = problems(path)
    keyed = insert(path)
    made = json.loads(insert(path, idempotency_key="").stdout)

    assert problem.startswith(PREFIX)
    assert problem.endswith(LACKS)
    assert f"as {desk.login}_writer" in problem
    assert "There is no argument 'idempotency_key'." in keyed.stderr + keyed.stdout
    assert (made["affected"], permits(desk)) == (1, 1)


#: What lets the code of another role run when the journal is used.
PWN = """
create sequence public.pwned;
create function public.pwn() returns trigger language plpgsql
    as 'begin perform nextval(''public.pwned''); return new; end';
create function public.pwns(text) returns boolean language sql as 'select nextval(''public.pwned'') > 0';
create domain public.pwning as text check (public.pwns(value));
"""
HOSTILE = {
    "owner": "alter table dbtools.dbtools_write owner to {evil}",
    "owner of the schema": "alter schema dbtools owner to {evil}",
    "trigger": "create trigger t before insert on dbtools.dbtools_write execute function public.pwn()",
    "type": "alter table dbtools.dbtools_write alter caller type public.pwning",
    "policy": "alter table dbtools.dbtools_write enable row level security",
    "view": "alter table dbtools.dbtools_write rename to other; "
    "create view dbtools.dbtools_write as select * from dbtools.other",
}


@pytest.mark.parametrize("ddl", HOSTILE.values(), ids=HOSTILE.keys())
def test_journal_that_is_not_trusted_is_not_used_by_a_superuser(desk: Shop, ddl: str) -> None:
    evil = f"evil_{secrets.token_hex(4)}"
    upgrade(desk.url)
    desk.execute(f"create role {evil}; {PWN}; {ddl.format(evil=evil)}")
    try:
        path = configured(desk, desk.url, desk.url)
        found = problems(path)
        made = json.loads(insert(path, idempotency_key="").stdout)
        kept = desk.server.portal.call(_rows, desk.url, "select from dbtools.dbtools_write")
        ran = desk.server.portal.call(_rows, desk.url, "select is_called from public.pwned")
    finally:
        desk.execute(f"reassign owned by {evil} to current_user; drop owned by {evil}; drop role {evil}")

    (problem,) = found
    assert problem.startswith(PREFIX)
    assert (
        "dbtools.dbtools_write is not used: its owner" in problem or "has no table dbtools_write" in problem
    )
    assert (made["affected"], kept, ran) == (1, [], [(False,)])


def test_journal_of_a_role_of_the_login_is_used(desk: Shop) -> None:
    upgrade(desk.url)
    _, path = granted(desk)
    desk.execute(f"create role {desk.login}_clerk; grant {desk.login}_clerk to {desk.login}_writer")
    desk.execute(
        f"alter schema dbtools owner to {desk.login}_clerk; "
        f"alter table dbtools.dbtools_write owner to {desk.login}_clerk"
    )

    assert problems(path) == []


def test_changes_are_not_made_while_nobody_knows_whether_there_is_a_journal(
    opened: Keeps, postgresql_server: PostgresqlServer
) -> None:
    ghost = f"ghost_{secrets.token_hex(4)}"
    with opened("postgresql") as shop:
        url = urlsplit(shop.url)
        later = url._replace(netloc=f"{ghost}@{url.netloc.rpartition('@')[2]}").geturl()
        with writing(shop, write_url=later) as caller:
            error = refused(caller, "update_things", **UPDATE)
            snapshot = caller.portal.call(caller.toolbox.snapshot)
            postgresql_server.execute(f"create role {ghost} login superuser", url=shop.url)
            try:
                early = refused(caller, "update_things", **UPDATE)
                caller.portal.call(caller.toolbox.refresh)
                made, again = (caller.call("update_things", **UPDATE) for _ in range(2))
            finally:
                caller.portal.call(caller.database.close)
                postgresql_server.execute(f"drop role {ghost}", url=shop.url)

    assert (error.code, early.code) == ("database_unavailable", "database_unavailable")
    assert "Nothing was changed." in str(early)
    # So the next poll refreshes.
    assert snapshot.stamps[DATABASE] == FindingCode.UNCHECKED
    assert ("note" in made, "note" in again) == (False, True)


def test_roles_with_and_without_the_journal_have_tools_of_their_own(desk: Shop) -> None:
    upgrade(desk.url)
    clerk = f"{desk.login}_clerk"
    desk.execute(f"create role {clerk}; grant select, insert on permits to {clerk}")
    rule = "tables.permits = { insert = true }\n"
    roles = f'[roles.support]\n{rule}[roles.clerk]\nset_role = "{clerk}"\n{rule}'
    path = configured(desk, desk.url, desk.url, roles)
    views = anyio.run(snapshot_of, settings_of(path)).views
    support, other = (views[role].tools["insert_permits"].definition.json for role in ("support", "clerk"))

    assert views["support"].catalog == views["clerk"].catalog
    assert b"for 24 hours" in support
    assert b"idempotency_key" not in other


def test_migrated_database_without_a_registry_changes_no_tool(
    desk: Shop, postgresql_database: Callable[[str], AbstractContextManager[str]], tmp_path: Path
) -> None:
    upgrade(desk.url)
    path = configured(desk, desk.url, desk.url, "[roles.support]\ntables.t = { insert = true }\n")
    ddl = "create table public.t (id integer primary key)"
    desk.execute(ddl)
    with postgresql_database(ddl) as migrated:
        compared = json.loads(run("check", path, "--against", migrated, "--json").stdout)

    assert compared["changes"] == {
        "support": {"added": [], "changed": [], "removed": [], "broken": []},
    }
