"""Rows and cells as resources."""

import base64

from tests.protocol.client import MODERN, Client
from tests.protocol.conftest import LONG_TEXT, PDF, PNG

NOT_FOUND, INVALID_PARAMS = -32002, -32602


async def test_schema_is_listed_and_no_row(client: Client) -> None:
    templates = await client.list_all("resources/templates/list", "resourceTemplates")
    listed = await client.list_all("resources/list", "resources")

    assert [template["uriTemplate"] for template in templates] == [
        "dbtools://row/{table}/{key}",
        "dbtools://cell/{table}/{key}/{column}",
    ]
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


#: Addresses, and the type and content of what is read there.
CONTENTS: list[tuple[str, str, str | bytes]] = [
    ("row/person/2", "application/json", '{"row":{"id":2,"name":"Bo","salary":null,"notes":"x"}}'),
    ("row/tag/one,a%2Cb", "application/json", '{"row":{"story":"one","word":"a,b"}}'),
    ("cell/story/long/body", "text/plain", LONG_TEXT),
    ("cell/person/1/notes", "application/json", "null"),
    ("cell/album/1/picture", "image/png", PNG),
    ("cell/album/1/paper", "application/pdf", PDF),
]


async def test_row_and_cell_are_read_whole(client: Client) -> None:
    for address, type, content in CONTENTS:
        uri = f"dbtools://{address}"
        result = await client.result("resources/read", {"uri": uri})
        told = {"text": content} if isinstance(content, str) else {"blob": base64.b64encode(content).decode()}

        assert result["contents"] == [{"uri": uri, "mimeType": type, **told}]


UNKNOWN = [
    *("row/nobody/1", "row/person/99", "row/person/one", "row/person/1,2", "row/slow/1", "row/person"),
    *("row/person/", "cell/person/1/age", "cell/person/99/name", "cell/person/1/name/x", "table/person"),
    *("row/person/%ff", "row/person/%00", "row/person/" + "9" * 100_000),
    *("schema/nothing", "schema/", "schema/a/b"),
]


async def test_unknown_resource_has_the_code_of_its_era(client: Client) -> None:
    uris = [f"dbtools://{each}" for each in UNKNOWN]
    uris += ["file:///etc/passwd", "person/1", "", "\0", "\ud800"]
    errors = [await client.error("resources/read", {"uri": uri}) for uri in uris]
    malformed = [await client.error("resources/read", {**each}) for each in ({}, {"uri": 5}, {"uri": None})]

    code = INVALID_PARAMS if client.version == MODERN else NOT_FOUND
    assert [(each["code"], each["data"]) for each in errors] == [(code, {"uri": uri}) for uri in uris]
    assert [each["code"] for each in malformed] == [INVALID_PARAMS] * 3


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
