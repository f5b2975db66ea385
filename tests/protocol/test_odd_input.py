"""Lines that are not messages, and invalid messages: each is answered, and the server continues."""

import json

import pytest

from tests.protocol.client import HANDSHAKES, MODERN, Message, Serving, connect

PARSE_ERROR, INVALID_REQUEST = -32700, -32600
DEEP = 100_000  #: levels
META: Message = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def _request(id: object, method: str = "tools/list", **params: object) -> str:
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": META}}
    return json.dumps(message)


def _call(arguments: str, name: str = "list_person") -> bytes:
    """Return a line that calls a tool with *arguments*, which are JSON or nearly so."""
    line = _request("odd", "tools/call", name=name, arguments="HERE")
    return line.replace('"HERE"', arguments).encode()


def _deep(head: str, tail: str, *, opening: str = "[", closing: str = "]") -> bytes:
    return f'{{"jsonrpc":"2.0",{head}{opening * DEEP}0{closing * DEEP}{tail}'.encode()


@pytest.mark.parametrize(
    ("line", "code", "id"),
    [
        pytest.param(b"hello", PARSE_ERROR, None, id="word"),
        pytest.param(b"{", PARSE_ERROR, None, id="opened object"),
        pytest.param(_request(7).encode()[:-9], PARSE_ERROR, None, id="half a request"),
        pytest.param(_request(7).encode() * 2, PARSE_ERROR, None, id="two requests"),
        pytest.param(b"\0", PARSE_ERROR, None, id="NUL byte"),
        pytest.param(b'{"jsonrpc":"2.0\0","id":1,"method":"ping"}', PARSE_ERROR, None, id="NUL in a string"),
        pytest.param(b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', PARSE_ERROR, None, id="invalid UTF-8"),
        pytest.param(b"\xed\xa0\x80", PARSE_ERROR, None, id="surrogate in UTF-8"),
        pytest.param(_request(7).encode("utf-16"), PARSE_ERROR, None, id="UTF-16"),
        pytest.param(b"5", INVALID_REQUEST, None, id="number"),
        pytest.param(b"null", INVALID_REQUEST, None, id="null"),
        pytest.param(b'"x"', INVALID_REQUEST, None, id="string"),
        pytest.param(b"[]", INVALID_REQUEST, None, id="empty batch"),
        pytest.param(f"[{_request(7)}]".encode(), INVALID_REQUEST, None, id="batch"),
        pytest.param(b"{}", INVALID_REQUEST, None, id="empty object"),
        pytest.param(b'{"id":7,"method":"ping"}', INVALID_REQUEST, 7, id="no jsonrpc"),
        pytest.param(b'{"jsonrpc":"1.0","id":"a","method":"ping"}', INVALID_REQUEST, "a", id="jsonrpc 1.0"),
        pytest.param(b'{"jsonrpc":"2.0","id":7}', INVALID_REQUEST, 7, id="no method"),
        pytest.param(b'{"jsonrpc":"2.0","id":7,"method":5}', INVALID_REQUEST, 7, id="method is a number"),
        pytest.param(
            b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}',
            INVALID_REQUEST,
            7,
            id="params are a list",
        ),
        pytest.param(
            b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', INVALID_REQUEST, None, id="id is a fraction"
        ),
        pytest.param(b'{"jsonrpc":"2.0","id":null,"method":"ping"}', INVALID_REQUEST, None, id="id is null"),
        pytest.param(b'{"jsonrpc":"2.0","id":true,"method":"ping"}', INVALID_REQUEST, None, id="id is true"),
        pytest.param(b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', INVALID_REQUEST, None, id="id is a list"),
        pytest.param(
            b'{"jsonrpc":"1.0","id":"\\ud800","method":"ping"}',
            INVALID_REQUEST,
            "\ud800",
            id="id is half a pair",
        ),
        pytest.param(
            b'{"jsonrpc":"1.0","id":%s,"method":"ping"}' % (b"9" * 5_000),
            INVALID_REQUEST,
            None,
            id="endless id",
        ),
        pytest.param(
            _deep('"id":7,"method":"tools/call","params":{"a":', "}}"),
            INVALID_REQUEST,
            None,
            id="deep arrays",
        ),
        pytest.param(
            _deep('"id":7,"method":"x","params":{"a":', "}}", opening='{"id":', closing="}"),
            INVALID_REQUEST,
            None,
            id="deep objects",
        ),
        pytest.param(
            '{"jsonrpc":"2.0","id":7,"method":"ping"}'.encode("utf-16-be") + b"\0",
            PARSE_ERROR,
            None,
            id="UTF-16",
        ),
        pytest.param(b"[" * DEEP, INVALID_REQUEST, None, id="deep, opened only"),
    ],
)
@pytest.mark.parametrize("version", ["2025-03-26", MODERN])
async def test_line_that_is_no_message_gets_an_error(
    server: Serving, version: str, line: bytes, code: int, id: object
) -> None:
    async with connect(server, version=version) as client:
        await client.open()
        await client.send_line(line)
        answer = await client.answer(id)
        listed = await client.result("tools/list")

    assert answer["error"]["code"] == code
    assert listed["tools"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param(_call('{"cursor":"\\ud800"}'), "cursor", id="half a surrogate pair"),
        pytest.param(_call('{"where":[{"column":"name","value":"a\\udc00"}]}'), "where", id="other half"),
        pytest.param(_call('{"\\ud800":1}'), "arguments", id="half a pair as a name"),
        pytest.param(_call('{"cursor":"a\\u0000"}'), "cursor", id="NUL"),
        pytest.param(_call('{"limit":NaN}'), "limit", id="NaN"),
        pytest.param(_call('{"limit":-Infinity}'), "limit", id="infinity"),
        pytest.param(_call('{"limit":1e999}'), "limit", id="number beyond doubles"),
        pytest.param(_call(f'{{"limit":{2**64}}}'), "limit", id="integer beyond 64 bits"),
        pytest.param(_call(f'{{"limit":-{2**64}}}'), "limit", id="negative integer beyond 64 bits"),
        pytest.param(_call(f'{{"limit":{"9" * 5_000}}}'), "limit", id="integer of 5,000 digits"),
        pytest.param(_call(f'{{"id":{2**64}}}', "get_person"), "id", id="key beyond 64 bits"),
        pytest.param(_call(f'{{"cursor":"{"x" * 10_000_000}"}}'), "cursor", id="10 MB string"),
        pytest.param(_call(f'{{"columns":[{",".join(["0"] * 100_000)}]}}'), "columns", id="100,000 items"),
        pytest.param(
            _call(json.dumps({str(each): each for each in range(100_000)})), "values", id="100,000 arguments"
        ),
        pytest.param(_call('{"where":' + "[" * 150 + "]" * 150 + "}"), "where", id="150 levels"),
        pytest.param(_call('{"where":' + "[" * 900 + "]" * 900 + "}"), "where", id="900 levels"),
        pytest.param(_call('{"limit":1,"limit":0}'), "limit", id="duplicate keys, the last one counts"),
    ],
)
@pytest.mark.parametrize("version", ["2024-11-05", MODERN])
async def test_odd_argument_is_named(server: Serving, version: str, line: bytes, said: str) -> None:
    async with connect(server, version=version) as client:
        await client.open()
        await client.send_line(line if version == MODERN else line.replace(b"io.modelcontextprotocol/", b""))
        result = (await client.answer("odd"))["result"]
        listed = await client.result("tools/list")

    assert result["isError"] is True
    assert said in result["content"][0]["text"]
    assert len(result["content"][0]["text"]) < 1_000
    assert listed["tools"]


