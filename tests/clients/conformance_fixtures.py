"""The fixtures of the conformance suite, in front of a dbtools server that answers all other requests.

Lists hold ours first.
"""

import hmac
import json
import re
import secrets
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import anyio

from dbtools.server.mcp.exchange import Exchange
from dbtools.server.mcp.kernel import meta_of
from dbtools.server.mcp.protocol import Handler, Server, error_content
from dbtools.server.mcp.versions import LATEST_HANDSHAKE, META_PREFIX
from dbtools.server.messages import Code, Json, ProtocolError
from dbtools.service.toolbox import Toolbox
from tests.clients.conformance_catalog import (
    ANSWERS,
    ARGUMENTS,
    DIALOGUES,
    PLAIN,
    PROMPT_DIALOGUES,
    PROMPTS,
    QUESTIONS,
    RESOURCES,
    SCHEMAS,
    TEMPLATE,
    Content,
    Dialogue,
    text,
)
from tests.protocol.client import PATIENCE

PROMPTS_CHANGED = "notifications/prompts/list_changed"
KEY = secrets.token_bytes()  #: that seals what clients keep


def add_fixtures(server: Server, toolbox: Toolbox, path: Path) -> None:
    """Have *server*, of the *toolbox* of the database file at *path*, know the fixtures of the suite."""
    fixtures = Fixtures(server, toolbox, path)
    server.handlers |= {
        "initialize": fixtures.initialize,
        "server/discover": fixtures.discover,
        "tools/list": fixtures.list_tools,
        "tools/call": fixtures.call_tool,
        "prompts/list": fixtures.list_prompts,
        "prompts/get": fixtures.get_prompt,
        "resources/list": fixtures.list_resources,
        "resources/templates/list": fixtures.list_templates,
        "resources/read": fixtures.read_resource,
        "completion/complete": fixtures.complete,
        "subscriptions/listen": fixtures.listen,
        **dict.fromkeys(("resources/subscribe", "resources/unsubscribe", "logging/setLevel"), _agree),
    }


class Fixtures:
    """What answers, of the fixtures and of what the server had before."""

    def __init__(self, server: Server, toolbox: Toolbox, path: Path) -> None:
        self._ours = dict(server.handlers)
        self._notices = server.notifications
        self._notices.flags["promptsListChanged"] = PROMPTS_CHANGED
        self._toolbox = toolbox
        self._path = path
        self._numbers = count(1)
        self._tools: Mapping[str, Handler] = {
            "test_error_handling": _fail,
            "test_tool_with_progress": _report,
            "test_tool_with_logging": _log,
            "test_logging_tool": _log,
            "test_trigger_tool_change": self._change_tools,
            "test_trigger_prompt_change": self._change_prompts,
            **dict.fromkeys(ANSWERS, _answer),
            **dict.fromkeys(DIALOGUES, _discuss),
            **dict.fromkeys(QUESTIONS, _ask),
        }

    async def initialize(self, exchange: Exchange) -> Json:
        """Answer the handshake."""
        more: Content = {
            "prompts": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "logging": {},
        }
        return _able(await self._ours["initialize"](exchange), more)

    async def discover(self, exchange: Exchange) -> Json:
        """Answer `server/discover`."""
        more: Content = {"prompts": {"listChanged": True}, "logging": {}}
        return _able(await self._ours["server/discover"](exchange), more)

    async def list_tools(self, exchange: Exchange) -> Json:
        """Answer `tools/list`."""
        tools = [
            {"name": name, "description": "A fixture.", "inputSchema": SCHEMAS.get(name, PLAIN)}
            for name in self._tools
        ]
        return await self._listed(exchange, tools=tools)

    async def call_tool(self, exchange: Exchange) -> Json:
        """Answer `tools/call`."""
        return await self._tools.get(_name(exchange), self._ours["tools/call"])(exchange)

    async def list_prompts(self, exchange: Exchange) -> Json:
        """Answer `prompts/list`."""
        prompts = [
            {
                "name": name,
                "description": "A fixture.",
                "arguments": [{"name": each, "required": True} for each in ARGUMENTS.get(name, ())],
            }
            for name in PROMPTS
        ]
        return {"prompts": prompts}

    async def get_prompt(self, exchange: Exchange) -> Json:
        """Answer `prompts/get`."""
        name, arguments = _name(exchange), exchange.params.get("arguments") or {}
        assert isinstance(arguments, dict)
        if name not in PROMPTS:
            raise ProtocolError(Code.INVALID_PARAMS, "There is no such prompt.")
        said = json.dumps(PROMPTS[name])
        for argument, value in arguments.items():
            said = said.replace(f"{{{argument}}}", json.dumps(value)[1:-1])
        messages = [{"role": "user", "content": each} for each in json.loads(said)]
        dialogue = PROMPT_DIALOGUES.get(name, Dialogue(rounds=()))
        return _question(dialogue, exchange) or {"messages": messages}

    async def list_resources(self, exchange: Exchange) -> Json:
        """Answer `resources/list`."""
        resources = [{"uri": uri, "name": uri.partition("://")[2]} for uri in RESOURCES]
        return await self._listed(exchange, resources=resources)

    async def list_templates(self, exchange: Exchange) -> Json:
        """Answer `resources/templates/list`."""
        return await self._listed(exchange, resourceTemplates=[{"uriTemplate": TEMPLATE, "name": "data"}])

    async def _listed(self, exchange: Exchange, **more: list[Content]) -> Json:
        """Return the page of ours that is asked for; the last one has *more*."""
        page: Content = {**await self._ours[exchange.method](exchange)}
        if "nextCursor" in page:
            return page
        return {**page, **{name: [*page[name], *items] for name, items in more.items()}}

    async def read_resource(self, exchange: Exchange) -> Json:
        """Answer `resources/read`."""
        uri = str(exchange.params["uri"])
        if uri in RESOURCES:
            return {"contents": [{"uri": uri, **RESOURCES[uri]}]}
        if found := re.fullmatch(TEMPLATE.replace("{id}", "([^/]+)"), uri):
            of = json.dumps({"id": found[1], "templateTest": True})
            return {"contents": [{"uri": uri, "mimeType": "application/json", "text": of}]}
        return await self._ours["resources/read"](exchange)

    async def complete(self, exchange: Exchange) -> Json:
        """Answer `completion/complete`: arguments of prompts have no known values."""
        ref = exchange.params["ref"]
        assert isinstance(ref, dict)
        if ref["type"] == "ref/prompt":
            return {"completion": {"values": [], "hasMore": False}}
        return await self._ours["completion/complete"](exchange)

    async def listen(self, exchange: Exchange) -> Json:
        """Answer `subscriptions/listen`: every resource may change."""
        wanted = exchange.params["notifications"]
        assert isinstance(wanted, dict)
        return await self._notices.listen(exchange, wanted.get("resourceSubscriptions") or ())

    async def _change_tools(self, exchange: Exchange) -> Json:
        """Add a table to the database, which the watch or this refresh notifies clients of."""
        await anyio.to_thread.run_sync(_add_table, self._path, next(self._numbers))
        await self._toolbox.refresh()
        return {"content": [text("There is one more table.")]}

    async def _change_prompts(self, exchange: Exchange) -> Json:
        self._notices.notify(exchange.caller.role, PROMPTS_CHANGED)
        return {"content": [text("The prompts are said to be other ones.")]}


