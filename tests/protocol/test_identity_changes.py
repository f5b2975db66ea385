"""A configuration that changes while a server authenticates callers: what is revoked stops at once."""

import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import psutil  # type: ignore[import-untyped]
import pytest

from dbtools.errors import DbtoolsError, Denied
from dbtools.policy.roles import Caller
from dbtools.server.http.identity import Identity, Rejection, hash_of, new_token
from dbtools.service.serving import Served, open_served
from dbtools.settings import load
from tests.conftest import Clock
from tests.processes import FRESH
from tests.protocol.http_server import HttpServer, http_server, modern
from tests.protocol.issuer import AUDIENCE, ISSUER, KEY, OTHER, answer, key_set, open_issuer, signed

DDL = """
create table orders (id integer primary key, region text not null);
insert into orders values (1, 'north'), (2, 'south');
"""
PATIENCE = 30.0  #: seconds until a written file takes effect
MANY = 1_000_000  #: calls per minute: a test asks again and again until a file takes effect
ANN, BOB, CID = new_token(), new_token(), new_token()
OPEN, NORTH = 'tables."*" = true', "tables.orders = { where = \"region = 'north'\" }"
LISTEN = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})


def _roles(clerk: str = OPEN, **tokens: str) -> str:
    """Return a configuration of what a *clerk* sees, and of the roles of ann, bob and cid, if any."""
    hashes = {name: hash_of(token) for name, token in (("ann", ANN), ("bob", BOB), ("cid", CID))}
    rows = ", ".join(f'{{ sha256 = "{hashes[name]}", role = "{role}" }}' for name, role in tokens.items())
    auth = f"[auth]\ntokens = [{rows}]\n" if tokens else ""
    return f"[roles.clerk]\n{clerk}\n[roles.boss]\n{OPEN}\n{auth}"


