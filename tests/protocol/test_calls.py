"""What `tools/call` answers: the same data in both channels, errors that the model can fix, media."""

import base64
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import jsonschema
import pytest

from dbtools.policy import Caller
from dbtools.service.serving import open_toolbox
from tests.protocol.client import (
    HANDSHAKES,
    MODERN,
    VERSIONS,
    Client,
    Message,
    Serving,
    build_server,
    connect,
)
from tests.protocol.conftest import PDF, PNG, WAV, settings_for

SqliteDatabase = Callable[[str], Path]
INVALID_PARAMS = -32602
ALBUM = "dbtools://cell/album/1"
CALLS = [
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


@pytest.mark.parametrize(("name", "arguments"), CALLS)
async def test_result_conforms_to_its_schema_and_is_its_text(
    client: Client, name: str, arguments: Message
) -> None:
    tools = {tool["name"]: tool for tool in await client.list_all("tools/list", "tools")}
    result = await client.call(name, arguments)

    assert result["isError"] is False
    jsonschema.validate(arguments, tools[name]["inputSchema"])
    jsonschema.validate(result["structuredContent"], tools[name]["outputSchema"])
    text = result["content"][0]["text"]
    assert json.loads(text) == result["structuredContent"]
    assert text == json.dumps(result["structuredContent"], separators=(",", ":"), ensure_ascii=False)


async def test_rows_are_answered(client: Client) -> None:
    result = await client.call("list_person", {"columns": ["id", "name"], "limit": 2})

    structured = result["structuredContent"]
    assert structured["columns"] == ["id", "name"]
    assert structured["rows"] == [[1, "Ada"], [2, "Bo"]]
    assert structured["truncated"] is True


async def test_null_is_kept_in_a_row_that_is_an_object(client: Client) -> None:
    result = await client.call("get_person", {"id": 1})

    assert result["structuredContent"]["row"]["notes"] is None


async def test_cursor_goes_on_where_the_page_ended(client: Client) -> None:
    first = (await client.call("list_person", {"limit": 2}))["structuredContent"]
    second = await client.call("list_person", {"limit": 2, "cursor": first["next_cursor"]})

    assert [row[0] for row in second["structuredContent"]["rows"]] == [3]
    assert second["structuredContent"]["truncated"] is False


@pytest.mark.parametrize(
    "name",
    ["list_gone", "", "List_Person", "get_slow", "\0", pytest.param("x" * 10_000, id="10,000 characters")],
)
async def test_unknown_tool_is_a_protocol_error(client: Client, name: str) -> None:
    error = await client.error("tools/call", {"name": name, "arguments": {}})

    assert error["code"] == INVALID_PARAMS


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


async def test_unknown_tool_gets_the_nearest_name(client: Client) -> None:
    error = await client.error("tools/call", {"name": "list_persn"})

    assert "list_person" in error["message"]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        pytest.param("list_person", {"wher": []}, "where", id="unknown argument"),
        pytest.param("list_person", {"limit": -1}, "limit", id="negative limit"),
        pytest.param("list_person", {"limit": 2**70}, "limit", id="limit beyond 64 bits"),
        pytest.param("list_person", {"limit": "many"}, "limit", id="limit that is no number"),
        pytest.param("list_person", {"limit": 1.5}, "limit", id="limit that is a fraction"),
        pytest.param("list_person", {"columns": ["salry"]}, "salary", id="unknown column"),
        pytest.param("list_person", {"columns": 1}, "columns", id="columns that are no array"),
        pytest.param("list_person", {"where": [{"column": "id", "op": "like", "value": "1"}]}, "op", id="op"),
        pytest.param("list_person", {"where": [{"column": "id", "value": "one"}]}, "integer", id="value"),
        pytest.param("list_person", {"where": [{"column": "id"}]}, "value", id="no value"),
        pytest.param("list_person", {"where": [{"value": "1"}]}, "column", id="no column"),
        pytest.param("list_person", {"cursor": "forged"}, "cursor", id="forged cursor"),
        pytest.param("list_person", {"order_by": ["age"]}, "age", id="unknown order"),
        pytest.param("get_person", {}, "id", id="missing key"),
        pytest.param("get_person", {"id": [1]}, "id", id="key that is an array"),
        pytest.param("get_person", {"id": 99}, "no row", id="no row"),
        pytest.param("describe_tables", {"tables": ["persons"]}, "person", id="unknown table"),
        pytest.param("describe_tables", {"detail": "all"}, "detail", id="unknown detail"),
    ],
)
async def test_bad_argument_is_a_result_that_the_model_can_fix(
    client: Client, name: str, arguments: Message, said: str
) -> None:
    result = await client.call(name, arguments)

    assert result["isError"] is True
    assert "structuredContent" not in result
    [content] = result["content"]
    assert said in content["text"]


