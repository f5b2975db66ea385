"""Random exchanges: scripts of lines and HTTP requests, valid, invalid and in between."""

import base64
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from typing import Any

from hypothesis import strategies as st
from mcp_types.methods import SPEC_CLIENT_METHODS, SPEC_CLIENT_NOTIFICATION_METHODS

from tests.oracle.exchanges import SESSION, THE_SESSION, HttpRequest, Message
from tests.oracle.messages import PREFIX, envelope, headers, initialize, lines, notification, post
from tests.oracle.recorded import METAS, REQUESTS
from tests.protocol.client import HANDSHAKES, MODERN, VERSIONS

METHODS = sorted(SPEC_CLIENT_METHODS | {"tools/destroy", "roots/list", "", "notifications/initialized"})
NOTIFICATIONS = sorted(SPEC_CLIENT_NOTIFICATION_METHODS | {"notifications/unknown", "tools/list", ""})
ODD_VERSIONS = ("2020-01-01", "2027-01-01", "", "2025-11-25 ")
ACCEPTS = (
    "application/json, text/event-stream",
    "text/event-stream,application/json;q=0.1",
    "application/json",
    "text/event-stream",
    "*/*",
    "application/*, text/*",
    "text/html",
    "",
)
TYPES = ("application/json", "application/json; charset=utf-8", "text/plain", "Application/JSON", "")
VERBS = ("POST",) * 20 + ("GET", "DELETE", "PUT")

