"""The types of values in dbtools.toml, such as durations and hosts. A TOML value in, a valid value out."""

import base64
import re
from math import isfinite
from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, ValidationInfo

from dbtools.backends import home_path, is_url, open_backend, resolved_url, url_of_file
from dbtools.errors import ConfigurationError
from dbtools.values.cells import media_type
from dbtools.values.dates import seconds_of

LOOPBACK = ("127.0.0.1", "localhost", "::1")
HOST_NAME = r"(?:\[[0-9A-Fa-f:.]+\]|[^\s\[\]:/?#@*,]+)(?::\d{1,5})?"  #: of a host, as in the header Host
HASH = r"^[0-9A-Fa-f]{64}$"
LARGEST_ICON = 32 * 1_024  #: bytes; clients get the icon with each handshake
SVG = "image/svg+xml"
#: The images that clients display (MCP 2025-11-25, schema, Implementation).
IMAGES = ("image/png", "image/jpeg", "image/webp", SVG)
DATA_URL = re.compile(rf"data:(?:{'|'.join(map(re.escape, IMAGES))});base64,([A-Za-z0-9+/]+={{0,2}})")
BASE64_IMAGE = "data:image/png;base64,… (or jpeg, webp, svg+xml)"


def _seconds(value: object) -> object:
    return seconds_of(value) if isinstance(value, str) else _number(value)


def _number(value: object) -> object:
    """Reject a boolean, which Python counts as a number."""
    if isinstance(value, bool):
        raise ValueError("must be a number, not a boolean")
    return value


def _claim(value: object) -> object:
    """Reject a value that no claim can have."""
    is_whole = isinstance(value, int) and -(2**63) <= value < 2**63
    if not (isinstance(value, str) or is_whole or (isinstance(value, float) and isfinite(value))):
        raise ValueError("must be a string, true, false or a finite number")
    return value


def _require(pattern: str, problem: str) -> AfterValidator:
    """Require *pattern*, without quoting the value: it may hold a secret of the environment."""

    def check_pattern(text: str) -> str:
        if re.fullmatch(pattern, text) is None:
            raise ValueError(problem)
        return text

    return AfterValidator(check_pattern)


def _parts(text: str) -> SplitResult | None:
    """Return the parts of an http or https URL, or None."""
    try:
        parts = urlsplit(text)
        is_whole = bool(parts.hostname) and parts.port != 0 and parts.scheme in ("https", "http")
    except ValueError:
        return None
    return parts if is_whole and not re.search(r"\s", text) else None


def is_resource(text: str) -> bool:
    """Return whether *text* can identify a server over HTTP (RFC 8707, 2)."""
    return _parts(text) is not None and "#" not in text


def _strings(value: object) -> object:
    """Accept one string in place of an array."""
    if not isinstance(value, str | list | tuple):
        raise ValueError("must be a string or an array of strings")
    return (value,) if isinstance(value, str) else value


def _url(text: str, about: ValidationInfo) -> str:
    """Return the full URL of a database; relative paths start in the folder of the file."""
    if not text or not about.context:
        return text
    folder = about.context["folder"]
    url = resolved_url(text, folder) if is_url(text) else url_of_file(home_path(text, folder))
    try:
        open_backend(url)
    except ConfigurationError as exc:
        raise ValueError(str(exc).removesuffix(".")) from exc
    return url


def _path(text: str, about: ValidationInfo) -> str:
    return str(home_path(text, about.context["folder"])) if text and about.context else text


def _keys(text: str, about: ValidationInfo) -> str:
    if not text.strip():
        raise ValueError("must be a URL or a file of keys")
    if "://" not in text:
        return _path(text, about)
    parts = _parts(text)
    if parts is None:
        raise ValueError("must be an https URL or a file of keys")
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise ValueError("must use https: over http, others could replace the keys in transit")
    if parts.username is not None:
        raise ValueError("must be a URL without a user name or a password")
    return text


def _website(text: str) -> str:
    parts = _parts(text) if text else None
    if text and (parts is None or parts.username is not None):
        raise ValueError("must be an https or http URL without a user name or a password")
    return text


