"""Tokens that somebody else signs (RFC 7519). A token in, its claims out where it is genuine and for us."""

from collections.abc import Mapping
from typing import Any

import jwt

from dbtools.config import JwtSection
from dbtools.server.keys import Keys

LEEWAY = 30  #: seconds by which clocks may differ
LONGEST = 16_384  #: characters of a token
REQUIRED = ("exp", "iss", "aud")


async def claims_of(token: str, section: JwtSection, keys: Keys) -> Mapping[str, Any] | None:
    """Return the claims of *token*, None where it is not genuine or not for us; or raise NoKeysError."""
    if len(token) > LONGEST:
        return None
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        return None
    algorithm, name = header.get("alg"), header.get("kid")
    if algorithm not in section.algorithms or not (name is None or isinstance(name, str)):
        return None
    for key in await keys.named(name, algorithm):
        claims = _verified(token, section, key)
        if claims is not None:
            return claims
    return None


def _verified(token: str, section: JwtSection, key: jwt.PyJWK) -> Mapping[str, Any] | None:
    """Return the claims of *token* where *key* has signed it."""
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
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
        return None
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
