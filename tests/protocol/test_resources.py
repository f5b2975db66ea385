"""Rows and cells as resources."""

import base64
import json

import pytest

from tests.protocol.client import MODERN, Client
from tests.protocol.conftest import LONG_TEXT, PDF, PNG

NOT_FOUND, INVALID_PARAMS = -32002, -32602


async def test_templates_name_rows_and_cells(client: Client) -> None:
    templates = await client.list_all("resources/templates/list", "resourceTemplates")

    assert [template["uriTemplate"] for template in templates] == [
        "dbtools://row/{table}/{key}",
        "dbtools://cell/{table}/{key}/{column}",
    ]


async def test_schema_is_listed_and_no_row(client: Client) -> None:
    listed = await client.list_all("resources/list", "resources")

    assert [each["uri"] for each in listed] == [
        "dbtools://schema",
        *(f"dbtools://schema/{name}" for name in ("album", "person", "slow", "story", "tag")),
    ]
    assert listed[2] == {
        "uri": "dbtools://schema/person",
        "name": "person",
        "title": "Schema of person",
        "description": "'Somebody'",
        "mimeType": "application/json",
    }


@pytest.mark.parametrize(
    ("uri", "row"),
    [
        pytest.param(
            "dbtools://row/person/2", {"id": 2, "name": "Bo", "salary": None, "notes": "x"}, id="one column"
        ),
        pytest.param("dbtools://row/tag/one,a%2Cb", {"story": "one", "word": "a,b"}, id="composite key"),
    ],
)
async def test_row_is_read_as_json(client: Client, uri: str, row: dict[str, object]) -> None:
    result = await client.result("resources/read", {"uri": uri})

    [content] = result["contents"]
    assert (content["uri"], content["mimeType"]) == (uri, "application/json")
    assert json.loads(content["text"]) == {"row": row}


@pytest.mark.parametrize(
    ("uri", "type", "member", "content"),
    [
        pytest.param("dbtools://cell/story/long/body", "text/plain", "text", LONG_TEXT, id="text"),
        pytest.param("dbtools://cell/person/1/notes", "application/json", "text", "null", id="null"),
        pytest.param(
            "dbtools://cell/album/1/picture", "image/png", "blob", base64.b64encode(PNG).decode(), id="image"
        ),
        pytest.param(
            "dbtools://cell/album/1/paper",
            "application/pdf",
            "blob",
            base64.b64encode(PDF).decode(),
            id="file",
        ),
    ],
)
async def test_cell_is_read_whole(client: Client, uri: str, type: str, member: str, content: str) -> None:
    result = await client.result("resources/read", {"uri": uri})

    assert result["contents"] == [{"uri": uri, "mimeType": type, member: content}]


@pytest.mark.parametrize(
    "uri",
    [
        "dbtools://row/nobody/1",
        "dbtools://row/person/99",
        "dbtools://row/person/one",
        "dbtools://row/person/1,2",
        "dbtools://row/slow/1",
        "dbtools://row/person",
        "dbtools://row/person/",
        "dbtools://cell/person/1/age",
        "dbtools://cell/person/99/name",
        "dbtools://cell/person/1/name/x",
        "dbtools://table/person",
        "dbtools://row/person/%ff",
        "dbtools://row/person/%00",
        "file:///etc/passwd",
        "person/1",
        "",
        "\0",
        pytest.param("\ud800", id="half a surrogate pair"),
        pytest.param("dbtools://row/person/" + "9" * 100_000, id="100,000 digits"),
    ],
)
async def test_unknown_resource_has_the_code_of_its_era(client: Client, uri: str) -> None:
    error = await client.error("resources/read", {"uri": uri})

    assert error["code"] == (INVALID_PARAMS if client.version == MODERN else NOT_FOUND)
    assert error["data"] == {"uri": uri}


@pytest.mark.parametrize("params", [{}, {"uri": 5}, {"uri": None}])
async def test_malformed_reading_is_a_protocol_error(client: Client, params: dict[str, object]) -> None:
    error = await client.error("resources/read", params)

    assert error["code"] == INVALID_PARAMS


async def test_schema_is_read_as_describe_tables_tells_it(client: Client) -> None:
    read = [
        await client.result("resources/read", {"uri": uri})
        for uri in ("dbtools://schema", "dbtools://schema/person")
    ]
    told = [
        await client.call("describe_tables"),
        await client.call("describe_tables", {"tables": ["person"], "detail": "full"}),
    ]

    assert [each["contents"][0]["text"] for each in read] == [each["content"][0]["text"] for each in told]


@pytest.mark.parametrize("uri", ["dbtools://schema/nothing", "dbtools://schema/", "dbtools://schema/a/b"])
async def test_schema_of_no_table_is_no_resource(uri: str, client: Client) -> None:
    error = await client.error("resources/read", {"uri": uri})

    assert error["code"] == (INVALID_PARAMS if client.version == MODERN else NOT_FOUND)
