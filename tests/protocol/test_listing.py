"""What `tools/list` answers: names, titles, annotations and schemas, in a fixed order, 200 a page."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import jsonschema
import pytest

from dbtools.policy import Caller
from dbtools.service.serving import open_toolbox
from dbtools.styles import Surface
from tests.protocol.client import HANDSHAKES, MODERN, Client, Serving, build_server, connect
from tests.protocol.conftest import settings_for

NAME = re.compile(r"[a-z0-9_]{1,40}")
INVALID_PARAMS = -32602
NAMES = [
    *("describe_tables", "aggregate_rows", "run_sql"),
    *("list_album", "list_person", "list_slow", "list_story", "list_tag"),
    *("get_album", "get_person", "get_story", "get_tag"),
]


@pytest.fixture
async def large_server(large_path: Path) -> AsyncIterator[Serving]:
    """Give a server of a database of 450 tables without keys: 452 tools."""
    toolbox, database = open_toolbox(settings_for(large_path, surface=Surface.TYPED))
    yield build_server(toolbox, Caller(), "")
    await database.close()


async def test_every_table_has_its_tools(client: Client) -> None:
    tools = await client.list_all("tools/list", "tools")

    assert [tool["name"] for tool in tools] == NAMES


async def test_every_tool_only_reads_and_has_a_title(client: Client) -> None:
    tools = await client.list_all("tools/list", "tools")

    assert [tool["annotations"] for tool in tools] == [{"openWorldHint": False, "readOnlyHint": True}] * len(
        tools
    )
    assert all(tool["title"] and tool["description"] for tool in tools)
    assert all(NAME.fullmatch(tool["name"]) for tool in tools)


async def test_schemas_are_plain_enough_for_every_client(client: Client) -> None:
    """An output schema that is no object would fail the whole list in the 2025 era (mcp.md, pitfall 4)."""
    tools = await client.list_all("tools/list", "tools")

    for tool in tools:
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        jsonschema.Draft202012Validator.check_schema(tool["outputSchema"])
        assert tool["inputSchema"]["type"] == tool["outputSchema"]["type"] == "object"
        assert tool["inputSchema"]["additionalProperties"] is False
        assert not {"$ref", "$defs", "anyOf", "oneOf", "allOf"} & set(tool["inputSchema"])
        assert "additionalProperties" not in tool["outputSchema"]


async def test_list_is_the_same_each_time_it_is_asked_for(client: Client) -> None:
    first = await client.list_all("tools/list", "tools")
    second = await client.list_all("tools/list", "tools")

    assert first == second


async def test_list_is_the_same_in_every_process(path: Path, server: Serving) -> None:
    toolbox, database = open_toolbox(settings_for(path))
    again = build_server(toolbox, Caller(), "")
    async with connect(server) as client, connect(again) as other:
        first = await client.list_all("tools/list", "tools")
        second = await other.list_all("tools/list", "tools")
    await database.close()

    assert first == second


async def test_list_is_the_same_in_every_version(server: Serving) -> None:
    lists = []
    for version in (*HANDSHAKES, MODERN):
        async with connect(server, version=version) as client:
            await client.open()
            lists.append(await client.list_all("tools/list", "tools"))

    assert all(tools == lists[0] for tools in lists)


async def test_list_is_private_to_the_role_and_always_fresh(server: Serving) -> None:
    """A public list would show one role's tools to another (mcp.md, pitfalls 9 and 17)."""
    async with connect(server) as client:
        results = [
            await client.result("server/discover"),
            await client.result("tools/list"),
            await client.result("resources/list"),
            await client.result("resources/templates/list"),
            await client.result("resources/read", {"uri": "dbtools://row/person/1"}),
        ]

    assert [(result["cacheScope"], result["ttlMs"]) for result in results] == [("private", 0)] * 5


@pytest.mark.parametrize("version", ["2024-11-05", MODERN])
async def test_many_tools_come_in_pages_of_two_hundred(large_server: Serving, version: str) -> None:
    async with connect(large_server, version=version) as client:
        await client.open()
        first = await client.result("tools/list")
        second = await client.result("tools/list", {"cursor": first["nextCursor"]})
        third = await client.result("tools/list", {"cursor": second["nextCursor"]})

    assert [len(page["tools"]) for page in (first, second, third)] == [200, 200, 53]
    assert "nextCursor" not in third
    names = [tool["name"] for page in (first, second, third) for tool in page["tools"]]
    assert names == [
        "describe_tables",
        "aggregate_rows",
        "run_sql",
        *(f"list_t{number:03}" for number in range(450)),
    ]


async def test_first_page_holds_what_describes_the_rest(large_server: Serving) -> None:
    """Many hosts read the first page only (mcp.md, pitfall 10); tools of later pages can be called."""
    async with connect(large_server) as client:
        first = await client.result("tools/list")
        described = await client.call("describe_tables", {"tables": ["t449"]})
        called = await client.call("list_t449")

    assert first["tools"][0]["name"] == "describe_tables"
    assert described["structuredContent"]["tables"][0]["name"] == "t449"
    assert called["structuredContent"]["rows"] == []


@pytest.mark.parametrize(
    "cursor",
    [*("", "0", "1", "-200", "451", "600", "x", "²00", "\0"), pytest.param("9" * 5_000, id="5,000 digits")],
)
@pytest.mark.parametrize("version", ["2025-06-18", MODERN])
async def test_foreign_cursor_is_refused(large_server: Serving, version: str, cursor: str) -> None:
    async with connect(large_server, version=version) as client:
        await client.open()
        error = await client.error("tools/list", {"cursor": cursor})

    assert error["code"] == INVALID_PARAMS
    assert "cursor" in error["message"]


@pytest.mark.parametrize("method", ["resources/list", "resources/templates/list"])
async def test_lists_of_one_page_have_no_cursor(client: Client, method: str) -> None:
    error = await client.error(method, {"cursor": "200"})

    assert error["code"] == INVALID_PARAMS
