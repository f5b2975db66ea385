"""Keys of issuers: known keys are used at once, others are read in the background."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from dbtools import __version__
from dbtools.errors import ConfigurationError
from dbtools.server.keys import Keys, check_keys
from dbtools.settings import JwtSection
from tests.conftest import Clock
from tests.protocol.client import ROOT
from tests.protocol.http_server import HttpServer, http_server, modern
from tests.protocol.issuer import (
    AUDIENCE,
    ISSUER,
    KEY,
    OTHER,
    PATIENCE,
    Issuer,
    answer,
    key_set,
    open_issuer,
    signed,
)

DDL = "create table orders (id integer primary key, region text not null)"
ALGORITHMS = ("RS256", "ES256")


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with open_issuer() as issuer:
        yield issuer


def _section(jwks: str) -> JwtSection:
    return JwtSection(issuer=ISSUER, audience=(AUDIENCE,), jwks=jwks)


class NoKeysError(Exception):
    """No keys are known."""


class Checked:
    """Validates tokens with the keys of one issuer."""

    def __init__(self, place: str) -> None:
        self.keys = Keys(place, ALGORITHMS)
        self._section = _section(place)

    async def claims_of(self, token: str) -> Mapping[str, Any] | None:
        """Return the claims of *token*, None where it is not genuine, or raise NoKeysError."""
        found = await self.keys.claims_of(token, self._section)
        if found is None:
            raise NoKeysError
        return None if isinstance(found, str) else found


@pytest.fixture
def checked(issuer: Issuer) -> Checked:
    """Return what holds tokens against the keys of the issuer."""
    return Checked(f"{issuer.url}?key=secret")


def _at_once(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return what *coroutine* does, which waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as exc:
        return exc.value
    coroutine.close()
    raise AssertionError("it waits")


async def _until(event: Event) -> None:
    assert await anyio.to_thread.run_sync(event.wait, PATIENCE)


async def _known(checked: Checked, token: str) -> None:
    """Wait until the key of *token* is known: each question waits a while for it."""
    with anyio.fail_after(PATIENCE):
        while True:
            with suppress(NoKeysError):
                if await checked.claims_of(token):
                    return


async def test_known_key_answers_at_once_whatever_its_age(
    issuer: Issuer, checked: Checked, clock: Clock
) -> None:
    assert await checked.claims_of(signed())
    issuer.came.clear()
    issuer.may_answer.clear()
    issuer.content = answer(key_set(KEY, OTHER))
    clock.advance(1_000)

    assert _at_once(checked.claims_of(signed()))
    await _until(issuer.came)  # they are read beside
    assert [bool(_at_once(checked.claims_of(signed()))) for _ in range(3)] == [True] * 3
    assert (issuer.asked, len(checked.keys.known)) == (2, 1)

    issuer.may_answer.set()
    await _known(checked, signed(OTHER, kid="1"))


async def test_who_names_an_unknown_key_waits_for_it(issuer: Issuer, checked: Checked, clock: Clock) -> None:
    assert await checked.claims_of(signed())
    issuer.came.clear()
    issuer.may_answer.clear()
    issuer.content = answer(key_set(KEY, OTHER))
    found: list[object] = []

    async def ask() -> None:
        found.append(await checked.claims_of(signed(OTHER, kid="1")))

    assert _at_once(checked.claims_of(signed(OTHER, kid="1"))) is None  # they have just been read
    clock.advance(11)
    async with anyio.create_task_group() as several:
        for _ in range(5):
            several.start_soon(ask)
        await _until(issuer.came)
        issuer.may_answer.set()

    assert [each is not None for each in found] == [True] * 5
    assert issuer.asked == 2  # by one for all


async def test_who_names_an_unknown_key_waits_no_longer_than_for_a_while(
    issuer: Issuer, checked: Checked, clock: Clock
) -> None:
    issuer.may_answer.clear()
    with anyio.fail_after(12), pytest.raises(NoKeysError):
        await checked.claims_of(signed())
    with anyio.fail_after(12), pytest.raises(NoKeysError):
        await checked.claims_of(signed())
    assert issuer.asked == 1

    issuer.may_answer.set()
    await _known(checked, signed())
    issuer.may_answer.clear()
    clock.advance(11)
    with anyio.fail_after(12):
        assert await checked.claims_of(signed(OTHER, kid="1")) is None
    assert issuer.asked == 2


async def test_keys_that_cannot_be_read_again_remain(
    issuer: Issuer, checked: Checked, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dbtools")
    assert await checked.claims_of(signed())
    issuer.content = b"rubbish"
    for _ in range(3):
        clock.advance(1_000)
        assert await checked.claims_of(signed(OTHER, kid="1")) is None
        assert _at_once(checked.claims_of(signed()))
    issuer.content = answer(key_set(KEY, OTHER))
    clock.advance(1_000)
    assert await checked.claims_of(signed(OTHER, kid="1"))

    assert issuer.asked == 5
    assert caplog.messages == [
        f"[auth] jwt: {NO_HTTP}; the known keys stay valid",
        "[auth] jwt: the keys can be read again",
    ]


def _unreadable(reason: str) -> str:
    return f"cannot read keys from 127.0.0.1: {reason}"


NO_HTTP = _unreadable("the response is not valid HTTP")
NO_SET = _unreadable("this is not a JWK Set (RFC 7517)")
NO_KEY = "127.0.0.1 has no key for RS256, ES256"
PRIVATE = {"keys": [jwt.algorithms.RSAAlgorithm.to_jwk(KEY, as_dict=True)]}
RUBBISH = {
    "no HTTP": (b"rubbish\r\n\r\n", NO_HTTP),
    "nothing": (b"", NO_HTTP),
    "half of it": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}", NO_HTTP),
    "a wrong chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", NO_HTTP),
    "an error": (answer(key_set(KEY), "500 Broken"), _unreadable("the response has the status 500")),
    "another place": (
        answer("", "302 Found", "Location: /keys"),
        _unreadable("the response has the status 302"),
    ),
    "no JSON": (answer("<html>"), NO_SET),
    "a list": (answer("[]"), NO_SET),
    "a number of keys": (answer('{"keys": 1}'), NO_SET),
    "deep": (answer("[" * 100_000), NO_SET),
    "no keys": (answer('{"keys": []}'), NO_KEY),
    "others than keys": (answer('{"keys": [1, null, {}, {"kty": "RSA", "n": 1}]}'), NO_KEY),
    "a name that is none": (answer(key_set(KEY, kid={})), NO_KEY),
    "for secrets": (answer(key_set(KEY, use="enc")), NO_KEY),
    "another algorithm": (answer(key_set(KEY, alg="RS512")), NO_KEY),
    "a private key": (answer(json.dumps(PRIVATE)), NO_KEY),
}


async def test_issuer_that_answers_rubbish_has_no_keys(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    for content, reason in RUBBISH.values():
        issuer.content = content
        checked = Checked(issuer.url)
        caplog.clear()
        for _ in range(3):
            with pytest.raises(NoKeysError):
                await checked.claims_of(signed())

        assert caplog.messages == [f"[auth] jwt: {reason}; no signed token can be verified"]
    assert f"\r\nUser-Agent: dbtools/{__version__}\r\n".encode() in issuer.head


async def test_issuer_that_drips_is_left(issuer: Issuer) -> None:
    issuer.drips = True
    with anyio.fail_after(15), pytest.raises(ConfigurationError, match="no response within"):
        await check_keys(_section(issuer.url))


STUCK = """
import socket, threading
import anyio
from dbtools.server.keys import check_keys
from dbtools.settings import JwtSection
asked = threading.Event()
def look_up(*_, **__):
    asked.set()
    threading.Event().wait()
