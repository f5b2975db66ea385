"""Fixtures in front of a server of ours: a request for one of them is answered here, any other one by ours.

Lists hold ours first.
"""

import json
import re
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY

from dbtools.server.protocol import complete, error_content
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

Context = ServerRequestContext[Any, Any]
Answer = Callable[[Context, Any], Awaitable[Any]]  #: of a request
PAGE = types.PaginatedRequestParams
#: What a client has to be able to do.
CAPABILITIES = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}


def add_fixtures(server: Server[Any], toolbox: Toolbox, path: Path) -> None:
    """Have *server*, of the *toolbox* of the database file at *path*, know the fixtures of the suite."""
    fixtures = Fixtures(server, toolbox, path)
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=None))
    server.get_tool_input_schema = SCHEMAS.get
    server.add_request_handler("tools/list", PAGE, fixtures.list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, fixtures.call_tool)
    server.add_request_handler("prompts/list", PAGE, fixtures.list_prompts)
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, fixtures.get_prompt)
    server.add_request_handler("resources/list", PAGE, fixtures.list_resources)
    server.add_request_handler("resources/templates/list", PAGE, fixtures.list_templates)
    server.add_request_handler("resources/read", types.ReadResourceRequestParams, fixtures.read_resource)
    server.add_request_handler("completion/complete", types.CompleteRequestParams, fixtures.complete)
    listen = types.SubscriptionsListenRequestParams
    server.add_request_handler("subscriptions/listen", listen, fixtures.listen)
    server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, fixtures.agree)
    server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, fixtures.agree)
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, fixtures.agree)


class Fixtures:
    """What answers, of the fixtures and of what the server had before."""

    def __init__(self, server: Server[Any], toolbox: Toolbox, path: Path) -> None:
        self._ours = {method: _answer_of(server, method) for method in OURS}
        self._toolbox = toolbox
        self._path = path
        self._numbers = count(1)
        self._bus = InMemorySubscriptionBus()
        self._listening = ListenHandler(self._bus)
        self._tools: Mapping[str, Answer] = {
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

    async def list_tools(self, context: Context, params: types.PaginatedRequestParams) -> Content:
        """Answer `tools/list`."""
        tools = [
            {"name": name, "description": "A fixture.", "inputSchema": SCHEMAS.get(name, PLAIN)}
            for name in self._tools
        ]
        return await self._listed("tools/list", context, params, tools=tools)

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> Any:
        """Answer `tools/call`."""
        return await self._tools.get(params.name, self._ours["tools/call"])(context, params)

    async def list_prompts(self, context: Context, params: types.PaginatedRequestParams) -> Content:
        """Answer `prompts/list`."""
        prompts = [
            {
                "name": name,
                "description": "A fixture.",
                "arguments": [{"name": each, "required": True} for each in ARGUMENTS.get(name, ())],
            }
            for name in PROMPTS
        ]
        return complete(prompts=prompts)

    async def get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> Content:
        """Answer `prompts/get`."""
        if params.name not in PROMPTS:
            raise MCPError(code=types.INVALID_PARAMS, message="There is no such prompt.")
        dialogue = PROMPT_DIALOGUES.get(params.name, Dialogue(rounds=()))
        said = json.dumps(PROMPTS[params.name])
        for name, value in (params.arguments or {}).items():
            said = said.replace(f"{{{name}}}", json.dumps(value)[1:-1])
        messages = [{"role": "user", "content": each} for each in json.loads(said)]
        return _question(dialogue, context, params) or complete(messages=messages)

    async def list_resources(self, context: Context, params: types.PaginatedRequestParams) -> Content:
        """Answer `resources/list`."""
        resources = [{"uri": uri, "name": uri.partition("://")[2]} for uri in RESOURCES]
        return await self._listed("resources/list", context, params, resources=resources)

    async def list_templates(self, context: Context, params: types.PaginatedRequestParams) -> Content:
        """Answer `resources/templates/list`."""
        templates = [{"uriTemplate": TEMPLATE, "name": "data"}]
        return await self._listed("resources/templates/list", context, params, resourceTemplates=templates)

    async def _listed(self, method: str, context: Context, params: Any, **more: list[Content]) -> Content:
        """Return the page of ours that *params* ask for; the last one has *more*."""
        page: Content = await self._ours[method](context, params)
        if "nextCursor" in page:
            return page
        return {**page, **{name: [*page[name], *items] for name, items in more.items()}}

    async def read_resource(self, context: Context, params: types.ReadResourceRequestParams) -> Any:
        """Answer `resources/read`."""
        uri = str(params.uri)
        if uri in RESOURCES:
            return complete(contents=[{"uri": uri, **RESOURCES[uri]}])
        if found := re.fullmatch(TEMPLATE.replace("{id}", "([^/]+)"), uri):
            of = json.dumps({"id": found[1], "templateTest": True})
            return complete(contents=[{"uri": uri, "mimeType": "application/json", "text": of}])
        return await self._ours["resources/read"](context, params)

    async def complete(self, context: Context, params: types.CompleteRequestParams) -> Any:
        """Answer `completion/complete`: of arguments of prompts nobody knows anything."""
        if isinstance(params.ref, types.PromptReference):
            return complete(completion={"values": [], "hasMore": False})
        return await self._ours["completion/complete"](context, params)

    async def listen(self, context: Context, params: types.SubscriptionsListenRequestParams) -> Any:
        """Answer `subscriptions/listen`; who asks for prompts, of which ours tells nothing, listens here."""
        asks = params.notifications.prompts_list_changed
        listening = self._listening if asks else self._ours["subscriptions/listen"]
        return await listening(context, params)

    async def agree(self, context: Context, params: object) -> Content:
        """Answer a request that changes nothing which the suite looks at."""
        return {}

    async def _change_tools(self, context: Context, params: object) -> Content:
        """Give the database one more table, of which the watch or this refresh tells the clients."""
        await anyio.to_thread.run_sync(_add_table, self._path, next(self._numbers))
        await self._toolbox.refresh()
        await self._bus.publish(ToolsListChanged())
        return complete(content=[text("There is one more table.")])

    async def _change_prompts(self, context: Context, params: object) -> Content:
        await self._bus.publish(PromptsListChanged())
        return complete(content=[text("The prompts are said to be other ones.")])


OURS = (
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "completion/complete",
    "subscriptions/listen",
)


def _answer_of(server: Server[Any], method: str) -> Answer:
    entry = server.get_request_handler(method)
    assert entry is not None, method
    return entry.handler


def _add_table(path: Path, number: int) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=10)) as connection:
        connection.execute(f"create table added_{number} (id integer primary key)")


