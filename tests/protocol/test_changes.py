"""Clients are notified of changes to their tools, and of nothing else."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import anyio
import pytest

from dbtools.backends import open_backend
from tests.postgresql_server import PostgresqlServer
from tests.protocol.changed_schemas import OWN_DDL, changing as changing, columns_in, dialect as dialect
from tests.protocol.changing import HANDSHAKE, Changing, hearing
from tests.protocol.client import MODERN, Message

#: The name of a change, its SQL (by database, if it differs), what to read from the tools, and its value.
CHANGES: list[tuple[str, dict[str, str] | str, Callable[[dict[str, Message]], object], object]] = [
    (
        "add a column",
        "alter table customers add column nick text",
        columns_in,
        ["id", "name", "mood", "nick"],
    ),
    (
        "rename a column",
        "alter table customers rename column nick to alias",
        columns_in,
        ["id", "name", "mood", "alias"],
    ),
    ("drop a column", "alter table customers drop column alias", columns_in, ["id", "name", "mood"]),
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


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
async def test_each_schema_change_is_notified_and_visible(
    dialect: str, changing: Changing, tmp_path: Path
) -> None:
    """Without a watch in PostgreSQL, and on SQLite, dbtools polls."""
    version, found = HANDSHAKE if dialect == "sqlite" else MODERN, list[tuple[str, object]]()
    if dialect == "postgresql":
        await open_backend(changing.url).install_watch()
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
        "create temporary table scratch (id integer primary key)",
    ],
}


@pytest.mark.parametrize(("dialect", "version"), [("sqlite", MODERN), ("postgresql", HANDSHAKE)])
async def test_clients_are_not_notified_of_what_changes_no_tool(
    dialect: str, version: str, changing: Changing, tmp_path: Path
) -> None:
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


@pytest.mark.parametrize(("dialect", "version"), [("sqlite", MODERN), ("sqlite", HANDSHAKE)])
async def test_resources_change_with_the_schema(
    dialect: str, version: str, changing: Changing, tmp_path: Path
) -> None:
    async with hearing(changing.url, tmp_path, version) as client:
        if version == MODERN:
            uris = ["dbtools://schema/customers", "dbtools://schema/orders"]
            wanted = {"resourcesListChanged": True, "resourceSubscriptions": uris}
            await client.client.start("subscriptions/listen", {"notifications": wanted})
        # A client is notified only of changes after its first list.
        await client.tools()
        await changing.change("alter table customers add column nick text")
        await client.told()
        await changing.change(
            "create table orders (id integer primary key, customer_id integer references customers (id))"
        )
        await client.told()
        await client.heard()
        listed = await client.client.list_all("resources/list", "resources")
        messages = client.client.received
        heard = [each.get("method") for each in messages]
        updated = [each["params"]["uri"] for each in messages if str(each.get("method")).endswith("/updated")]

    assert "dbtools://schema/orders" in [each["uri"] for each in listed]
    assert heard.count("notifications/resources/list_changed") == 1
    # Once for its new column, and once for the foreign key that refers to it.
    assert updated == (["dbtools://schema/customers"] * 2 if version == MODERN else [])


ROLES = """
[roles.all]
tables."*" = true
[roles.some]
tables.customers = { exclude = ["remark"] }
"""


async def test_only_the_roles_that_see_a_change_are_notified(changing: Changing, tmp_path: Path) -> None:
    await changing.change("alter table customers add column remark text")
    path = tmp_path / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{changing.url}"\n{ROLES}')
    retype = {
        "postgresql": "comment on column customers.remark is 'Hidden from some'",
        "sqlite": """
            begin;
            alter table customers drop column remark;
            alter table customers add column remark text default 'hidden';
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


async def test_clients_are_notified_of_a_grant(
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
            before = columns_in(await client.tools())
            grant = f"grant select (mood) on customers to {login}"
            await anyio.to_thread.run_sync(lambda: postgresql_server.execute(grant, url=url))
            await client.told()
            after = columns_in(await client.tools())

    assert (before, after) == (["id", "name"], ["id", "name", "mood"])


async def test_listener_reconnects_after_the_server_has_closed_its_connection(
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
            columns = columns_in(await client.tools())

    assert columns[-1] == "nick"