names = st.sampled_from(["x", "name", "uri", "cursor", "_meta", "é", ""])
wrong: st.SearchStrategy[object] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(-9, 9)
    | st.sampled_from(["", "x", "é", "list_tag"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=3,
)
ids: st.SearchStrategy[Any] = st.integers(-3, 40) | st.integers(2**31, 2**70) | st.text(max_size=4)
_asked = st.sampled_from([*REQUESTS.values()])
_methods = st.sampled_from(METHODS)
_versions = st.sampled_from(VERSIONS)
_verbs = st.sampled_from(VERBS)
_odd_ids: st.SearchStrategy[Any] = st.sampled_from([None, True, False, 0.5, [], {}])
_some_ids = st.lists(ids, min_size=1, max_size=4, unique=True)
_any_ids = st.lists(ids | ids | ids | _odd_ids, min_size=1, max_size=3, unique_by=repr)
metas = (
    st.sampled_from([envelope(), *METAS.values()])
    | st.dictionaries(st.sampled_from(["progressToken", "x", f"{PREFIX}logLevel"]), wrong, max_size=2)
    | st.builds(lambda more: {**envelope(), **more}, st.dictionaries(names, wrong, max_size=1))
    | wrong
)


def _seldom(draw: st.DrawFn, one_in: int) -> bool:
    return draw(_once_in(one_in))


@cache
def _once_in(number: int) -> st.SearchStrategy[bool]:
    return st.sampled_from([False] * (number - 1) + [True])


@st.composite
def requests(draw: st.DrawFn, version: str, *, id: object) -> Message:
    """Draw a request of *version* with *id*: mostly a right one, some of which are damaged."""
    method, params = deepcopy(draw(_asked))
    if _seldom(draw, 12):
        method = draw(_methods)
    if method == "initialize":
        params = deepcopy(initialize(draw(st.sampled_from(VERSIONS + ODD_VERSIONS)))["params"])
    if version == MODERN:
        params["_meta"] = deepcopy(envelope())
    if _seldom(draw, 6):
        params["_meta"] = deepcopy(draw(metas))
    if _seldom(draw, 3):
        _damage(draw, params)
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    if _seldom(draw, 20):
        message["params"] = None
    if _seldom(draw, 20):
        del message["params"]
    if _seldom(draw, 15):
        message[draw(st.sampled_from(["extra", "result", "error"]))] = draw(wrong)
    return message


def _damage(draw: st.DrawFn, params: Message) -> None:
    """Leave out, replace or add a member, at whatever depth."""
    place: Any = params
    while True:
        keys: list[Any] = [*place] if isinstance(place, dict) else [*range(len(place))]
        key = draw(st.sampled_from([*keys, "extra"]) if isinstance(place, dict) else st.sampled_from(keys))
        inner = place.get(key) if isinstance(place, dict) else place[key]
        if not (isinstance(inner, dict | list) and inner and draw(st.booleans())):
            break
        place = inner
    if key in keys and draw(st.booleans()):
        del place[key]
    else:
        place[key] = draw(wrong)


@st.composite
def messages(draw: st.DrawFn, version: str, *, id: object) -> Message:
    """Draw a request of *version* with *id*, or seldom a notification or an answer."""
    if _seldom(draw, 15):
        params = draw(st.none() | st.dictionaries(names, wrong, max_size=2))
        return notification(draw(st.sampled_from(NOTIFICATIONS)), params)
    if _seldom(draw, 30):
        return {"jsonrpc": "2.0", "id": id, "result": draw(st.dictionaries(names, wrong, max_size=1))}
    return draw(requests(version, id=id))


@st.composite
def line_scripts(draw: st.DrawFn) -> list[bytes]:
    """Draw what one connection says, in one era or in both."""
    version = draw(_versions)
    said: list[Message] = []
    if version != MODERN and not _seldom(draw, 8):
        said = [{**initialize(version), "id": "open"}, notification("notifications/initialized")]
    for id in draw(_some_ids):
        other = draw(_versions) if _seldom(draw, 8) else version
        said.append(draw(messages(other, id=id)))
    return lines(*said)


@st.composite
def http_scripts(draw: st.DrawFn, *, stateless: bool) -> list[HttpRequest]:
    """Draw what one client sends, in a session or without one."""
    version = draw(st.sampled_from((*HANDSHAKES[1:], MODERN, MODERN)))
    script: list[HttpRequest] = []
    if version != MODERN and not _seldom(draw, 8):
        opened = initialize(version)
        script.append(post(opened, headers(opened, version)))
    for id in draw(_any_ids):
        message = draw(messages(version, id=id))
        script.append(draw(_carried(message, version, stateless=stateless)))
    return script


def in_mode(stateless: bool) -> st.SearchStrategy[tuple[bool, list[HttpRequest]]]:
    """Return whether there are sessions, and scripts for that."""
    return st.tuples(st.just(stateless), http_scripts(stateless=stateless))


@st.composite
def _carried(draw: st.DrawFn, message: Message, version: str, *, stateless: bool) -> HttpRequest:
    """Draw the request that carries *message*; without sessions nothing but a POST is anything."""
    given = {name: _sendable(value) for name, value in headers(message, version).items()}
    if _seldom(draw, 4):
        name, value = draw(_odd_headers)
        given[name] = value
        if not value:
            del given[name]
    if _seldom(draw, 10):
        del given[draw(st.sampled_from(sorted(given)))]
    request = post(message, given)
    again = (
        [draw(st.sampled_from(request.headers))] if request.headers and not draw(st.integers(0, 19)) else []
    )
    verb = "POST" if stateless else draw(_verbs)
    return HttpRequest(verb=verb, headers=(*request.headers, *again), body=request.body)


def _sendable(value: str) -> str:
    """Return *value* as clients write it into a header (MCP 2026-07-28, transports)."""
    if value.isascii() and value.isprintable() and value == value.strip():
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'surrogatepass')).decode()}?="


_ODD: Mapping[str, tuple[str, ...]] = {
    "mcp-protocol-version": (*VERSIONS, *ODD_VERSIONS),
    "mcp-method": ("tools/list", "tools/call", "TOOLS/LIST", ""),
    "mcp-name": ("list_tag", "=?base64?bGlzdF90YWc=?=", "=?base64?x?=", "é", ""),
    "accept": ACCEPTS,
    "content-type": TYPES,
    SESSION: (THE_SESSION, "0" * 32, "x y", ""),
}
_odd_headers = st.sampled_from([(name, value) for name, values in _ODD.items() for value in values])
