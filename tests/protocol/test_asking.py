"""Requests to the client during one of its requests, on both transports: each ends in one way."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import httpx2
import pytest

from dbtools.server.mcp.exchange import Exchange
from dbtools.server.messages import Code, Json, ProtocolError
from tests.protocol.client import MODERN, PATIENCE, Message, Serving, connect
from tests.protocol.http_application import http_application
from tests.protocol.http_server import HANDSHAKE, modern, posted
from tests.protocol.talking import ABLE, ELICIT, HttpTalk, LineTalk, answered, initialize, shake_hands

FORM = {
    "message": "Which one?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}
ACCEPTED = {"action": "accept", "content": {"name": "Ada"}}
PARAMS: Mapping[str, object] = {"name": "ask"}
GET: Message = {"jsonrpc": "2.0", "id": "get", "method": "prompts/get", "params": PARAMS}
SHORT, LONG = 0.01, 300.0  #: seconds for an answer that never comes, and for one that does


class Asker:
    """Answers `prompts/get` by what the client says, and remembers how asking ended."""

    def __init__(self, patience: float = LONG, method: str = ELICIT) -> None:
        self._patience = patience
        self._method = method
        self.outcome: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def __call__(self, exchange: Exchange) -> Json:
        """Ask."""
        try:
            answer = await exchange.ask(self._method, FORM, self._patience)
        except BaseException as exc:
            self.outcome.set_result(exc)
            raise
        self.outcome.set_result(answer)
        return prompt(answer)

    async def ended(self) -> object:
        """Return the answer, or what was raised."""
        with anyio.fail_after(PATIENCE):
            return await self.outcome


def prompt(answer: Json) -> Message:
    """Return the result of a request that *answer* has helped to answer."""
    return {"messages": [{"role": "user", "content": {"type": "text", "text": json.dumps(answer)}}]}


Talking = AbstractAsyncContextManager[LineTalk | HttpTalk]


@asynccontextmanager
async def line_talk(
    serving: Serving, asker: Asker, able: Mapping[str, object] = ABLE
) -> AsyncIterator[LineTalk]:
    """Yield a client of *asker* over a socket, that is *able*."""
    serving.server.handlers["prompts/get"] = asker
    async with connect(serving, version=HANDSHAKE) as client:
        await client.result("initialize", initialize(HANDSHAKE, able))
        await client.notify("notifications/initialized")
        yield LineTalk(client)


@asynccontextmanager
async def http_talk(path: Path, asker: Asker, able: Mapping[str, object] = ABLE) -> AsyncIterator[HttpTalk]:
    """Yield a client of *asker* over HTTP, that is *able*."""
    async with (
        http_application(path, {"prompts/get": asker}) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client,
    ):
        yield await shake_hands(client, able)


@pytest.fixture(params=["stdio", "http"])
def talk_to(request: pytest.FixtureRequest, server: Serving, path: Path) -> Callable[..., Talking]:
    """Return what connects a client to an asker, over each transport."""
    return partial(line_talk, server) if request.param == "stdio" else partial(http_talk, path)


def result_of(answer: Json) -> Message:
    """Return the message in which the server answers the request."""
    return {"jsonrpc": "2.0", "id": GET["id"], "result": prompt(answer)}


async def test_answer_of_the_client_helps_to_answer(talk_to: Callable[..., Talking]) -> None:
    asker = Asker()
    async with talk_to(asker) as talk:
        await talk.start(GET)
        question = await talk.hear()
        await talk.say(answered(question, ACCEPTED))
        told = await talk.hear()

    assert question == {"jsonrpc": "2.0", "id": question["id"], "method": ELICIT, "params": FORM}
    assert told == result_of(ACCEPTED)


async def test_error_of_the_client_is_raised(talk_to: Callable[..., Talking]) -> None:
    asker = Asker()
    async with talk_to(asker) as talk:
        await talk.start(GET)
        question = await talk.hear()
        problem = {"code": -1, "message": "Nobody is there"}
        await talk.say({"jsonrpc": "2.0", "id": question["id"], "error": problem})
        told = await talk.hear()
        outcome = await asker.ended()

    assert isinstance(outcome, ProtocolError)
    assert (outcome.code, outcome.message) == (-1, "Nobody is there")
    assert told == {"jsonrpc": "2.0", "id": GET["id"], "error": problem}


async def test_question_without_an_answer_is_taken_back(talk_to: Callable[..., Talking]) -> None:
    asker = Asker(SHORT)
    async with talk_to(asker) as talk:
        await talk.start(GET)
        question, cancelled, told = [await talk.hear() for _ in range(3)]
        await talk.say(answered(question, ACCEPTED))  # too late: it is dropped
        outcome = await asker.ended()

    assert isinstance(outcome, TimeoutError)
    params = {"requestId": question["id"], "reason": "timeout"}
    assert cancelled == {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    assert (told["id"], told["error"]["code"]) == (GET["id"], Code.INTERNAL_ERROR)


@pytest.mark.parametrize("id", ["dbtools-99", 1])
async def test_answer_without_a_question_is_dropped(talk_to: Callable[..., Talking], id: object) -> None:
    asker = Asker()
    async with talk_to(asker) as talk:
        await talk.start(GET)
        question = await talk.hear()
        await talk.say({**answered(question, {"action": "decline"}), "id": id})
        await talk.say(answered(question, ACCEPTED))
        await talk.say(answered(question, {"action": "cancel"}))
        told = await talk.hear()

    assert told == result_of(ACCEPTED)


@pytest.mark.parametrize(
    ("method", "able"),
    [
        pytest.param(ELICIT, {}, id="not-able"),
        pytest.param("sampling/createMessage", ABLE, id="able-of-something-else"),
        pytest.param("tools/list", ABLE, id="no-request-to-clients"),
    ],
)
async def test_client_is_asked_for_nothing_that_it_cannot_do(
    talk_to: Callable[..., Talking], method: str, able: Mapping[str, object]
) -> None:
    asker = Asker(method=method)
    async with talk_to(asker, able) as talk:
        await talk.start(GET)
        told = await talk.hear()

    assert told == _refused(method)


def _refused(method: str = ELICIT) -> Message:
    problem = {"code": Code.INTERNAL_ERROR, "message": f"The client cannot be asked for {method}."}
    return {"jsonrpc": "2.0", "id": GET["id"], "error": problem}


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", MODERN])
async def test_version_without_elicitation_is_asked_for_none(server: Serving, version: str) -> None:
    server.server.handlers["prompts/get"] = Asker()
    async with connect(server, version=version) as client:
        if version != MODERN:
            await client.result("initialize", initialize(version, ABLE))
        await client.send_line(_modern()["content"] if version == MODERN else json.dumps(GET).encode())
        told = await client.answer(GET["id"])

    assert told == _refused()


def _modern() -> Message:
    """Return the request of a client of 2026-07-28 that is able to answer, as arguments of a `post`."""
    request = modern("prompts/get", PARAMS, id=GET["id"])
    content = json.loads(request["content"])
    content["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = ABLE
    return {**request, "content": json.dumps(content).encode()}


@pytest.mark.parametrize(
    ("stateless", "request_of"),
    [
        pytest.param(False, _modern, id="2026-07-28"),
        pytest.param(True, lambda: posted(GET, {"MCP-Protocol-Version": HANDSHAKE}), id="stateless"),
    ],
)
async def test_client_without_a_session_is_not_asked(
    path: Path, *, stateless: bool, request_of: Callable[[], Message]
) -> None:
    async with (
        http_application(path, {"prompts/get": Asker()}, stateless=stateless) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client,
    ):
        told = await client.post(**request_of())

    assert (told.status_code, told.json()) == (200, _refused())


async def test_client_that_takes_its_request_back_is_asked_no_more(talk_to: Callable[..., Talking]) -> None:
    asker = Asker()
    async with talk_to(asker) as talk:
        await talk.start(GET)
        await talk.hear()
        cancelled = {"method": "notifications/cancelled", "params": {"requestId": GET["id"]}}
        await talk.say({"jsonrpc": "2.0", **cancelled})
        outcome = await asker.ended()

    assert isinstance(outcome, asyncio.CancelledError)


async def test_client_that_leaves_is_asked_no_more(talk_to: Callable[..., Talking]) -> None:
    asker = Asker()
    async with talk_to(asker) as talk:
        await talk.start(GET)
        await talk.hear()
        await talk.leave()
    outcome = await asker.ended()

    assert isinstance(outcome, asyncio.CancelledError)


async def test_client_may_answer_after_it_has_lost_the_stream(path: Path) -> None:
    """Until 2025-11-25, a client that loses a connection has not cancelled what it asked for there."""
    asker = Asker()
    async with http_talk(path, asker) as talk:
        await talk.start(GET)
        question = await talk.hear()
        await talk.hang_up()
        await talk.say(answered(question, ACCEPTED))
        outcome = await asker.ended()

    assert outcome == ACCEPTED


async def test_answer_in_another_session_is_dropped(path: Path) -> None:
    asker = Asker()
    async with (
        http_application(path, {"prompts/get": asker}) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client,
    ):
        asked, other = await shake_hands(client), await shake_hands(client)
        await asked.start(GET)
        question = await asked.hear()
        await other.say(answered(question, {"action": "decline"}))
        await asked.say(answered(question, ACCEPTED))
        told = await asked.hear()

    assert told == result_of(ACCEPTED)