@pytest.mark.parametrize("version", [HANDSHAKES[-1], MODERN])
@pytest.mark.parametrize(
    ("method", "params"),
    [
        pytest.param("\ud800", {}, id="method"),
        pytest.param("tools/call", {"name": "\ud800"}, id="tool"),
        pytest.param("tools/call", {"name": "list_person", "arguments": {"\ud800": "\udfff"}}, id="argument"),
        pytest.param("tools/list", {"cursor": "\ud800"}, id="cursor"),
        pytest.param("resources/read", {"uri": "dbtools://row/\ud800/1"}, id="resource"),
        pytest.param("resources/read", {"uri": "dbtools://cell/person/\udc00/name"}, id="key"),
    ],
)
async def test_half_a_surrogate_pair_anywhere_is_answered(
    server: Serving, version: str, method: str, params: Message
) -> None:
    async with connect(server, version=version) as client:
        await client.open()
        answer = await client.request(method, params)
        listed = await client.result("tools/list")

    assert "error" in answer or answer["result"]["isError"] is True
    assert listed["tools"]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"", id="blank"),
        pytest.param(b"  \t", id="blanks"),
        pytest.param(b"\r", id="blank with CR"),
        pytest.param(b'{"jsonrpc":"2.0","method":"notifications/unknown"}', id="unknown notification"),
        pytest.param(b'{"jsonrpc":"2.0","method":"notifications/cancelled"}', id="cancelled nothing"),
        pytest.param(
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}',
            id="cancelled what never was",
        ),
        pytest.param(
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[1]}}',
            id="cancelled a list",
        ),
        pytest.param(b'{"jsonrpc":"2.0","id":99,"result":{}}', id="answer to nothing"),
        pytest.param(
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}', id="error about nothing"
        ),
    ],
)
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_what_wants_no_answer_gets_none(server: Serving, version: str, line: bytes) -> None:
    async with connect(server, version=version) as client:
        await client.open()
        before = len(client.received)
        await client.send_line(line)
        await client.result("tools/list")

    assert len(client.received) == before + 1


@pytest.mark.parametrize(
    ("before", "end"),
    [
        pytest.param(b"", b"\r\n", id="CRLF"),
        pytest.param(b"\n\r\n \n", b"\n", id="after blank lines"),
        pytest.param(b"\t ", b" \n", id="between blanks"),
    ],
)
async def test_blanks_around_a_message_do_not_matter(server: Serving, before: bytes, end: bytes) -> None:
    async with connect(server) as client:
        await client.send_line(before + _request("spaced").encode(), end=end)
        answer = await client.answer("spaced")

    assert answer["result"]["tools"]


@pytest.mark.parametrize(
    "token",
    [
        *("", 2**70, -1),
        pytest.param("\ud800", id="half a surrogate pair"),
        pytest.param("x" * 10_000, id="10,000 characters"),
    ],
)
async def test_odd_progress_token_does_no_harm(server: Serving, token: object) -> None:
    async with connect(server) as client:
        id = await client.start_call("list_person", token=token)
        answer = await client.answer(id)

    assert answer["result"]["isError"] is False