@pytest.mark.parametrize(
    "params",
    [
        pytest.param({}, id="no name"),
        pytest.param({"name": 5}, id="name that is a number"),
        pytest.param({"name": None}, id="name that is null"),
        pytest.param({"name": "list_person", "arguments": [1]}, id="arguments that are an array"),
        pytest.param({"name": "list_person", "arguments": "{}"}, id="arguments that are a string"),
        pytest.param({"name": "list_person", "inputResponses": {"a": 5}}, id="response that is a number"),
        pytest.param({"name": "list_person", "inputResponses": {"a": None}}, id="response that is null"),
        pytest.param({"name": "list_person", "requestState": 5}, id="state that is a number"),
    ],
)
async def test_malformed_call_is_a_protocol_error(client: Client, params: Message) -> None:
    error = await client.error("tools/call", params)

    assert error["code"] == INVALID_PARAMS


@pytest.mark.parametrize("params", [{"name": "list_tag"}, {"name": "list_tag", "arguments": None}])
async def test_arguments_may_be_left_out(client: Client, params: Message) -> None:
    result = await client.result("tools/call", params)

    assert result["structuredContent"]["row_count"] == 1


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


@pytest.mark.parametrize(
    ("version", "sound"),
    [
        pytest.param(
            version,
            {"type": "audio", "mimeType": "audio/wav", "data": _base64(WAV)}
            if version >= "2025-03-26"
            else {
                "type": "resource",
                "resource": {"uri": f"{ALBUM}/sound", "mimeType": "audio/wav", "blob": _base64(WAV)},
            },
            id=version,
        )
        for version in VERSIONS
    ],
)
async def test_blobs_come_as_what_they_are(server: Serving, version: str, sound: Message) -> None:
    async with connect(server, version=version) as client:
        await client.open()
        result = await client.call("get_album", {"id": 1})

    assert result["content"][1:] == [
        {"type": "image", "mimeType": "image/png", "data": _base64(PNG)},
        sound,
        {
            "type": "resource",
            "resource": {"uri": f"{ALBUM}/paper", "mimeType": "application/pdf", "blob": _base64(PDF)},
        },
    ]


@pytest.mark.parametrize("version", VERSIONS)
async def test_long_cell_is_linked_for_versions_that_know_links(server: Serving, version: str) -> None:
    async with connect(server, version=version) as client:
        await client.open()
        result = await client.call("list_story")

    kinds = [content["type"] for content in result["content"]]
    assert kinds == ["text", "resource_link"] if version >= "2025-06-18" else ["text"]


async def test_link_leads_to_the_whole_cell(server: Serving) -> None:
    async with connect(server) as client:
        result = await client.call("list_story")
        [link] = [content for content in result["content"] if content["type"] == "resource_link"]
        read = await client.result("resources/read", {"uri": link["uri"]})

    assert (link["name"], link["mimeType"]) == ("body", "text/plain")
    assert read["contents"][0]["text"] == "long " * 1_000


@pytest.mark.parametrize(
    "name", [*(f"list_{table}" for table in ("album", "story")), "get_album", "get_story"]
)
async def test_oldest_version_gets_no_content_that_it_does_not_know(server: Serving, name: str) -> None:
    keys: dict[str, Message] = {"get_album": {"id": 1}, "get_story": {"slug": "long"}}
    async with connect(server, version=HANDSHAKES[0]) as client:
        await client.open()
        result = await client.call(name, keys.get(name))

    assert {content["type"] for content in result["content"]} <= {"text", "image", "resource"}


async def test_fifty_calls_at_once_are_each_answered(client: Client) -> None:
    ids = {await client.start_call("get_person", {"id": each % 3 + 1}): each % 3 + 1 for each in range(50)}
    answers = {id: await client.answer(id) for id in ids}

    rows = {id: answer["result"]["structuredContent"]["row"]["id"] for id, answer in answers.items()}
    assert rows == ids


@pytest.mark.parametrize(
    "id",
    [
        *("a", "", "1", -5, 2**53 + 1, 2**70, "\0"),
        pytest.param("\ud800", id="half a surrogate pair"),
        pytest.param("x" * 10_000, id="10,000 characters"),
    ],
)
async def test_answer_has_the_id_of_its_request(client: Client, id: object) -> None:
    await client.start("tools/list", id=id)
    answer = await client.answer(id)

    assert answer["result"]["tools"]


async def test_modern_result_is_complete(server: Serving) -> None:
    async with connect(server, version=MODERN) as client:
        results = [
            await client.call("list_person"),
            await client.call("list_person", {"limit": 0}),
            await client.result("resources/read", {"uri": "dbtools://row/person/1"}),
        ]

    assert [result["resultType"] for result in results] == ["complete"] * 3
