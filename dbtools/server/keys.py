"""Verify signed tokens (JWT, RFC 7519) with the keys of their issuer (RFC 7517): tokens in, claims out.

Only this module imports PyJWT, which takes 0.1 s.
"""

import asyncio
import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

import jwt

from dbtools import __version__, errors
from dbtools.settings import JwtSection

REFRESH_INTERVAL = 300.0  #: seconds after which keys are refreshed
RETRY_INTERVAL = 10.0  #: seconds between two attempts to read them
TIMEOUT = 5.0  #: seconds to wait for an issuer
WAIT = 1.0  #: seconds that a request with an unknown key waits for a refresh
LEEWAY = 30  #: seconds by which clocks may differ
LONGEST_TOKEN = 16_384  #: characters of a token
HEADERS = {"User-Agent": f"dbtools/{__version__}"}  #: some issuers reject that of urllib
#: What is wrong with a token, for the operator: continues "the token" and quotes no part of it.
TOKEN_PROBLEMS: tuple[tuple[type[Exception], str], ...] = (
    (jwt.ExpiredSignatureError, "has expired"),
    (jwt.ImmatureSignatureError, "is not valid yet"),
    (jwt.InvalidAudienceError, "is for another audience"),
    (jwt.InvalidIssuerError, "is of another issuer"),
    (jwt.MissingRequiredClaimError, "lacks exp, iss or aud"),
    (Exception, "is not valid"),
)
logger = logging.getLogger("dbtools")
KeysOrProblem = tuple[jwt.PyJWK, ...] | str  #: the keys, or why they cannot be read


class Keys:
    """The keys of an issuer for some algorithms. If a refresh fails, the previous ones stay."""

    def __init__(self, place: str, algorithms: Sequence[str]) -> None:
        self._place = place
        self._algorithms = algorithms
        self.known: tuple[jwt.PyJWK, ...] = ()
        self._read_at, self._tried_at = -REFRESH_INTERVAL, -RETRY_INTERVAL
        self._reading: asyncio.Future[KeysOrProblem] | None = None
        self._is_failing = False

    async def claims_of(self, token: str, section: JwtSection) -> Mapping[str, Any] | str | None:
        """Return the claims of *token*, or what is wrong with it; None if no keys are known."""
        try:
            return await self._claims_of(token, section)
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as exc:
            return next(words for kind, words in TOKEN_PROBLEMS if isinstance(exc, kind))

    async def _claims_of(self, token: str, section: JwtSection) -> Mapping[str, Any] | str | None:
        if len(token) > LONGEST_TOKEN:
            return "is too long"
        header = jwt.get_unverified_header(token)
        algorithm = header.get("alg")
        if algorithm not in section.algorithms:
            return "has another algorithm"
        problem = "has an unknown key"
        for key in await self._keys_with_id(header.get("kid")):
            if key.algorithm_name == algorithm:
                with suppress(jwt.InvalidSignatureError):
                    return jwt.decode(
                        token,
                        key,
                        algorithms=[algorithm],
                        issuer=section.issuer,
                        audience=section.audience,
                        leeway=LEEWAY,
                        options={"require": ["exp", "iss", "aud"]},
                    )
                problem = "is signed with another key"
        return problem if self.known else None

    async def _keys_with_id(self, name: str | None) -> Sequence[jwt.PyJWK]:
        """Return the keys *name*; wait for a refresh if they are unknown."""
        found = self._known_keys(name)
        if not found or time.monotonic() - self._read_at > REFRESH_INTERVAL:
            self.refresh()
        if not found and self._reading is not None:
            await asyncio.wait([self._reading], timeout=WAIT)
            found = self._known_keys(name)
        return found

    def _known_keys(self, name: str | None) -> Sequence[jwt.PyJWK]:
        """Return the keys *name*; without a name, those that have none, or the only key."""
        found = [key for key in self.known if key.key_id == name]
        is_only = name is None and len({key.key_id for key in self.known}) == 1
        return self.known if is_only and not found else found

    def refresh(self) -> None:
        """Start a refresh, unless one is running or was tried within RETRY_INTERVAL seconds."""
        now = time.monotonic()
        if self._reading is None and now - self._tried_at > RETRY_INTERVAL:
            self._tried_at = now
            self._reading = _start_reading(self._place, self._algorithms)
            self._reading.add_done_callback(self._finish_reading)

    def _finish_reading(self, reading: asyncio.Future[KeysOrProblem]) -> None:
        self._reading, was_failing = None, self._is_failing
        outcome = reading.result()
        self._is_failing = isinstance(outcome, str)
        if not isinstance(outcome, str):
            self.known, self._read_at = outcome, time.monotonic()
            if was_failing:
                logger.info("[auth] jwt: the keys can be read again")
        elif not was_failing:
            rest = "the known keys stay valid" if self.known else "no signed token can be verified"
            logger.error("[auth] jwt: %s; %s", outcome, rest)


