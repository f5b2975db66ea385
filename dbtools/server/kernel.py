"""The core of MCP: a request and the state of its session in; its Peer, or an error, out.

Nothing here waits, reads or writes: both transports ask the same questions of it, in both eras. In the first
era, until 2025-11-25, a client opens a session by a handshake. Since 2026-07-28 each request stands alone.
"""

import base64
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dbtools import __version__
from dbtools.server.messages import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Json,
    ProtocolError,
    Request,
)
from dbtools.server.versions import (
    CACHEABLE,
    CAPABILITIES_KEY,
    CLIENT_KEY,
    HANDSHAKES,
    HEADER_MISMATCH,
    LATEST_HANDSHAKE,
    MODERN,
    PARAMS,
    SERVER_KEY,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
    Revision,
    check,
)

INFO = {"name": "dbtools", "version": __version__}
NAMED: Mapping[str, str] = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
BASE64 = "=?base64?"
Header = Callable[[str], Sequence[str]]  #: the values of a header, by its name in lower case


@dataclass(frozen=True, slots=True)
class Peer:
    """The client, as it describes itself, which proves nothing."""

    revision: Revision
    client: str | None = None  #: name
    capabilities: Json = field(default_factory=dict)


@dataclass(slots=True)
class Session:
    """The state of a connection or a session; of a single request where each stands alone."""

    peer: Peer | None = None  #: the client, after its handshake
    is_modern: bool | None = None  #: None: the first request decides
    ignores_envelopes: bool = False  #: of requests, since something else has decided


def admit(session: Session, request: Request, methods: Collection[str], header: Header | None = None) -> Peer:
    """Return the peer of *request*, or raise ProtocolError.

    *methods* are those that the server answers. Over HTTP *header* returns the headers, which must repeat
    what the body says where requests stand alone (MCP 2026-07-28, transports).
    """
    enveloped = _is_enveloped(request.params)
    if session.is_modern is None:
        session.is_modern = enveloped and request.method != "initialize"
    if session.is_modern:
        return _admit_alone(request, methods, header)
    if request.method == "initialize":
        _check_params(request)
        session.peer = _shake_hands(request.params)
        return session.peer
    if enveloped and not session.ignores_envelopes:
        message = "This connection began with a handshake: requests of 2026-07-28 need another connection."
        raise ProtocolError(INVALID_REQUEST, message)
    revision = session.peer.revision if session.peer is not None else LATEST_HANDSHAKE
    _check_method(request.method, revision, methods)
    if session.peer is None and request.method != "ping":
        raise ProtocolError(INVALID_PARAMS, "Send initialize first.")
    _check_params(request)
    return session.peer or Peer(revision)


def _admit_alone(request: Request, methods: Collection[str], header: Header | None) -> Peer:
    if request.method == "initialize" and header is None:
        requested = request.params.get("protocolVersion")
        message = "This connection serves 2026-07-28, which has no handshake."
        raise ProtocolError(UNSUPPORTED_VERSION, message, _supported(requested))
    if header is not None:
        _check_repetitions(header)
    meta = request.params.get("_meta")
    if header is not None and not _is_enveloped(request.params):
        # A body without an envelope is of the other era: its header names an unknown version.
        modern("".join(header("mcp-protocol-version")))
    if not isinstance(meta, dict):
        raise ProtocolError(INVALID_PARAMS, f"params._meta must have {VERSION_KEY} and {CAPABILITIES_KEY}.")
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        raise ProtocolError(INVALID_PARAMS, f"params._meta must have {' and '.join(missing)}.")
    version, capabilities, client = meta[VERSION_KEY], meta[CAPABILITIES_KEY], meta.get(CLIENT_KEY)
    if header is not None:
        _check_headers(request, version, header)
    if not isinstance(version, str):
        raise ProtocolError(INVALID_PARAMS, f"params._meta.{VERSION_KEY} must be a string.")
    revision = modern(version)
    _check_method(request.method, revision, methods)
    if not isinstance(capabilities, dict):
        raise ProtocolError(INVALID_PARAMS, f"params._meta.{CAPABILITIES_KEY} must be an object.")
    _check_params(request)
    return Peer(revision, _name_of(client), capabilities)


