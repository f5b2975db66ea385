"""Rate limits and concurrency limits for each role and identity."""

import asyncio
import json
import re
import socket
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from dbtools import errors
from dbtools.backends import url_of_file
from dbtools.policy import Caller, Limits
from dbtools.records import AuditLog
from dbtools.server.calls import STORAGE_TIMEOUT, Calls, Limiter, MovingWindows
from dbtools.service.serving import open_toolbox
from dbtools.settings import DatabaseSection, LimitsSection, Settings
from tests.conftest import Clock
from tests.protocol.client import HANDSHAKES, MODERN, build_server, connect, spawn
from tests.protocol.command_line import run

ANN, BOB = Caller(identity="ann"), Caller(identity="bob")
SECONDS = re.compile(r"Retry in (\d+) seconds")


@pytest.fixture(params=["memory", "redis"])
def storage(request: pytest.FixtureRequest) -> str:
    """Give each kind of storage."""
    return "memory" if request.param == "memory" else str(request.getfixturevalue("redis"))


@asynccontextmanager
async def _quotas(storage: str = "memory") -> AsyncIterator[Limiter]:
    quotas = Limiter(storage)
    try:
        yield quotas
    finally:
        quotas.close()
        await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def _admitted(quotas: Limiter, caller: Caller, limits: Limits) -> AsyncIterator[None]:
    quotas.begin(caller, limits)
    try:
        await quotas.count(caller, limits)
        yield
    finally:
        quotas.end(caller)


async def _admit(quotas: Limiter, caller: Caller, limits: Limits) -> None:
    async with _admitted(quotas, caller, limits):
        pass


async def test_rate_limit_says_in_how_many_seconds_to_retry(storage: str) -> None:
    few = Limits(calls_per_minute=3)
    async with _quotas(storage) as quotas:
        for _ in range(3):
            await _admit(quotas, ANN, few)
        with pytest.raises(errors.TooManyCalls) as refused:
            await _admit(quotas, ANN, few)

    told = SECONDS.search(str(refused.value))
    assert "rate limit" in str(refused.value)
    assert told is not None
    assert 50 < int(told[1]) <= 60


async def test_roles_and_identities_are_counted_apart(storage: str) -> None:
    one = Limits(calls_per_minute=1)
    names = [Caller(role=role, identity=who) for role in ("a", "b") for who in ("x", "y", None)]
    async with _quotas(storage) as quotas:
        for caller in names:
            await _admit(quotas, caller, one)
        for caller in names:
            with pytest.raises(errors.TooManyCalls):
                await _admit(quotas, caller, one)


async def test_place_is_free_again_when_the_minute_is_over(clock: Clock) -> None:
    quotas, two = Limiter(), Limits(calls_per_minute=2)
    await _admit(quotas, ANN, two)
    clock.advance(30)
    await _admit(quotas, ANN, two)
    clock.advance(31)

    await _admit(quotas, ANN, two)
    with pytest.raises(errors.TooManyCalls, match=r"Retry in 2\d seconds"):
        await _admit(quotas, ANN, two)


class Name(str):
    """A name to which a weak reference is possible."""


async def test_caller_that_stays_away_is_forgotten(clock: Clock) -> None:
    counted, names = MovingWindows(), [Name(each) for each in range(100)]
    remembered = [weakref.ref(name) for name in names]
    while names:
        assert await counted.hit(("", names.pop()), 1) is None
    assert None not in [name() for name in remembered]
    clock.advance(61)

    assert await counted.hit(("", "new"), 1) is None
    assert {name() for name in remembered} == {None}


async def test_servers_on_one_redis_count_together(redis: str) -> None:
    caller, two = Caller(identity="shared"), Limits(calls_per_minute=2)
    async with _quotas(redis) as one, _quotas(redis) as other:
        for quotas in (one, other):
            await _admit(quotas, caller, two)
        for quotas in (one, other):
            with pytest.raises(errors.TooManyCalls):
                await _admit(quotas, caller, two)


async def test_storage_that_is_gone_refuses_and_never_admits() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        async with _quotas(f"redis://127.0.0.1:{nobody.getsockname()[1]}") as quotas:
            with pytest.raises(errors.Busy, match="Retry"):
                await _admit(quotas, ANN, Limits(calls_per_minute=100))


async def test_storage_that_does_not_answer_refuses_in_time(clock: Clock) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        async with _quotas(f"redis://127.0.0.1:{silent.getsockname()[1]}") as quotas:
            refused = asyncio.create_task(_admit(quotas, ANN, Limits(calls_per_minute=100)))
            peer, _ = await asyncio.to_thread(silent.accept)
            clock.advance(STORAGE_TIMEOUT)
            with peer, pytest.raises(errors.Busy, match="Retry"):
                await refused


async def test_unknown_storage_ends_the_server_with_a_complaint(path: Path, tmp_path: Path) -> None:
    configuration = tmp_path / "dbtools.toml"
    configuration.write_text(f'[database]\nurl = "{path}"\n[limits]\nstorage = "nowhere://x"\n')
    async with spawn(configuration, tmp_path) as client:
        assert await client.status() == 2

    assert client.log.read_text().startswith(f"dbtools: {configuration}:4: limits.storage: ")


