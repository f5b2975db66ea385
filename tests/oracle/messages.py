"""Well-formed messages of clients: a method and its parameters in, messages and HTTP requests out."""

import json
from collections.abc import Mapping

from tests.oracle.exchanges import SESSION, THE_SESSION, HttpRequest, Message
from tests.protocol.client import CLIENT, MODERN

NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
PREFIX = "io.modelcontextprotocol/"
ACCEPT = ("accept", "application/json, text/event-stream")
CONTENT_TYPE = ("content-type", "application/json")
Params = Mapping[str, object]


def envelope(version: object = MODERN) -> Message:
    """Return the `_meta` of a request of 2026-07-28."""
    return {
        f"{PREFIX}protocolVersion": version,
        f"{PREFIX}clientCapabilities": {},
        f"{PREFIX}clientInfo": CLIENT,
    }


def request(method: str, params: Params, version: str, id: object = 1) -> Message:
    """Return a request as clients of *version* send it."""
    meta = {"_meta": envelope()} if version == MODERN else {}
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, **meta}}


def notification(method: str, params: Params | None = None) -> Message:
    """Return a notification."""
    message: Message = {"jsonrpc": "2.0", "method": method}
    return message if params is None else {**message, "params": params}


def initialize(version: str) -> Message:
    """Return the request that opens a session of *version*."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT}
    return {"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": params}


def opening(version: str) -> list[Message]:
    """Return what a client of *version* says first."""
    return [] if version == MODERN else [initialize(version), notification("notifications/initialized")]


def lines(*messages: object) -> list[bytes]:
    """Return *messages* as lines."""
    return [json.dumps(each).encode() for each in messages]


def headers(message: Message, version: str) -> dict[str, str]:
    """Return the headers that go with *message* in *version*, those of a session among them."""
    common = dict([ACCEPT, CONTENT_TYPE])
    method = message.get("method")
    if version != MODERN:
        session = {SESSION: THE_SESSION, "mcp-protocol-version": version}
        return common if method == "initialize" else {**common, **session}
    routing = {"mcp-protocol-version": MODERN, "mcp-method": str(method)}
    params = message.get("params")
    name = params.get(NAMED.get(str(method), "")) if isinstance(params, dict) else None
    return {**common, **routing, **({"mcp-name": name} if isinstance(name, str) else {})}


def post(message: object, headers: Mapping[str, str]) -> HttpRequest:
    """Return *message*, or bytes as they are, as the body of a request with *headers*."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return HttpRequest(headers=tuple(headers.items()), body=body)


def posts(version: str, *messages: Message) -> list[HttpRequest]:
    """Return *messages*, each in a separate request of *version*."""
    return [post(each, headers(each, version)) for each in messages]
