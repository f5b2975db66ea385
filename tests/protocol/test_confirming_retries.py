"""A person confirms a change, and the client repeats its call (2026-07-28). Forgeries are refused."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from dbtools.policy.roles import Caller
from dbtools.server.running import Reporter, open_server
from tests.protocol.changing import Changing
from tests.protocol.client import Client, Serving
from tests.protocol.confirmed_things import (
    ADA,
    AGREED,
    ARGUMENTS,
    GRANT,
    MADE,
    NONSENSE,
    PREVIEWED,
    QUESTION,
    REFUSALS,
    SAID,
    SCHEMA,
    TOOL,
    call,
    connected,
    entries,
    refusal,
    repeat,
    settings_of,
    value_of,
)
from tests.protocol.talking import ELICIT

FAILED = {
    "outcome": "error",
    "code": "not_confirmed",
    "dry_run": False,
    "affected": None,
    "confirmed": None,
    "changes": None,
}


@pytest.fixture
async def serving(things: Changing, log: Path) -> AsyncIterator[Serving]:
    settings = settings_of(things.url, log, other=GRANT)
    async with open_server(settings, create_autospec(Reporter), stateless=False) as run:
        yield Serving(server=run.server, caller=ADA)


@pytest.fixture
async def client(serving: Serving) -> AsyncIterator[Client]:
    async with connected(serving) as client:
        yield client


async def test_accepted_change_is_made(client: Client, things: Changing, log: Path) -> None:
    asked = await call(client)
    before = await value_of(things)
    result = await repeat(client, asked["requestState"])

    params = {"message": QUESTION, "requestedSchema": SCHEMA}
    assert asked["resultType"] == "input_required"
    assert asked["inputRequests"] == {"confirm": {"method": ELICIT, "params": params}}
    assert asked.keys() == {"resultType", "inputRequests", "requestState", "_meta"}
    assert (result["resultType"], result["structuredContent"]["affected"]) == ("complete", 1)
    assert (before, await value_of(things)) == ("one", "new")


async def test_log_has_both_requests(things: Changing, log: Path) -> None:
    settings = settings_of(things.url, log)
    async with (
        open_server(settings, create_autospec(Reporter), stateless=False) as run,
        connected(Serving(server=run.server, caller=ADA)) as client,
    ):
        first, second = [(await call(client))["requestState"] for _ in range(2)]
        await repeat(client, first, REFUSALS["decline"])
        await repeat(client, second)
        await repeat(client, second)

    declined = {**FAILED, "confirmed": "declined"}
    assert entries(log) == [PREVIEWED, PREVIEWED, declined, MADE, FAILED]


async def test_change_that_is_not_accepted_is_not_made(client: Client, things: Changing) -> None:
    says = {kind: SAID[kind] for kind in REFUSALS} | dict.fromkeys(NONSENSE, 'has no "confirm": true')
    for kind, answer in {**REFUSALS, **NONSENSE}.items():
        asked = await call(client)
        assert says[kind] in refusal(await repeat(client, asked["requestState"], answer))

    assert await value_of(things) == "one"


async def test_incomplete_repetition_asks_again(client: Client, things: Changing) -> None:
    asked = await call(client)
    state, agreed = asked["requestState"], {"confirm": AGREED}
    for more in (
        {"inputResponses": agreed},
        {"inputResponses": agreed, "requestState": ""},
        {"requestState": state},
        {"requestState": state, "inputResponses": {"other": AGREED}},
    ):
        again = await call(client, **more)

        assert again["resultType"] == "input_required"
        assert again["requestState"] != state
    assert await value_of(things) == "one"


async def test_forged_state_is_refused(client: Client, things: Changing) -> None:
    state = (await call(client))["requestState"]
    tampered = ("B" if state[0] == "A" else "A") + state[1:]
    for forged in (tampered, state[:-8], state + state, "state", "\u2603" * 40, "\ud800", "A" * 100_000):
        assert "confirmation" in refusal(await repeat(client, forged))

    assert await value_of(things) == "one"


async def test_state_is_for_one_call_of_one_caller(
    serving: Serving, client: Client, things: Changing
) -> None:
    state = (await call(client))["requestState"]
    generic = {"table": "things", "key": {"id": 1}, "set": {"v": "new"}}
    for params in (
        {"arguments": {**ARGUMENTS, "set": {"v": "evil"}}},
        {"arguments": {**ARGUMENTS, "id": 2}},
        {"name": "delete_things", "arguments": {"id": 1}},
        {"name": "update_rows", "arguments": generic},
    ):
        assert "another call" in refusal(await repeat(client, state, **params))
    for caller in (Caller(identity="bob"), Caller(), Caller(role="other", identity="ada")):
        async with connected(serving, caller) as other:
            assert "another call" in refusal(await repeat(other, state))

    assert await value_of(things) == "one"


async def test_state_of_another_server_is_refused(client: Client, things: Changing, tmp_path: Path) -> None:
    """Without [server] secret, each server has its own key."""
    asked = await call(client)
    settings = settings_of(things.url, tmp_path / "other.jsonl")
    async with (
        open_server(settings, create_autospec(Reporter), stateless=False) as run,
        connected(Serving(server=run.server, caller=ADA)) as other,
    ):
        result = await repeat(other, asked["requestState"])

    assert "another call" in refusal(result)
    assert await value_of(things) == "one"


async def test_used_state_is_refused(client: Client, things: Changing) -> None:
    asked = await call(client)
    await repeat(client, asked["requestState"])
    await things.change("update things set v = 'one' where id = 1")
    result = await repeat(client, asked["requestState"])

    assert "used already" in refusal(result)
    assert await value_of(things) == "one"


async def test_other_change_meanwhile_is_asked_about(client: Client, things: Changing) -> None:
    asked = await call(client)
    await things.change("update things set v = 'other' where id = 1")
    again = await repeat(client, asked["requestState"])
    between = await value_of(things)
    result = await repeat(client, again["requestState"])

    [changed, *_, row] = again["inputRequests"]["confirm"]["params"]["message"].splitlines()
    assert "no longer make the change that was confirmed" in changed
    assert row == 'id 1: v "other" → "new"'
    assert (between, result["structuredContent"]["affected"]) == ("other", 1)


async def test_token_confirms_nothing_as_an_argument(
    serving: Serving, client: Client, things: Changing
) -> None:
    """A person is asked even if the model has got a token, such as from a client that cannot ask."""
    async with connected(serving, able={}) as other:
        token = (await call(other))["structuredContent"]["confirm"]
    asked = await client.result("tools/call", {"name": TOOL, "arguments": {**ARGUMENTS, "confirm": token}})

    assert asked["resultType"] == "input_required"
    assert await value_of(things) == "one"


@pytest.mark.parametrize("able", [{}, {"elicitation": {"url": {}}}, {"elicitation": None}], ids=str)
async def test_client_that_cannot_ask_gets_a_token(
    serving: Serving, things: Changing, able: Mapping[str, object]
) -> None:
    async with connected(serving, able=able) as client:
        preview = (await call(client))["structuredContent"]
        confirmed = {"name": TOOL, "arguments": {**ARGUMENTS, "confirm": preview["confirm"]}}
        result = await client.result("tools/call", confirmed)

    assert result["structuredContent"]["affected"] == 1
    assert await value_of(things) == "new"
