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


#: Lines, the code of the answer, and its ID.
LINES: list[tuple[bytes, int, object]] = [
    (b"hello", PARSE_ERROR, None),
    (b"{", PARSE_ERROR, None),
    (_request(7).encode()[:-9], PARSE_ERROR, None),
    (_request(7).encode() * 2, PARSE_ERROR, None),
    (b"\0", PARSE_ERROR, None),
    (b'{"jsonrpc":"2.0\0","id":1,"method":"ping"}', PARSE_ERROR, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', PARSE_ERROR, None),
    (b"\xed\xa0\x80", PARSE_ERROR, None),  # half a surrogate pair
    (_request(7).encode("utf-16"), PARSE_ERROR, None),
    ('{"jsonrpc":"2.0","id":7,"method":"ping"}'.encode("utf-16-be") + b"\0", PARSE_ERROR, None),
    (b"5", INVALID_REQUEST, None),
    (b"null", INVALID_REQUEST, None),
    (b'"x"', INVALID_REQUEST, None),
    (b"[]", INVALID_REQUEST, None),
    (f"[{_request(7)}]".encode(), INVALID_REQUEST, None),  # a batch
    (b"{}", INVALID_REQUEST, None),
    (b'{"id":7,"method":"ping"}', INVALID_REQUEST, 7),
    (b'{"jsonrpc":"1.0","id":"a","method":"ping"}', INVALID_REQUEST, "a"),
    (b'{"jsonrpc":"2.0","id":7}', INVALID_REQUEST, 7),
    (b'{"jsonrpc":"2.0","id":7,"method":5}', INVALID_REQUEST, 7),
    (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}', INVALID_REQUEST, 7),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', INVALID_REQUEST, None),
    (b'{"jsonrpc":"1.0","id":"\\ud800","method":"ping"}', INVALID_REQUEST, "\ud800"),
    (b'{"jsonrpc":"1.0","id":%s,"method":"ping"}' % (b"9" * 5_000), INVALID_REQUEST, None),
    (_deep('"id":7,"method":"tools/call","params":{"a":', "}}"), INVALID_REQUEST, None),
    (_deep('"id":7,"method":"x","params":{"a":', "}}", opening='{"id":', closing="}"), INVALID_REQUEST, None),
    (b"[" * DEEP, INVALID_REQUEST, None),
]


@pytest.mark.parametrize("version", ["2025-03-26", MODERN])
async def test_line_that_is_no_message_gets_an_error(server: Serving, version: str) -> None:
    for line, code, id in LINES:
        async with connect(server, version=version) as client:
            await client.open()
            await client.send_line(line)
            answer = await client.receive()
            listed = await client.result("tools/list")

        assert (answer["id"], answer["error"]["code"]) == (id, code), line[:100]
        assert listed["tools"]


#: Calls, and what the answer names.
CALLS = [
    (_call('{"cursor":"\\ud800"}'), "cursor"),
    (_call('{"where":[{"column":"name","value":"a\\udc00"}]}'), "where"),
    (_call('{"\\ud800":1}'), "arguments"),
    (_call('{"cursor":"a\\u0000"}'), "cursor"),
    (_call('{"limit":NaN}'), "limit"),
    (_call('{"limit":-Infinity}'), "limit"),
    (_call('{"limit":1e999}'), "limit"),
    (_call(f'{{"limit":{2**64}}}'), "limit"),
    (_call(f'{{"limit":-{2**64}}}'), "limit"),
    (_call(f'{{"limit":{"9" * 5_000}}}'), "limit"),
    (_call(f'{{"id":{2**64}}}', "get_person"), "id"),
    (_call(f'{{"cursor":"{"x" * 10_000_000}"}}'), "cursor"),
    (_call(f'{{"columns":[{",".join(["0"] * 100_000)}]}}'), "columns"),
    (_call(json.dumps({str(each): each for each in range(100_000)})), "values"),
    (_call('{"where":' + "[" * 150 + "]" * 150 + "}"), "where"),
    (_call('{"where":' + "[" * 900 + "]" * 900 + "}"), "where"),
    (_call('{"limit":1,"limit":0}'), "limit"),  # the last one counts
]


@pytest.mark.parametrize("version", ["2024-11-05", MODERN])
async def test_odd_argument_is_named(server: Serving, version: str) -> None:
    async with connect(server, version=version) as client:
        await client.open()
        for line, said in CALLS:
            modern = version == MODERN
            await client.send_line(line if modern else line.replace(b"io.modelcontextprotocol/", b""))
            answer = await client.receive()
            text = answer["result"]["content"][0]["text"]

            assert (answer["id"], answer["result"]["isError"]) == ("odd", True)
            assert said in text
            assert len(text) < 1_000
        listed = await client.result("tools/list")

    assert listed["tools"]


@pytest.mark.parametrize("version", [HANDSHAKES[-1], MODERN])
async def test_half_a_surrogate_pair_anywhere_is_answered(server: Serving, version: str) -> None:
    requests: list[tuple[str, Message]] = [
        ("\ud800", {}),
        ("tools/call", {"name": "\ud800"}),
        ("tools/call", {"name": "list_person", "arguments": {"\ud800": "\udfff"}}),
        ("tools/list", {"cursor": "\ud800"}),
        ("resources/read", {"uri": "dbtools://row/\ud800/1"}),
        ("resources/read", {"uri": "dbtools://cell/person/\udc00/name"}),
    ]
    async with connect(server, version=version) as client:
        await client.open()
        answers = [await client.request(*each) for each in requests]

    assert all("error" in each or each["result"]["isError"] for each in answers)


@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_what_wants_no_answer_gets_none(server: Serving, version: str) -> None:
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    lines = [
        *(b"", b"  \t", b"\r", b'{"jsonrpc":"2.0","method":"notifications/unknown"}'),
        *(json.dumps(cancelled | {"params": {"requestId": id}}).encode() for id in (99, [1])),
        json.dumps(cancelled).encode(),
        b'{"jsonrpc":"2.0","id":99,"result":{}}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}',
    ]
    async with connect(server, version=version) as client:
        await client.open()
        for line in lines:
            await client.send_line(line)
        await client.result("tools/list")

    assert len(client.received) == 2


async def test_blanks_around_a_message_do_not_matter(server: Serving) -> None:
    async with connect(server) as client:
        for before, end in ((b"", b"\r\n"), (b"\n\r\n \n", b"\n"), (b"\t ", b" \n")):
            await client.send_line(before + _request("spaced").encode(), end=end)
            assert (await client.receive())["result"]["tools"]


async def test_odd_progress_token_does_no_harm(server: Serving) -> None:
    async with connect(server) as client:
        for token in ("", 2**70, -1, "\ud800", "x" * 10_000):
            answer = await client.answer(await client.start_call("list_person", token=token))
            assert answer["result"]["isError"] is False