def _icon(text: str, about: ValidationInfo) -> str:
    """Return the URL of an icon; a file becomes a data: URL."""
    if text.startswith("data:"):
        image = DATA_URL.fullmatch(text)
        if image is None or not 0 < _size_of(image[1]) <= LARGEST_ICON:
            raise ValueError(f"must be {BASE64_IMAGE}, of at most {LARGEST_ICON:,} bytes")
        return text
    if "://" in text:
        parts = _parts(text)
        if parts is None or parts.scheme != "https" or parts.username is not None:
            raise ValueError("must be an https URL, a data: URL or a file")
        return text
    return _data_url(Path(_path(text, about))) if text else text


def _data_url(path: Path) -> str:
    """Return the image at *path* as a data: URL."""
    try:
        if not path.is_file():
            raise ValueError("there is no such file")
        with path.open("rb") as file:
            content = file.read(LARGEST_ICON + 1)
    except OSError as exc:
        raise ValueError("the file cannot be read") from exc
    type = SVG if path.suffix.lower() == ".svg" and b"<svg" in content else media_type(content)
    if len(content) > LARGEST_ICON or type not in IMAGES:
        raise ValueError(f"must be a PNG, JPEG, WebP or SVG image of at most {LARGEST_ICON:,} bytes")
    return f"data:{type};base64,{base64.b64encode(content).decode()}"


def _size_of(encoded: str) -> int:
    """Return how many bytes are *encoded* as base64, or 0 if it is not valid."""
    try:
        return len(base64.b64decode(encoded, validate=True))
    except ValueError:
        return 0


Host = Annotated[
    str,
    _require(
        HOST_NAME,
        "must be a host name as clients write it, such as db.example.com, 10.0.0.5 or "
        "[2001:db8::1], without a scheme, a path or *",
    ),
]
Origin = Annotated[
    str,
    _require(
        rf"[A-Za-z][A-Za-z0-9+.-]*://{HOST_NAME}/?",
        "must be an origin, SCHEME://HOST or SCHEME://HOST:PORT, without a path or *",
    ),
]
Audience = Annotated[
    str, _require(r"(?s).*\S.*", "must be a value of the claim aud, such as a URL or a client ID")
]
Audiences = Annotated[
    tuple[Audience, ...], BeforeValidator(_strings, json_schema_input_type=str | tuple[str, ...])
]
DatabaseUrl = Annotated[str, AfterValidator(_url)]
FilePath = Annotated[str, AfterValidator(_path)]
KeysPlace = Annotated[str, AfterValidator(_keys)]
Issuer = Annotated[
    str, _require(r"(?s).*\S.*", "must be the value of the claim iss, such as https://id.example.com/")
]
Line = Annotated[
    str, _require(r"(?:(?!\s)[^\x00-\x1f\x7f]{1,500}(?<!\s))?", "must be at most 500 characters on one line")
]
ServerName = Annotated[
    str, _require(r"[A-Za-z0-9_.-]{1,64}", "must be 1 to 64 letters, digits, dots, - and _")
]
Website = Annotated[str, AfterValidator(_website)]
Icon = Annotated[str, AfterValidator(_icon)]
TokenName = Annotated[
    str, _require(r"(?!\s)[^\x00-\x1f\x7f]{1,100}(?<!\s)", "must be 1 to 100 characters on one line")
]
Hash = Annotated[
    str,
    _require(HASH, "must be the hash of a token, 64 hexadecimal digits, as `dbtools token new` prints it"),
    AfterValidator(str.lower),
    Field(json_schema_extra={"pattern": HASH}),
]
Secret = Annotated[str, _require(r"(?s)|.{32,}", "must have at least 32 characters")]
Storage = Annotated[str, _require(r"(?s)memory|rediss?://.*", 'must be "memory" or "redis://HOST:PORT"')]
Whole = Annotated[int, BeforeValidator(_number), Field(le=2**31 - 1)]
Claim = Annotated[str | StrictBool | int | float, BeforeValidator(_claim)]
Duration = Annotated[
    float, BeforeValidator(_seconds, json_schema_input_type=float | str), Field(gt=0, le=3600)
]
