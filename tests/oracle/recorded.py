"""Exchanges recorded from the tests of the protocol, as scripts for both servers."""

from collections.abc import Iterator

from tests.oracle.exchanges import SESSION, THE_SESSION, HttpRequest, Message
from tests.oracle.messages import (
    ACCEPT,
    CONTENT_TYPE,
    PREFIX,
    envelope,
    headers,
    initialize,
    lines,
    notification,
    opening,
    post,
    posts,
    request,
)
from tests.protocol.client import HANDSHAKES, MODERN, VERSIONS

LATEST = HANDSHAKES[-1]
ROW, CELL = "dbtools://row/{table}/{key}", "dbtools://cell/{table}/{key}/{column}"


def _call(name: str, **arguments: object) -> tuple[str, Message]:
    return "tools/call", {"name": name, "arguments": arguments}


def _read(uri: object) -> tuple[str, Message]:
    return "resources/read", {"uri": uri}


def _complete(uri: str, name: str, value: object, **given: str) -> tuple[str, Message]:
    ref = {"type": "ref/resource", "uri": uri}
    params = {"ref": ref, "argument": {"name": name, "value": value}, "context": {"arguments": given}}
    return "completion/complete", params


#: A name, and what is asked in every version.
REQUESTS: dict[str, tuple[str, Message]] = {
    "discover": ("server/discover", {}),
    "ping": ("ping", {}),
    "unknown method": ("tools/destroy", {}),
    "method of nothing": ("", {}),
    "half a pair as a method": ("\ud800", {}),
    "log level": ("logging/setLevel", {"level": "info"}),
    "prompts": ("prompts/list", {}),
    "prompt": ("prompts/get", {"name": "x"}),
    "subscription of 2025": ("resources/subscribe", {"uri": "dbtools://schema"}),
    "request of servers": ("roots/list", {}),
    "notification as a request": ("notifications/initialized", {}),
    "tools": ("tools/list", {}),
    "cursor of nobody": ("tools/list", {"cursor": "200"}),
    "no cursor": ("tools/list", {"cursor": ""}),
    "cursor that is null": ("tools/list", {"cursor": None}),
    "cursor that is a number": ("tools/list", {"cursor": 200}),
    "half a pair as a cursor": ("tools/list", {"cursor": "\ud800"}),
    "parameter of nobody": ("tools/list", {"colour": "red"}),
    "rows": _call("list_person"),
    "page of rows": _call("list_person", limit=1, order_by=["name desc"]),
    "rows of a filter": _call("list_person", where=[{"column": "name", "value": "Bo"}], columns=["notes"]),
    "no rows": _call("list_person", where=[{"column": "id", "op": "gt", "value": "99"}]),
    "blobs": _call("get_album", id=1),
    "links": _call("list_story"),
    "composite key": _call("get_tag", story="one", word="a,b"),
    "no row": _call("get_person", id=99),
    "missing key": _call("get_person"),
    "unknown argument": _call("list_person", wher=[]),
    "unknown column": _call("list_person", columns=["salry"]),
    "huge limit": _call("list_person", limit=2**70),
    "forged cursor": _call("list_person", cursor="forged"),
    "half a pair as an argument": _call("list_person", **{"\ud800": "\udfff"}),
    "description": _call("describe_tables", detail="full"),
    "groups": _call("aggregate_rows", table="person", measures=[{"function": "count"}]),
    "unknown tool": _call("list_persn"),
    "tool of nothing": _call(""),
    "half a pair as a tool": _call("\ud800"),
    "no name": ("tools/call", {}),
    "name that is a number": ("tools/call", {"name": 5}),
    "no arguments": ("tools/call", {"name": "list_tag"}),
    "arguments that are null": ("tools/call", {"name": "list_tag", "arguments": None}),
    "arguments that are a list": ("tools/call", {"name": "list_tag", "arguments": [1]}),
    "resources": ("resources/list", {}),
    "resources of a cursor": ("resources/list", {"cursor": "200"}),
    "templates": ("resources/templates/list", {}),
    "templates of a cursor": ("resources/templates/list", {"cursor": "200"}),
    "schema": _read("dbtools://schema"),
    "row": _read("dbtools://row/tag/one,a%2Cb"),
    "text": _read("dbtools://cell/story/long/body"),
    "picture": _read("dbtools://cell/album/1/picture"),
    "no such row": _read("dbtools://row/person/99"),
    "no such resource": _read("file:///etc/passwd"),
    "address of nothing": _read(""),
    "address that is a number": _read(5),
    "address beyond ASCII": _read("dbtools://row/story/ü"),
    "no address": ("resources/read", {}),
    "table begun": _complete(ROW, "table", "p"),
    "key begun": _complete(CELL, "key", "", table="person"),
    "unknown variable": _complete(ROW, "tabel", ""),
    "unknown template": _complete("dbtools://row/{table}", "table", ""),
    "value that is a number": _complete(ROW, "table", 5),
    "completion of a prompt": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "x", "value": ""}},
    ),
    "completion of nothing": ("completion/complete", {}),
    "stream": ("subscriptions/listen", {"notifications": {"toolsListChanged": True}}),
    "stream of all": (
        "subscriptions/listen",
        {
            "notifications": {
                "toolsListChanged": True,
                "promptsListChanged": True,
                "resourcesListChanged": True,
                "resourceSubscriptions": ["dbtools://schema"],
            }
        },
    ),
    "stream of nothing": ("subscriptions/listen", {"notifications": {}}),
    "stream without a filter": ("subscriptions/listen", {}),
}
IDS: tuple[object, ...] = (0, -5, "", "1", "a", 2**53 + 1, 2**70, "\0", "\ud800", "x" * 1_000)
ODD_IDS: tuple[object, ...] = (None, 1.5, True, [1], {}, "", -1, 2**70)
METAS: dict[str, object] = {
    "null": None,
    "a list": [],
    "nothing": {},
    "no capabilities": {f"{PREFIX}protocolVersion": MODERN},
    "no version": {f"{PREFIX}clientCapabilities": {}},
    "version of 2025": envelope(LATEST),
    "unknown version": envelope("2027-01-01"),
    "version that is a number": envelope(5),
    "version that is null": envelope(None),
    "capabilities that are a list": {**envelope(), f"{PREFIX}clientCapabilities": []},
    "client that is a text": {**envelope(), f"{PREFIX}clientInfo": "raw"},
    "client that is null": {**envelope(), f"{PREFIX}clientInfo": None},
    "no client": {key: value for key, value in envelope().items() if not key.endswith("clientInfo")},
    "token": {**envelope(), "progressToken": "t"},
    "token that is a list": {**envelope(), "progressToken": []},
    "token that is true": {**envelope(), "progressToken": True},
    "log level": {**envelope(), f"{PREFIX}logLevel": "debug"},
    "unknown log level": {**envelope(), f"{PREFIX}logLevel": "loud"},
    "trace": {**envelope(), "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
}


def line_scripts() -> Iterator[tuple[str, list[bytes]]]:
    """Return scripts of lines, by name."""
    for version in VERSIONS:
        for name, (method, params) in REQUESTS.items():
            yield f"{name} {version}", lines(*opening(version), request(method, params, version))
        for id in IDS:
            asked = request("tools/list", {}, version, id)
            yield f"id {str(id)[:9]!a} {version}", lines(*opening(version), asked)
    yield from ((name, lines(*said)) for name, said in _conversations())
    for name, meta in METAS.items():
        asked = {**request("tools/list", {}, LATEST), "params": {"_meta": meta}}
        other = request("resources/list", {}, MODERN, 2)
        yield f"meta: {name}, first", lines(asked, other)
        yield f"meta: {name}, in 2025", lines(*opening(LATEST), asked)
        yield f"meta: {name}, in 2026", lines(other, asked)


def _conversations() -> Iterator[tuple[str, list[Message]]]:
    """Return what is said on one connection, by name."""
    listed = request("tools/list", {}, LATEST)
    listening = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, MODERN, "w")
    unknown = {name: initialize(name) for name in ("2020-01-01", "2999-01-01", MODERN, "")}
    yield from ((f"handshake of {name!r}", [said]) for name, said in unknown.items())
    for name, params in {
        "no version": {"capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
        "version that is a number": {**initialize(LATEST)["params"], "protocolVersion": 5},
        "no client": {"protocolVersion": LATEST, "capabilities": {}},
        "no capabilities": {"protocolVersion": LATEST, "clientInfo": {"name": "x", "version": "1"}},
        "nothing": {},
        "null": None,
    }.items():
        yield f"handshake with {name}", [{**initialize(LATEST), "params": params}, listed]
    yield "request before the handshake", [listed, *opening(LATEST), {**listed, "id": 2}]
    yield "unknown method before the handshake", [{**listed, "method": "x/y"}, *opening(LATEST)]
    yield "ping before the handshake", [request("ping", {}, LATEST), *opening(LATEST)]
    wrong = {**request("ping", {}, LATEST), "params": {"_meta": {"progressToken": []}}}
    yield "wrong ping before the handshake", [wrong, *opening(LATEST)]
    yield "no notification after the handshake", [initialize(LATEST), listed]
    yield "two handshakes", [*opening("2025-03-26"), {**initialize("2025-06-18"), "id": 2}, listed]
    yield "modern request after a handshake", [*opening(LATEST), request("tools/list", {}, MODERN), listed]
    yield "handshake after a modern request", [request("tools/list", {}, MODERN), initialize(LATEST), listed]
    yield "enveloped handshake", [{**initialize(LATEST), "params": {"_meta": envelope()}}, listed]
    no_params = {key: value for key, value in listed.items() if key != "params"}
    yield "no parameters", [*opening(LATEST), no_params, {**listed, "id": 2, "params": None}]
    yield "no parameters, first", [no_params, request("tools/list", {}, MODERN, 2)]
    yield (
        "stream that is cancelled",
        [
            listening,
            notification("notifications/cancelled", {"requestId": "w"}),
            request("tools/list", {}, MODERN, 2),
        ],
    )
    yield "two streams", [listening, {**listening, "id": "v"}, request("tools/list", {}, MODERN, 2)]
    yield "stream with an ID of 70 bits", [{**listening, "id": 2**70}]
    for version in (LATEST, MODERN):
        call, after = request(*_call("list_slow"), version, "w"), request("tools/list", {}, version, 2)
        cancel = notification("notifications/cancelled", {"requestId": "w"})
        yield f"call that is cancelled {version}", [*opening(version), call, cancel, after]
        for name, said in _SILENT.items():
            yield f"{name} {version}", [*opening(version), said, request("tools/list", {}, version, 2)]


_SILENT: dict[str, Message] = {
    "unknown notification": notification("notifications/unknown"),
    "cancelled nothing": notification("notifications/cancelled"),
    "cancelled what never was": notification("notifications/cancelled", {"requestId": 99}),
    "cancelled a list": notification("notifications/cancelled", {"requestId": [1]}),
    "progress": notification("notifications/progress", {"progressToken": 1, "progress": 1}),
    "request as a notification": notification("tools/list"),
    "answer to nothing": {"jsonrpc": "2.0", "id": 99, "result": {}},
    "error about nothing": {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "x"}},
}


