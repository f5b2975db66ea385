"""Databases, configurations, queries and registries that change are served in their current state."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tests.protocol.changed_schemas import changing as changing, dialect as dialect
from tests.protocol.changing import HANDSHAKE, Changing, hearing
from tests.protocol.client import MODERN, Client, ProcessClient


def _log(client: Client) -> str:
    """Return what the server of *client* has written to stderr."""
    assert isinstance(client, ProcessClient)
    return client.log.read_text()


async def test_file_that_is_filled_with_or_replaced_by_another_database_is_served(
    sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    """`cp` fills the same file, with by chance the same count of changes; `mv` replaces it."""
    path = sqlite_database("create table alpha (id integer primary key, s text);")
    other = sqlite_database(
        "create table beta (id integer primary key, z text); insert into beta values (1, 'B');"
    )
    third = sqlite_database("create table gamma (id integer primary key);")
    async with hearing(path, tmp_path, MODERN) as client:
        await client.client.call("list_alpha")
        path.write_bytes(other.read_bytes())
        await client.told()
        tools = await client.tools()
        answer = await client.client.call("list_beta")
        error = await client.client.error("tools/call", {"name": "list_alpha", "arguments": {}})
        third.replace(path)
        await client.told()
        replaced = await client.client.call("list_gamma")

    assert [name for name in tools if name.startswith("list_")] == ["list_beta"]
    assert answer["structuredContent"]["rows"] == [[1, "B"]]
    assert error["code"] == -32602
    assert replaced["structuredContent"]["rows"] == []


@pytest.mark.parametrize("dialect", ["sqlite"])
async def test_configuration_is_watched_and_a_broken_one_breaks_nothing(
    dialect: str, changing: Changing, tmp_path: Path
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


async def test_query_that_a_migration_breaks_is_gone_until_it_is_fixed(
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
