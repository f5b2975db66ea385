"""The keys of who signs tokens (RFC 7517). A file or a URL in, keys out; kept, and read again beside."""

import json
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import anyio
import httpx2
import jwt
from anyio import from_thread
from anyio.abc import TaskGroup
from anyio.lowlevel import current_token

AGE = 300.0  #: seconds after which keys are read again
PAUSE = 10.0  #: seconds between two attempts to read them, whoever asks for unknown ones
PATIENCE = 5.0  #: seconds that reading may take in all
WAIT = 1.0  #: seconds that who names an unknown key waits for that
LARGEST = 2**20  #: bytes of a set of keys
logger = logging.getLogger("dbtools")


class NoKeysError(Exception):
    """No keys are known: nobody can tell whether a token is genuine."""


class UnreadableKeysError(Exception):
    """The keys cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """A key, and with which algorithm it is used."""

    name: str | None
    algorithm: str
    jwk: jwt.PyJWK = field(repr=False)


class Keys:
    """The keys at one place, for some algorithms; they are read in *group*, whoever waits for them or not."""

    def __init__(self, place: str, algorithms: Sequence[str], group: TaskGroup) -> None:
        self._place = place
        self._algorithms = algorithms
        self._group = group
        self.known: tuple[Key, ...] = ()  #: another tuple whenever they are others
        self._content = b""
        self._read_at = -AGE
        self._tried_at = -PAUSE
        self._reading: anyio.Event | None = None  #: set when the attempt that runs has ended
        self._failing = False

    async def named(self, name: str | None, algorithm: str) -> tuple[jwt.PyJWK, ...]:
        """Return the keys *name* for *algorithm*, as many as there are, or raise NoKeysError."""
        found = self._named(name)
        if not found or time.monotonic() - self._read_at > AGE:
            self.refresh()
        if not found and self._reading is not None:
            with anyio.move_on_after(WAIT):
                await self._reading.wait()
            found = self._named(name)
        if not self.known:
            raise NoKeysError
        return tuple(key.jwk for key in found if key.algorithm == algorithm)

    def _named(self, name: str | None) -> tuple[Key, ...]:
        """Return the keys *name*; where a token names none, those without a name, or the only one."""
        found = tuple(key for key in self.known if key.name == name)
        if name is None and not found and len({key.name for key in self.known}) == 1:
            return self.known
        return found

    def refresh(self) -> None:
        """Begin to read the keys, unless somebody does, or has just tried."""
        now = time.monotonic()
        if self._reading is None and now - self._tried_at > PAUSE:
            self._tried_at = now
            self._reading = anyio.Event()
            self._group.start_soon(self._read, self._reading)

    async def _read(self, reading: anyio.Event) -> None:
        """Read the keys; where that fails those that are known remain."""
        try:
            content = await _read(self._place)
            if content != self._content:
                self.known = await _usable(content, self._algorithms)
            self._content, self._read_at = content, time.monotonic()
        except UnreadableKeysError as exc:
            if not self._failing:
                rest = "those that are known count" if self.known else "no signed token can be checked"
                logger.error("the keys of [auth] jwt cannot be read: %s; %s", exc, rest)
            self._failing = True
        else:
            if self._failing:
                logger.info("the keys of [auth] jwt are read again")
            self._failing = False
        finally:
            self._reading = None
            reading.set()


async def read_keys(place: str, algorithms: Sequence[str]) -> tuple[Key, ...]:
    """Return the keys for *algorithms* at *place*, a file or a URL, or raise UnreadableKeysError."""
    return await _usable(await _read(place), algorithms)


async def _read(place: str) -> bytes:
    """Return what is at *place*, or raise UnreadableKeysError, whatever an issuer does."""
    try:
        with anyio.fail_after(PATIENCE):
            if "://" in place:
                return await _fetched(place)
            return await anyio.to_thread.run_sync(_content, Path(place), abandon_on_cancel=True)
    except UnreadableKeysError:
        raise
    except TimeoutError as exc:
        raise UnreadableKeysError(f"they are not there within {PATIENCE:g} seconds") from exc
    except FileNotFoundError as exc:
        raise UnreadableKeysError("there is no such file") from exc
    except Exception as exc:
        raise UnreadableKeysError(type(exc).__name__) from exc


async def _fetched(url: str) -> bytes:
    """Return what is at *url* itself: no redirect is followed, the keys are where the configuration says."""
    trusted = await anyio.to_thread.run_sync(ssl.create_default_context, abandon_on_cancel=True)
    parts = urlsplit(url)
    if parts.scheme not in getproxies():
        # A lookup that hangs would keep the process from ending: it is tried where nobody waits for it.
        await _abandonable(partial(_look_up, str(parts.hostname)))
    content = b""
    async with (
        httpx2.AsyncClient(verify=trusted, timeout=PATIENCE, follow_redirects=False) as client,
        client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as answer,
    ):
        if answer.status_code != httpx2.codes.OK:
            raise UnreadableKeysError(f"the answer has the status {answer.status_code}")
        async for part in answer.aiter_raw():
            content += part
            if len(content) > LARGEST:
                raise UnreadableKeysError(f"they take more than {LARGEST} bytes")
    return content


def _look_up(host: str) -> None:
    """Look up *host*; what comes of it is told by whoever connects."""
    with suppress(OSError, UnicodeError):
        socket.getaddrinfo(host, None)


async def _abandonable(function: Callable[[], object]) -> None:
    """Wait for *function*, in a thread that nobody waits for when the process ends."""
    token, done = current_token(), anyio.Event()

    def run() -> None:
        function()
        with suppress(anyio.RunFinishedError):
            from_thread.run_sync(done.set, token=token)

    Thread(target=run, daemon=True).start()
    await done.wait()


def _content(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise UnreadableKeysError("this is no regular file")
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise UnreadableKeysError(f"they take more than {LARGEST} bytes")
    return content


async def _usable(content: bytes, algorithms: Sequence[str]) -> tuple[Key, ...]:
    """Return the keys in *content* that are for *algorithms*, or raise UnreadableKeysError."""
    try:
        make = partial(_keys_in, content, algorithms)
        found = await anyio.to_thread.run_sync(make, abandon_on_cancel=True)
    except Exception as exc:
        raise UnreadableKeysError("this is no set of keys (RFC 7517)") from exc
    if not found:
        raise UnreadableKeysError(f"there is no key for {', '.join(algorithms)}")
    return found


def _keys_in(content: bytes, algorithms: Sequence[str]) -> tuple[Key, ...]:
    written = json.loads(content)["keys"]
    return tuple(key for each in written if isinstance(each, dict) for key in _forms(each, algorithms))


def _forms(written: dict[str, Any], algorithms: Sequence[str]) -> Iterator[Key]:
    """Yield the key that is *written* for each algorithm that it fits: an issuer need not name one."""
    name = written.get("kid")
    if written.get("use") not in (None, "sig") or not (name is None or isinstance(name, str)):
        return
    for algorithm in algorithms:
        if written.get("alg") not in (None, algorithm):
            continue
        # What is no key, or one of another kind, is passed over; the others count.
        with suppress(jwt.PyJWTError, ValueError, TypeError, AttributeError):
            jwk = jwt.PyJWK(written, algorithm)
            jwk.Algorithm.prepare_key(jwk.key)
            yield Key(name=name, algorithm=algorithm, jwk=jwk)