socket.getaddrinfo = look_up
section = JwtSection(issuer="i", audience=("https://x",), jwks="https://id.example.com/keys")
async def main():
    async with anyio.create_task_group() as group:
        group.start_soon(check_keys, section)
        await anyio.to_thread.run_sync(asked.wait)
        group.cancel_scope.cancel()
anyio.run(main)
print("ended")
"""


def test_process_ends_although_the_issuer_cannot_be_resolved() -> None:
    proxies = {name: "" for name in os.environ if name.lower().endswith("_proxy")}
    ended = subprocess.run(
        (sys.executable, "-c", STUCK),
        cwd=ROOT,
        env={**os.environ, **proxies},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (0, "ended\n"), ended.stderr


async def test_keys_of_a_file_are_read_as_those_of_a_url(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    with pytest.raises(ConfigurationError, match=f"{path}: No such file"):
        await check_keys(_section(str(path)))
    with pytest.raises(ConfigurationError, match="Is a directory"):
        await check_keys(_section(str(tmp_path)))
    path.write_text(key_set(KEY))

    assert await Checked(str(path)).claims_of(signed())


async def test_keys_without_a_name_are_several(issuer: Issuer, checked: Checked) -> None:
    issuer.content = answer(key_set(KEY, OTHER, kid=None))

    assert await checked.claims_of(signed(KEY, kid=None))
    assert await checked.claims_of(signed(OTHER, kid=None))
    assert await checked.claims_of(signed(OTHER, kid="1")) is None


async def test_keys_of_several_kinds_may_have_one_name(issuer: Issuer, checked: Checked) -> None:
    curve = ec.generate_private_key(ec.SECP256R1())
    written = jwt.algorithms.ECAlgorithm.to_jwk(curve.public_key(), as_dict=True)
    issuer.content = answer(
        json.dumps({"keys": [{**written, "kid": "0"}, *json.loads(key_set(KEY))["keys"]]})
    )

    assert await checked.claims_of(signed(KEY))
    assert await checked.claims_of(signed(curve, "ES256"))
    assert await checked.claims_of(signed(OTHER)) is None


async def test_key_that_names_no_algorithm_is_used_with_those_of_the_configuration(issuer: Issuer) -> None:
    section = JwtSection(issuer=ISSUER, audience=(AUDIENCE,), jwks=issuer.url, algorithms=("PS256",))
    keys = Keys(issuer.url, section.algorithms)

    assert isinstance(await keys.claims_of(signed(KEY, "PS256"), section), dict)
    assert await keys.claims_of(signed(KEY, "RS256"), section) == "has another algorithm"


def _configured(folder: Path, database: Path, jwks: str) -> Path:
    path = folder / "dbtools.toml"
    path.write_text(f"""
