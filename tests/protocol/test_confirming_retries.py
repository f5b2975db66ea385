"""A person confirms a change, and the client repeats its call (2026-07-28). Forgeries are refused."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest

from dbtools.policy import Caller
from dbtools.server.running import Reporter, open_server
from tests.protocol.changing import Changing
from tests.protocol.client import Client, Message, Serving, connect
from tests.protocol.confirmed_things import (
    AGREED,
    ARGUMENTS,
    GRANT,
    MADE,
    NONSENSE,
    PARAMS,
    PREVIEWED,
    QUESTION,
    REFUSALS,
    SAID,
    SCHEMA,
    TOOL,
    entries,
    refusal,
    settings_of,
    value_of,
)
from tests.protocol.talking import ABLE, ELICIT

ADA = Caller(identity="ada")
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
    """Give a server of the things."""
    settings = settings_of(things.url, log, other=GRANT)
    async with open_server(settings, create_autospec(Reporter), stateless=False) as run:
        yield Serving(server=run.server, caller=ADA)


@asynccontextmanager
async def connected(
    serving: Serving, caller: Caller = ADA, able: Mapping[str, object] = ABLE
) -> AsyncIterator[Client]:
    """Give a client of *caller* that is *able*."""
    async with connect(Serving(server=serving.server, caller=caller)) as client:
        client.able = able
        yield client


@pytest.fixture
async def client(serving: Serving) -> AsyncIterator[Client]:
    """Give a client that can ask."""
    async with connected(serving) as client:
        yield client


async def call(client: Client, **more: object) -> Any:
    """Return the result of the call, with *more* params."""
    return await client.result("tools/call", {**PARAMS, **more})


async def repeat(client: Client, state: object, answer: Message = AGREED, **more: object) -> Any:
    """Return the result of the repeated call."""
    return await call(client, requestState=state, inputResponses={"confirm": answer}, **more)


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


@pytest.mark.parametrize("kind", REFUSALS)
async def test_declined_change_is_not_made(client: Client, things: Changing, kind: str) -> None:
    asked = await call(client)
    result = await repeat(client, asked["requestState"], REFUSALS[kind])

    assert SAID[kind] in refusal(result)
    assert await value_of(things) == "one"


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE)
async def test_invalid_answer_confirms_nothing(client: Client, things: Changing, answer: Message) -> None:
    asked = await call(client)
    result = await repeat(client, asked["requestState"], answer)

    assert 'has no "confirm": true' in refusal(result)
    assert await value_of(things) == "one"


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"inputResponses": {"confirm": AGREED}}, id="no state"),
        pytest.param({"inputResponses": {"confirm": AGREED}, "requestState": ""}, id="empty state"),
        pytest.param({"requestState": "state"}, id="no answer"),
        pytest.param({"requestState": "state", "inputResponses": {"other": AGREED}}, id="other answer"),
    ],
)
async def test_incomplete_repetition_asks_again(
    client: Client, things: Changing, more: Mapping[str, object]
) -> None:
    asked = await call(client)
    given = {"requestState": asked["requestState"]} if more.get("requestState") == "state" else {}
    again = await call(client, **{**more, **given})

    assert again["resultType"] == "input_required"
    assert again["requestState"] != asked["requestState"]
    assert await value_of(things) == "one"


def _tampered(state: str) -> str:
    return ("B" if state[0] == "A" else "A") + state[1:]


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(_tampered, id="tampered"),
        pytest.param(lambda state: state[:-8], id="cut"),
        pytest.param(lambda state: state + state, id="longer"),
        pytest.param(lambda state: "state", id="invented"),
        pytest.param(lambda state: "\u2603" * 40, id="no base64"),
        pytest.param(lambda state: "\ud800", id="lone surrogate"),
        pytest.param(lambda state: "A" * 100_000, id="long"),
    ],
)
async def test_forged_state_is_refused(client: Client, things: Changing, forged: Any) -> None:
    asked = await call(client)
    result = await repeat(client, forged(asked["requestState"]))

    assert "confirmation" in refusal(result)
    assert await value_of(things) == "one"


@pytest.mark.parametrize(
    "params",
    [
        pytest.param({"arguments": {**ARGUMENTS, "set": {"v": "evil"}}}, id="other value"),
        pytest.param({"arguments": {**ARGUMENTS, "id": 2}}, id="other row"),
        pytest.param({"name": "delete_things", "arguments": {"id": 1}}, id="other tool"),
        pytest.param(
            {
                "name": "update_rows",
                "arguments": {"table": "things", "key": {"id": 1}, "set": {"v": "new"}},
            },
            id="generic tool",
        ),
    ],
)
async def test_state_of_another_call_is_refused(
    client: Client, things: Changing, params: Mapping[str, Any]
) -> None:
    asked = await call(client)
    result = await repeat(client, asked["requestState"], **params)

    assert "another call" in refusal(result)
    assert await value_of(things) == "one"


@pytest.mark.parametrize(
    "caller",
    [
        pytest.param(Caller(identity="bob"), id="identity"),
        pytest.param(Caller(), id="anonymous"),
        pytest.param(Caller(role="other", identity="ada"), id="role"),
    ],
)
async def test_state_of_another_caller_is_refused(
    serving: Serving, client: Client, things: Changing, caller: Caller
) -> None:
    asked = await call(client)
    async with connected(serving, caller) as other:
        result = await repeat(other, asked["requestState"])

    assert "another call" in refusal(result)
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
