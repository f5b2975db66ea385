"""Tokens that callers show: those we make, known by their hashes, and those that others sign (RFC 7519)."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jwt

from dbtools.server.keys import Keys
from dbtools.settings import JwtSection

if TYPE_CHECKING:
    from dbtools.settings.sections import TokenSection

LEEWAY = 30  #: seconds by which clocks may differ
LONGEST = 16_384  #: characters of a token
REQUIRED = ("exp", "iss", "aud")


#: What is wrong with a token, in words for the operator that quote nothing of it.
FLAWS: tuple[tuple[type[Exception], str], ...] = (
    (jwt.ExpiredSignatureError, "has expired"),
    (jwt.ImmatureSignatureError, "is not valid yet"),
    (jwt.InvalidAudienceError, "is for another audience"),
    (jwt.InvalidIssuerError, "is of another issuer"),
    (jwt.MissingRequiredClaimError, "lacks exp, iss or aud"),
    (jwt.InvalidSignatureError, "has another's signature"),
)
MALFORMED = "is none of ours"


class BadTokenError(Exception):
    """A token is not genuine, or not for us; the text says why, to follow on "the token"."""


async def claims_of(token: str, section: JwtSection, keys: Keys) -> Mapping[str, Any]:
    """Return the claims of *token*, or raise BadTokenError or NoKeysError."""
    if len(token) > LONGEST:
        raise BadTokenError("is too long")
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError) as exc:
        raise BadTokenError(MALFORMED) from exc
    algorithm, name = header.get("alg"), header.get("kid")
    if algorithm not in section.algorithms or not (name is None or isinstance(name, str)):
        raise BadTokenError("has another algorithm")
    flaw = BadTokenError("has a key that is not known")
    for key in await keys.named(name, algorithm):
        try:
            return _verified(token, section, key)
        except BadTokenError as exc:
            flaw = exc
    raise flaw


def _verified(token: str, section: JwtSection, key: jwt.PyJWK) -> Mapping[str, Any]:
    """Return the claims of *token*, or raise BadTokenError where *key* has not signed it for us."""
    try:
        claims: Mapping[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name],
            issuer=section.issuer,
            audience=section.audience,
            leeway=LEEWAY,
            options={"require": list(REQUIRED)},
        )
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as exc:
        raise BadTokenError(next((why for kind, why in FLAWS if isinstance(exc, kind)), MALFORMED)) from exc
    return claims


def end_of(claims: Mapping[str, Any]) -> int:
    """Return when a token with these genuine *claims* counts no more, in seconds since 1970."""
    return int(claims["exp"]) + LEEWAY


def scopes_of(claims: Mapping[str, Any]) -> frozenset[str]:
    """Return the scopes that *claims* grant: `scope` (RFC 8693, 4.2), or `scp`, as some issuers call it."""
    written = (claims.get("scope"), claims.get("scp"))
    granted = (each.split() if isinstance(each, str) else each for each in written)
    return frozenset(
        scope for each in granted if isinstance(each, list) for scope in each if isinstance(scope, str)
    )


PREFIX = "dbt_"  #: by which scanners of secrets find one that has leaked


def new_token() -> str:
    """Return a token that nobody guesses: 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    """Return the hash of *token*, in hexadecimal; what has so many random bits needs no slow one."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


def find(token: str, sections: "Sequence[TokenSection]") -> "TokenSection | None":
    """Return which of *sections* is that of *token*, having looked at all of them."""
    hashed = hash_of(token)
    found = None
    for section in sections:
        if hmac.compare_digest(section.sha256, hashed):
            found = section
    return found
