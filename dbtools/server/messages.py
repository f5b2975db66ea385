"""JSON-RPC messages as lines: bytes in, the SDK's messages out, and the other way round."""

import json
from dataclasses import dataclass

import orjson
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

MOST_DIGITS = 4_000  #: of an integer; Python refuses to read more than 4,300 (3.11)
LONGEST_ID = 4_000  #: characters that an id may have to be found in a line that is no message
LONGEST_SEARCH = 2**20  #: characters of such a line that are looked at


@dataclass(frozen=True, kw_only=True)
class Malformed:
    """A line that is no message, and the error that answers it (JSON-RPC 2.0, 5.1)."""

    id: RequestId | None
    code: int
    message: str

    def reply(self) -> JSONRPCError:
        """Return the answer to the line."""
        return JSONRPCError(jsonrpc="2.0", id=self.id, error=ErrorData(code=self.code, message=self.message))


def parse(line: bytes) -> JSONRPCMessage | Malformed:
    """Return the message that *line* is."""
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        return _parse_odd(line)
    if isinstance(message, JSONRPCNotification) and b'"id"' in line and "id" in json.loads(line):
        # A request whose id is neither string nor integer: its client waits for an answer.
        return Malformed(id=None, code=INVALID_REQUEST, message="The id is no string and no integer.")
    return message


def _parse_odd(line: bytes) -> JSONRPCMessage | Malformed:
    """Parse what a strict parser refuses, such as half a surrogate pair, to name its argument later."""
    try:
        # Of bytes it would guess the encoding, and so take others than UTF-8.
        value = json.loads(line.decode(), parse_int=_integer)
    except RecursionError:
        return Malformed(id=identifier(line), code=INVALID_REQUEST, message="The message is nested too deep.")
    except ValueError:
        return Malformed(id=None, code=PARSE_ERROR, message="The line is not JSON.")
    if isinstance(value, list):
        message = "There are no batches in MCP: send each message on a line of its own."
        return Malformed(id=None, code=INVALID_REQUEST, message=message)
    try:
        return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except (ValidationError, RecursionError):
        return Malformed(
            id=identifier(line), code=INVALID_REQUEST, message="The line is no JSON-RPC 2.0 message."
        )


def _integer(digits: str) -> int:
    """Read an integer, of too many digits only the first ones: it is refused for its length anyway."""
    return int(digits[:MOST_DIGITS])


def identifier(line: bytes) -> RequestId | None:
    """Return the member `id` of the object that *line* is, however deep the rest of it is nested."""
    text = line[:LONGEST_SEARCH].decode("utf-8", "replace")
    depth = at = 0
    while at < len(text):
        character = text[at]
        if character == '"':
            string, at = _string(text, at)
            if depth == 1 and string == "id" and text[at:].lstrip().startswith(":"):
                return _scalar(text, text.index(":", at) + 1)
            continue
        depth += (character in "{[") - (character in "}]")
        at += 1
    return None


def _string(text: str, at: int) -> tuple[str, int]:
    """Return the string that begins at *at*, and where it has ended."""
    try:
        string, end = json.decoder.scanstring(text, at + 1, False)  # type: ignore[attr-defined]
    except ValueError:
        return "", len(text)
    return str(string), int(end)


def _scalar(text: str, at: int) -> RequestId | None:
    """Return the string or the integer that stands at *at*."""
    try:
        value, end = json.JSONDecoder().raw_decode(text[at : at + LONGEST_ID].lstrip())
    except (ValueError, RecursionError):
        return None
    whole = end < LONGEST_ID - 1
    return value if whole and isinstance(value, str | int) and not isinstance(value, bool) else None


def encode(message: JSONRPCMessage) -> bytes:
    """Return *message* as a line."""
    try:
        return _encode(message)
    except (TypeError, ValueError):
        # An id or an error quotes half a surrogate pair, or an integer beyond 64 bits.
        return json.dumps(message.model_dump(by_alias=True, exclude_unset=True)).encode() + b"\n"


def _encode(message: JSONRPCMessage) -> bytes:
    """Return *message* as a line, quickly: results are plain values already, and most of what is sent."""
    if isinstance(message, JSONRPCResponse):
        content = {"jsonrpc": "2.0", "id": message.id, "result": message.result}
        return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
