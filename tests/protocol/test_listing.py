"""What `tools/list` answers: names, titles, annotations and schemas, in a fixed order, 200 a page."""

from collections.abc import AsyncIterator
from pathlib import Path

import jsonschema
import pytest

from dbtools.answers.styles import Surface
from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from tests.protocol.client import MODERN, VERSIONS, Client, Serving, build_server, connect
from tests.protocol.conftest import settings_for

INVALID_PARAMS = -32602
NAMES = [
    *("describe_tables", "aggregate_rows", "run_sql"),
    *("list_album", "list_person", "list_slow", "list_story", "list_tag"),
    *("get_album", "get_person", "get_story", "get_tag"),
]


@pytest.fixture(scope="module")
async def large_server(large_path: Path) -> AsyncIterator[Serving]:
    """Yield a server of a database of 450 tables without keys: 452 tools."""
    toolbox, database = open_toolbox(settings_for(large_path, surface=Surface.TYPED))
    yield build_server(toolbox, Caller(), "")
    await database.close()


async def test_every_table_has_its_tools_which_every_client_takes(client: Client) -> None:
    """An output schema that is no object would fail the whole list in the 2025 era (mcp.md, pitfall 4)."""
    tools = await client.list_all("tools/list", "tools")

    assert [tool["name"] for tool in tools] == NAMES
    for tool in tools:
        assert tool["annotations"] == {"openWorldHint": False, "readOnlyHint": True}
        assert tool["title"]
        assert tool["description"]
        for schema in (tool["inputSchema"], tool["outputSchema"]):
            jsonschema.Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object"
            assert set(schema) <= {"type", "properties", "required"}


async def test_list_is_the_same_each_time_in_every_version_and_process(path: Path, server: Serving) -> None:
    toolbox, database = open_toolbox(settings_for(path))
    lists = []
    for serving in (server, build_server(toolbox, Caller(), "")):
        for version in (*VERSIONS, MODERN):
            async with connect(serving, version=version) as client:
                await client.open()
                lists.append(await client.list_all("tools/list", "tools"))
    await database.close()

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
    """Many hosts read the first page only (mcp.md, pitfall 10); tools of later pages can be called."""
    pages, cursor = [], dict[str, object]()
    async with connect(large_server, version=version) as client:
        await client.open()
        for _ in range(3):
            pages.append(page := await client.result("tools/list", cursor))
            cursor = {"cursor": page.get("nextCursor")}
        described = await client.call("describe_tables", {"tables": ["t449"]})
        called = await client.call("list_t449")

    assert [len(page["tools"]) for page in pages] == [200, 200, 53]
    assert cursor == {"cursor": None}
    assert [tool["name"] for page in pages for tool in page["tools"]] == [
        *("describe_tables", "aggregate_rows", "run_sql"),
        *(f"list_t{number:03}" for number in range(450)),
    ]
    assert described["structuredContent"]["tables"][0]["name"] == "t449"
    assert called["structuredContent"]["rows"] == []


@pytest.mark.parametrize("version", ["2025-06-18", MODERN])
async def test_foreign_cursor_is_refused(large_server: Serving, version: str) -> None:
    asked = [
        ("tools/list", each) for each in ("", "0", "1", "-200", "451", "600", "x", "²00", "\0", "9" * 5_000)
    ]
    asked += [("resources/list", "7"), ("resources/templates/list", "200")]
    async with connect(large_server, version=version) as client:
        await client.open()
        errors = [await client.error(method, {"cursor": cursor}) for method, cursor in asked]

    assert [(each["code"], "cursor" in each["message"]) for each in errors] == [(INVALID_PARAMS, True)] * 12
