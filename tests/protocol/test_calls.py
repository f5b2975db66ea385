"""What `tools/call` answers: the same data in both channels, errors that the model can fix, media."""

import base64
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import jsonschema

from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from tests.protocol.client import Client, Message, build_server, connect
from tests.protocol.conftest import LONG_TEXT, PDF, PNG, WAV, settings_for

SqliteDatabase = Callable[[str], Path]
INVALID_PARAMS = -32602
ALBUM = "dbtools://cell/album/1"
CALLS: list[tuple[str, Message]] = [
    ("list_person", {}),
    ("list_person", {"where": [{"column": "name", "value": "Bo"}], "columns": ["notes"]}),
    ("list_person", {"where": [{"column": "id", "op": "gt", "value": "99"}]}),
    ("list_person", {"limit": 1, "order_by": ["name desc"]}),
    ("list_album", {}),
    ("list_story", {}),
    ("get_person", {"id": 1}),
    ("get_album", {"id": 1}),
    ("get_tag", {"story": "one", "word": "a,b"}),
    ("describe_tables", {}),
    ("describe_tables", {"detail": "full"}),
    ("describe_tables", {"tables": ["person"], "detail": "names"}),
]


async def test_result_conforms_to_its_schema_and_is_its_text(client: Client) -> None:
    tools = {tool["name"]: tool for tool in await client.list_all("tools/list", "tools")}
    for name, arguments in CALLS:
        result = await client.call(name, arguments)
        structured = result["structuredContent"]

        assert result["isError"] is False
        jsonschema.validate(arguments, tools[name]["inputSchema"])
        jsonschema.validate(structured, tools[name]["outputSchema"])
        assert result["content"][0]["text"] == json.dumps(
            structured, separators=(",", ":"), ensure_ascii=False
        )


async def test_unknown_tool_is_a_protocol_error_with_the_nearest_name(client: Client) -> None:
    names = ["list_gone", "", "List_Person", "get_slow", "\0", "x" * 10_000, "list_persn"]
    errors = [await client.error("tools/call", {"name": name, "arguments": {}}) for name in names]

    assert {each["code"] for each in errors} == {INVALID_PARAMS}
    assert "list_person" in errors[-1]["message"]


async def test_tool_that_is_gone_reads_as_one_that_never_was(sqlite_database: SqliteDatabase) -> None:
    before = sqlite_database("create table kept (a text); create table gone (a text);")
    after = sqlite_database("create table kept (a text);")
    (toolbox, database), (other, other_database) = (
        open_toolbox(settings_for(path)) for path in (before, after)
    )
    server, other_server = (build_server(toolbox, Caller(), ""), build_server(other, Caller(), ""))
    async with connect(server) as client, connect(other_server) as other_client:
        there = await client.call("list_gone")
        with closing(sqlite3.connect(before)) as connection:
            connection.execute("drop table gone")
        await toolbox.refresh()
        gone = await client.error("tools/call", {"name": "list_gone"})
        never = await other_client.error("tools/call", {"name": "list_gone"})
    await database.close()
    await other_database.close()

    assert there["isError"] is False
    assert gone == never


#: Calls, and what the answer names.
BAD: list[tuple[str, Message, str]] = [
    ("list_person", {"wher": []}, "where"),
    ("list_person", {"limit": "many"}, "limit"),
    ("list_person", {"columns": ["salry"]}, "salary"),
    ("list_person", {"columns": 1}, "columns"),
    ("list_person", {"where": [{"column": "id"}]}, "value"),
    ("list_person", {"cursor": "forged"}, "cursor"),
    ("get_person", {}, "id"),
    ("get_person", {"id": [1]}, "id"),
    ("get_person", {"id": 99}, "no row"),
    ("describe_tables", {"tables": ["persons"]}, "person"),
]


async def test_bad_argument_is_a_result_that_the_model_can_fix(client: Client) -> None:
    for name, arguments, said in BAD:
        result = await client.call(name, arguments)

        assert (result["isError"], "structuredContent" in result) == (True, False)
        [content] = result["content"]
        assert said in content["text"]


NO_ARGUMENTS: list[Message] = [{}, {"arguments": None}]
MALFORMED: list[Message] = [
    {},
    {"name": 5},
    {"name": None},
    {"name": "list_person", "arguments": [1]},
    {"name": "list_person", "arguments": "{}"},
    {"name": "list_person", "inputResponses": {"a": 5}},
    {"name": "list_person", "inputResponses": {"a": None}},
    {"name": "list_person", "requestState": 5},
]


async def test_malformed_call_is_a_protocol_error_and_arguments_may_be_left_out(client: Client) -> None:
    errors = [await client.error("tools/call", params) for params in MALFORMED]
    without = [await client.result("tools/call", {"name": "list_tag", **more}) for more in NO_ARGUMENTS]

    assert [each["code"] for each in errors] == [INVALID_PARAMS] * len(MALFORMED)
    assert [each["structuredContent"]["row_count"] for each in without] == [1, 1]


async def test_blobs_come_as_what_they_are(client: Client) -> None:
    picture, sound, paper = (base64.b64encode(each).decode() for each in (PNG, WAV, PDF))
    audio = {"type": "audio", "mimeType": "audio/wav", "data": sound}
    embedded = {"uri": f"{ALBUM}/sound", "mimeType": "audio/wav", "blob": sound}
    result = await client.call("get_album", {"id": 1})

    assert result["content"][1:] == [
        {"type": "image", "mimeType": "image/png", "data": picture},
        audio if client.version >= "2025-03-26" else {"type": "resource", "resource": embedded},
        {
            "type": "resource",
            "resource": {"uri": f"{ALBUM}/paper", "mimeType": "application/pdf", "blob": paper},
        },
    ]


async def test_long_cell_is_linked_for_versions_that_know_links(client: Client) -> None:
    _, *links = (await client.call("list_story"))["content"]
    known = client.version >= "2025-06-18"

    assert [(each["type"], each["name"], each["mimeType"]) for each in links] == (
        [("resource_link", "body", "text/plain")] if known else []
    )
    for link in links:
        read = await client.result("resources/read", {"uri": link["uri"]})
        assert read["contents"][0]["text"] == LONG_TEXT


async def test_answer_has_the_id_of_its_request(client: Client) -> None:
    for id in ("a", "", "1", -5, 2**53 + 1, 2**70, "\0", "\ud800", "x" * 10_000):
        await client.start("tools/list", id=id)
        assert (await client.answer(id))["result"]["tools"]
