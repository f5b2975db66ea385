"""The MCP server: requests in, answers of the toolbox out, for both transports and both eras."""

import asyncio
import base64
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import count
from typing import NamedTuple

import orjson

from dbtools import errors
from dbtools.answers.results import Answer, Media
from dbtools.policy.roles import Caller
from dbtools.records import AuditEntry
from dbtools.schema.uris import CELL_TEMPLATE, ROW_TEMPLATE
from dbtools.server.calls import Calls, T
from dbtools.server.mcp.confirming import ANSWER_TIMEOUT, can_ask, confirmable_call, question_result
from dbtools.server.mcp.exchange import Exchange, Notifications, Send
from dbtools.server.mcp.kernel import (
    INFO,
    HeaderValues,
    Peer,
    Session,
    admit,
    finish_result,
    info_for,
    meta_of,
)
from dbtools.server.mcp.versions import LATEST_HANDSHAKE, MODERN
from dbtools.server.messages import Code, Json, ProtocolError, Request, encode_error, encode_result
from dbtools.service.snapshot import RoleSnapshot
from dbtools.service.toolbox import Toolbox
from dbtools.telemetry import mark_failed, server_span
from dbtools.values.cells import escape

PAGE_SIZE = 200  #: entries per page of a list
PROGRESS = 1.0  #: seconds between progress reports
UNAVAILABLE = str(errors.DatabaseUnavailable())
UNKNOWN_CURSOR = "The cursor is unknown, or the list has changed: list again from the start."
TEMPLATES = tuple(
    orjson.dumps(each)
    for each in (
        {
            "uriTemplate": ROW_TEMPLATE,
            "name": "row",
            "title": "A row by its key",
            "description": "key: the values of a composite key with commas between them",
            "mimeType": "application/json",
        },
        {
            "uriTemplate": CELL_TEMPLATE,
            "name": "cell",
            "title": "A whole cell of a row",
            "description": "for texts and bytes that a list has cut",
        },
    )
)
NEWEST = [*MODERN.values()][-1]  #: the revision of malformed calls of the modern era
TEXT_TYPES = ("text/plain", "application/json")
Handler = Callable[[Exchange], Awaitable[Json]]
logger = logging.getLogger("dbtools")


class Reply(NamedTuple):
    """The message that answers a request."""

    message: bytes
    code: int = 0  #: of an error