def _is_enveloped(params: Json) -> bool:
    meta = params.get("_meta")
    return isinstance(meta, dict) and VERSION_KEY in meta


def _shake_hands(params: Json) -> Peer:
    revision = HANDSHAKES.get(str(params["protocolVersion"]), LATEST_HANDSHAKE)
    capabilities = params["capabilities"]
    assert isinstance(capabilities, dict)
    return Peer(revision, _name_of(params["clientInfo"]), capabilities)


def _name_of(client: object) -> str | None:
    name = client.get("name") if isinstance(client, dict) else None
    return name if isinstance(name, str) else None


def _check_method(method: str, revision: Revision, methods: Collection[str]) -> None:
    if method not in methods or method not in revision.methods:
        raise ProtocolError(METHOD_NOT_FOUND, "Method not found", method)


def _check_params(request: Request) -> None:
    check(request.params, PARAMS.get(request.method, {}))
    meta = request.params.get("_meta")
    if meta is None:
        return
    if not isinstance(meta, dict):
        raise ProtocolError(INVALID_PARAMS, "params._meta must be an object.")
    token = meta.get("progressToken")
    if not (token is None or isinstance(token, str) or type(token) is int):
        raise ProtocolError(INVALID_PARAMS, "params._meta.progressToken must be a string or an integer.")


def modern(version: str) -> Revision:
    """Return the revision *version*, in which requests stand alone, or raise ProtocolError."""
    if version not in MODERN:
        raise ProtocolError(UNSUPPORTED_VERSION, "Unsupported protocol version.", _supported(version))
    return MODERN[version]


def _supported(requested: object) -> Json:
    supported: dict[str, object] = {"supported": list(MODERN)}
    return {**supported, "requested": requested} if isinstance(requested, str) else supported


def _check_repetitions(header: Header) -> None:
    """Raise ProtocolError if a header is repeated: a proxy and dbtools could read different values."""
    for name in ("mcp-protocol-version", "mcp-method", "mcp-name"):
        if len(header(name)) > 1:
            raise ProtocolError(HEADER_MISMATCH, f"The header {name} must not be repeated.")


def _check_headers(request: Request, version: object, header: Header) -> None:
    """Raise ProtocolError where a header does not repeat what the body of *request* says."""
    if header("mcp-protocol-version") != [version]:
        raise ProtocolError(HEADER_MISMATCH, "MCP-Protocol-Version must equal the version in params._meta.")
    if header("mcp-method") != [request.method]:
        raise ProtocolError(HEADER_MISMATCH, "Mcp-Method must equal the method in the body.")
    name = NAMED.get(request.method)
    value = request.params.get(name) if name else None
    if value is not None and [value] != [_decoded(each) for each in header("mcp-name")]:
        raise ProtocolError(HEADER_MISMATCH, f"Mcp-Name must equal params.{name}.")


def _decoded(value: str) -> str | None:
    """Return what the header *value* stands for, which may be base64; None where that is broken."""
    if not (value.startswith(BASE64) and value.endswith("?=")):
        return value
    payload = value[len(BASE64) : -2]
    try:
        content = base64.b64decode(payload, validate=True)
        return content.decode() if base64.b64encode(content).decode() == payload else None
    except ValueError:
        return None


def finished(peer: Peer, method: str, result: Json, fresh: int) -> Json:
    """Return *result* as the revision of *peer* requires it, to be cached for *fresh* milliseconds."""
    if peer.revision.has_handshake:
        return result
    members: dict[str, object] = {"resultType": "complete", **result}
    if method in CACHEABLE and members["resultType"] == "complete":
        members = {"ttlMs": fresh, "cacheScope": "private", **members}
    meta = result.get("_meta")
    members["_meta"] = {**(meta if isinstance(meta, dict) else {}), SERVER_KEY: INFO}
    return members