def _name(exchange: Exchange) -> str:
    return str(exchange.params["name"])


def _able(result: Any, more: Content) -> Json:
    """Return the *result* of a greeting, by which the server is able to do *more*."""
    return {**result, "capabilities": {**result["capabilities"], **more}}


def _add_table(path: Path, number: int) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=10)) as connection:
        connection.execute(f"create table added_{number} (id integer primary key)")


async def _agree(exchange: Exchange) -> Json:
    """Answer a request that changes nothing which the suite looks at."""
    return {}


async def _answer(exchange: Exchange) -> Json:
    return {"content": ANSWERS[_name(exchange)]}


async def _fail(exchange: Exchange) -> Json:
    return error_content("This tool intentionally returns an error for testing")


async def _report(exchange: Exchange) -> Json:
    for progress in (0, 50, 100):
        exchange.report(progress, 100, "")
    return {"content": [text("All is done.")]}


async def _log(exchange: Exchange) -> Json:
    """Log; to a client of 2026-07-28 only if the request asks for it."""
    if exchange.peer.revision.has_handshake or f"{META_PREFIX}logLevel" in meta_of(exchange.params):
        for event in ("started", "goes on", "completed"):
            exchange.notify("notifications/message", {"level": "info", "data": event})
    return {"content": [text("All is logged.")]}


async def _ask(exchange: Exchange) -> Json:
    """Ask as clients of the 2025 era are asked: by a request within the request."""
    question = QUESTIONS[_name(exchange)]
    await exchange.ask(question["method"], question["params"], PATIENCE)
    return {"content": [text("All is answered.")]}


async def _discuss(exchange: Exchange) -> Json:
    question = _question(DIALOGUES[_name(exchange)], exchange)
    return question or {"content": [text("All is answered: state-ok.")]}


def _question(dialogue: Dialogue, exchange: Exchange) -> Content | None:
    """Return the questions to a client of 2026-07-28 before its request is answered."""
    at, answers = _round(exchange), exchange.params.get("inputResponses") or {}
    assert isinstance(answers, dict)
    if at < len(dialogue.rounds) and dialogue.rounds[at].keys() <= answers.keys():
        at += 1
    if at == len(dialogue.rounds):
        return None
    kept = {"requestState": _sealed(at, exchange)} if dialogue.keeps else {}
    return {"resultType": "input_required", "inputRequests": _possible(dialogue.rounds[at], exchange), **kept}


def _round(exchange: Exchange) -> int:
    """Return the round that the client brings back, or the first."""
    state = exchange.params.get("requestState")
    if state is None:
        return 0
    at = str(state).partition(".")[0]
    if not (at.isdecimal() and hmac.compare_digest(str(state).encode(), _sealed(int(at), exchange).encode())):
        raise ProtocolError(Code.INVALID_PARAMS, "The requestState is not one of this server's.")
    return int(at)


def _sealed(at: int, exchange: Exchange) -> str:
    """Return the signed state of round *at*, which is valid for this tool only."""
    return f"{at}.{hmac.digest(KEY, f'{_name(exchange)} {at}'.encode(), 'sha256').hex()}"


def _possible(questions: Mapping[str, Content], exchange: Exchange) -> Mapping[str, Content]:
    """Return those of *questions* that the client has said it can answer, or say what it has to."""
    needed = {key: LATEST_HANDSHAKE.asks[question["method"]] for key, question in questions.items()}
    possible = {key: each for key, each in questions.items() if needed[key] in exchange.peer.capabilities}
    if not possible:
        required: Content = {each: {} for each in needed.values()}
        missing = {"requiredCapabilities": required}
        raise ProtocolError(Code.MISSING_CAPABILITY, "The client cannot be asked.", missing)
    return possible