async def check_keys(section: JwtSection) -> None:
    """Raise ConfigurationError if the keys of *section* cannot be read."""
    reading = _start_reading(section.jwks, section.algorithms)
    await asyncio.wait([reading], timeout=TIMEOUT)
    outcome = reading.result() if reading.done() else _failure(section.jwks, TimeoutError())
    if isinstance(outcome, str):
        raise errors.ConfigurationError(f"[auth] jwt.jwks: {outcome}.")


def _start_reading(place: str, algorithms: Sequence[str]) -> asyncio.Future[KeysOrProblem]:
    """Read keys on a daemon thread, so that a DNS lookup that hangs does not keep the process alive."""
    loop = asyncio.get_running_loop()
    reading: asyncio.Future[KeysOrProblem] = loop.create_future()

    def read() -> None:
        outcome = _read(place, algorithms)
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(reading.set_result, outcome)

    Thread(target=read, daemon=True).start()
    return reading


def _read(place: str, algorithms: Sequence[str]) -> KeysOrProblem:
    """Return the keys at *place*, or why there are none."""
    try:
        if "://" in place:
            client = jwt.PyJWKClient(place, cache_jwk_set=False, headers=HEADERS, timeout=TIMEOUT)
            written = client.fetch_data()
        else:
            written = json.loads(Path(place).read_bytes())
        found = tuple(_usable_keys(written["keys"], algorithms))
    except Exception as exc:
        return _failure(place, exc)
    return found or f"{_public_name(place)} has no key for {', '.join(algorithms)}"


def _usable_keys(written: list[object], algorithms: Sequence[str]) -> Iterator[jwt.PyJWK]:
    """Yield the keys in *written*, each for every algorithm that it fits, since keys need not name one."""
    for each in written:
        # A private key does not belong in a key set.
        if not isinstance(each, dict) or not isinstance(each.get("kid"), str | None) or "d" in each:
            continue
        for algorithm in algorithms:
            if each.get("use") in (None, "sig") and each.get("alg") in (None, algorithm):
                # Ignore what is not a key, and keys of other types.
                with suppress(jwt.PyJWTError, ValueError, TypeError, AttributeError):
                    key = jwt.PyJWK(each, algorithm)
                    key.Algorithm.prepare_key(key.key)
                    yield key


def _failure(place: str, exc: Exception) -> str:
    return f"cannot read keys from {_public_name(place)}: {_reason(exc)}"


def _public_name(place: str) -> str:
    """Return the file or the host of the URL: its query may contain a secret."""
    return str(urlsplit(place).hostname) if "://" in place else place


def _reason(exc: BaseException | None) -> str:
    """Return why reading failed, without quoting a URL or a response."""
    match exc:
        case jwt.PyJWKClientConnectionError():
            return _reason(exc.__cause__)
        case HTTPError():
            return f"the response has the status {exc.code}"
        case URLError(reason=OSError() as cause):
            return _reason(cause)
        case HTTPException():
            return "the response is not valid HTTP"
        case TimeoutError():
            return f"no response within {TIMEOUT:g} seconds"
        case OSError():
            return exc.strerror or str(exc)
        case _:
            return "this is not a JWK Set (RFC 7517)"
