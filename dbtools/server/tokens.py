"""Tokens that callers show: those we make, known by their hashes, and those that others sign (RFC 7519)."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dbtools.settings.sections import TokenSection

LEEWAY = 30  #: seconds by which clocks may differ
PREFIX = "dbt_"  #: by which scanners of secrets find one that has leaked


class BadTokenError(Exception):
    """A token is not genuine, or not for us; the text says why, to follow on "the token"."""


class NoKeysError(Exception):
    """No keys are known: nobody can tell whether a token is genuine."""


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
