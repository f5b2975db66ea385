"""Every text of a request, as long as the server reads it, takes little of the processor."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import psutil  # type: ignore[import-untyped]
import pytest

from dbtools.schema.uris import CELL_TEMPLATE, ROW_TEMPLATE, SCHEME
from dbtools.server.http.identity import hash_of, new_token
from tests.processes import FRESH
from tests.protocol.client import PATIENCE
from tests.protocol.http_server import HttpServer, http_server, modern, open_session, posted
from tests.protocol.http_servers import configured
from tests.protocol.issuer import AUDIENCE, ISSUER, KEY, key_set, signed

DDL = "create table person (id integer primary key, name text);" + "".join(
    f"create table numbered_{number} (id integer primary key, name text);" for number in range(300)
)
TOKEN = new_token()
HEAD = 30_000  #: bytes; a head may have 32,768
BODY = 260_000  #: bytes; a body may have 262,144 by default
MOST_SECONDS = 0.2  #: of the server's processor for one request, in the best of ATTEMPTS
ATTEMPTS = 3
#: What a long text repeats: signs of tokens, URIs, cursors, base64, JSON and Unicode.
PARTS = ("a.", "%41", "/", ", ", '\\"', "{?a}", "İ", "\ud800")
SECTIONS = f"""
[limits]
calls_per_minute = 1000000
[roles.all]
tables."*" = {{ insert = true, confirm = true }}
[auth]
tokens = [{{ sha256 = "{hash_of(TOKEN)}", role = "all" }}]
[auth.jwt]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
jwks = "{{keys}}"
role_claim = "db_role"
"""
LONG = "LONG"  #: stands for a long text
Post = dict[str, Any]  #: the arguments of a client's request


def _encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _headers() -> Iterator[tuple[str, Post]]:
    """Yield requests with a long text in a header or in the target."""
    good = modern("tools/list")
    names = (
        *("Authorization", "Host", "Origin", "X-Request-Id", "Accept", "Content-Type", "Content-Length"),
        *("MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Session-Id", "traceparent", "baggage"),
    )
    for part in PARTS:
        text = (part * HEAD).encode(errors="surrogatepass")[:HEAD]
        for name in names:
            before = b"Bearer " if name == "Authorization" else b""
            yield f"{name} {part!r}", {**good, "headers": {**good["headers"], name: before + text}}
        yield f"target {part!r}", {**good, "url": "/mcp?" + quote(text, safe="/%,;={}:?")}
    read = modern("resources/read", {"uri": "x"})
    wrapped = f"=?base64?{'QUJD' * (HEAD // 4)}?="
    yield "base64", {**read, "headers": {**read["headers"], "Mcp-Name": wrapped}}
    header, payload, signature = signed(KEY).split(".")
    depth = 5_000
    tokens = {
        "deep": json.loads("[" * 500 + "]" * 500),
        "kid": {"alg": "RS256", "kid": "x" * 10_000},
        "crit": {"alg": "RS256", "kid": "0", "crit": ["x"] * 2_000},
    }
    for name, each in tokens.items():
        yield f"token {name}", _with_token(good, f"{_encoded(each)}.{payload}.{signature}")
    deeper = base64.urlsafe_b64encode(b'{"alg":' + b"[" * depth + b"]" * depth + b"}").decode().rstrip("=")
    yield "token deeper", _with_token(good, f"{deeper}.{payload}.{signature}")
    yield "token long", _with_token(good, f"{header}.{payload * 100}"[:16_000] + f".{signature}")
    yield "token signature", _with_token(good, f"{header}.{payload}.{signature * 40}")
    yield "token too long", _with_token(good, f"{header}.{payload * 100}.{signature}"[:HEAD])


def _with_token(good: Post, token: str) -> Post:
    return {**good, "headers": {**good["headers"], "Authorization": f"Bearer {token}"}}


def _bodies() -> Iterator[tuple[str, Post]]:
    """Yield requests with a long text in the body."""
    plain = modern("tools/list")["headers"]
    contents = {
        "deep arrays": b"[" * (BODY // 2) + b"]" * (BODY // 2),
        "deep objects": b'{"a":' * (BODY // 6) + b"1" + b"}" * (BODY // 6),
        "batch": b"[" + b'{"jsonrpc":"2.0","id":1,"method":"ping"},' * 6_000 + b"1]",
        "many values": b"[" + b"1," * (BODY // 2) + b"1]",
        "quotes": b'"' * BODY,
        "escapes": b'"' + rb"\"" * (BODY // 2) + b'"',
        "open text": b'["' + rb"\\" * (BODY // 2),
        "brackets in a text": b'{"a":"' + b"[{," * (BODY // 3) + b'"}',
        "digits": b"[" + b"9" * BODY + b"]",
        "numbers": b"[" + (b"9" * 4_000 + b",") * 64 + b"1]",
        "fractions": b"[" + (b"0." + b"1" * 4_000 + b",") * 64 + b"1]",
        "exponents": b"[" + b"1e999999999," * 9_000 + b"1]",
        "surrogates": b'["' + rb"\ud800" * (BODY // 6) + b'"]',
        "blanks": b" " * BODY,
        "no UTF-8": b'"' + b"\xff" * BODY + b'"',
        "one key": b"{" + b'"a":1,' * 9_000 + b'"a":1}',
    }
    for name, content in contents.items():
        yield name, posted(content[:BODY], plain)


def _params(text: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the method and the parameters of requests with *text* in each place of them."""
    for method in ("tools/list", "resources/list", "resources/templates/list"):
        yield method, {"cursor": text}
    yield text, {}
    yield "tools/list", {"_meta": {text: text}}
    yield "tools/list", {"_meta": {"progressToken": text}}
    for uri in (text, SCHEME + text, f"{SCHEME}row/person/{text}", f"{SCHEME}cell/person/{text}/name"):
        yield "resources/read", {"uri": uri}
    yield "tools/call", {"name": text, "arguments": {}}
    yield "tools/call", {"name": "list_person", "arguments": {text: 1}}
    yield "tools/call", {"name": "list_person", "arguments": {"cursor": text}}
    yield "prompts/get", {"name": text}
    yield (
        "initialize",
        {"protocolVersion": text, "capabilities": {text: {}}, "clientInfo": {"name": text, "version": text}},
    )
    for name, given in (("key", {"table": "person"}), ("table", {}), (text, {}), ("key", {"table": text})):
        for uri in (ROW_TEMPLATE, CELL_TEMPLATE, text):
            of = {"type": "ref/resource", "uri": uri}
            argument, context = {"name": name, "value": text}, {"arguments": given}
            yield "completion/complete", {"ref": of, "argument": argument, "context": context}


