"""Tokens that somebody else signs (RFC 7519). A token in, its claims out; keys are kept and read again."""

import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import jwt

from dbtools.config import JwtSection
from dbtools.server.hosts import LOOPBACK

LEEWAY = 30  #: seconds by which clocks may differ
AGE = 300.0  #: seconds after which keys are read again
PAUSE = 10.0  #: seconds between two attempts to read them, whoever asks for unknown ones
PATIENCE = 5.0  #: seconds that the issuer has to answer
LARGEST = 2**20  #: bytes of a set of keys
LONGEST = 16_384  #: characters of a token
REQUIRED = ("exp", "iss", "aud")
logger = logging.getLogger("dbtools")


class NoKeysError(Exception):
    """The keys cannot be read: nobody can tell whether a token is genuine."""


class Jwts:
    """Checks the tokens of one issuer."""

    def __init__(self, section: JwtSection) -> None:
        self.section = section
        self._keys: Mapping[str | None, jwt.PyJWK] = {}
        self._read_at = -AGE
        self._tried_at = -PAUSE
        self._reading = anyio.Lock()

    async def claims_of(self, token: str) -> Mapping[str, Any] | None:
        """Return the claims of *token*, None where it is not genuine or not for us; or raise NoKeysError."""
        if len(token) > LONGEST:
            return None
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            return None
        if header.get("alg") not in self.section.algorithms:
            return None
        key = await self._key(header.get("kid"))
        if key is None:
            return None
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(self.section.algorithms),
                issuer=self.section.issuer,
                audience=self.section.audience,
                leeway=LEEWAY,
                options={"require": list(REQUIRED)},
            )
        except (jwt.PyJWTError, ValueError):
            return None
        return claims

    async def _key(self, name: object) -> jwt.PyJWK | None:
        """Return the key *name*, or the only one where the token names none."""
        if name is not None and not isinstance(name, str):
            return None
        async with self._reading:
            now = time.monotonic()
            is_old = now - self._read_at > AGE or self._named(name) is None
            if is_old and now - self._tried_at > PAUSE:
                self._tried_at = now
                await self._read()
        return self._named(name)

    def _named(self, name: str | None) -> jwt.PyJWK | None:
        if name is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(name)

    async def _read(self) -> None:
        """Read the keys; where that fails those that are known remain."""
        try:
            content = await anyio.to_thread.run_sync(_fetch, self.section.jwks)
            keys = jwt.PyJWKSet.from_dict(json.loads(content)).keys
        except (OSError, ValueError, jwt.PyJWTError, RecursionError, AttributeError) as exc:
            logger.error("the keys of [auth] jwt cannot be read: %s", type(exc).__name__)
            if not self._keys:
                raise NoKeysError from exc
            return
        self._keys = {key.key_id: key for key in keys}
        self._read_at = time.monotonic()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow none: the keys are where the configuration says."""


def _fetch(place: str) -> bytes:
    """Return what is at *place*, a file or a URL; only the own machine may answer without encryption."""
    if "://" not in place:
        return Path(place).read_bytes()
    parts = urlsplit(place)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise ValueError("not https")
    opener = urllib.request.build_opener(_NoRedirects)
    try:
        with opener.open(place, timeout=PATIENCE) as answer:
            content: bytes = answer.read(LARGEST + 1)
    except urllib.error.HTTPError as exc:
        exc.close()
        raise
    if len(content) > LARGEST:
        raise ValueError("too large")
    return content