[database]
url = "sqlite:///{database}"
[roles.some]
tables.orders = true
[auth.jwt]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
jwks = "{jwks}"
role_claim = "db_role"
""")
    return path


async def _statuses(server: HttpServer, token: str, times: int) -> list[tuple[int, str | None]]:
    """Return how so many requests with *token* are answered, and after how long to come again."""
    async with server.client(Authorization=f"Bearer {token}") as client:
        answers = [await client.post(**modern("tools/list")) for _ in range(times)]
    return [(each.status_code, each.headers.get("retry-after")) for each in answers]


async def test_server_without_keys_says_so_to_each_and_logs_it_once(
    issuer: Issuer, sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    issuer.content = b"rubbish\r\n\r\n"
    path = _configured(tmp_path, sqlite_database(DDL), issuer.url)
    async with http_server(path, tmp_path) as server:
        statuses = await _statuses(server, signed(), 5)
        log = server.log.read_text()

    assert statuses == [(503, "1")] * 5
    assert log.count(NO_HTTP) == 1
    assert "Traceback" not in log


async def test_server_ends_although_an_issuer_keeps_it_waiting(
    issuer: Issuer, sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    issuer.may_answer.clear()
    issuer.drips = True
    path = _configured(tmp_path, sqlite_database(DDL), issuer.url)
    async with http_server(path, tmp_path) as server:
        await _until(issuer.came)
        with anyio.fail_after(12):
            status = await server.end()

    assert status == 0
    assert not issuer.may_answer.is_set()
