"""A migration changes the tools: clients of both eras are told, list, and call, on both databases."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from dbtools.backends import open_backend
from dbtools.policy import Caller
from dbtools.server.exchange import Notifications
from dbtools.service.serving import Served, Watch, open_served
from dbtools.settings import Settings, load
from tests.postgresql_server import PostgresqlServer
from tests.protocol.changing import ERAS, HANDSHAKE, Changing, Hearing, hearing, open_changing
from tests.protocol.client import MODERN, Client, Message, ProcessClient, build_server, connect

DDL = """
create table customers (
    id integer primary key,
    name text not null,
    mood text check (mood in ('calm', 'cross'))
);
insert into customers (id, name, mood) values (1, 'Ada', 'calm'), (2, 'Bo', 'cross');
"""
OWN_DDL = {
    "sqlite": DDL,
    "postgresql": f"{DDL}; create type size as enum ('small'); create table hats (id integer, size size);",
}


@pytest.fixture(params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    """Give each dialect."""
    dialect: str = request.param
    return dialect


@pytest.fixture
def changing(dialect: str, request: pytest.FixtureRequest) -> Iterator[Changing]:
    """Give a database of customers."""
    with open_changing(dialect, OWN_DDL[dialect], request) as changing:
        yield changing


def _columns(tools: dict[str, Message], name: str = "list_customers") -> list[str]:
    _, _, columns = tools[name]["description"].partition("Columns: ")
    return [each.split()[0] for each in columns.rstrip(".").split("; ")]


def _log(client: Client) -> str:
    """Return what the server of *client* has written to stderr."""
    assert isinstance(client, ProcessClient)
    return client.log.read_text()


async def _have_it_tell(changing: Changing) -> None:
    """Have a database that can tell of changes do so: others are looked at, as all are in most tests here."""
    if changing.dialect == "postgresql":
        await open_backend(changing.url).install_watch()


#: SQL, and what the tools say then; in each database's own words where they differ.
CHANGES: list[tuple[str, dict[str, str] | str, Callable[[dict[str, Message]], object], object]] = [
    ("add a column", "alter table customers add column nick text", _columns, ["id", "name", "mood", "nick"]),
    (
        "rename a column",
        "alter table customers rename column nick to alias",
        _columns,
        ["id", "name", "mood", "alias"],
    ),
    ("drop a column", "alter table customers drop column alias", _columns, ["id", "name", "mood"]),
    (
        "create a table",
        "create table orders (id integer primary key, customer_id integer references customers (id))",
        lambda tools: [each for each in tools if "orders" in each],
        ["list_orders", "get_orders"],
    ),
    ("drop a table", "drop table orders", lambda tools: [each for each in tools if "orders" in each], []),
    (
        "change a comment",
        {
            "postgresql": "comment on column customers.name is 'What they are called'",
            "sqlite": """
                begin;
                create table made (
                    id integer primary key,
                    name text not null, -- What they are called
                    mood text check (mood in ('calm', 'cross'))
                );
                insert into made select * from customers;
                drop table customers;
                alter table made rename to customers;
                commit
            """,
        },
        lambda tools: "What they are called" in tools["list_customers"]["description"],
        True,
    ),
    (
        "change an enum",
        {
            "postgresql": "alter type size add value 'large'",
            "sqlite": """
                begin;
                create table hats (id integer, size text check (size in ('small', 'large')));
                commit
            """,
        },
        lambda tools: "large" in json.dumps(tools["list_hats"]),
        True,
    ),
]


@pytest.mark.parametrize("version", ERAS)
async def test_each_change_of_the_schema_is_told_and_seen(
    version: str, changing: Changing, tmp_path: Path
) -> None:
    await _have_it_tell(changing)
    found: list[tuple[str, object]] = []
    async with hearing(changing.url, tmp_path, version) as client:
        await client.tools()
        for name, sql, look, _ in CHANGES:
            await changing.change(sql if isinstance(sql, str) else sql[changing.dialect])
            await client.told()
            found.append((name, look(await client.tools())))
        number = await client.heard()

    assert found == [(name, expected) for name, _, _, expected in CHANGES]
    assert number == len(CHANGES)


SILENT = {
    "sqlite": [
        "insert into customers (id, name) values (3, 'Cy')",
        "analyze",
        "vacuum",
        "begin; create table never (id integer primary key); rollback",
        "create index by_name on customers (name)",
    ],
    "postgresql": [
        "insert into customers (id, name) values (3, 'Cy')",
        "analyze",
        "vacuum full",
        "begin; create table never (id integer primary key); rollback",
        "create index by_name on customers (name)",
        "create temporary table passing (id integer primary key)",
    ],
}


@pytest.mark.parametrize("version", ERAS)
async def test_what_changes_no_tool_is_silent(version: str, changing: Changing, tmp_path: Path) -> None:
    await _have_it_tell(changing)
    heard: list[int] = []
    async with hearing(changing.url, tmp_path, version) as client:
        before = await client.tools()
        for sql in SILENT[changing.dialect]:
            await changing.change(sql)
            heard.append(await client.heard())
        after = await client.tools()
        await changing.change("alter table customers add column nick text")
        await client.told()
        number = await client.heard()

    assert heard == [0] * len(SILENT[changing.dialect])
    assert after == before
    assert number == 1


@pytest.mark.parametrize("version", ERAS)
async def test_resources_change_with_the_schema(version: str, changing: Changing, tmp_path: Path) -> None:
    async with hearing(changing.url, tmp_path, version) as client:
        if version == MODERN:
            uris = ["dbtools://schema/customers", "dbtools://schema/orders"]
            wanted = {"resourcesListChanged": True, "resourceSubscriptions": uris}
            await client.client.start("subscriptions/listen", {"notifications": wanted})
        # What changes before the first list is no change to anybody.
        await client.tools()
        await changing.change("alter table customers add column nick text")
        await client.told()
        await changing.change(
            "create table orders (id integer primary key, customer_id integer references customers (id))"
        )
        await client.told()
        await client.heard()
        listed = await client.client.list_all("resources/list", "resources")
        heard = [each.get("method") for each in client.client.received]
        updated = [
            each["params"]["uri"]
            for each in client.client.received
            if each.get("method") == "notifications/resources/updated"
        ]

    assert "dbtools://schema/orders" in [each["uri"] for each in listed]
    assert heard.count("notifications/resources/list_changed") == 1
    # Once for its own column, and once for the foreign key that leads to it.
    assert updated == (["dbtools://schema/customers"] * 2 if version == MODERN else [])


ROLES = """
[roles.all]
tables."*" = true
[roles.some]
tables.customers = { exclude = ["secret"] }
"""


async def test_only_the_roles_that_see_a_change_are_told(changing: Changing, tmp_path: Path) -> None:
    await changing.change("alter table customers add column secret text")
    path = tmp_path / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{changing.url}"\n{ROLES}')
    retype = {
        "postgresql": "comment on column customers.secret is 'Hidden from some'",
        "sqlite": """
            begin;
            alter table customers drop column secret;
            alter table customers add column secret text default 'hidden';
            commit
        """,
    }
    async with (
        hearing(path, tmp_path / "all", MODERN, "--role", "all") as all_of_them,
        hearing(path, tmp_path / "some", HANDSHAKE, "--role", "some") as some,
    ):
        await some.tools()
        await changing.change(retype[changing.dialect])
        await all_of_them.told()
        silent = await some.heard()
        await changing.change("alter table customers add column nick text")
        await some.told()
        number = await some.heard()

    assert (silent, number) == (0, 1)


async def test_a_grant_is_a_change(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    postgresql_login: Callable[[str, str], AbstractContextManager[str]],
    postgresql_server: PostgresqlServer,
    tmp_path: Path,
) -> None:
    with (
        postgresql_database(OWN_DDL["postgresql"]) as url,
        postgresql_login(url, "grant select (id, name) on customers to {}") as reader,
    ):
        login = reader.partition("//")[2].partition("@")[0]
        async with hearing(reader, tmp_path, MODERN) as client:
            before = _columns(await client.tools())
            grant = f"grant select (mood) on customers to {login}"
            await anyio.to_thread.run_sync(lambda: postgresql_server.execute(grant, url=url))
            await client.told()
            after = _columns(await client.tools())

    assert (before, after) == (["id", "name"], ["id", "name", "mood"])


async def test_generic_surface_is_told_as_well(changing: Changing, tmp_path: Path) -> None:
    path = tmp_path / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{changing.url}"\n[tools]\nstyle = "generic"\n')
    async with hearing(path, tmp_path / "log", HANDSHAKE) as client:
        before = await client.tools()
        await changing.change("alter table customers add column nick text")
        await client.told()
        after = await client.tools()

    assert list(before) == list(after)
    assert [name for name in before if before[name] != after[name]] != []


async def test_listener_that_the_server_ends_comes_back(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    postgresql_server: PostgresqlServer,
    tmp_path: Path,
) -> None:
    ended = """
        select pg_terminate_backend(pid)
        from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()
    """
    with postgresql_database(OWN_DDL["postgresql"]) as url:
        async with hearing(url, tmp_path, HANDSHAKE) as client:
            await client.tools()

            def change() -> None:
                postgresql_server.execute(ended, url=url)
                postgresql_server.execute("alter table customers add column nick text", url=url)

            await anyio.to_thread.run_sync(change)
            await client.told()
            columns = _columns(await client.tools())

    assert columns[-1] == "nick"


async def test_file_that_is_replaced_by_another_is_served(
    sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    path, other = (
        sqlite_database(DDL),
        sqlite_database(f"{DDL}; create table orders (id integer primary key);"),
    )
    async with hearing(path, tmp_path, MODERN) as client:
        await client.client.call("list_customers")
        other.replace(path)
        await client.told()
        answer = await client.client.call("list_orders")

    assert answer["structuredContent"]["rows"] == []


async def test_file_that_is_filled_with_another_database_is_served(
    sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    """As `cp` does: the same file, and by chance the same count of changes."""
    path = sqlite_database("create table alpha (id integer primary key, s text);")
    other = sqlite_database(
        "create table beta (id integer primary key, z text); insert into beta values (1, 'B');"
    )
    async with hearing(path, tmp_path, MODERN) as client:
        await client.client.call("list_alpha")
        path.write_bytes(other.read_bytes())
        await client.told()
        tools = await client.tools()
        answer = await client.client.call("list_beta")
        error = await client.client.error("tools/call", {"name": "list_alpha", "arguments": {}})

    assert [name for name in tools if name.startswith("list_")] == ["list_beta"]
    assert answer["structuredContent"]["rows"] == [[1, "B"]]
    assert error["code"] == -32602


async def test_configuration_is_watched_and_a_broken_one_breaks_nothing(
    changing: Changing, tmp_path: Path
) -> None:
    path, folder = tmp_path / "dbtools.toml", tmp_path / "queries"
    folder.mkdir()
    text = f'[database]\nurl = "{changing.url}"\n[queries]\ndirectory = "queries"\n'
    path.write_text(text)
    async with hearing(path, tmp_path / "log", MODERN) as client:
        before = await client.tools()
        (folder / "calm.sql").write_text("-- description: All who are calm.\nselect name from customers")
        await client.told()
        with_query = await client.tools()
        path.write_text(f'{text}[tables.customers]\ndescription = "Who buys."\n')
        await client.told()
        described = await client.tools()
        path.write_text("[database\n")
        (folder / "more.sql").write_text("-- description: More.\nselect id from customers")
        await client.told()
        broken = await client.tools()
        log = _log(client.client)

    assert [name for name in with_query if name not in before] == ["calm"]
    assert "Who buys" in described["list_customers"]["description"]
    assert [name for name in broken if name not in described] == ["more"]
    assert broken["list_customers"] == described["list_customers"]
    assert log.count("The previous configuration stays in force.") == 1


async def test_query_that_a_migration_breaks_is_gone_until_it_is_mended(
    changing: Changing, tmp_path: Path
) -> None:
    folder = tmp_path / "queries"
    folder.mkdir()
    (folder / "names.sql").write_text("-- description: Names.\nselect name from customers order by id")
    path = tmp_path / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{changing.url}"\n[queries]\ndirectory = "queries"\n')
    async with hearing(path, tmp_path / "log", HANDSHAKE) as client:
        before = await client.tools()
        await changing.change("alter table customers rename column name to label")
        await client.told()
        broken = await client.tools()
        error = await client.client.error("tools/call", {"name": "names", "arguments": {}})
        log = _log(client.client)
        await changing.change("alter table customers rename column label to name")
        await client.told()
        after = await client.tools()
        answer = await client.client.call("names")

    assert "names" not in broken
    assert error["code"] == -32602
    assert "error: query names is withdrawn: " in log
    assert after == before
    assert answer["structuredContent"]["rows"] == [["Ada"], ["Bo"]]


async def test_registry_is_watched(changing: Changing, tmp_path: Path) -> None:
    from dbtools.alembic import upgrade
    from dbtools.records.registry import add, change

    await anyio.to_thread.run_sync(upgrade, changing.url)
    async with hearing(changing.url, tmp_path, MODERN) as client:
        before = await client.tools()
        await add(changing.url, {"one": "-- name: one\n-- description: One.\nselect 1 as one\n"})
        await client.told()
        with_query = await client.tools()
        await change(changing.url, "one", "disable")
        await client.told()
        after = await client.tools()

    assert [name for name in with_query if name not in before] == ["one"]
    assert after == before


async def test_calls_that_are_out_of_date_say_what_there_is_now(changing: Changing, tmp_path: Path) -> None:
    listed = {"columns": ["id", "mood"], "limit": 1, "order_by": ["mood"]}
    async with hearing(changing.url, tmp_path, HANDSHAKE) as client:
        await client.tools()
        first = await client.client.call("list_customers", listed)
        cursor = first["structuredContent"]["next_cursor"]
        await changing.change("alter table customers drop column mood")
        gone = await client.client.call("list_customers", listed)
        filtered = await client.client.call(
            "list_rows", {"table": "customers", "where": [{"column": "mood", "value": "calm"}]}
        )
        stale = await client.client.call("list_customers", {**listed, "order_by": ["id"], "cursor": cursor})
        go_on = await client.client.call("list_customers", {"limit": 1, "cursor": cursor})
        whole = await client.client.call("list_customers", {})
        await changing.change("alter table customers rename to clients")
        unknown = await client.client.error("tools/call", {"name": "list_customers", "arguments": {}})

    for answer in (gone, filtered, stale):
        told = answer["content"][0]["text"]
        assert answer["isError"]
        assert "mood" in told
        assert "id, name" in told
    assert go_on["isError"]
    assert "cursor" in go_on["content"][0]["text"]
    assert whole["structuredContent"]["columns"] == ["id", "name"]
    assert unknown["code"] == -32602
    assert "There is no tool 'list_customers'." in unknown["message"]


MIGRATIONS = 40
CLIENTS = 8
VERSIONED = """
create table things (id integer primary key, v0 integer not null);
insert into things values (1, 0), (2, 0), (3, 0);
"""


@pytest.fixture
async def served(changing: Changing, tmp_path: Path) -> AsyncIterator[Served]:
    """Give what serves the database and follows it, in this process."""
    path = tmp_path / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{changing.url}"\n[limits]\ntimeout = "60s"\n')
    served = open_served(load(path))
    async with anyio.create_task_group() as group:
        group.start_soon(Watch(served.toolbox, served.observed, warn=print, resolved=print).run)
        yield served
        group.cancel_scope.cancel()
    await served.backend.close()


async def test_no_call_fails_and_none_mixes_two_schemas_while_migrations_run(
    changing: Changing, served: Served
) -> None:
    await changing.change(VERSIONED)
    await served.toolbox.refresh()
    notifications = Notifications()
    served.toolbox.subscribe(notifications.publish)
    done, answered = anyio.Event(), anyio.Condition()
    answers: list[Message] = []

    async def call(client: Hearing) -> None:
        while not done.is_set():
            answer = await client.client.request("tools/call", {"name": "list_things", "arguments": {}})
            async with answered:
                answers.append(answer)
                answered.notify_all()

    async with AsyncExitStack() as stack:
        clients = []
        for number in range(CLIENTS):
            server = build_server(served.toolbox, Caller(), "", notifications=notifications)
            raw = await stack.enter_async_context(connect(server, version=ERAS[number % 2]))
            clients.append(Hearing(raw))
            await clients[-1].open()
        async with anyio.create_task_group() as callers:
            for client in clients:
                callers.start_soon(call, client)
            for number in range(MIGRATIONS):
                await changing.change(_migration(number))
                async with answered:
                    # Some come in a row, and calls come between others.
                    while len(answers) < number:
                        await answered.wait()
            done.set()
        current = {each.name: each for each in await _fresh(changing)}
        await served.toolbox.call(Caller(), "describe_tables", {})
        listed = [await client.tools() for client in clients]

    assert len(answers) > MIGRATIONS
    assert [each for each in map(_mistake, answers) if each] == []
    for tools in listed:
        assert _columns(tools, "list_things") == ["id", f"v{MIGRATIONS}"]
        assert {name: each["description"] for name, each in tools.items()} == {
            name: each.description for name, each in current.items()
        }


def _migration(number: int) -> str:
    """Return what makes version *number* the next: another name, and at times another table and type."""
    after = number + 1
    if _is_text(after) == _is_text(number):
        return f"""
            begin;
            alter table things rename column v{number} to v{after};
            update things set v{after} = '{after}';
            commit
        """
    return f"""
        begin;
        create table next (id integer primary key, v{after} {"text" if _is_text(after) else "integer"});
        insert into next select id, '{after}' from things;
        drop table things;
        alter table next rename to things;
        commit
    """


def _is_text(version: int) -> bool:
    return version // 4 % 2 == 1


def _mistake(answer: Message) -> Any:
    """Return what is wrong with *answer*: it failed, or names one version and holds another."""
    structured = answer.get("result", {}).get("structuredContent")
    if structured is None:
        return answer
    version = int(structured["columns"][1].removeprefix("v"))
    cell = str(version) if _is_text(version) else version
    return structured if {row[1] for row in structured["rows"]} != {cell} else None


async def _fresh(changing: Changing) -> tuple[Any, ...]:
    """Return what a server that has just been started lists."""
    served = open_served(Settings.model_validate({"database": {"url": changing.url}}))
    try:
        return await served.toolbox.list("default")
    finally:
        await served.backend.close()
