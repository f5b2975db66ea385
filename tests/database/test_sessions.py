"""`set_role` and `settings`: what the grants and policies of the database learn about a caller."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from dbtools import errors
from dbtools.answers.results import Answer
from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from dbtools.service.toolbox import Toolbox
from dbtools.settings import load
from tests.database.postgresql_catalog import connected
from tests.database.shop import Serve, pool_of, rows_of
from tests.postgresql_server import PostgresqlServer
from tests.protocol.command_line import run

DDL = """
create table note (id integer primary key, author text not null, body text, pay integer);
insert into note values (1, 'ann', 'one', 10), (2, 'bob', 'two', 20), (3, 'ann', 'three', 30);
create table ledger (id integer primary key, note_id integer references note (id));
insert into ledger values (1, 1);
create view endless as select count(*) as total from generate_series(1, 1000000000000);
alter table note enable row level security;
create policy own on note using (author = current_setting('app.author', true));
"""
ROLES = """
[roles.writer]
set_role = "{reader}"
settings = {{ "app.author" = ":claims.author", "app.from" = "dbtools" }}
tables."*" = true
[roles.boss]
tables."*" = true
"""
TIMEOUT = """
[roles.writer.limits]
timeout = "3s"
"""


@pytest.fixture(scope="module")
def reader(postgresql_server: PostgresqlServer) -> Iterator[str]:
    """Yield the name of a role that may be granted something."""
    name = f"reader_{secrets.token_hex(4)}"
    postgresql_server.execute(f"create role {name}", url=postgresql_server.url)
    yield name
    postgresql_server.execute(f"drop role {name}", url=postgresql_server.url)


def _notes(reader: str) -> str:
    """Return the DDL of notes, of which *reader* may see some columns of the reader's rows."""
    return f"""{DDL}
    grant select (id, author, body) on note to {reader};
    grant select on endless to {reader};
    """


@pytest.fixture(scope="module")
def url(postgresql_database: Callable[[str], AbstractContextManager[str]], reader: str) -> Iterator[str]:
    """Yield the URL of a database of notes, which no test changes."""
    with postgresql_database(_notes(reader)) as url:
        yield url


@asynccontextmanager
async def _opened(folder: Path, url: str, roles: str) -> AsyncIterator[Toolbox]:
    toolbox, database = open_toolbox(load(_written(folder, url, roles)))
    try:
        yield toolbox
    finally:
        await database.close()


def _written(folder: Path, url: str, roles: str) -> Path:
    path = folder / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{url}"\n{roles}')
    return path


def _writer(**claims: object) -> Caller:
    return Caller(role="writer", claims=claims)


BOSS = Caller(role="boss")
RUNNING = """
select count(*)
from pg_stat_activity
where
    datname = current_database()
    and state = 'active'
    and query like '%"endless"%'
    and pid <> pg_backend_pid()
"""


async def _rows(toolbox: Toolbox, caller: Caller) -> list[list[object]]:
    return rows_of((await toolbox.call(caller, "list_note", {})).structured)


async def test_policies_of_the_database_see_the_claims(url: str, reader: str, tmp_path: Path) -> None:
    async with _opened(tmp_path, url, ROLES.format(reader=reader)) as toolbox:
        assert await _rows(toolbox, _writer(author="ann")) == [[1, "ann", "one"], [3, "ann", "three"]]
        assert await _rows(toolbox, _writer(author="bob")) == [[2, "bob", "two"]]
        assert await _rows(toolbox, _writer(author="nobody")) == []


@pytest.mark.parametrize("claims", [{}, {"author": None}, {"Author": "ann"}])
async def test_missing_claim_denies(
    claims: Mapping[str, object], url: str, reader: str, tmp_path: Path
) -> None:
    async with _opened(tmp_path, url, ROLES.format(reader=reader)) as toolbox:
        with pytest.raises(errors.Denied):
            await _rows(toolbox, _writer(**claims))


async def test_claim_is_a_value_and_nothing_else(url: str, reader: str, tmp_path: Path) -> None:
    attacks = ["ann', true), set_config('role', 'none", "$1", "ann\\'", "'; reset role; --", ":claims.x"]
    async with _opened(tmp_path, url, ROLES.format(reader=reader)) as toolbox:
        for attack in attacks:
            assert await _rows(toolbox, _writer(author=attack)) == []


async def test_what_the_role_of_the_database_may_not_read_is_not_there(
    url: str, reader: str, tmp_path: Path
) -> None:
    async with _opened(tmp_path, url, ROLES.format(reader=reader)) as toolbox:
        described = await toolbox.call(_writer(author="ann"), "describe_tables", {"detail": "full"})
        tools = (await toolbox.view("writer")).tools
        all_tools = (await toolbox.view("boss")).tools

    assert "ledger" not in described.text
    assert "pay" not in described.text
    assert "list_ledger" not in tools
    assert "list_ledger" in all_tools


