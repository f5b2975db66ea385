"""JSON-RPC 2.0: bytes in, messages out, and messages back into bytes."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

MOST_DIGITS = 4_000  #: of an integer; Python refuses to read more than 4,300
LARGEST_ID = 10**100
LONG_NUMBER = re.compile(rb"\d{19}")  #: orjson reads integers beyond 64 bits as floats

Id = str | int
Json = Mapping[str, object]


class ProtocolError(Exception):
    """An error that answers a request (JSON-RPC 2.0, 5.1)."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


@dataclass(slots=True)
class Request:
    """A message that must be answered."""

    id: Id
    method: str
    params: Json


@dataclass(slots=True)
class Notification:
    """A message without an answer."""

    method: str
    params: Json


@dataclass(slots=True)
class Response:
    """The answer to a request of ours: a result, or else an error."""

    id: Id | None
    result: Json | None
    error: Json = field(default_factory=dict)


@dataclass(slots=True)
class Malformed:
    """Bytes that are no message, and the error that answers them."""

    id: Id | None
    code: int
    message: str

    def reply(self) -> bytes:
        """Return the answer as JSON."""
        return encode_error(self.id, ProtocolError(self.code, self.message))


Message = Request | Notification | Response | Malformed


def parse(line: bytes) -> Message:
    """Return the message that *line* is."""
    if LONG_NUMBER.search(line) is None:
        try:
            return _message(orjson.loads(line))
        except orjson.JSONDecodeError:
            pass
    return _parse_odd(line)


def _parse_odd(line: bytes) -> Message:
    """Parse what orjson refuses, such as half a surrogate pair: an answer names the argument."""
    try:
        # json.loads guesses the encoding of bytes, and would accept others than UTF-8.
        return _message(json.loads(line.decode(), parse_int=_integer))
    except RecursionError:
        return Malformed(None, INVALID_REQUEST, "The message is nested too deeply.")
    except ValueError:
        return Malformed(None, PARSE_ERROR, "The message is not valid JSON in UTF-8.")


def _message(value: object) -> Message:
    if isinstance(value, list):
        return Malformed(None, INVALID_REQUEST, "MCP has no batches: send each message by itself.")
    if not isinstance(value, dict):
        return Malformed(None, INVALID_REQUEST, "A message must be a JSON object.")
    id, method, params = id_of(value.get("id")), value.get("method"), value.get("params")
    if value.get("jsonrpc") != "2.0" or not (params is None or isinstance(params, dict)):
        return _invalid(id)
    if isinstance(method, str):
        if "id" not in value:
            return Notification(method, params or {})
        if id is not None:
            return Request(id, method, params or {})
        return Malformed(None, INVALID_REQUEST, "The ID must be a string or an integer.")
    result, error = value.get("result"), value.get("error")
    if "method" not in value and ((isinstance(result, dict) and id is not None) or isinstance(error, dict)):
        return Response(id, result, error or {})
    return _invalid(id)


def id_of(value: object) -> Id | None:
    """Return *value* if it is an ID: a string, or an integer, which `true` is in Python alone."""
    is_number = type(value) is int and -LARGEST_ID < value < LARGEST_ID
    return value if isinstance(value, str) or is_number else None  # type: ignore[return-value]


def _invalid(id: Id | None) -> Malformed:
    return Malformed(id, INVALID_REQUEST, "This is not a JSON-RPC 2.0 message.")


def _integer(digits: str) -> int:
    """Read an integer; of one with too many digits only the first: it is refused for its size anyway."""
    return int(digits[:MOST_DIGITS])


def encode_result(id: Id, result: Json) -> bytes:
    """Return the answer *result*, which may hold fragments of JSON that are encoded already."""
    try:
        return orjson.dumps({"jsonrpc": "2.0", "id": id, "result": result})
    except TypeError:
        return orjson.dumps({"jsonrpc": "2.0", "id": encode_id(id), "result": result})


def encode_id(id: Id) -> orjson.Fragment:
    """Return *id* for a result; orjson refuses half a surrogate pair, and more than 64 bits."""
    return orjson.Fragment(json.dumps(id))


def encode_error(id: Id | None, error: ProtocolError) -> bytes:
    """Return the answer *error*."""
    content: dict[str, object] = {"code": error.code, "message": error.message}
    if error.data is not None:
        content["data"] = error.data
    return encode({"jsonrpc": "2.0", "id": id, "error": content})


def encode_notification(method: str, params: Json | None = None) -> bytes:
    """Return a notification."""
    message: dict[str, object] = {"jsonrpc": "2.0", "method": method}
    return encode({**message, "params": params} if params else message)


def encode(message: Json) -> bytes:
    """Return *message* as JSON; it may quote what a client has sent, valid text or not."""
    try:
        return orjson.dumps(message)
    except TypeError:
        return json.dumps(message).encode()
