"""The forms of hosts, origins, URLs and hashes of tokens. A text in, it or a complaint in plain words out.

No complaint quotes the text: it may hold a secret of the environment.
"""

import re
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field

LOOPBACK = ("127.0.0.1", "localhost", "::1")
NAME = r"(?:\[[0-9A-Fa-f:.]+\]|[^\s\[\]:/?#@*,]+)(?::\d{1,5})?"  #: of a host, as it stands in Host
HOST = re.compile(NAME)
ORIGIN = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*://{NAME}/?")
HASH = r"^[0-9A-Fa-f]{64}$"


def _host(text: str) -> str:
    if HOST.fullmatch(text) is None:
        raise ValueError(
            "wants the name of a host as clients write it, such as db.example.com, 10.0.0.5 or "
            "[2001:db8::1], without a scheme, a path or *"
        )
    return text


def _origin(text: str) -> str:
    if ORIGIN.fullmatch(text) is None:
        raise ValueError("wants an origin, SCHEME://HOST or SCHEME://HOST:PORT, without a path or *")
    return text


def _parts(text: str) -> SplitResult | None:
    """Return the parts of the URL that *text* is, None where it is none."""
    try:
        parts = urlsplit(text)
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if is_whole and not re.search(r"\s", text) else None


def _resource(text: str) -> str:
    parts = _parts(text)
    if parts is None or parts.scheme not in ("https", "http") or "#" in text:
        raise ValueError("wants the URL of this server, such as https://db.example.com/mcp")
    return text


def _keys(text: str) -> str:
    if not text.strip():
        raise ValueError("wants a URL or a file of keys")
    if "://" not in text:
        return text
    parts = _parts(text)
    if parts is not None and parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise ValueError("wants https: whoever is on the way could put keys of their own there")
    if parts is None or parts.scheme not in ("https", "http"):
        raise ValueError("wants an https URL or a file of keys")
    return text


def _issuer(text: str) -> str:
    if not text.strip():
        raise ValueError("wants what stands in the claim iss, such as https://id.example.com/")
    return text


def _hash(text: str) -> str:
    if re.fullmatch(HASH, text) is None or text.endswith("\n"):
        raise ValueError("wants the hash of a token, 64 hexadecimal digits, as `dbtools token new` prints it")
    return text.lower()


Host = Annotated[str, AfterValidator(_host)]
Origin = Annotated[str, AfterValidator(_origin)]
Resource = Annotated[str, AfterValidator(_resource)]
KeysPlace = Annotated[str, AfterValidator(_keys)]
Issuer = Annotated[str, AfterValidator(_issuer)]
Hash = Annotated[str, AfterValidator(_hash), Field(json_schema_extra={"pattern": HASH})]