class Configured:
    """A configuration of a database."""

    def __init__(self, folder: Path, database: Path) -> None:
        self.path = folder / "dbtools.toml"
        self.database = database

    def write(self, rest: str) -> None:
        """Write *rest* into it, dated an hour ago."""
        first = f'[limits]\ncalls_per_minute = {MANY}\n[database]\nurl = "sqlite:///{self.database}"\n'
        self.path.write_text(f"{first}{rest}")
        then = self.path.stat().st_mtime - 3600
        os.utime(self.path, (then, then))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep everybody from reading the database."""
        with closing(sqlite3.connect(self.database, isolation_level=None)) as connection:
            connection.execute("begin exclusive")
            yield
            connection.execute("rollback")


@pytest.fixture
def configured(tmp_path: Path, sqlite_database: Callable[[str], Path]) -> Configured:
    """Return a configuration that is still to be written."""
    return Configured(tmp_path, sqlite_database(DDL))


async def _asked(server: HttpServer, token: str) -> int | str | list[Any]:
    """Return what who shows *token* sees, why they see nothing, or with which status they are refused."""
    async with server.client(Authorization=f"Bearer {token}") as client:
        answer = await client.post(**modern("tools/call", {"name": "list_orders", "arguments": {}}))
    if answer.status_code != 200:
        return answer.status_code
    result = answer.json()["result"]
    if result["isError"]:
        return str(result["content"][0]["text"])
    return [row[1] for row in result["structuredContent"]["rows"]]


async def _until(server: HttpServer, token: str, expected: int | list[Any]) -> None:
    with anyio.fail_after(PATIENCE):
        while await _asked(server, token) != expected:
            pass


async def _told(server: HttpServer, message: str) -> None:
    with anyio.fail_after(PATIENCE):
        while message not in await anyio.Path(server.log).read_text():
            await _asked(server, ANN)


async def test_server_that_asks_who_calls_never_stops_asking(configured: Configured, tmp_path: Path) -> None:
    configured.write(_roles(ann="clerk"))
    async with http_server(configured.path, tmp_path) as server:
        configured.write(_roles())
        await _told(server, "[auth] is missing or empty, so anyone could call without authentication.")
        async with server.client() as client:
            nobody = await client.post(**modern("tools/list"))
        known = await _asked(server, ANN)
        configured.write(_roles(NORTH, ann="clerk"))
        await _until(server, ANN, ["north"])

    assert (nobody.status_code, known) == (401, ["north", "south"])


async def test_token_counts_with_the_policy_of_its_role_and_not_before(
    configured: Configured, tmp_path: Path
) -> None:
    configured.write(_roles(ann="clerk", cid="boss"))
    async with http_server(configured.path, tmp_path) as server:
        with configured.locked():
            configured.write(_roles(NORTH, bob="clerk", cid="clerk"))
            await _until(server, ANN, 401)  # what is taken away
            locked = await _asked(server, BOB), await _asked(server, CID)
        await _until(server, BOB, ["north"])
        after = await _asked(server, ANN), await _asked(server, CID)

    assert locked == (401, 503)
    assert after == (401, ["north"])


async def test_caller_has_to_be_in_the_newest_settings_and_in_those_of_the_snapshot(
    configured: Configured,
) -> None:
    async with _identity(configured, _roles(ann="clerk", cid="boss")) as (served, identity):

        async def roles() -> list[str | int]:
            found = [await identity.admit((f"Bearer {token}",)) for token in (ANN, BOB, CID)]
            return [each.status if isinstance(each, Rejection) else each.role for each in found]

        first = await roles()
        configured.write(_roles(NORTH, bob="clerk", cid="clerk"))
        with configured.locked(), pytest.raises(DbtoolsError):
            await served.toolbox.refresh()
        between = await roles()
        await served.toolbox.refresh()
        last = await roles()

    assert first == ["clerk", 401, "boss"]
    assert between == [401, 401, 503]
    assert last == [401, "clerk", "clerk"]


@asynccontextmanager
async def _identity(configured: Configured, rest: str) -> AsyncIterator[tuple[Served, Identity]]:
    """Yield what serves the database with *rest* as its configuration, and what knows callers."""
    configured.write(rest)
    served = open_served(load(configured.path))
    try:
        await served.toolbox.snapshot()
        yield served, Identity(served, Caller())
    finally:
        await served.backend.close()


async def test_configuration_without_a_role_is_not_in_force(configured: Configured) -> None:
    async with _identity(configured, _roles(ann="clerk")) as (served, identity):
        _, auth, rest = _roles(ann="clerk").partition("[auth]")
        configured.write(f"[roles]\n{auth}{rest}")
        await served.toolbox.refresh()
        found = await identity.admit((f"Bearer {ANN}",))
        nobody = await identity.admit(())

    assert isinstance(found, Caller)
    assert isinstance(nobody, Rejection)
    assert identity.challenge(nobody) == {"WWW-Authenticate": "Bearer"}  # there is nothing to say


def _jwt(jwks: str) -> str:
    return (
        f'[auth.jwt]\nissuer = "{ISSUER}"\naudience = "{AUDIENCE}"\njwks = "{jwks}"\nrole_claim = "db_role"\n'
    )


async def test_caller_stays_the_same_while_nothing_is_taken_away(configured: Configured) -> None:
    shown = [(f"Bearer {token}",) for token in (ANN, BOB, CID)]
    async with _identity(configured, _roles(ann="clerk", bob="clerk", cid="clerk")) as (served, identity):
        admitted = [await identity.admit(each) for each in shown]
        configured.write(_roles(ann="clerk", bob="boss"))
        await served.toolbox.refresh()
        later = [await identity.admit(each) for each in shown]

    assert [isinstance(each, Caller) for each in admitted] == [True] * 3
    assert [one == other for one, other in zip(admitted, later, strict=True)] == [True, False, False]


async def test_signed_token_counts_until_it_ends(configured: Configured) -> None:
    ends = [int(time.time()) + seconds for seconds in (600, -25, -35)]
    tokens = [signed(db_role="clerk", exp=each) for each in ends]
    with open_issuer() as issuer:
        async with _identity(configured, f"{_roles()}{_jwt(issuer.url)}") as (_, identity):
            found = [isinstance(await identity.admit((f"Bearer {each}",)), Caller) for each in tokens]

    assert found == [True, True, False]  # clocks may differ by half a minute


async def test_stream_ends_with_its_signed_token(configured: Configured, tmp_path: Path) -> None:
    with open_issuer() as issuer:
        configured.write(f"{_roles()}{_jwt(issuer.url)}")
        async with http_server(configured.path, tmp_path) as server, server.client() as client:
            while (status := await _asked(server, signed(db_role="clerk"))) == 503:
                pass
            token = signed(db_role="clerk", exp=int(time.time()) - 25)  # it counts for five seconds more
            asked = {**LISTEN, "headers": {**LISTEN["headers"], "Authorization": f"Bearer {token}"}}
            with anyio.fail_after(PATIENCE), suppress(httpx2.RemoteProtocolError):
                async with client.stream("POST", **asked) as stream:
                    events = [line async for line in stream.aiter_lines()]

    assert (status, stream.status_code) == (["north", "south"], 200)
    assert events


async def test_signed_token_of_a_key_that_is_withdrawn_counts_no_more(
    configured: Configured, clock: Clock
) -> None:
    shown = (f"Bearer {signed(db_role='clerk')}",)
    with open_issuer() as issuer:
        async with _identity(configured, f"{_roles()}{_jwt(issuer.url)}") as (_, identity):
            first = await identity.admit(shown)
            issuer.content = answer(key_set(OTHER))
            clock.advance(11)
            with anyio.fail_after(PATIENCE):
                # A token with an unknown key makes the server read the keys.
                await identity.admit((f"Bearer {signed(OTHER, kid='9')}",))
                new = (f"Bearer {signed(OTHER, db_role='clerk')}",)
                while isinstance(await identity.admit(new), Rejection):
                    pass
            withdrawn = await identity.admit(shown)

    assert isinstance(first, Caller)
    assert isinstance(withdrawn, Rejection)
    assert withdrawn.status == 401


async def test_restarted_worker_rejects_revoked_tokens(configured: Configured, tmp_path: Path) -> None:
    configured.write(_roles(ann="clerk", bob="clerk"))
    async with http_server(configured.path, tmp_path, "--workers", "2", program=FRESH) as server:
        first = await _asked(server, ANN)
        configured.write(_roles(bob="clerk"))
        workers = _workers(server)
        for each in workers:
            each.kill()
        with anyio.fail_after(PATIENCE):
            while len(anew := set(_workers(server)) - set(workers)) < 2:
                pass
            later: list[object] = []
            while len(later) < 10:
                with suppress(httpx2.TransportError):
                    later.append((await _asked(server, ANN), await _asked(server, BOB)))

    assert (first, len(anew)) == (["north", "south"], 2)
    assert later == [(401, ["north", "south"])] * 10


def _workers(server: HttpServer) -> list[psutil.Process]:
    """Return the processes that answer, without what only keeps count of resources."""
    children = psutil.Process(server.process.pid).children()
    return [each for each in children if "spawn_main" in " ".join(_words(each))]


def _words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


async def test_stream_ends_with_its_token(configured: Configured, tmp_path: Path) -> None:
    configured.write(_roles(ann="clerk", bob="clerk"))
    async with http_server(configured.path, tmp_path) as server, server.client() as client:
        asked = {**LISTEN, "headers": {**LISTEN["headers"], "Authorization": f"Bearer {ANN}"}}
        with anyio.fail_after(PATIENCE):
            async with client.stream("POST", **asked) as stream:
                lines = stream.aiter_lines()
                first = await anext(lines)
                configured.write(_roles(bob="clerk"))
                with suppress(httpx2.RemoteProtocolError):
                    async for _ in lines:
                        pass

    assert (stream.status_code, bool(first)) == (200, True)


async def test_claim_that_is_no_single_value_is_missing(url_of: Callable[[str], str], tmp_path: Path) -> None:
    url = url_of(DDL)
    (tmp_path / "keys.json").write_text(key_set(KEY))
    path = tmp_path / "dbtools.toml"
    # SQLite infers no types, so such a claim needs a declared one.
    grant = '[roles.some]\ntables.orders = { where = "region <> :claims.region" }\n'
    types = '[policy.claims]\nregion = "text"\n' if url.startswith("sqlite") else ""
    path.write_text(f'[database]\nurl = "{url}"\n{grant}{types}{_jwt("keys.json")}')
    async with http_server(path, tmp_path) as server:
        known = await _asked(server, signed(region="north"))
        regions: list[object] = [None, ["north"], [], {"is": "north"}]
        missing = [await _asked(server, signed(region=each)) for each in regions]

    assert known == ["south"]
    assert missing == [Denied.__doc__] * 4
