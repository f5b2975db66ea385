"""The core of MCP: a request and the state of its session in, its Peer or an error out.

Pure functions for both transports and both eras. Until 2025-11-25 (the handshake era), a client opens a
session with `initialize`. Since 2026-07-28 (the modern era), each request is complete in itself.
"""

import asyncio
import base64
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from dbtools import __version__
from dbtools.server.mcp.versions import (
    CACHEABLE,
    CAPABILITIES_KEY,
    CLIENT_KEY,
    HANDSHAKES,
    LATEST_HANDSHAKE,
    MODERN,
    SERVER_KEY,
    VERSION_KEY,
    Revision,
    check_params,
)
from dbtools.server.messages import Code, Id, Json, ProtocolError, Request
from dbtools.settings import Settings
from dbtools.values.cells import escape

INFO: Json = {"name": "dbtools", "version": __version__}
NAME_PARAMETERS: Mapping[str, str] = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
BASE64 = "=?base64?"
LONGEST_CLIENT = 200  #: characters of its name that are kept
ASKED = ("elicitation", "sampling", "roots")  #: capabilities of requests that a server may send
MODES = ("form", "url")  #: of elicitation
Questions = dict[Id | None, asyncio.Future[Json]]  #: requests to a client that it has not answered yet
HeaderValues = Callable[[str], Sequence[str]]  #: returns the values of a header by its lower-case name


@dataclass(frozen=True, slots=True)
class Peer:
    """The client as it describes itself, unverified."""

    revision: Revision
    client: str | None = None  #: name
    capabilities: Json = field(default_factory=dict)


@dataclass(slots=True)
class Session:
    """The state of a connection or session of the handshake era."""

    peer: Peer | None = None  #: set by the handshake
    questions: Questions | None = field(default_factory=dict)  #: None: the server cannot ask the client


def admit(
    session: Session | None, request: Request, methods: Collection[str], header: HeaderValues | None = None
) -> Peer:
    """Return the peer of *request*, or raise ProtocolError. Without a *session*, the request is modern.

    The server implements *methods*. Over HTTP, *header* returns the headers, which must match the body of a
    modern request (MCP 2026-07-28, transports).
    """
    if session is None:
        return _admit_modern(request, methods, header)
    if request.method == "initialize":
        check_params(request.method, request.params)
        revision = HANDSHAKES.get(str(request.params["protocolVersion"]), LATEST_HANDSHAKE)
        name, capabilities = _name_of(request.params["clientInfo"]), request.params["capabilities"]
        session.peer = Peer(revision, name, _known_capabilities(_object(capabilities)))
        return session.peer
    revision = session.peer.revision if session.peer is not None else LATEST_HANDSHAKE
    _check_method(request.method, revision, methods)
    if session.peer is None and request.method != "ping":
        raise ProtocolError(Code.INVALID_PARAMS, "Send initialize first.")
    check_params(request.method, request.params)
    return session.peer or Peer(revision)


def is_modern_request(request: Request) -> bool:
    """Return whether *request* is of the modern era: its metadata has a version."""
    return request.method != "initialize" and VERSION_KEY in meta_of(request.params)


def meta_of(params: Json) -> Json:
    """Return the metadata in the *params* of a request."""
    return _object(params.get("_meta"))


def _admit_modern(request: Request, methods: Collection[str], header: HeaderValues | None) -> Peer:
    meta = meta_of(request.params)
    if header is not None:
        _check_repetitions(header)
        if VERSION_KEY not in meta:
            # Without metadata, the request is here because its header names an unknown version.
            modern_revision("".join(header("mcp-protocol-version")))
    elif request.method == "initialize":
        requested = request.params.get("protocolVersion")
        message = "This connection serves 2026-07-28, which has no handshake."
        raise ProtocolError(Code.UNSUPPORTED_VERSION, message, _supported_versions(requested))
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        raise ProtocolError(Code.INVALID_PARAMS, f"params._meta must have {' and '.join(missing)}.")
    version, capabilities = meta[VERSION_KEY], meta[CAPABILITIES_KEY]
    if header is not None:
        _check_headers(request, version, header)
    if not isinstance(version, str):
        raise ProtocolError(Code.INVALID_PARAMS, f"params._meta.{VERSION_KEY} must be a string.")
    revision = modern_revision(version)
    _check_method(request.method, revision, methods)
    if not isinstance(capabilities, dict):
        raise ProtocolError(Code.INVALID_PARAMS, f"params._meta.{CAPABILITIES_KEY} must be an object.")
    check_params(request.method, request.params)
    return Peer(revision, _name_of(meta.get(CLIENT_KEY)), capabilities)