async def test_settings_of_one_role_do_not_reach_the_next_call_of_another(
    url: str, reader: str, tmp_path: Path
) -> None:
    whole = [[1, "ann", "one", 10], [2, "bob", "two", 20], [3, "ann", "three", 30]]
    roles = ROLES.format(reader=reader) + TIMEOUT
    async with _opened(tmp_path, url, roles) as toolbox, connected(url) as other:
        await _rows(toolbox, _writer(author="ann"))
        assert await _rows(toolbox, BOSS) == whole
        with pytest.raises(errors.TimedOut):
            await toolbox.call(_writer(author="ann"), "list_endless", {})
        assert await _rows(toolbox, BOSS) == whole
        await _cancel(await _running(toolbox, _writer(author="ann"), other))
        assert await _rows(toolbox, BOSS) == whole
        with pytest.raises(errors.NoRow):
            await toolbox.call(_writer(author="bob"), "get_note", {"id": 1})
        assert await _rows(toolbox, BOSS) == whole


async def _running(toolbox: Toolbox, caller: Caller, other: Any) -> "asyncio.Task[Answer]":
    """Return an endless call of *caller*, once the database runs it, as *other* shows."""
    call = asyncio.create_task(toolbox.call(caller, "list_endless", {}))
    with anyio.fail_after(30):
        while not await other.fetchval(RUNNING):
            await anyio.lowlevel.checkpoint()
    return call


async def _cancel(call: "asyncio.Task[Answer]") -> None:
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_callers_at_the_same_time_are_not_mistaken(url: str, reader: str, tmp_path: Path) -> None:
    seen: dict[int, list[list[object]]] = {}

    async def call(toolbox: Toolbox, number: int) -> None:
        seen[number] = await _rows(toolbox, _writer(author=("ann", "bob")[number % 2]))

    async with (
        _opened(tmp_path, url, ROLES.format(reader=reader)) as toolbox,
        anyio.create_task_group() as group,
    ):
        for number in range(40):
            group.start_soon(call, toolbox, number)

    assert {number: {row[1] for row in rows} for number, rows in seen.items()} == {
        number: {("ann", "bob")[number % 2]} for number in range(40)
    }


async def test_role_of_the_database_that_goes_away_ends_calls_and_not_the_server(
    url: str, reader: str, tmp_path: Path, postgresql_server: PostgresqlServer
) -> None:
    async with _opened(tmp_path, url, ROLES.format(reader=reader)) as toolbox:
        await _rows(toolbox, _writer(author="ann"))
        postgresql_server.execute(f"alter role {reader} rename to {reader}_gone", url=url)
        try:
            with pytest.raises(errors.UnknownTool) as refused:
                await _rows(toolbox, _writer(author="ann"))
            assert len(await _rows(toolbox, BOSS)) == 3
        finally:
            postgresql_server.execute(f"alter role {reader}_gone rename to {reader}", url=url)

    assert reader not in str(refused.value)


@pytest.mark.parametrize(
    ("section", "line", "says"),
    [
        pytest.param('set_role = "nobody at all"', 4, '"nobody at all" does not exist', id="unknown role"),
        pytest.param('settings = { work_mem = "much" }', 4, "work_mem", id="bad value"),
        pytest.param('settings = { nonsense = "x" }', 4, "nonsense", id="unknown setting"),
        pytest.param('settings = { Statement_Timeout = "0" }', 4, "sets statement_timeout itself", id="ours"),
        pytest.param('settings = { role = "postgres" }', 4, "write set_role", id="role"),
        pytest.param('settings = { transaction_read_only = "off" }', 4, "itself", id="read only"),
    ],
)
def test_session_that_cannot_be_is_found_with_its_line_and_serves_nothing(
    section: str, line: int, says: str, url: str, tmp_path: Path
) -> None:
    roles = f'[roles.r]\n{section}\ntables."*" = true\n[roles.boss]\ntables."*" = true\n'
    path = _written(tmp_path, url, roles)
    result = run("check", str(path), "--json")

    (found,) = (each for each in json.loads(result.stdout)["findings"] if each["level"] == "error")
    assert (found["code"], found["line"]) == ("bad_session", line)
    assert says in found["message"]
    assert result.exit_code == 1
    assert "list_note" not in run("tools", str(path), "--role", "r").stdout
    assert "list_note" in run("tools", str(path), "--role", "boss").stdout


def test_file_has_no_roles_and_settings(sqlite_database: Callable[[str], Path], tmp_path: Path) -> None:
    target = sqlite_database("create table note (id integer primary key);")
    path = _written(tmp_path, str(target), '[roles.r]\nset_role = "x"\ntables."*" = true\n')
    result = run("check", str(path), "--json")

    found = json.loads(result.stdout)["findings"]
    assert next((each["code"], each["line"]) for each in found) == ("bad_session", 4)
    assert "list_note" not in run("tools", str(path), "--role", "r").stdout


