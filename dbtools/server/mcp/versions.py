"""The revisions of MCP and all their differences, as a table. A new revision is a new entry."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dbtools.server.messages import Code, Json, ProtocolError

META_PREFIX = "io.modelcontextprotocol/"
VERSION_KEY = f"{META_PREFIX}protocolVersion"
CAPABILITIES_KEY = f"{META_PREFIX}clientCapabilities"
CLIENT_KEY = f"{META_PREFIX}clientInfo"
SERVER_KEY = f"{META_PREFIX}serverInfo"
SUBSCRIPTION_KEY = f"{META_PREFIX}subscriptionId"

HANDSHAKE_ONLY = frozenset(
    {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
MODERN_ONLY = frozenset({"server/discover", "subscriptions/listen"})
CACHEABLE = {  #: methods whose results say how long they may be cached
    *("server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list"),
    "resources/read",
}


@dataclass(frozen=True, kw_only=True)
class Revision:
    """One revision of the protocol."""

    version: str
    has_handshake: bool = True  #: otherwise each request has the version and the capabilities of its client
    absent: frozenset[str] = MODERN_ONLY  #: methods of other revisions
    contents: frozenset[str] = frozenset({"text", "image", "resource"})  #: kinds of tool results
    not_found: int = Code.RESOURCE_NOT_FOUND  #: the error code for an unknown resource
    implementation: frozenset[str] = frozenset({"name", "version"})  #: what a server says about itself
    #: The requests that a server may send, and the capability that each requires.
    asks: Mapping[str, str]
    stream_after: float = 0.5  #: seconds until an answer over HTTP becomes a stream


V2024_11_05 = Revision(
    version="2024-11-05", asks={"sampling/createMessage": "sampling", "roots/list": "roots"}
)
V2025_03_26 = replace(V2024_11_05, version="2025-03-26", contents=V2024_11_05.contents | {"audio"})
V2025_06_18 = replace(
    V2025_03_26,
    version="2025-06-18",
    contents=V2025_03_26.contents | {"resource_link"},
    implementation=V2025_03_26.implementation | {"title"},
    asks={**V2025_03_26.asks, "elicitation/create": "elicitation"},
)
V2025_11_25 = replace(
    V2025_06_18,
    version="2025-11-25",
    implementation=V2025_06_18.implementation | {"description", "websiteUrl", "icons"},
)
V2026_07_28 = replace(
    V2025_11_25,
    version="2026-07-28",
    has_handshake=False,
    absent=HANDSHAKE_ONLY,
    not_found=Code.INVALID_PARAMS,
    asks={},
    # The HTTP status depends on the answer, and a stream would fix it too early.
    stream_after=15.0,
)
REVISIONS = (V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28)
HANDSHAKES: Mapping[str, Revision] = {each.version: each for each in REVISIONS if each.has_handshake}
MODERN: Mapping[str, Revision] = {each.version: each for each in REVISIONS if not each.has_handshake}
LATEST_HANDSHAKE = V2025_11_25
DEFAULT_HANDSHAKE = V2025_03_26  #: of an HTTP request that names none (2025-06-18, transports)

#: The parameters of each method: a name with `?` is optional or null, `*` is any name, and a list has any
#: number of items.
ParamsShape = Mapping[str, object]
META: ParamsShape = {"_meta?": {"progressToken?": str | int}}
PAGE_PARAMS: ParamsShape = {"cursor?": str}
RETRY_PARAMS: ParamsShape = {"inputResponses?": {"*": dict}, "requestState?": str}
PARAMS: Mapping[str, ParamsShape] = {
    "initialize": {
        "protocolVersion": str,
        "capabilities": dict,
        "clientInfo": {"name": str, "version": str},
    },
    "tools/list": PAGE_PARAMS,
    "tools/call": {"name": str, "arguments?": dict, **RETRY_PARAMS},
    "resources/list": PAGE_PARAMS,
    "resources/templates/list": PAGE_PARAMS,
    "resources/read": {"uri": str, **RETRY_PARAMS},
    "resources/subscribe": {"uri": str},
    "resources/unsubscribe": {"uri": str},
    "prompts/list": PAGE_PARAMS,
    "prompts/get": {"name": str, "arguments?": dict, **RETRY_PARAMS},
    "completion/complete": {
        "ref": {"type": str},
        "argument": {"name": str, "value": str},
        "context?": {"arguments?": {"*": str}},
    },
    "subscriptions/listen": {
        "notifications": {
            "toolsListChanged?": bool,
            "resourcesListChanged?": bool,
            "promptsListChanged?": bool,
            "resourceSubscriptions?": [str],
        },
    },
}
JSON_TYPES: Mapping[object, str] = {
    str: "a string",
    dict: "an object",
    bool: "true or false",
    list: "an array",
    str | int: "a string or an integer",
}


def check_params(method: str, params: Json) -> None:
    """Raise ProtocolError if *params* do not have the shape that *method* requires."""
    _check_members(params, PARAMS.get(method, {}), "params")
    _check_members(params, META, "params")


def _check_members(value: Json, shape: ParamsShape, at: str) -> None:
    for name, wanted in shape.items():
        key = name.removesuffix("?")
        for member in value.values() if key == "*" else [value.get(key)]:
            if member is not None or key == name:
                _check(member, wanted, f"{at}.{key}")


def _check(value: object, wanted: object, at: str) -> None:
    kind = type(wanted) if isinstance(wanted, dict | list) else wanted
    if type(value) is not kind and not (kind == str | int and type(value) in (str, int)):
        raise ProtocolError(Code.INVALID_PARAMS, f"{at} must be {JSON_TYPES[kind]}.")
    if isinstance(wanted, dict) and isinstance(value, dict):
        _check_members(value, wanted, at)
    if isinstance(wanted, list) and isinstance(value, list):
        for each in value:
            _check(each, wanted[0], f"{at}[]")
