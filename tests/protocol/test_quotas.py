"""Rate limits and concurrency limits for each role and identity."""

import asyncio
import re
import socket
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import create_autospec

import anyio
import httpx2
import pytest

from dbtools import errors
from dbtools.backends import url_of_file
from dbtools.policy.roles import Caller, Limits
from dbtools.records import AuditLog
from dbtools.server.calls import STORAGE_TIMEOUT, Calls, Limiter, MovingWindows
from dbtools.server.messages import Code
from dbtools.service.serving import open_toolbox
from dbtools.settings import DatabaseSection, LimitsSection, Settings
from tests.conftest import Clock
from tests.protocol.client import HANDSHAKES, MODERN, PATIENCE, Client, build_server, connect
from tests.protocol.http_application import served_over_http
from tests.protocol.http_server import modern, open_session, posted

ANN, BOB = Caller(identity="ann"), Caller(identity="bob")
SECONDS = re.compile(r"Retry in (\d+) seconds")


@pytest.fixture(params=["memory", "redis"])
def storage(request: pytest.FixtureRequest) -> str:
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
    names += [Caller(role="x/y", identity="z"), Caller(role="x", identity="y/z")]
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


async def test_storage_that_is_gone_refuses_never_admits_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        async with _quotas(f"redis://:sekret@127.0.0.1:{nobody.getsockname()[1]}") as quotas:
            for _ in range(3):
                with pytest.raises(errors.Busy, match="Retry"):
                    await _admit(quotas, ANN, Limits(calls_per_minute=100))

    assert [record.getMessage() for record in caplog.records] == [
        "calls cannot be counted: ConnectionError; rate-limited calls are rejected"
    ]
    assert "sekret" not in caplog.text


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


@asynccontextmanager
async def _limited(path: Path, version: str, log: AuditLog, **limits: int) -> AsyncIterator[Client]:
    """Yield a client of a server with these *limits*."""
    section = LimitsSection.model_validate(limits)
    toolbox, database = open_toolbox(
        Settings(database=DatabaseSection(url=url_of_file(path)), limits=section)
    )
    server = build_server(toolbox, Caller(), "", calls=Calls(toolbox, Limiter(), log))
    try:
        async with connect(server, version=version) as client:
            await client.open()
            yield client
    finally:
        await database.close()


@pytest.mark.parametrize("version", [HANDSHAKES[0], MODERN])
async def test_tools_resources_and_completion_count_as_calls(path: Path, version: str) -> None:
    reference = {"type": "ref/resource", "uri": "dbtools://row/{table}/{key}"}
    argument = {"name": "table", "value": "p"}
    async with _limited(path, version, AuditLog([], arguments=False), calls_per_minute=3) as client:
        await client.call("get_person", {"id": 1})
        await client.result("resources/read", {"uri": "dbtools://row/person/1"})
        await client.result("completion/complete", {"ref": reference, "argument": argument})
        refused = await client.call("get_person", {"id": 1})
        unread = await client.error("resources/read", {"uri": "dbtools://row/person/1"})
        listed = await client.result("tools/list")

    assert refused["isError"] is True
    assert SECONDS.search(refused["content"][0]["text"])
    assert SECONDS.search(unread["message"])
    assert listed["tools"]


MALFORMED: list[dict[str, object]] = [
    {},
    {"name": 1},
    {"arguments": {}},
    {"name": "get_person", "arguments": [1]},
    {"name": "no_such_tool", "arguments": "x"},
]


@pytest.mark.parametrize("version", [HANDSHAKES[0], MODERN])
async def test_malformed_calls_count_as_calls(path: Path, version: str) -> None:
    log = create_autospec(AuditLog)
    async with _limited(path, version, log, calls_per_minute=len(MALFORMED)) as client:
        refused = [await client.error("tools/call", params) for params in MALFORMED]
        limited = [await client.result("tools/call", params) for params in MALFORMED]
        after = await client.call("get_person", {"id": 1})

    assert {each["code"] for each in refused} == {Code.INVALID_PARAMS}
    for answer in (*limited, after):
        assert answer["isError"] is True
        assert SECONDS.search(answer["content"][0]["text"])
    recorded = [each.args[0].code for each in log.record.call_args_list]
    assert recorded == ["malformed"] * 5 + ["too_many_calls"] * 6


@pytest.mark.parametrize("era", ["sessions", "stateless", "modern"])
async def test_malformed_calls_count_over_http(path: Path, era: str) -> None:
    settings = Settings(
        database=DatabaseSection(url=url_of_file(path)), limits=LimitsSection(calls_per_minute=2)
    )
    malformed = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"arguments": 1}}
    async with (
        served_over_http(settings, stateless=era == "stateless") as (url, _),
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client,
    ):
        session = await open_session(client) if era == "sessions" else {}
        asked = posted(malformed, session)
        asked = modern("tools/call", {"arguments": 1}) if era == "modern" else asked
        answers = [await client.post(**asked) for _ in range(3)]

    codes = [each.json().get("error", {}).get("code") for each in answers]
    assert codes == [Code.INVALID_PARAMS, Code.INVALID_PARAMS, None]
    assert [each.status_code for each in answers] == [400, 400, 200] if era == "modern" else [200] * 3
    assert SECONDS.search(answers[2].json()["result"]["content"][0]["text"])
