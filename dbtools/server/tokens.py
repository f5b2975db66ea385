"""Tokens that are known by their hashes: made once, shown once, and compared in constant time."""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dbtools.settings.sections import TokenSection

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
