"""A server on stdio answers for one role and its claims."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.protocol.client import HANDSHAKES, MODERN, spawn

DDL = """
create table orders (id integer primary key, region text not null, mail text);
insert into orders values (1, 'north', 'ada@example.com'), (2, 'south', 'bo@example.com'), (3, 'north', null);
create table secret (id integer primary key);
"""
CLERK = """
[roles.clerk]
tables.orders = { where = "region = :claims.region", mask = { mail = "partial" } }
"""
#: from line 3 on
WRONG = """[roles.clerk]
tables.orders = { exclude = ["margn"] }
tables.ordrs = true
"""


@pytest.fixture
def path(sqlite_database: Callable[[str], Path], tmp_path: Path) -> Path:
    """Return a configuration of a clerk, who sees what is in a region."""
    path = tmp_path / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{sqlite_database(DDL)}"\n{CLERK}')
    return path


@pytest.mark.parametrize("version", [HANDSHAKES[-1], MODERN])
async def test_server_answers_every_request_on_behalf_of_its_caller(
    path: Path, version: str, tmp_path: Path
) -> None:
    options = ("--role", "clerk", "--claim", "region=north")
    async with spawn(path, tmp_path, version=version, options=options) as client:
        await client.open()
        rows = await client.call("list_orders", {"columns": ["id", "mail"]})
        hidden = await client.call("get_orders", {"id": 2})
        read = await client.result("resources/read", {"uri": "dbtools://row/orders/1"})
        missing = await client.error("resources/read", {"uri": "dbtools://row/orders/2"})
        absent = await client.error("resources/read", {"uri": "dbtools://row/orders/9"})
        names = [tool["name"] for tool in await client.list_all("tools/list", "tools")]

    assert rows["structuredContent"]["rows"] == [[1, "a…@example.com"], [3, None]]
    assert hidden["isError"] is True
    assert "a…@example.com" in str(read)
    assert missing["code"] == absent["code"]
    assert str(missing).replace("orders/2", "orders/9").replace("'2'", "'9'") == str(absent)
    assert names == ["describe_tables", "aggregate_rows", "list_orders", "get_orders"]


async def test_server_without_the_claim_of_a_filter_denies_each_call(path: Path, tmp_path: Path) -> None:
    async with spawn(path, tmp_path, options=("--role", "clerk")) as client:
        denied = await client.call("list_orders")
        described = await client.call("describe_tables")
        claiming = [
            await client.call("list_orders", {name: {"region": "north"}})
            for name in ("claims", "claims.region")
        ]

    assert [each["isError"] for each in (denied, described, *claiming)] == [True, False, True, True]
    assert "north" not in str(denied)


async def test_role_and_claims_of_the_environment_are_the_servers(path: Path, tmp_path: Path) -> None:
    environment = {"DBTOOLS_ROLE": "clerk", "DBTOOLS_CLAIMS": '{"region": "south"}'}
    async with spawn(path, tmp_path, environment=environment) as client:
        rows = await client.call("list_orders", {"columns": ["id"]})

    assert rows["structuredContent"]["rows"] == [[2]]


async def test_server_says_at_its_start_what_is_wrong_with_its_roles(
    sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    path = tmp_path / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{sqlite_database(DDL)}"\n{WRONG}')
    async with spawn(path, tmp_path, options=("--role", "clerk")) as client:
        listed = await client.result("tools/list")
        log = client.log.read_text()

    assert len(listed["tools"]) == 2
    assert ["dbtools.toml:4: error: " in log, "'margn'" in log, "dbtools.toml:5: error: " in log] == [
        True
    ] * 3