class Server:
    """Answers the requests of clients."""

    def __init__(
        self,
        toolbox: Toolbox,
        calls: Calls,
        *,
        instructions: str = "",
        notifications: Notifications | None = None,
        fresh: float = 0.0,
        stateless: bool = False,
        answer_timeout: float = ANSWER_TIMEOUT,
        info: Json = INFO,
    ) -> None:
        """Serve *toolbox* through *calls*; clients may cache lists for *fresh* seconds.

        A person has *answer_timeout* seconds to answer a question. *info* is what clients show of the server.
        """
        self._toolbox = toolbox
        self._calls = calls
        self._instructions = instructions
        self._info = info
        self._fresh = round(fresh * 1000)
        self._stateless = stateless
        self._answer_timeout = answer_timeout
        self.notifications = notifications or Notifications()
        self.listed = asyncio.Event()  #: set when a client has listed the tools
        self.handlers: dict[str, Handler] = {
            "initialize": self._initialize,
            "ping": self._ping,
            "server/discover": self._discover,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "completion/complete": self._complete,
            "subscriptions/listen": self._listen,
        }

    def admit(
        self,
        session: Session | None,
        request: Request,
        caller: Caller,
        send: Send,
        header: HeaderValues | None = None,
    ) -> Exchange:
        """Return the exchange for *request*, also if it is a malformed call; else raise ProtocolError."""
        questions = session.questions if session is not None else None
        try:
            peer = admit(session, request, self.handlers, header)
        except ProtocolError as exc:
            if request.method == "tools/call" and exc.code == Code.INVALID_PARAMS:
                peer = Peer(NEWEST) if session is None else session.peer or Peer(LATEST_HANDSHAKE)
                return Exchange(
                    request.id, request.method, request.params, peer, caller, send, questions, problem=exc
                )
            exc.id = request.id
            with server_span(request.method, request.id, request.params) as span:
                mark_failed(span, str(exc.code), exc.message)
            raise
        return Exchange(request.id, request.method, request.params, peer, caller, send, questions)

    async def answer(self, exchange: Exchange) -> Reply:
        """Return the answer to *exchange*: a result, or an error without internal details."""
        version = exchange.peer.revision.version
        with server_span(exchange.method, exchange.id, exchange.params, version) as span:
            try:
                answer = self._refuse if exchange.problem is not None else self.handlers[exchange.method]
                result = await answer(exchange)
                if result.get("isError"):
                    mark_failed(span, "tool_error")
                # Rows may change at any time.
                fresh = 0 if exchange.method == "resources/read" else self._fresh
                complete = finish_result(exchange.peer, exchange.method, result, fresh, self._info)
                return Reply(encode_result(exchange.id, complete))
            except Exception as exc:
                error = _error(exchange.method, exc)
                mark_failed(span, str(error.code), error.message)
                return Reply(encode_error(exchange.id, error), error.code)

    async def _initialize(self, exchange: Exchange) -> Json:
        return {
            "protocolVersion": exchange.peer.revision.version,
            "capabilities": _capabilities(changes=not self._stateless, updates=False),
            "serverInfo": info_for(self._info, exchange.peer.revision),
            "instructions": self._instructions,
        }

    async def _discover(self, exchange: Exchange) -> Json:
        return {
            "supportedVersions": list(MODERN),
            "capabilities": _capabilities(changes=True, updates=True),
            "instructions": self._instructions,
        }

    async def _ping(self, exchange: Exchange) -> Json:
        return {}

    async def _list_tools(self, exchange: Exchange) -> Json:
        view = await self._toolbox.view(exchange.caller.role)
        page = _page(exchange, "tools", view.tool_contents)
        self.listed.set()
        return page

    async def _list_resources(self, exchange: Exchange) -> Json:
        view = await self._toolbox.view(exchange.caller.role)
        return _page(exchange, "resources", view.resource_contents)

    async def _list_templates(self, exchange: Exchange) -> Json:
        return _page(exchange, "resourceTemplates", TEMPLATES)

    async def _listen(self, exchange: Exchange) -> Json:
        wanted = exchange.params["notifications"]
        known: Collection[str] = ()
        if isinstance(wanted, Mapping) and wanted.get("resourceSubscriptions"):
            view = await self._toolbox.view(exchange.caller.role)
            known = {each.uri for each in view.resources}
        return await self.notifications.listen(exchange, known)

    async def _call_tool(self, exchange: Exchange) -> Json:
        """Call a tool; an error that the model can correct is a result with `isError`."""
        name, arguments = exchange.params["name"], exchange.params.get("arguments") or {}
        assert isinstance(name, str)
        assert isinstance(arguments, Mapping)
        entry = self._entry(exchange.caller, exchange.peer, name, arguments)
        call: Callable[[RoleSnapshot], Awaitable[Answer]]
        call = partial(self._toolbox.call, exchange.caller, name, arguments)
        if asks := can_ask(exchange):
            call = confirmable_call(exchange, entry, call, self._answer_timeout)
        reporting = None
        if "progressToken" in meta_of(exchange.params):
            reporting = asyncio.create_task(self._report(exchange))
        try:
            answer = await self._calls.make(exchange.caller, entry, call)
        except errors.UnknownTool as exc:
            raise ProtocolError(Code.INVALID_PARAMS, escape(str(exc))) from exc
        except Exception as exc:
            return error_content(_client_message(exc, f"the call of {name}"))
        finally:
            if reporting is not None:
                reporting.cancel()
        if asks and answer.pending is not None:
            return question_result(answer.pending)
        return answer_content(answer, exchange.peer.revision.contents)

    async def _refuse(self, exchange: Exchange) -> Json:
        """Count and record a malformed call: return a result if there are too many, or raise its problem."""
        assert exchange.problem is not None
        name = str(exchange.params.get("name", ""))
        try:
            await self._calls.refuse(exchange.caller, self._entry(exchange.caller, exchange.peer, name, {}))
        except Exception as exc:
            return error_content(_client_message(exc, "a malformed call"))
        raise exchange.problem

    async def _report(self, exchange: Exchange) -> None:
        await asyncio.sleep(PROGRESS)
        timeout = (await self._toolbox.view(exchange.caller.role)).role.limits.timeout
        for second in count(1):
            exchange.report(float(second), timeout, f"{second} s of at most {timeout:g} s")
            await asyncio.sleep(PROGRESS)

    async def _read_resource(self, exchange: Exchange) -> Json:
        uri = str(exchange.params["uri"])
        try:
            media = await self._make(exchange, exchange.method, {"uri": uri}, self._toolbox.read, uri)
        except (errors.UnknownResource, errors.NoRow) as exc:
            raise ProtocolError(exchange.peer.revision.not_found, escape(str(exc)), {"uri": uri}) from exc
        return {"contents": [media_content(media)]}

    async def _complete(self, exchange: Exchange) -> Json:
        params = exchange.params
        match (params["ref"], params["argument"], params.get("context") or {}):
            case {"type": "ref/resource", "uri": str(uri)}, {"name": str(name), "value": value}, dict(more):
                shown, given = {"uri": uri, name: value}, more.get("arguments") or {}
            case _:
                raise ProtocolError(Code.INVALID_PARAMS, "params.ref must be a resource template.")
        complete = self._toolbox.complete
        found = await self._make(exchange, exchange.method, shown, complete, uri, name, value, given)
        return {"completion": {"values": list(found.values), "hasMore": found.more}}

    async def _make(
        self, exchange: Exchange, tool: str, shown: Json, call: Callable[..., Awaitable[T]], *given: object
    ) -> T:
        entry = self._entry(exchange.caller, exchange.peer, tool, shown)
        return await self._calls.make(exchange.caller, entry, partial(call, exchange.caller, *given))

    def _entry(self, caller: Caller, peer: Peer | None, tool: str, arguments: Json) -> AuditEntry:
        version, client = (peer.revision.version, peer.client) if peer else (None, None)
        return self._calls.entry(caller, tool, arguments, version, client)