def http_scripts() -> Iterator[tuple[str, list[HttpRequest]]]:
    """Return scripts of HTTP requests, by name."""
    for version in ("2025-03-26", LATEST, MODERN):
        for name, (method, params) in REQUESTS.items():
            asked = request(method, params, version)
            if all(value.isascii() for value in headers(asked, version).values()):
                yield f"{name} {version}", posts(version, *opening(version), asked)
        for name, said in _SILENT.items():
            yield f"{name} {version}", posts(version, *opening(version), said)
        for body in (b"", b"{", b"[]", b"5", b"null", b'{"jsonrpc":"2.0"}', b'{"jsonrpc":"2.0","id":1}'):
            sent = post(body, headers(request("x", {}, version), version))
            yield f"{body.decode()!r} {version}", [*posts(version, *opening(version)), sent]
        for id in ODD_IDS:
            asked = request("tools/list", {}, version, id)
            yield f"id {id!r} {version}", posts(version, *opening(version), asked)
    for name, meta in METAS.items():
        asked = {**request("tools/list", {}, LATEST), "params": {"_meta": meta}}
        yield f"meta: {name}", posts(MODERN, asked)
        yield f"meta: {name}, in 2025", posts(LATEST, *opening(LATEST), asked)
    yield from _odd_headers()
    yield from _sessions()


