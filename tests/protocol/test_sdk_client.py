"""The SDK's own client, which validates results against schemas, in each of its modes."""

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import pytest
from anyio.streams.memory import MemoryObjectSendStream
from mcp import Client, MCPError, StdioServerParameters
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import (
    AudioContent,
    CallToolResult,
    ImageContent,
    TextContent,
    TextResourceContents,
    jsonrpc_message_adapter,
)

from dbtools.policy import Caller
from dbtools.server.stdio import LineConnection
from dbtools.service.serving import open_toolbox
from dbtools.styles import Surface
from tests.protocol.client import MODERN, PATIENCE, ROOT, Serving, build_server
from tests.protocol.conftest import LONG_TEXT, settings_for

COMMON = ("describe_tables", "aggregate_rows", "run_sql")  #: listed beside the tools of each table
MODES = ("legacy", "auto", MODERN)


class Written(asyncio.Transport):
    """The far end of a connection in this process: takes lines for the SDK's client."""

    def __init__(self, send: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        super().__init__()
        self._send = send

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Pass a line on."""
        message = jsonrpc_message_adapter.validate_json(bytes(data), by_name=False)
        self._send.send_nowait(SessionMessage(message))


@asynccontextmanager
async def in_process(serving: Serving) -> AsyncIterator[TransportStreams]:
    """Give the SDK's client streams to *serving*."""
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](100)
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage]()
    connection = LineConnection(serving.server, serving.caller)
    connection.write = Written(to_client).write

    async def pass_on() -> None:
        async for each in from_client:
            connection.data_received(
                each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            )

    async with anyio.create_task_group() as group, to_client, from_server, to_server, from_client:
        group.start_soon(pass_on)
        yield from_server, to_server
        group.cancel_scope.cancel()
        connection.disconnect()
        await connection.finish()


def _text(result: CallToolResult) -> str:
    content = result.content[0]
    assert isinstance(content, TextContent)
    return content.text


@pytest.mark.parametrize("mode", MODES)
async def test_client_lists_and_calls(server: Serving, mode: str) -> None:
    async with Client(in_process(server), mode=mode) as client:
        listed = await client.list_tools(cache_mode="bypass")
        called = await client.call_tool("get_person", {"id": 1})
        refused = await client.call_tool("get_person", {"id": "one"})

    assert listed.tools[0].name == "describe_tables"
    assert called.structured_content == {"row": {"id": 1, "name": "Ada", "salary": 10.5, "notes": None}}
    assert refused.is_error
    assert "integer" in _text(refused)


@pytest.mark.parametrize("mode", MODES)
async def test_client_gets_media(server: Serving, mode: str) -> None:
    async with Client(in_process(server), mode=mode) as client:
        result = await client.call_tool("get_album", {"id": 1})

    assert [type(content) for content in result.content[1:3]] == [ImageContent, AudioContent]


@pytest.mark.parametrize("mode", MODES)
async def test_client_reads_a_resource(server: Serving, mode: str) -> None:
    async with Client(in_process(server), mode=mode) as client:
        templates = await client.list_resource_templates(cache_mode="bypass")
        result = await client.read_resource("dbtools://cell/story/long/body", cache_mode="bypass")

    assert len(templates.resource_templates) == 2
    [content] = result.contents
    assert isinstance(content, TextResourceContents)
    assert content.text == LONG_TEXT


@pytest.mark.parametrize("mode", MODES)
async def test_client_gets_an_error_for_an_unknown_tool(server: Serving, mode: str) -> None:
    async with Client(in_process(server), mode=mode) as client:
        with pytest.raises(MCPError, match="list_person") as caught:
            await client.call_tool("list_persn")

    assert caught.value.error.code == -32602


@pytest.mark.parametrize("mode", MODES)
async def test_client_walks_all_pages(large_path: Path, mode: str) -> None:
    toolbox, database = open_toolbox(settings_for(large_path, surface=Surface.TYPED))
    names: list[str] = []
    async with Client(in_process(build_server(toolbox, Caller(), "")), mode=mode) as client:
        page = await client.list_tools(cache_mode="bypass")
        names.extend(tool.name for tool in page.tools)
        while page.next_cursor is not None:
            page = await client.list_tools(cursor=page.next_cursor, cache_mode="bypass")
            names.extend(tool.name for tool in page.tools)
    await database.close()

    assert names == [*COMMON, *(f"list_t{number:03}" for number in range(450))]


@pytest.mark.parametrize("mode", MODES)
async def test_client_sees_a_changed_list_at_once(sqlite_database: Callable[[str], Path], mode: str) -> None:
    """Lists have no time to live: a client that caches them asks again (mcp.md, pitfall 9)."""
    path = sqlite_database("create table early (a text)")
    toolbox, database = open_toolbox(settings_for(path))
    async with Client(in_process(build_server(toolbox, Caller(), "")), mode=mode) as client:
        before = await client.list_tools()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("create table late (a text)")
        await toolbox.refresh()
        after = await client.list_tools()
    await database.close()

    assert [tool.name for tool in before.tools] == [*COMMON, "list_early"]
    assert [tool.name for tool in after.tools] == [*COMMON, "list_early", "list_late"]


async def test_client_gets_progress(path: Path) -> None:
    toolbox, database = open_toolbox(settings_for(path, timeout=2.0))
    reports: list[tuple[float, float | None]] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total))

    # In process, only this mode sends messages with tokens in them.
    async with Client(in_process(build_server(toolbox, Caller(), "")), mode="legacy") as client:
        result = await client.call_tool("list_slow", progress_callback=report)
    await database.close()

    assert result.is_error
    assert "timeout" in _text(result)
    assert reports[0] == (1.0, 2.0)


@pytest.mark.parametrize("mode", MODES)
async def test_client_of_a_process(path: Path, mode: str) -> None:
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "dbtools", "serve", str(path)], cwd=ROOT
    )
    with anyio.fail_after(PATIENCE):
        async with Client(parameters, mode=mode) as client:
            listed = await client.list_tools(cache_mode="bypass")
            called = await client.call_tool("list_person", {"columns": ["name"]})

    assert len(listed.tools) == 12
    assert called.structured_content is not None
    assert called.structured_content["rows"] == [["Ada"], ["Bo"], ["Cy"]]