async def test_calls_at_the_same_time_are_limited_and_free_their_place() -> None:
    quotas, two = Limiter(), Limits(concurrent_calls=2, timeout=7)
    async with _admitted(quotas, ANN, two), _admitted(quotas, ANN, two):
        with pytest.raises(errors.TooManyCalls, match="within 7 seconds"):
            await _admit(quotas, ANN, two)
        await _admit(quotas, BOB, two)
    await _admit(quotas, ANN, two)


async def test_place_is_free_after_a_failure_and_a_cancellation() -> None:
    quotas, one = Limiter(), Limits(concurrent_calls=1)
    with pytest.raises(RuntimeError):
        async with _admitted(quotas, ANN, one):
            raise RuntimeError
    with anyio.CancelScope() as scope:
        async with _admitted(quotas, ANN, one):
            scope.cancel()
            await anyio.sleep_forever()

    await _admit(quotas, ANN, one)


async def test_calls_at_the_same_time_do_not_pass_the_rate_limit_together() -> None:
    quotas, few = Limiter(), Limits(calls_per_minute=5)
    outcomes: list[bool] = []

    async def attempt() -> None:
        try:
            await _admit(quotas, ANN, few)
        except errors.TooManyCalls:
            outcomes.append(False)
        else:
            outcomes.append(True)

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(attempt)

    assert sum(outcomes) == 5


@pytest.mark.parametrize("version", [HANDSHAKES[0], HANDSHAKES[-1], MODERN])
async def test_tools_resources_and_completion_count_as_calls(path: Path, version: str) -> None:
    settings = Settings(
        database=DatabaseSection(url=url_of_file(path)), limits=LimitsSection(calls_per_minute=3)
    )
    toolbox, database = open_toolbox(settings)
    calls = Calls(toolbox, Limiter(), AuditLog([], arguments=False))
    server = build_server(toolbox, Caller(), "", calls=calls)
    try:
        async with connect(server, version=version) as client:
            await client.open()
            await client.call("get_person", {"id": 1})
            await client.result("resources/read", {"uri": "dbtools://row/person/1"})
            reference = {"type": "ref/resource", "uri": "dbtools://row/{table}/{key}"}
            argument = {"name": "table", "value": "p"}
            await client.result("completion/complete", {"ref": reference, "argument": argument})
            refused = await client.call("get_person", {"id": 1})
            unread = await client.error("resources/read", {"uri": "dbtools://row/person/1"})
            listed = await client.result("tools/list")
    finally:
        await database.close()

    assert refused["isError"] is True
    assert SECONDS.search(refused["content"][0]["text"])
    assert SECONDS.search(unread["message"])
    assert listed["tools"]


async def test_limits_of_a_role_hold_over_a_server(path: Path, tmp_path: Path) -> None:
    configuration = tmp_path / "dbtools.toml"
    configuration.write_text(
        f"""
        [database]
        url = "{path}"
        [limits]
        calls_per_minute = 1000
        [roles.slow]
        tables."*" = true
        [roles.slow.limits]
        calls_per_minute = 2
        max_rows = 1
        """
    )
    async with spawn(configuration, tmp_path, options=("--role", "slow")) as client:
        await client.open()
        answers = [await client.call("list_person", {}) for _ in range(3)]

    rows = [json.loads(answer["content"][0]["text"])["row_count"] for answer in answers[:2]]
    assert rows == [1, 1]
    assert answers[2]["isError"] is True
    assert SECONDS.search(answers[2]["content"][0]["text"])


async def test_names_with_slashes_are_counted_apart(storage: str) -> None:
    one = Limits(calls_per_minute=1)
    async with _quotas(storage) as quotas:
        await _admit(quotas, Caller(role="x/y", identity="z"), one)
        await _admit(quotas, Caller(role="x", identity="y/z"), one)


async def test_broken_rate_limit_storage_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        async with _quotas(f"redis://:sekret@127.0.0.1:{nobody.getsockname()[1]}") as quotas:
            for _ in range(3):
                with pytest.raises(errors.Busy):
                    await _admit(quotas, ANN, Limits(calls_per_minute=100))

    assert [record.getMessage() for record in caplog.records] == [
        "calls cannot be counted: ConnectionError; rate-limited calls are rejected"
    ]
    assert "sekret" not in caplog.text


def test_check_finds_a_storage_and_a_log_that_cannot_be_used(path: Path, tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        configuration = tmp_path / "dbtools.toml"
        configuration.write_text(
            f"""\
[database]
url = "{path}"
[limits]
storage = "redis://:sekret@127.0.0.1:{nobody.getsockname()[1]}"
[log]
file = "missing/calls.jsonl"
"""
        )
        result = run("check", str(configuration), "--json")

    found = json.loads(result.stdout)["findings"]
    assert result.exit_code == 1
    assert [(each["code"], each["line"]) for each in found] == [("bad_storage", 4), ("bad_log", 6)]
    assert "sekret" not in result.stdout