def _odd_headers() -> Iterator[tuple[str, list[HttpRequest]]]:
    called = request("tools/call", {"name": "list_tag"}, MODERN)
    right = headers(called, MODERN)
    for name, value in {
        "mcp-protocol-version": "2027-01-01",
        "mcp-method": "tools/list",
        "mcp-name": "list_person",
        "accept": "application/json",
        "content-type": "text/plain",
    }.items():
        yield f"other {name}", [post(called, {**right, name: value})]
        yield f"no {name}", [post(called, {key: each for key, each in right.items() if key != name})]
        twice = (*right.items(), (name, right[name]))
        yield f"{name} twice", [HttpRequest(headers=twice, body=post(called, {}).body)]
    for name in (
        "=?base64?bGlzdF90YWc=?=",
        "=?base64?bGlzdF90YWd=?=",
        "=?base64?!?=",
        "=?BASE64?bGlzdF90YWc=?=",
    ):
        yield f"name {name}", [post(called, {**right, "mcp-name": name})]
    row = request("resources/read", {"uri": "dbtools://row/story/ü"}, MODERN)
    encoded = {**headers(row, MODERN), "mcp-name": "=?base64?ZGJ0b29sczovL3Jvdy9zdG9yeS/DvA==?="}
    yield "address beyond ASCII", [post(row, encoded)]
    unknown = request("tools/list", {}, MODERN)
    unknown["params"]["_meta"] = envelope("2027-01-01")
    yield (
        "unknown version everywhere",
        [post(unknown, {**headers(unknown, MODERN), "mcp-protocol-version": "2027-01-01"})],
    )
    told = notification("notifications/unknown")
    yield (
        "notification of an unknown version",
        [post(told, {**headers(told, MODERN), "mcp-protocol-version": "2027-01-01"})],
    )
    yield "wrong in two headers", [post(called, {**right, "accept": "", "content-type": "text/plain"})]
    for accept in ("*/*", "application/*", "text/event-stream", "text/html", "application/json;q=0.5, */*"):
        yield f"accept {accept}", [post(called, {**right, "accept": accept})]
        yield (
            f"handshake, accept {accept}",
            [post(initialize(LATEST), dict([("accept", accept), CONTENT_TYPE]))],
        )


