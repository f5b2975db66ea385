"""Validate a server's message with the SDK's models of a version. AssertionError if it is invalid."""

import json
import ssl
from collections.abc import AsyncIterator, Callable
from functools import cache
from typing import Any

import httpx2
import mcp_types as types
from mcp_types.methods import SERVER_NOTIFICATIONS, SERVER_REQUESTS, SERVER_RESULTS
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

Message = dict[str, Any]
#: The SDK has one model for all versions with a handshake: what the older ones do not know yet.
KINDS_SINCE = {"audio": "2025-03-26", "resource_link": "2025-06-18"}
RESOURCE_NOT_FOUND = -32002  #: until 2025-11-25
MODERN = MODERN_PROTOCOL_VERSIONS[-1]
PATH = "/mcp"
DEFAULT = "2025-03-26"  #: of HTTP requests that name none
#: For servers without TLS. The default context reads all certificates of the system, for each client.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def validate(message: Message, *, version: str, method: str | None = None) -> None:
    """Raise AssertionError unless *message* is one that a server may send to a client of *version*.

    *method* is that of the request that a result or an error answers.
    """
    validate_envelope(message)
    if "result" in message:
        assert (method, version) in SERVER_RESULTS, f"{version} has no result of {method}: {message}"
        _assert_fits(SERVER_RESULTS[method, version], message["result"])  # type: ignore[index]
        _assert_kinds_known(message["result"].get("content", []), version)
    elif "error" in message:
        modern = version in MODERN_PROTOCOL_VERSIONS
        assert not (modern and message["error"]["code"] == RESOURCE_NOT_FOUND), message
    else:
        models = SERVER_REQUESTS if "id" in message else SERVER_NOTIFICATIONS
        assert (message["method"], version) in models, f"{version} does not have {message}"
        _assert_fits(models[message["method"], version], message)


def validate_envelope(message: Message) -> None:
    """Raise AssertionError unless *message* is one of JSON-RPC."""
    _assert_fits(types.JSONRPCMessage, message)


def _assert_fits(model: Any, value: object) -> None:
    """Compare *value* with what the model keeps of it: members that it does not know would be lost."""
    adapter = _adapter(model)
    try:
        read = adapter.validate_python(value, by_name=False, strict=True)
    except ValidationError as exc:
        raise AssertionError(f"{value} is no {model}: {exc}") from exc
    kept = adapter.dump_python(read, by_alias=True, mode="json", exclude_unset=True)
    assert kept == value, f"there is more than in {model}"


@cache
def _adapter(model: Any) -> TypeAdapter[Any]:
    return TypeAdapter(model)


def _assert_kinds_known(content: list[Message], version: str) -> None:
    unknown = [each for each in content if version < KINDS_SINCE.get(each["type"], version)]
    assert unknown == [], f"{version} does not know {unknown}"


class ValidatingTransport(httpx2.AsyncHTTPTransport):
    """Validates each message that an endpoint of MCP answers, those of streams as they come."""

    def __init__(self) -> None:
        super().__init__(verify=NO_TLS)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send *request* and return the answer, which raises AssertionError where it is read."""
        response = await super().handle_async_request(request)
        if request.url.path.rstrip("/") == PATH:
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Validated(response.stream, response.headers, _check_of(request))
        return response


class _Validated(httpx2.AsyncByteStream):
    """The content of an answer, each message of which *check* looks at."""

    def __init__(
        self, stream: httpx2.AsyncByteStream, headers: httpx2.Headers, check: Callable[[bytes], None]
    ) -> None:
        self._stream = stream
        self._type = headers.get("content-type", "").partition(";")[0]
        self._check = check

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest = b""
        async for chunk in self._stream:
            rest += chunk
            if self._type == "text/event-stream":
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    if line.startswith(b"data:"):
                        self._check(line[5:])
            yield chunk
        if self._type == "application/json" and rest:
            self._check(rest)

    async def aclose(self) -> None:
        await self._stream.aclose()


def _check_of(request: httpx2.Request) -> Callable[[bytes], None]:
    """Return what validates the messages that answer *request*."""
    try:
        sent = json.loads(request.content)
    except (httpx2.RequestNotRead, ValueError, RecursionError):
        sent = None  # the answer is an error, or a stream that answers nothing
    method = sent.get("method") if isinstance(sent, dict) else None
    version = request.headers.get("mcp-protocol-version", DEFAULT)

    def check(content: bytes) -> None:
        message = json.loads(content)
        spoken = version
        if method == "initialize" and "result" in message:
            spoken = message["result"]["protocolVersion"]
        validate(message, version=spoken if spoken in KNOWN_PROTOCOL_VERSIONS else MODERN, method=method)

    return check