def test_explanation_shows_role_and_settings_of_the_session(url: str, reader: str, tmp_path: Path) -> None:
    path = _written(tmp_path, url, ROLES.format(reader=reader))
    words = ("explain", str(path), "--role", "writer", "--json")
    told = json.loads(run(*words, "--claim", "author=ann", "get_note", "id=1").stdout)
    denied = json.loads(run(*words, "get_note", "id=1").stdout)

    assert told["allowed"] is True
    assert f"role = {reader}" in told["reason"]
    assert "app.author = ann" in told["reason"]
    assert denied["allowed"] is False
    assert denied["reason"] == "The setting app.author requires the claim author, which is missing."
    assert denied["rule"]["line"] == 6


async def test_condition_means_the_same_whatever_role_a_statement_runs_as(
    postgresql_database: Callable[[str], AbstractContextManager[str]], reader: str, tmp_path: Path
) -> None:
    """The schema of the role's own name would be first on the default search path."""
    twin = f"""
    create table allowed (author text); insert into allowed values ('ann');
    create schema {reader}; create table {reader}.allowed (author text);
    insert into {reader}.allowed values ('ann'), ('bob');
    grant usage on schema {reader} to {reader};
    grant select on allowed, {reader}.allowed to {reader};
    alter table note disable row level security;
    """
    roles = f"""
    [roles.writer]
    set_role = "{reader}"
    tables.note = {{ where = "exists (select from allowed a where a.author = note.author)" }}
    """
    with postgresql_database(_notes(reader) + twin) as url:
        async with _opened(tmp_path, url, roles) as toolbox:
            assert {row[1] for row in await _rows(toolbox, _writer())} == {"ann"}


def test_condition_on_what_the_role_may_not_read_is_found(url: str, reader: str, tmp_path: Path) -> None:
    where = "exists (select 1 from ledger l where l.note_id = note.id)"
    roles = f'[roles.r]\nset_role = "{reader}"\ntables.note = {{ where = "{where}" }}\n'
    result = run("check", str(_written(tmp_path, url, roles)), "--json")

    found = [each for each in json.loads(result.stdout)["findings"] if each["level"] == "error"]
    assert [(each["code"], each["line"]) for each in found] == [("bad_filter", 5)]
    assert "permission denied for table ledger" in found[0]["message"]


@pytest.mark.parametrize("claim", ["one", "1.5", "", True, 10**30])
async def test_claim_of_another_type_denies(claim: object, url: str, tmp_path: Path) -> None:
    async with _opened(tmp_path, url, '[roles.r]\ntables.note = { where = "id = :claims.id" }\n') as toolbox:
        caller = Caller(role="r", claims={"id": claim})
        with pytest.raises(errors.Denied):
            await toolbox.call(caller, "list_note", {})


async def test_query_that_the_role_of_the_database_may_not_run_is_withdrawn(
    url: str, reader: str, tmp_path: Path
) -> None:
    (tmp_path / "queries").mkdir()
    for name, column in (("bodies", "body"), ("pays", "pay")):
        text = f"-- description: Some.\nselect id, {column} from note order by id"
        (tmp_path / "queries" / f"{name}.sql").write_text(text)
    roles = ROLES.format(reader=reader).replace('tables."*" = true', 'tables."*" = true\nqueries = ["*"]')
    async with _opened(tmp_path, url, f'[queries]\ndirectory = "queries"\n{roles}') as toolbox:
        views = {role: await toolbox.view(role) for role in ("writer", "boss")}
        answer = await toolbox.call(_writer(author="bob"), "bodies", {})
        with pytest.raises(errors.UnknownTool):
            await toolbox.call(_writer(author="bob"), "pays", {})
    checked = await anyio.to_thread.run_sync(run, "check", str(tmp_path / "dbtools.toml"), "--json")

    found = json.loads(checked.stdout)["findings"]
    served = {role: [each.name for each in view.context.queries] for role, view in views.items()}
    assert served == {"writer": ["bodies"], "boss": ["bodies", "pays"]}
    assert rows_of(answer.structured) == [[2, "two"]]
    assert [each["message"] for each in found if each["code"] == "withdrawn"] == [
        "role writer, queries: pays is withdrawn: permission denied for table note."
    ]


async def test_statement_is_stopped_in_the_database_where_its_call_is_cancelled_twice(
    url: str, tmp_path: Path
) -> None:
    roles = '[roles.boss]\ntables."*" = true\n'
    async with _opened(tmp_path, url, roles) as toolbox, connected(url) as other:
        await _rows(toolbox, BOSS)
        call = await _running(toolbox, BOSS, other)
        with anyio.fail_after(30):
            # The second one comes as the first has just begun to roll back.
            call.cancel()
            await asyncio.sleep(0)
            await _cancel(call)

        assert not await other.fetchval(RUNNING)


@pytest.mark.parametrize("dialect", ["postgresql"])
def test_connection_left_in_a_transaction_is_not_reused(dialect: str, serve: Serve) -> None:
    with serve(dialect, "create table t (id integer primary key)") as shop:

        async def leave() -> bool:
            pool: Any = await pool_of(shop.database)
            async with pool.connection() as left:
                await left.execute("begin read only; set local application_name = 'of another'")
            async with pool.connection() as other:
                return left.is_closed() and other is not left

        assert shop.portal.call(leave)