def _retries(text: str) -> Iterator[Mapping[str, object]]:
    """Yield the parameters of calls that answer a question with *text*, as in 2026-07-28."""
    insert = {"name": "insert_person", "arguments": {"rows": [{"id": 3, "name": "Cy"}]}}
    accepted = {"confirm": {"action": "accept", "content": {"confirm": True}}}
    yield {**insert, "requestState": text, "inputResponses": accepted}
    yield {**insert, "requestState": "x", "inputResponses": {text: {"action": text}}}
    yield {
        **insert,
        "requestState": "x",
        "inputResponses": {"confirm": {"action": "accept", "content": {text: text}}},
    }


def _filled(message: object, part: str) -> bytes:
    """Return *message* as JSON, with what repeats *part* in place of each LONG, as long as fits a body."""
    written = json.dumps(message)
    escaped = json.dumps(part)[1:-1]
    return written.replace(LONG, escaped * ((BODY - 2_000) // written.count(LONG) // len(escaped))).encode()


def _requests(session: Mapping[str, str]) -> Iterator[tuple[str, Post]]:
    yield from _headers()
    yield from _bodies()
    for part in PARTS:
        for method, params in _params(LONG):
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            posting = posted(message, session if method != "initialize" else {})
            yield f"{method} {params} {part!r}", {**posting, "content": _filled(message, part)}
        for params in _retries(LONG):
            posting = modern("tools/call", params)
            yield f"{params} {part!r}", {**posting, "content": _filled(json.loads(posting["content"]), part)}
        posting = modern("tools/list", id=LONG)
        yield f"id {part!r}", {**posting, "content": _filled(json.loads(posting["content"]), part)}


@pytest.fixture
async def guarded(sqlite_database: Callable[[str], Path], tmp_path: Path) -> AsyncIterator[HttpServer]:
    """Yield a server that knows a token and an issuer, and has many names to compare with."""
    keys = tmp_path / "keys.json"
    keys.write_text(key_set(KEY))
    url = f"sqlite:///{sqlite_database(DDL)}"
    path = configured(url, tmp_path, SECTIONS.replace("{keys}", str(keys)))
    # What is forked runs in another process than the one that starts it.
    async with http_server(path, tmp_path, program=FRESH) as server:
        yield server


async def _answer(port: int, request: Post) -> bytes:
    """Send *request* as it is, and return the answer."""
    fields = {
        "Host": "127.0.0.1",
        "Authorization": f"Bearer {TOKEN}",
        "Content-Length": str(len(request["content"])),
        "Connection": "close",
        **request["headers"],
    }
    encoded = [
        name.encode() + b": " + (value.encode() if isinstance(value, str) else value)
        for name, value in fields.items()
    ]
    head = b"\r\n".join((f"POST {request['url']} HTTP/1.1".encode(errors="surrogatepass"), *encoded))
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    try:
        writer.write(head + b"\r\n\r\n" + request["content"])
        with anyio.fail_after(PATIENCE):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def _takes_long(server: HttpServer, request: Post) -> bool:
    """Return whether the processor of *server* works longer for *request* than it may, in each attempt."""
    process = psutil.Process(server.process.pid)

    async def seconds() -> float:
        before = process.cpu_times()
        await _answer(server.port, request)
        after = process.cpu_times()
        return float(after.user + after.system - before.user - before.system)

    for _ in range(ATTEMPTS):
        if await seconds() <= MOST_SECONDS:
            return False
    return True


async def test_no_long_text_of_a_request_takes_long(guarded: HttpServer) -> None:
    async with guarded.client(Authorization=f"Bearer {TOKEN}") as client:
        session = await open_session(client)

    assert [name for name, request in _requests(session) if await _takes_long(guarded, request)] == []


async def test_answers_quote_long_texts_in_part(guarded: HttpServer) -> None:
    async with guarded.client(Authorization=f"Bearer {TOKEN}") as client:
        session = await open_session(client)
    completing = {
        "argument": {"name": "key", "value": ""},
        "ref": {"type": "ref/resource", "uri": "x" * 200_000},
    }
    messages = {"tools/call": {"name": "x" * 200_000}, "completion/complete": completing}
    answers = [
        await _answer(
            guarded.port, posted({"jsonrpc": "2.0", "id": 1, "method": each, "params": params}, session)
        )
        for each, params in messages.items()
    ]

    assert [len(each) < 1_000 for each in answers] == [True, True]
