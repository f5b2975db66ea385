"""A person at the client of each SDK confirms or declines a change, over stdio and HTTP, in both eras."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult, TextContent

from dbtools.alembic import upgrade
from tests.clients.node import FOLDER, needs_node, run_node
from tests.processes import forked
from tests.protocol.changing import Changing, open_changing
from tests.protocol.client import MODERN, ROOT
from tests.protocol.confirmed_things import AGREED, DDL as THINGS, PARAMS, QUESTION, REFUSALS, value_of
from tests.protocol.http_server import http_server

GRANTED = """
[server]
secret = "what all workers of these tests know"
[roles.default.tables]
things = { update = true, confirm = true }
"""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A server whose changes must be confirmed."""

    folder: Path
    url: str | None = None  #: None: the client starts the server
    command: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Made:
    """What a client gets for its call."""

    questions: list[str]
    is_error: bool
    structured: Mapping[str, Any] | None
    text: str


Visit = Callable[[Place, Mapping[str, Any] | None], Awaitable[Made]]


@asynccontextmanager
async def open_place(things: Changing, folder: Path, *options: str, http: bool) -> AsyncIterator[Place]:
    """Serve *things*."""
    path = folder / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{things.url}"\n{GRANTED}')
    if not http:
        yield Place(folder=folder, command=(*forked(), "serve", str(path)))
        return
    async with http_server(path, folder, *options) as server:
        yield Place(folder=folder, url=f"{server.url}/mcp")


@pytest.fixture(params=["stdio", "http"])
async def place(request: pytest.FixtureRequest, things: Changing, tmp_path: Path) -> AsyncIterator[Place]:
    """Yield a server of the things, over each transport."""
    async with open_place(things, tmp_path, http=request.param == "http") as place:
        yield place


@pytest.fixture(scope="module")
async def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Place, Changing]]:
    """Yield a server with two workers, and what it serves."""
    with open_changing("sqlite", THINGS, request) as things:
        await anyio.to_thread.run_sync(upgrade, things.url)
        folder = tmp_path_factory.mktemp("workers")
        async with open_place(things, folder, "--workers", "2", http=True) as place:
            yield place, things


@pytest.fixture
async def of_workers(shared: tuple[Place, Changing]) -> tuple[Place, Changing]:
    """Return the server with two workers, and what it serves as at first."""
    _, things = shared
    await things.change("update things set v = 'one' where id = 1")
    return shared


def in_python(mode: str) -> Visit:
    """Return what calls with the client in Python."""

    async def visit(place: Place, answer: Mapping[str, Any] | None) -> Made:
        questions: list[str] = []

        async def ask(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
            questions.append(params.message)
            return ElicitResult.model_validate(answer)

        target: Any = place.url
        if place.url is None:
            program, *arguments = place.command
            target = StdioServerParameters(command=program, args=arguments, cwd=ROOT)
        async with Client(target, mode=mode, elicitation_callback=ask if answer else None) as client:
            result = await client.call_tool(PARAMS["name"], PARAMS["arguments"])
        [content] = result.content
        assert isinstance(content, TextContent)
        structured: Any = result.structured_content
        return Made(
            questions=questions, is_error=bool(result.is_error), structured=structured, text=content.text
        )

    return visit


def in_typescript(**client: str) -> Visit:
    """Return what calls with a client in TypeScript."""

    async def visit(place: Place, answer: Mapping[str, Any] | None) -> Made:
        program, *arguments = place.command or ("",)
        where = {"url": place.url} if place.url else {"command": program, "args": arguments, "cwd": str(ROOT)}
        plan = json.dumps({**client, **where, "change": PARAMS, "answer": answer})
        async with run_node(place.folder, str(FOLDER / "main.mjs"), plan) as process:
            assert process.stdout is not None
            lines = [json.loads(line) async for line in process.stdout]
            status = await process.wait()
        assert status == 0, (place.folder / "node.txt").read_text()
        seen = lines[-1]["seen"]
        return Made(
            questions=seen["questions"],
            is_error=seen["isError"],
            structured=seen.get("structuredContent"),
            text=seen["text"],
        )

    return visit


CLIENTS = [
    pytest.param(in_python("legacy"), id="python-legacy"),
    pytest.param(in_python("auto"), id="python-auto"),
    pytest.param(in_python(MODERN), id=f"python-{MODERN}"),
    pytest.param(in_typescript(sdk="1"), id="typescript-1", marks=needs_node),
    pytest.param(in_typescript(sdk="2", mode="legacy"), id="typescript-2-legacy", marks=needs_node),
    pytest.param(in_typescript(sdk="2", mode="auto"), id="typescript-2-auto", marks=needs_node),
    pytest.param(in_typescript(sdk="2", mode=MODERN), id=f"typescript-2-{MODERN}", marks=needs_node),
]
#: Those of 2026-07-28, which need no session.
MODERN_CLIENTS = [CLIENTS[at] for at in (1, 2, 5, 6)]


@pytest.mark.parametrize("visit", CLIENTS)
async def test_person_confirms_or_declines_or_gets_a_token(
    place: Place, things: Changing, visit: Visit
) -> None:
    """A client without elicitation gets a token."""
    token, declined = await visit(place, None), await visit(place, REFUSALS["decline"])
    value = await value_of(things)
    made = await visit(place, AGREED)

    assert (token.questions, token.is_error) == ([], False)
    assert token.structured is not None
    assert token.structured.keys() == {"affected", "confirm", "expires_in", "preview", "note"}
    assert (declined.questions, declined.is_error, "declined" in declined.text) == ([QUESTION], True, True)
    assert value == "one"
    assert (made.questions, made.is_error) == ([QUESTION], False)
    assert made.structured == {"affected": 1, "dry_run": False, "columns": ["id", "v"], "rows": [[1, "new"]]}
    assert await value_of(things) == "new"


@pytest.mark.parametrize("visit", MODERN_CLIENTS)
async def test_any_worker_takes_the_answer(of_workers: tuple[Place, Changing], visit: Visit) -> None:
    place, things = of_workers
    made = await visit(place, AGREED)

    assert made.questions == [QUESTION]
    assert await value_of(things) == "new"


@pytest.mark.parametrize("visit", [CLIENTS[0], CLIENTS[3]])
async def test_client_without_a_session_gets_a_token(
    of_workers: tuple[Place, Changing], visit: Visit
) -> None:
    place, things = of_workers
    made = await visit(place, AGREED)

    assert made.questions == []
    assert made.structured is not None
    assert "confirm" in made.structured
    assert await value_of(things) == "one"