def _name_of(client: object) -> str | None:
    name = _object(client).get("name")
    return name[:LONGEST_CLIENT] if isinstance(name, str) else None


def _known_capabilities(given: Json) -> Json:
    """Return the capabilities that matter here: a session keeps them, and a client may send any others."""
    known = {name: given[name] for name in ASKED if isinstance(given.get(name), dict)}
    return {name: {mode: {} for mode in MODES if mode in _object(each)} for name, each in known.items()}


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _check_method(method: str, revision: Revision, methods: Collection[str]) -> None:
    if method not in methods or method in revision.absent:
        raise ProtocolError(Code.METHOD_NOT_FOUND, "Method not found", method)


def modern_revision(version: str) -> Revision:
    """Return the modern revision *version*, or raise ProtocolError."""
    if version not in MODERN:
        raise ProtocolError(
            Code.UNSUPPORTED_VERSION, "Unsupported protocol version.", _supported_versions(version)
        )
    return MODERN[version]


def _supported_versions(requested: object) -> Json:
    supported: dict[str, object] = {"supported": list(MODERN)}
    return {**supported, "requested": requested} if isinstance(requested, str) else supported


def _check_repetitions(header: HeaderValues) -> None:
    """Raise ProtocolError if a header is repeated: a proxy could read another value than dbtools."""
    for name in ("mcp-protocol-version", "mcp-method", "mcp-name"):
        if len(header(name)) > 1:
            raise ProtocolError(Code.HEADER_MISMATCH, f"The header {name} must not be repeated.")


def _check_headers(request: Request, version: object, header: HeaderValues) -> None:
    """Raise ProtocolError if a header does not match the body of *request*."""
    if header("mcp-protocol-version") != [version]:
        raise ProtocolError(Code.HEADER_MISMATCH, "MCP-Protocol-Version must equal that in params._meta.")
    if header("mcp-method") != [request.method]:
        raise ProtocolError(Code.HEADER_MISMATCH, "Mcp-Method must equal the method in the body.")
    name = NAME_PARAMETERS.get(request.method)
    value = request.params.get(name) if name else None
    if value is not None and [value] != [_decode_header(each) for each in header("mcp-name")]:
        raise ProtocolError(Code.HEADER_MISMATCH, f"Mcp-Name must equal params.{name}.")


def _decode_header(value: str) -> str | None:
    """Decode the header *value*, which may be base64; return None if it is invalid."""
    if not (value.startswith(BASE64) and value.endswith("?=")):
        return value
    payload = value[len(BASE64) : -2]
    try:
        content = base64.b64decode(payload, validate=True)
        return content.decode() if base64.b64encode(content).decode() == payload else None
    except ValueError:
        return None


def server_info(settings: Settings) -> Json:
    """Return how the server of *settings* describes itself to clients, by default as its database."""
    section, database = settings.server, settings.database
    title = section.title or unquote(PurePosixPath(urlsplit(database.url).path).stem)
    others = {
        "title": escape(title),
        "description": section.description or database.description,
        "websiteUrl": section.website,
        "icons": [{"src": section.icon}] if section.icon else None,
    }
    return {**INFO, "name": section.name, **{name: each for name, each in others.items() if each}}


def info_for(info: Json, revision: Revision) -> Json:
    """Return the members of *info* that *revision* has."""
    return {name: each for name, each in info.items() if name in revision.implementation}


def finish_result(peer: Peer, method: str, result: Json, fresh: int, info: Json = INFO) -> Json:
    """Add the members that the revision of *peer* requires; *fresh* is in milliseconds.

    *info* is how the server describes itself: with all it has, which may be large, only in `server/discover`.
    """
    if peer.revision.has_handshake:
        return result
    members: dict[str, object] = {"resultType": "complete", **result}
    if method in CACHEABLE and members["resultType"] == "complete":
        members = {"ttlMs": fresh, "cacheScope": "private", **members}
    shown = info if method == "server/discover" else {name: info[name] for name in INFO}
    members["_meta"] = {**meta_of(result), SERVER_KEY: shown}
    return members
