"""A person confirms a change, asked by the server during the call, on both transports (until 2025-11-25)."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from unittest.mock import create_autospec

import anyio
import httpx2
import pytest

from dbtools import errors
from dbtools.answers.results import Answer, Pending
from dbtools.policy.roles import Caller
from dbtools.records import AuditEntry, AuditLog
from dbtools.server.calls import Calls, Limiter
from dbtools.server.mcp.confirming import ask_and_call
from dbtools.server.mcp.exchange import Exchange
from dbtools.server.mcp.kernel import Peer
from dbtools.server.mcp.versions import V2025_11_25
from dbtools.server.messages import Json
from dbtools.server.running import Reporter, open_server
from dbtools.service.serving import open_toolbox
from dbtools.service.snapshot import RoleSnapshot
from dbtools.service.transactions import Confirmation
from tests.oracle.validation import ValidatingTransport
from tests.protocol.changing import Changing
from tests.protocol.client import PATIENCE, Message, Serving, build_server, connect
from tests.protocol.confirmed_things import (
    AGREED,
    ARGUMENTS,
    CALL,
    MADE,
    NONSENSE,
    PREVIEWED,
    QUESTION,
    REFUSALS,
    SAID,
    SCHEMA,
    TOOL,
    UNCONFIRMED,
    each_database,
    entries,
    refusal,
    settings_of,
    value_of,
)
from tests.protocol.http_application import served_over_http
from tests.protocol.http_server import HANDSHAKE
from tests.protocol.talking import ABLE, ELICIT, HttpTalk, LineTalk, answered, initialize, shake_hands

Talk = LineTalk | HttpTalk
Talking = Callable[..., AbstractAsyncContextManager[Talk]]


@pytest.fixture(params=["stdio", "http"])
def talk_to(request: pytest.FixtureRequest, things: Changing, log: Path) -> Talking:
    """Return what connects a client to a server of the things, over each transport."""
    settings = settings_of(things.url, log)

    @asynccontextmanager
    async def over_a_socket(
        able: Mapping[str, object] = ABLE, version: str = HANDSHAKE
    ) -> AsyncIterator[LineTalk]:
        async with (
            open_server(settings, create_autospec(Reporter), stateless=False) as run,
            connect(Serving(server=run.server, caller=Caller()), version=version) as client,
        ):
            await client.result("initialize", initialize(version, able))
            yield LineTalk(client)

    @asynccontextmanager
    async def over_http(
        able: Mapping[str, object] = ABLE, version: str = HANDSHAKE
    ) -> AsyncIterator[HttpTalk]:
        async with served_over_http(settings) as (url, _), _client(url) as client:
            yield await shake_hands(client, able, version)

    return over_a_socket if request.param == "stdio" else over_http


def _client(url: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=url, timeout=PATIENCE, transport=ValidatingTransport())


async def ask_and_answer(talk: Talk, *answers: Message) -> Message:
    """Call, give *answers* to the questions, and return the result."""
    await talk.start(CALL)
    for answer in answers:
        await talk.say(answered(await talk.hear(), answer))
    result: Message = (await talk.hear())["result"]
    return result


async def test_accepted_change_is_made(talk_to: Talking, things: Changing, log: Path) -> None:
    async with talk_to() as talk:
        await talk.start(CALL)
        question = await talk.hear()
        before = await value_of(things)
        await talk.say(answered(question, AGREED))
        result = (await talk.hear())["result"]

    assert question["method"] == ELICIT
    assert question["params"] == {"message": QUESTION, "requestedSchema": SCHEMA}
    assert (before, await value_of(things)) == ("one", "new")
    assert result["structuredContent"] == {
        "affected": 1,
        "dry_run": False,
        "columns": ["id", "v"],
        "rows": [[1, "new"]],
    }
    assert entries(log) == [MADE]


async def test_declined_change_is_not_made(talk_to: Talking, things: Changing, log: Path) -> None:
    async with talk_to() as talk:
        results = {kind: await ask_and_answer(talk, answer) for kind, answer in REFUSALS.items()}

    for kind, result in results.items():
        assert SAID[kind] in refusal(result)
        assert "Do not repeat" in refusal(result)
    assert await value_of(things) == "one"
    assert entries(log) == [{**UNCONFIRMED, "confirmed": "declined"}] * len(REFUSALS)


async def test_invalid_answer_confirms_nothing(talk_to: Talking, things: Changing, log: Path) -> None:
    async with talk_to() as talk:
        results = [await ask_and_answer(talk, answer) for answer in NONSENSE.values()]

    assert all('has no "confirm": true' in refusal(each) for each in results)
    assert await value_of(things) == "one"
    assert entries(log) == [UNCONFIRMED] * len(NONSENSE)


async def test_error_of_the_client_confirms_nothing(talk_to: Talking, things: Changing, log: Path) -> None:
    async with talk_to() as talk:
        await talk.start(CALL)
        question = await talk.hear()
        error = {"code": -1, "message": "SECRET"}
        await talk.say({"jsonrpc": "2.0", "id": question["id"], "error": error})
        result = (await talk.hear())["result"]

    assert "The client could not ask the user" in refusal(result)
    assert "SECRET" not in refusal(result)
    assert await value_of(things) == "one"
    assert entries(log) == [UNCONFIRMED]


async def test_question_without_an_answer_confirms_nothing(things: Changing) -> None:
    toolbox, database = open_toolbox(settings_of(things.url, Path("unused")))
    serving = build_server(toolbox, Caller(), "", answer_timeout=0.01)
    async with connect(serving, version=HANDSHAKE) as client:
        await client.result("initialize", initialize(HANDSHAKE, ABLE))
        result = await client.call(TOOL, ARGUMENTS)
        question, cancelled = [each for each in client.received if "method" in each]
    await database.close()

    assert cancelled["params"] == {"requestId": question["id"], "reason": "timeout"}
    assert "did not answer" in refusal(result)
    assert await value_of(things) == "one"


@each_database
async def test_other_change_while_a_person_is_asked_is_asked_about(
    talk_to: Talking, things: Changing, log: Path
) -> None:
    """The other change also shows that no transaction is open meanwhile."""
    async with talk_to() as talk:
        await talk.start(CALL)
        question = await talk.hear()
        await things.change("update things set v = 'other' where id = 1")
        await talk.say(answered(question, AGREED))
        again = await talk.hear()
        between = await value_of(things)
        await talk.say(answered(again, AGREED))
        result = (await talk.hear())["result"]

    assert between == "other"
    assert again["params"]["message"].splitlines() == [
        "The call would no longer make the change that was confirmed.",
        "Update 1 row of things?",
        'id 1: v "other" → "new"',
    ]
    assert result["structuredContent"]["affected"] == 1
    assert await value_of(things) == "new"
    assert entries(log) == [
        {**MADE, "changes": [{"key": {"id": 1}, "old": {"v": "other"}, "new": {"v": "new"}}]}
    ]


async def test_confirmed_change_of_a_row_that_is_gone_fails(
    talk_to: Talking, things: Changing, log: Path
) -> None:
    async with talk_to() as talk:
        await talk.start(CALL)
        question = await talk.hear()
        await things.change("delete from things where id = 1")
        await talk.say(answered(question, AGREED))
        result = (await talk.hear())["result"]

    assert "no row" in refusal(result)
    [entry] = entries(log)
    assert (entry["code"], entry["dry_run"], entry["confirmed"]) == ("no_row", False, None)


async def test_questions_end_if_what_would_change_differs_each_time(
    talk_to: Talking, things: Changing, log: Path
) -> None:
    async with talk_to() as talk:
        await talk.start(CALL)
        for number in range(3):
            question = await talk.hear()
            await things.change(f"update things set v = 'other {number}' where id = 1")
            await talk.say(answered(question, AGREED))
        result = (await talk.hear())["result"]

    assert "differed" in refusal(result)
    assert await value_of(things) == "other 2"
    [entry] = entries(log)
    assert (entry["code"], entry["dry_run"], entry["confirmed"]) == ("not_confirmed", False, None)


@pytest.mark.parametrize(
    ("able", "version"),
    [
        pytest.param({}, HANDSHAKE, id="none"),
        pytest.param({"elicitation": {"url": {}}}, HANDSHAKE, id="only URLs"),
        pytest.param(ABLE, "2025-03-26", id="before elicitation"),
    ],
)
async def test_client_that_cannot_ask_gets_a_token(
    talk_to: Talking, things: Changing, log: Path, able: Mapping[str, object], version: str
) -> None:
    async with talk_to(able, version) as talk:
        preview = (await ask_and_answer(talk))["structuredContent"]
        confirming = {**ARGUMENTS, "confirm": preview["confirm"]}
        await talk.start({**CALL, "params": {"name": TOOL, "arguments": confirming}})
        result = (await talk.hear())["result"]

    assert (preview["affected"], preview["preview"]["rows"]) == (0, [[1, "new"]])
    assert result["structuredContent"]["affected"] == 1
    assert entries(log) == [PREVIEWED, {**MADE, "confirmed": "token"}]


async def test_client_with_forms_and_urls_is_asked(talk_to: Talking) -> None:
    async with talk_to({"elicitation": {"form": {}, "url": {}}}) as talk:
        result = await ask_and_answer(talk, AGREED)

    assert result["structuredContent"]["affected"] == 1


async def test_model_cannot_confirm_if_a_person_can(talk_to: Talking, things: Changing) -> None:
    """The argument has no effect, even with a token that a client without elicitation has got."""
    toolbox, database = open_toolbox(settings_of(things.url, Path("unused")))
    token = (await toolbox.call(Caller(), TOOL, ARGUMENTS)).structured["confirm"]
    await database.close()
    async with talk_to() as talk:
        await talk.start({**CALL, "params": {"name": TOOL, "arguments": {**ARGUMENTS, "confirm": token}}})
        question = await talk.hear()
        await talk.say(answered(question, REFUSALS["decline"]))
        await talk.hear()

    assert question["params"]["message"] == QUESTION
    assert await value_of(things) == "one"


async def test_dry_run_and_reads_ask_nothing(talk_to: Talking, log: Path) -> None:
    async with talk_to() as talk:
        trial = {"name": TOOL, "arguments": {**ARGUMENTS, "dry_run": True}}
        await talk.start({**CALL, "params": trial})
        tried = (await talk.hear())["result"]
        await talk.start({**CALL, "params": {"name": "get_things", "arguments": {"id": 1}}})
        read = (await talk.hear())["result"]

    assert tried["structuredContent"]["dry_run"] is True
    assert read["structuredContent"]["row"] == {"id": 1, "v": "one"}


async def test_cancelled_call_changes_nothing(talk_to: Talking, things: Changing, log: Path) -> None:
    async with talk_to() as talk:
        await talk.start(CALL)
        question = await talk.hear()
        cancelled = {"method": "notifications/cancelled", "params": {"requestId": CALL["id"]}}
        await talk.say({"jsonrpc": "2.0", **cancelled})
        await talk.say(answered(question, AGREED))

    assert await value_of(things) == "one"
    assert entries(log) == [{**UNCONFIRMED, "outcome": "cancelled", "code": "cancelled"}]


async def test_client_that_leaves_changes_nothing(talk_to: Talking, things: Changing, log: Path) -> None:
    async with talk_to() as talk:
        await talk.start(CALL)
        await talk.hear()
        await talk.leave()

    assert await value_of(things) == "one"
    assert entries(log) == [{**UNCONFIRMED, "outcome": "cancelled", "code": "cancelled"}]


async def test_shutdown_changes_nothing(things: Changing, log: Path) -> None:
    async with served_over_http(settings_of(things.url, log)) as (url, endpoint), _client(url) as client:
        talk = await shake_hands(client)
        await talk.start(CALL)
        question = await talk.hear()
        endpoint.stop()
        error = (await talk.hear())["error"]
        await talk.say(answered(question, AGREED))

    assert "shutting down" in error["message"]
    assert await value_of(things) == "one"
    assert entries(log) == [{**UNCONFIRMED, "outcome": "cancelled", "code": "cancelled"}]


async def test_no_progress_is_reported_while_a_person_is_asked() -> None:
    sent: list[bytes] = []
    peer = Peer(V2025_11_25, "raw", ABLE)
    params: Json = {"_meta": {"progressToken": 1}}
    exchange = Exchange(1, "tools/call", params, peer, Caller(), sent.append, {})
    exchange.report(1.0, 10.0, "")
    async with anyio.create_task_group() as group:
        group.start_soon(exchange.ask, ELICIT, {}, PATIENCE)
        await anyio.lowlevel.checkpoint()
        before = len(sent)
        exchange.report(2.0, 10.0, "")
        group.cancel_scope.cancel()

    assert before == 2
    assert len(sent) == 2


async def test_role_is_looked_up_again_after_the_question() -> None:
    """It may have lost the grant while a person read the question."""
    views: list[object] = []
    asked: list[str] = []
    view = create_autospec(RoleSnapshot, instance=True)
    entry = AuditEntry(
        time=datetime.now(UTC), identity=None, role="", tool=TOOL, arguments={}, protocol="", client=""
    )

    async def call(seen: RoleSnapshot | None, confirmation: Confirmation) -> Answer:
        views.append(seen)
        if not confirmation.token:
            return Answer(json="{}", pending=Pending(token="token", question=QUESTION))
        raise errors.Denied

    async def ask(question: str) -> None:
        asked.append(question)

    with pytest.raises(errors.Denied):
        await ask_and_call(entry, call, ask, view)

    assert (views, asked) == ([view, None], [QUESTION])
    assert (entry.changed, entry.dry_run, entry.confirmed) == (None, None, "elicitation")


@pytest.mark.parametrize(
    ("error", "confirmed"),
    [
        pytest.param(errors.UnknownOutcome(), "elicitation", id="unknown outcome"),
        pytest.param(errors.Busy(), None, id="nothing changed"),
    ],
)
async def test_log_has_who_confirmed_what_may_have_changed(
    things: Changing, error: errors.CallError, confirmed: str | None
) -> None:
    toolbox, database = open_toolbox(settings_of(things.url, Path("unused")))
    calls = Calls(toolbox, Limiter(), AuditLog([], arguments=False))
    entry = calls.entry(Caller(), TOOL, ARGUMENTS)

    async def call(seen: RoleSnapshot | None, confirmation: Confirmation) -> Answer:
        if confirmation.token:
            raise error
        return await toolbox.call(Caller(), TOOL, ARGUMENTS, seen, confirmation)

    async def agree(question: str) -> None:
        """Do nothing."""

    with pytest.raises(errors.CallError):
        await calls.make(Caller(), entry, partial(ask_and_call, entry, call, agree))
    await database.close()

    assert (entry.changed, entry.dry_run, entry.confirmed) == (None, False, confirmed)
