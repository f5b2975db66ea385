"""A confirmation works for one answer: after a person has refused, nothing confirms the change any more."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import anyio
import pytest

from dbtools.alembic import upgrade
from dbtools.policy.roles import Caller
from dbtools.server.running import Reporter, open_server
from dbtools.settings.sections import ServerSection
from tests.protocol.changing import HANDSHAKE, Changing
from tests.protocol.client import Message, Serving, connect
from tests.protocol.confirmed_things import (
    ADA,
    AGREED,
    ARGUMENTS,
    CALL,
    GRANT,
    NONSENSE,
    REFUSALS,
    SAID,
    TOOL,
    call,
    connected,
    each_database,
    refusal,
    repeat,
    settings_of,
    value_of,
)
from tests.protocol.talking import ABLE, LineTalk, answered, initialize

ANSWERS: Mapping[str, Message] = {
    **REFUSALS,
    **{name: NONSENSE[name] for name in ("empty", "unknown action")},
}


@pytest.fixture(params=["in memory", "in the database"])
async def kept(request: pytest.FixtureRequest, things: Changing) -> str:
    """Return where confirmations that were used are kept; the registry is created if it is there."""
    if request.param == "in the database":
        await anyio.to_thread.run_sync(upgrade, things.url)
    return str(request.param)


@asynccontextmanager
async def replica(things: Changing, log: Path) -> AsyncIterator[Serving]:
    """Yield a server of the things, which shares its secret with others."""
    settings = settings_of(things.url, log, other=GRANT)
    settings = settings.model_copy(
        update={"server": ServerSection(secret="what all replicas of these tests know")}
    )
    async with open_server(settings, create_autospec(Reporter), stateless=False) as run:
        yield Serving(server=run.server, caller=ADA)


@pytest.fixture
async def serving(things: Changing, log: Path, kept: str) -> AsyncIterator[Serving]:
    async with replica(things, log) as serving:
        yield serving


@each_database
async def test_refused_state_cannot_be_accepted_later(serving: Serving, things: Changing) -> None:
    async with connected(serving) as client:
        for answer in ANSWERS.values():
            state = (await call(client))["requestState"]
            assert "nothing was changed" in refusal(await repeat(client, state, answer))
            for each in (AGREED, answer, AGREED):
                assert "used already" in refusal(await repeat(client, state, each))

    assert await value_of(things) == "one"


async def test_refused_state_is_no_token_either(serving: Serving, things: Changing) -> None:
    """Neither before the answer nor after it."""
    async with connected(serving) as client, connected(serving, able={}) as other:
        state = (await call(client))["requestState"]
        confirmed = {"name": TOOL, "arguments": {**ARGUMENTS, "confirm": state}}
        before = refusal(await other.result("tools/call", confirmed))
        await repeat(client, state, REFUSALS["decline"])
        after = refusal(await other.result("tools/call", confirmed))

    assert "another call" in before
    assert "another call" in after
    assert await value_of(things) == "one"


async def test_token_is_no_state(serving: Serving, things: Changing) -> None:
    async with connected(serving) as client, connected(serving, able={}) as other:
        token = (await call(other))["structuredContent"]["confirm"]
        result = await repeat(client, token)

    assert "another call" in refusal(result)
    assert await value_of(things) == "one"


async def test_refusal_after_the_change_says_that_it_was_made(serving: Serving, things: Changing) -> None:
    async with connected(serving) as client:
        state = (await call(client))["requestState"]
        await repeat(client, state)
        result = await repeat(client, state, REFUSALS["decline"])

    assert "used already" in refusal(result)
    assert await value_of(things) == "new"


async def test_new_question_after_a_refusal_can_be_accepted(
    serving: Serving, things: Changing, kept: str
) -> None:
    """With the same idempotency key, which the refusal does not use."""
    key = {"idempotency_key": "key"} if kept == "in the database" else {}
    params = {"arguments": {**ARGUMENTS, **key}}
    async with connected(serving) as client:
        state = (await call(client, **params))["requestState"]
        await repeat(client, state, REFUSALS["decline"], **params)
        state = (await call(client, **params))["requestState"]
        result = await repeat(client, state, **params)

    assert result["structuredContent"]["affected"] == 1
    assert await value_of(things) == "new"


@pytest.mark.parametrize(
    ("caller", "params"),
    [
        pytest.param(Caller(identity="bob"), {}, id="another caller"),
        pytest.param(Caller(role="other", identity="ada"), {}, id="another role"),
        pytest.param(ADA, {"arguments": {**ARGUMENTS, "id": 2}}, id="other arguments"),
    ],
)
async def test_refusal_of_another_call_uses_nothing(
    serving: Serving, things: Changing, caller: Caller, params: Mapping[str, Any]
) -> None:
    async with connected(serving) as client, connected(serving, caller) as other:
        state = (await call(client))["requestState"]
        refused = await repeat(other, state, REFUSALS["decline"], **params)
        result = await repeat(client, state)

    assert SAID["decline"] in refusal(refused)
    assert result["structuredContent"]["affected"] == 1
    assert await value_of(things) == "new"


async def test_refused_dry_run_previews_nothing(serving: Serving) -> None:
    """A refusal is an error even where nothing must be confirmed."""
    async with connected(serving) as client:
        for answer in ANSWERS.values():
            result = await repeat(client, "state", answer, arguments={**ARGUMENTS, "dry_run": True})

            assert "nothing was changed" in refusal(result)


@each_database
async def test_refusal_counts_on_every_replica(things: Changing, log: Path) -> None:
    await anyio.to_thread.run_sync(upgrade, things.url)
    async with (
        replica(things, log) as one,
        replica(things, log.with_name("two.jsonl")) as two,
        connected(one) as client,
        connected(two) as other,
    ):
        for answer in REFUSALS.values():
            state = (await call(client))["requestState"]
            await repeat(client, state, answer)
            assert "used already" in refusal(await repeat(other, state))

    assert await value_of(things) == "one"


async def test_client_of_2025_never_gets_what_would_confirm(things: Changing, log: Path) -> None:
    """The question during the call holds no token, and neither does the error."""
    settings = settings_of(things.url, log)
    async with (
        open_server(settings, create_autospec(Reporter), stateless=False) as run,
        connect(Serving(server=run.server, caller=ADA), version=HANDSHAKE) as client,
    ):
        await client.result("initialize", initialize(HANDSHAKE, ABLE))
        talk = LineTalk(client)
        for kind, answer in REFUSALS.items():
            await talk.start(CALL)
            question = await talk.hear()
            await talk.say(answered(question, answer))
            result = (await talk.hear())["result"]

            assert question["params"].keys() == {"message", "requestedSchema"}
            assert result.keys() <= {"content", "isError", "_meta"}
            assert SAID[kind] in refusal(result)
    assert await value_of(things) == "one"
