"""JSON-RPC 2.0. Bytes in, messages out; and messages in, bytes out."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import orjson

NO_MESSAGE = "This is not a JSON-RPC 2.0 message."
MOST_DIGITS = 4_000  #: of an integer; Python parses at most 4,300
LARGEST_ID = 10**100
LONG_NUMBER = re.compile(rb"\d{19}")  #: orjson reads integers beyond 64 bits as floats

Id = str | int
Json = Mapping[str, object]


class Code(IntEnum):
    """The error codes of JSON-RPC and MCP."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    RESOURCE_NOT_FOUND = -32002  #: until 2025-11-25
    HEADER_MISMATCH = -32020
    MISSING_CAPABILITY = -32021
    UNSUPPORTED_VERSION = -32022
    CANCELLED = -32800  #: until 2025-11-25: an HTTP stream needs an answer


@dataclass(eq=False)
class ProtocolError(Exception):
    """An error that answers a request (JSON-RPC 2.0, 5.1)."""

    code: int
    message: str
    data: object = None
    id: Id | None = None  #: of the rejected request


@dataclass(slots=True)
class Request:
    """A message that needs an answer."""

    id: Id
    method: str
    params: Json


@dataclass(slots=True)
class Notification:
    """A message without an answer."""

    method: str
    params: Json


@dataclass(slots=True)
class ClientResponse:
    """The answer of a client to a request of the server: a result or an error."""

    id: Id | None
    result: Json | None
    error: Json = field(default_factory=dict)


Message = Request | Notification | ClientResponse


def parse(line: bytes) -> Message:
    """Parse *line* into a message, or raise ProtocolError."""
    if LONG_NUMBER.search(line) is None:
        try:
            return _message(orjson.loads(line))
        except orjson.JSONDecodeError:
            pass
    return _parse_odd(line)


def _parse_odd(line: bytes) -> Message:
    """Parse what orjson rejects, such as a lone surrogate, so that the error can name the argument."""
    try:
        # json.loads would guess the encoding of bytes, and accept others than UTF-8.
        # An integer with too many digits will be rejected for its size anyway.
        return _message(json.loads(line.decode(), parse_int=lambda digits: int(digits[:MOST_DIGITS])))
    except RecursionError:
        raise ProtocolError(Code.INVALID_REQUEST, "The message is nested too deeply.") from None
    except ValueError:
        raise ProtocolError(Code.PARSE_ERROR, "The message is not valid JSON in UTF-8.") from None


def _message(value: object) -> Message:
    if isinstance(value, list):
        raise ProtocolError(Code.INVALID_REQUEST, "MCP has no batches: send each message separately.")
    if not isinstance(value, dict):
        raise ProtocolError(Code.INVALID_REQUEST, "A message must be a JSON object.")
    id, method, params = id_of(value.get("id")), value.get("method"), value.get("params")
    if value.get("jsonrpc") != "2.0" or not (params is None or isinstance(params, dict)):
        raise ProtocolError(Code.INVALID_REQUEST, NO_MESSAGE, id=id)
    if isinstance(method, str):
        if "id" not in value:
            return Notification(method, params or {})
        if id is not None:
            return Request(id, method, params or {})
        raise ProtocolError(Code.INVALID_REQUEST, "The ID must be a string or an integer.")
    result, error = value.get("result"), value.get("error")
    if "method" not in value and ((isinstance(result, dict) and id is not None) or isinstance(error, dict)):
        return ClientResponse(id, result, error or {})
    raise ProtocolError(Code.INVALID_REQUEST, NO_MESSAGE, id=id)


def id_of(value: object) -> Id | None:
    """Return *value* if it is an ID: a string or an integer, but not a bool."""
    is_number = type(value) is int and -LARGEST_ID < value < LARGEST_ID
    return value if isinstance(value, str) or is_number else None  # type: ignore[return-value]


def encode_result(id: Id, result: Json) -> bytes:
    """Encode an answer with *result*, which may contain fragments of encoded JSON."""
    try:
        return orjson.dumps({"jsonrpc": "2.0", "id": id, "result": result})
    except TypeError:
        return orjson.dumps({"jsonrpc": "2.0", "id": encode_id(id), "result": result})


def encode_id(id: Id) -> orjson.Fragment:
    """Encode *id*; orjson rejects lone surrogates and integers beyond 64 bits."""
    return orjson.Fragment(json.dumps(id))


def encode_error(id: Id | None, error: ProtocolError) -> bytes:
    """Encode an answer with *error*."""
    content: Json = {"code": error.code, "message": error.message}
    data = {} if error.data is None else {"data": error.data}
    return encode({"jsonrpc": "2.0", "id": id, "error": {**content, **data}})


def encode_notification(method: str, params: Json | None = None) -> bytes:
    """Encode a notification."""
    message: dict[str, object] = {"jsonrpc": "2.0", "method": method}
    return encode({**message, "params": params} if params else message)


def encode(message: Json) -> bytes:
    """Encode *message*, which may quote invalid text of a client."""
    try:
        return orjson.dumps(message)
    except TypeError:
        return json.dumps(message).encode()