def _sessions() -> Iterator[tuple[str, list[HttpRequest]]]:
    opened = posts(LATEST, *opening(LATEST))
    listed = request("tools/list", {}, LATEST)
    session = {SESSION: THE_SESSION, "mcp-protocol-version": LATEST}
    common = dict([ACCEPT, CONTENT_TYPE])
    yield "no session", [post(listed, common)]
    yield "unknown session", posts(LATEST, listed)
    yield "handshake that fails", [post({**initialize(LATEST), "params": {}}, common)]
    yield "handshake in an unknown session", [post(initialize(LATEST), {**common, SESSION: "0" * 32})]
    yield "two handshakes in a session", [*opened, post(initialize(LATEST), {**common, **session})]
    yield "request without the session", [*opened, post(listed, common)]
    yield "no version in a session", [*opened, post(listed, {**common, SESSION: THE_SESSION})]
    yield "other version in a session", [*opened, *posts("2025-03-26", listed)]
    yield (
        "modern version in a session",
        [*opened, post(listed, {**common, **session, "mcp-protocol-version": MODERN})],
    )
    yield "modern request in a session", [*opened, *posts(MODERN, request("tools/list", {}, MODERN))]
    ended = HttpRequest(verb="DELETE", headers=tuple(session.items()))
    yield "session that has ended", [*opened, ended, *posts(LATEST, listed), ended]
    for verb in ("GET", "DELETE", "PUT", "PATCH"):
        for name, given in {
            "nothing": {},
            "version": {**common, "mcp-protocol-version": MODERN},
            "session": {**common, **session},
            "session without accept": session,
            "unknown session": {**common, SESSION: "0" * 32},
        }.items():
            yield f"{verb} with {name}", [*opened, HttpRequest(verb=verb, headers=tuple(given.items()))]