def _capabilities(*, changes: bool, updates: bool) -> Json:
    """Return the capabilities: notifications of *changes* to lists and of *updates* to resources."""
    return {
        "completions": {},
        "resources": {"subscribe": updates, "listChanged": changes},
        "tools": {"listChanged": changes},
    }


def _page(exchange: Exchange, name: str, contents: Sequence[bytes]) -> Json:
    cursor = exchange.params.get("cursor")
    if cursor is not None and str(cursor) not in map(str, range(PAGE_SIZE, len(contents), PAGE_SIZE)):
        raise ProtocolError(Code.INVALID_PARAMS, UNKNOWN_CURSOR)
    start = int(str(cursor or 0))
    page = {name: [orjson.Fragment(each) for each in contents[start : start + PAGE_SIZE]]}
    return {**page, "nextCursor": str(start + PAGE_SIZE)} if start + PAGE_SIZE < len(contents) else page


def answer_content(answer: Answer, contents: frozenset[str]) -> Json:
    """Return *answer* as the result of a call, with the kinds of *contents* that the revision has."""
    content: list[Json] = [{"type": "text", "text": answer.text}]
    content.extend(_attachment(each, contents) for each in answer.media)
    if "resource_link" in contents:
        content.extend(
            {"type": "resource_link", "uri": each.uri, "name": each.name, "mimeType": each.type}
            for each in answer.links
        )
    return {"content": content, "structuredContent": orjson.Fragment(answer.json), "isError": False}


def error_content(message: str) -> Json:
    """Return the result of a failed call."""
    return {"content": [{"type": "text", "text": message}], "isError": True}


def media_content(media: Media) -> Json:
    """Return *media* as the contents of a resource."""
    head = {"uri": media.uri, "mimeType": media.type}
    if media.type in TEXT_TYPES:
        return {**head, "text": media.content.decode()}
    return {**head, "blob": base64.b64encode(media.content).decode()}


def _attachment(media: Media, contents: frozenset[str]) -> Json:
    kind = media.type.partition("/")[0]
    if kind in ("image", "audio") and kind in contents:
        return {"type": kind, "mimeType": media.type, "data": base64.b64encode(media.content).decode()}
    return {"type": "resource", "resource": media_content(media)}


def _error(method: str, exc: Exception) -> ProtocolError:
    """Return the error for a request that raised *exc*, without internal details."""
    if isinstance(exc, ProtocolError):
        return exc
    code = Code.INVALID_PARAMS if isinstance(exc, errors.UnknownArgument) else Code.INTERNAL_ERROR
    return ProtocolError(code, _client_message(exc, method))


def _client_message(exc: Exception, what: str) -> str:
    """Return the message of *exc* for a client; log an internal error under a reference."""
    if isinstance(exc, errors.DatabaseUnavailable):
        return UNAVAILABLE
    if isinstance(exc, errors.CallError):
        return escape(str(exc))
    mark = secrets.token_hex(4)
    logger.exception("internal error %s in %s", mark, what)
    return f"Internal error {mark}. The operator can find it in the server's log."