async def _answer(context: Context, params: types.CallToolRequestParams) -> Content:
    return complete(content=ANSWERS[params.name])


async def _fail(context: Context, params: types.CallToolRequestParams) -> Content:
    return error_content("This tool intentionally returns an error for testing")


async def _report(context: Context, params: types.CallToolRequestParams) -> Content:
    for progress in (0, 50, 100):
        await context.session.report_progress(progress, 100)
    return complete(content=[text("All is done.")])


async def _log(context: Context, params: types.CallToolRequestParams) -> Content:
    for event in ("started", "goes on", "completed"):
        await context.session.send_log_message("info", event, related_request_id=context.request_id)
    return complete(content=[text("All is logged.")])


async def _ask(context: Context, params: types.CallToolRequestParams) -> Content:
    """Ask as clients of the 2025 era are asked: by a request within the request."""
    question = types.server_request_adapter.validate_python(QUESTIONS[params.name])
    related = ServerMessageMetadata(related_request_id=context.request_id)
    await context.session.send_request(question, types.Result, metadata=related)
    return complete(content=[text("All is answered.")])


async def _discuss(context: Context, params: types.CallToolRequestParams) -> Content:
    question = _question(DIALOGUES[params.name], context, params)
    return question or complete(content=[text("All is answered: state-ok.")])


def _question(
    dialogue: Dialogue, context: Context, params: types.InputResponseRequestParams
) -> Content | None:
    """Return what has to be asked before the request is answered, as clients of 2026-07-28 are asked."""
    at = int(params.request_state or 0)
    if at < len(dialogue.rounds) and dialogue.rounds[at].keys() <= (params.input_responses or {}).keys():
        at += 1
    if at == len(dialogue.rounds):
        return None
    kept = {"requestState": str(at)} if dialogue.keeps else {}
    return {
        "resultType": "input_required",
        "inputRequests": _possible(dialogue.rounds[at], context),
        **kept,
    }


def _possible(questions: Mapping[str, Content], context: Context) -> Mapping[str, Content]:
    """Return those of *questions* that the client has said it can answer, or say what it has to."""
    declared = context.session.client_capabilities or types.ClientCapabilities()
    needed = {key: CAPABILITIES[question["method"]] for key, question in questions.items()}
    possible = {key: each for key, each in questions.items() if getattr(declared, needed[key]) is not None}
    if not possible:
        raise MCPError(
            code=MISSING_REQUIRED_CLIENT_CAPABILITY,
            message="The client cannot be asked.",
            data={"requiredCapabilities": {each: {} for each in needed.values()}},
        )
    return possible
