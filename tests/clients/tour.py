"""The steps that each client takes at a server, and what it should see. tour.mjs has the same steps.

This is the SDK's client in Python.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent, TextResourceContents, ToolListChangedNotification

from tests.clients.places import Place
from tests.protocol.client import MODERN, PATIENCE, ROOT

SCHEMA = "dbtools://schema"
TOTAL = {"sqlite": "any", "postgresql": "bigint"}  #: the type of a count in a view

Seen = dict[str, Any]
Notifications = AsyncIterator[object]


def expected(place: Place, version: str) -> Seen:
    """Return what a client that speaks *version* sees at *place*."""
    person = ["id integer key", "name text", "born date"]
    described = {
        "table_count": 2,
        "truncated": False,
        "tables": [
            {"name": "person", "kind": "table", "row_estimate": 3, "columns": person},
            {"name": "slow", "kind": "view", "columns": [f"total {TOTAL[place.kind.dialect]}"]},
        ],
    }
    tools = ["describe_tables", "aggregate_rows", "list_person", "list_slow", "get_person"]
    # The login of the tests may write on PostgreSQL, so run_sql is not offered there.
    tools += ["run_sql"] if place.kind.dialect == "sqlite" else []
    is_notified = "--stateless" not in place.kind.options or version == MODERN
    return {
        "version": version,
        "tools": {name: ["object", "object"] for name in tools},
        "described": described,
        "pages": [
            {"rows": [[2, "Bo", None]], "truncated": True},
            {"rows": [[3, "Cy", "1990-01-02"]], "truncated": False},
        ],
        "mistake": {"isError": True, "named": True},
        "unknownTool": -32602,
        "resources": [SCHEMA, f"{SCHEMA}/person", f"{SCHEMA}/slow"],
        "templates": ["dbtools://row/{table}/{key}", "dbtools://cell/{table}/{key}/{column}"],
        "schema": described,
        "slow": {"progress": [1, 60], "failed": "aborted"},
        "row": {"id": 1, "name": "Ada", "born": "1815-12-10"},
        "changes": [["list_late", "get_late"], []] if is_notified else None,
    }


async def tour(place: Place, mode: str) -> Seen:
    """Visit *place* with a client in *mode*, and return what it sees."""
    sending, received = anyio.create_memory_object_stream[object](100)

    async def hear(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            sending.send_nowait(message)

    with sending, received:
        async with _client(place, mode, hear) as client:
            seen = await _visit(client, place, received)
    await place.lend_a_hand("see it stopped")
    return seen


@asynccontextmanager
async def _client(place: Place, mode: str, hear: Any) -> AsyncIterator[Client]:
    if place.url is None:
        program, *arguments = place.command
        parameters = StdioServerParameters(command=program, args=arguments, cwd=ROOT)
        async with Client(parameters, mode=mode, message_handler=hear) as client:
            yield client
        return
    async with httpx2.AsyncClient(headers=dict(place.headers), timeout=PATIENCE) as http:
        transport = streamable_http_client(place.url, http_client=http)
        async with Client(transport, mode=mode, message_handler=hear) as client:
            yield client


async def _visit(client: Client, place: Place, received: MemoryObjectReceiveStream[object]) -> Seen:
    reported = anyio.Event()
    slow: Seen = {"failed": "aborted"}
    calling = anyio.CancelScope()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        slow.setdefault("progress", [progress, total])
        reported.set()

    async def call_slow() -> None:
        with calling:
            slow["answered"] = await client.call_tool("list_slow", progress_callback=report)
        reported.set()

    async with anyio.create_task_group() as group:
        group.start_soon(call_slow)
        seen = await _look_around(client)
        await reported.wait()
        await place.lend_a_hand("see it run")
        calling.cancel()
        if _is_notified(client):  # without a session, only a disconnect stops the call
            await place.lend_a_hand("see it stopped")
    changes = await _follow_changes(client, place, received) if _is_notified(client) else None
    row = _structured(await client.call_tool("get_person", {"id": 1}))["row"]
    return {**seen, "slow": slow, "changes": changes, "row": row}


async def _look_around(client: Client) -> Seen:
    tools = (await client.list_tools()).tools
    return {
        "version": client.protocol_version,
        "tools": {
            tool.name: [tool.input_schema["type"], (tool.output_schema or {}).get("type")] for tool in tools
        },
        **await _read_rows(client),
        **await _make_mistakes(client),
        **await _read_resources(client),
    }


async def _read_rows(client: Client) -> Seen:
    page = {"where": [{"column": "id", "op": "gte", "value": 2}], "limit": 1}
    described = await client.call_tool("describe_tables")
    first = _structured(await client.call_tool("list_person", page))
    second = _structured(await client.call_tool("list_person", {**page, "cursor": first["next_cursor"]}))
    return {
        "described": described.structured_content,
        "pages": [{name: page[name] for name in ("rows", "truncated")} for page in (first, second)],
    }


async def _make_mistakes(client: Client) -> Seen:
    mistaken = await client.call_tool("list_person", {"order_by": ["nam"]})
    [content] = mistaken.content
    assert isinstance(content, TextContent)
    try:
        unknown: object = await client.call_tool("list_nobody")
    except MCPError as exc:
        unknown = exc.error.code
    return {
        "mistake": {"isError": mistaken.is_error, "named": "'nam'" in content.text},
        "unknownTool": unknown,
    }


async def _read_resources(client: Client) -> Seen:
    resources = (await client.list_resources()).resources
    templates = (await client.list_resource_templates()).resource_templates
    [content] = (await client.read_resource(SCHEMA)).contents
    assert isinstance(content, TextResourceContents)
    return {
        "resources": [str(each.uri) for each in resources],
        "templates": [each.uri_template for each in templates],
        "schema": json.loads(content.text),
    }


async def _follow_changes(client: Client, place: Place, received: Notifications) -> list[list[str]]:
    """Return which tools are new after a table is added, and after it is dropped again."""
    changes: list[list[str]] = []
    async with _notifications(client, received) as notifications:
        before = known = await _names(client)
        for change in ("add a table", "drop it"):
            await place.lend_a_hand(change)
            known = await _next_other(client, known, notifications)
            changes.append([name for name in known if name not in before])
    return changes


def _is_notified(client: Client) -> bool:
    """Return whether the server notifies *client* of changes. A client of 2026-07-28 subscribes to them."""
    tools = client.server_capabilities.tools
    return client.protocol_version == MODERN or bool(tools and tools.list_changed)


@asynccontextmanager
async def _notifications(client: Client, received: Notifications) -> AsyncIterator[Notifications]:
    """Yield the notifications of changes; a client of 2026-07-28 subscribes to them first."""
    if client.protocol_version != MODERN:
        yield received
        return
    async with client.listen(tools_list_changed=True) as subscription:
        yield aiter(subscription)


async def _next_other(client: Client, known: list[str], notifications: Notifications) -> list[str]:
    """Wait for notifications until the names of the tools differ from *known*, and return them."""
    with anyio.fail_after(PATIENCE):
        while True:
            await anext(notifications)
            names = await _names(client)
            if names != known:
                return names


async def _names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]


def _structured(result: CallToolResult) -> Seen:
    assert isinstance(result.structured_content, dict), result
    return result.structured_content
