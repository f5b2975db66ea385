"""The toolbox as an MCP server: requests in, answers out, the same over both transports and in both eras."""

import asyncio
import base64
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import orjson

from dbtools import errors
from dbtools.cells import visible
from dbtools.links import CELL_TEMPLATE, ROW_TEMPLATE
from dbtools.policy import Caller
from dbtools.results import Answer, Media
from dbtools.server.calls import Calls, IncomingCall
from dbtools.server.exchange import Exchange
from dbtools.server.kernel import INFO, Header, Peer, Session, admit, finished
from dbtools.server.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    Json,
    ProtocolError,
    Request,
    encode_error,
    encode_result,
)
from dbtools.server.notifications import Notifications
from dbtools.server.versions import MODERN
from dbtools.service.toolbox import Toolbox
from dbtools.telemetry import server_span

PAGE = 200  #: tools
MALFORMED = "malformed"  #: the code of a call that is no request of the protocol
PROGRESS = 1.0  #: seconds between two reports
UNAVAILABLE = str(errors.DatabaseUnavailable())
FOREIGN = "The cursor is not one of this server's, or the list has changed: list again from the start."
TEMPLATES: list[Json] = [
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
]
TEXTUAL = ("text/plain", "application/json")
Handler = Callable[[Exchange], Awaitable[Json]]
logger = logging.getLogger("dbtools")


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The message that answers a request."""

    message: bytes
    code: int = 0  #: of the error that it is


class Server:
    """Answers requests for one toolbox."""

    def __init__(
        self,
        toolbox: Toolbox,
        calls: Calls,
        *,
        instructions: str = "",
        notifications: Notifications | None = None,
        fresh: float = 0.0,
        stateless: bool = False,
    ) -> None:
        """Serve *toolbox*; calls go through *calls*.

        With *notifications*, clients learn of changes; those with a handshake only if the server is not
        *stateless*. Other clients may cache a list for *fresh* seconds.
        """
        self._toolbox = toolbox
        self._calls = calls
        self._instructions = instructions
        self._fresh = round(fresh * 1000)
        self._notifies = notifications is not None and not stateless
        self.notifications = notifications or Notifications()
        self.listed = asyncio.Event()  #: set when a client has its first list of tools
        self.handlers: dict[str, Handler] = {
            "initialize": self.initialize,
            "ping": self.ping,
            "server/discover": self.discover,
            "tools/list": self.list_tools,
            "tools/call": self.call_tool,
            "resources/list": self.list_resources,
            "resources/templates/list": self.list_templates,
            "resources/read": self.read_resource,
            "completion/complete": self.complete,
        }
        if notifications is not None:
            self.handlers["subscriptions/listen"] = notifications.listen

    def admit(
        self, session: Session, request: Request, caller: Caller, id: str, header: Header | None = None
    ) -> Peer:
        """Return the peer of *request*, or raise ProtocolError and log a refused call with *id*."""
        try:
            return admit(session, request, self.handlers, header)
        except ProtocolError as exc:
            with server_span(request.method, request.id, request.params) as span:
                span.failed(str(exc.code), exc.message)
            if request.method == "tools/call" and exc.code == INVALID_PARAMS:
                peer = session.peer
                call = IncomingCall(
                    caller=caller,
                    tool=str(request.params.get("name", "")),
                    arguments={},
                    protocol=peer.revision.version if peer else None,
                    client=peer.client if peer else None,
                    id=id,
                )
                self._calls.refuse(call, MALFORMED)
            raise

    async def answer(self, exchange: Exchange) -> Reply:
        """Return the answer to *exchange*: a result, or an error that quotes nothing internal."""
        version = exchange.peer.revision.version
        with server_span(exchange.method, exchange.id, exchange.params, version) as span:
            try:
                result = await self.handlers[exchange.method](exchange)
                # Rows may change at any time.
                fresh = 0 if exchange.method == "resources/read" else self._fresh
                complete = finished(exchange.peer, exchange.method, result, fresh)
                reply = Reply(message=encode_result(exchange.id, complete))
            except Exception as exc:
                error = _error(exchange.method, exc)
                span.failed(str(error.code), error.message)
                return Reply(message=encode_error(exchange.id, error), code=error.code)
            if result.get("isError"):
                span.failed("tool_error")
        return reply

    async def initialize(self, exchange: Exchange) -> Json:
        """Answer the handshake."""
        return {
            "protocolVersion": exchange.peer.revision.version,
            "capabilities": self.capabilities(changes=self._notifies),
            "serverInfo": INFO,
            **self._guidance(),
        }

    async def discover(self, exchange: Exchange) -> Json:
        """Answer `server/discover`."""
        listens = "subscriptions/listen" in self.handlers
        capabilities = self.capabilities(changes=listens, updates=listens)
        return {"supportedVersions": list(MODERN), "capabilities": capabilities, **self._guidance()}

    def _guidance(self) -> Json:
        return {"instructions": self._instructions} if self._instructions else {}

    def capabilities(self, *, changes: bool, updates: bool = False) -> dict[str, Json]:
        """Return the capabilities, with notifications of *changes* of lists and *updates* of a resource."""
        return {
            "completions": {},
            "resources": {"subscribe": updates, "listChanged": changes},
            "tools": {"listChanged": changes},
        }

    async def ping(self, exchange: Exchange) -> Json:
        """Answer a ping."""
        return {}

    async def list_tools(self, exchange: Exchange) -> Json:
        """Answer `tools/list`, two hundred tools a page."""
        view = await self._toolbox.view(exchange.caller.role)
        page = _page(exchange, "tools", view.tool_contents)
        self.listed.set()
        return page

    async def list_resources(self, exchange: Exchange) -> Json:
        """Answer `resources/list` with the schema; rows and cells have templates instead."""
        view = await self._toolbox.view(exchange.caller.role)
        return _page(exchange, "resources", view.resource_contents)

    async def list_templates(self, exchange: Exchange) -> Json:
        """Answer `resources/templates/list`."""
        _start(exchange.params.get("cursor"), len(TEMPLATES))
        return {"resourceTemplates": TEMPLATES}

    async def call_tool(self, exchange: Exchange) -> Json:
        """Answer `tools/call`; what the model can correct is a result with isError."""
        name, arguments = exchange.params["name"], exchange.params.get("arguments") or {}
        assert isinstance(name, str)
        assert isinstance(arguments, Mapping)
        reporting = asyncio.create_task(self._report(exchange)) if "progressToken" in exchange.meta else None
        try:
            answer = await self._calls.call(_call(exchange, name, arguments))
        except errors.CallError as exc:
            return error_content(_said(exc))
        except errors.UnknownTool as exc:
            raise ProtocolError(INVALID_PARAMS, str(exc)) from exc
        except Exception:
            return error_content(_logged(f"the call of {name}"))
        finally:
            if reporting is not None:
                reporting.cancel()
        return answer_content(answer, exchange.peer.revision.contents)

    async def _report(self, exchange: Exchange) -> None:
        """Report each second of a long call."""
        await asyncio.sleep(PROGRESS)
        timeout = (await self._toolbox.view(exchange.caller.role)).role.limits.timeout
        for second in count(1):
            exchange.report(float(second), timeout, f"{second} s of at most {timeout:g} s")
            await asyncio.sleep(PROGRESS)

    async def read_resource(self, exchange: Exchange) -> Json:
        """Answer `resources/read`."""
        uri = exchange.params["uri"]
        assert isinstance(uri, str)
        try:
            media = await self._calls.read(_call(exchange, exchange.method, {"uri": uri}), uri)
        except (errors.UnknownResource, errors.NoRow) as exc:
            raise ProtocolError(exchange.peer.revision.not_found, str(exc), {"uri": uri}) from exc
        return {"contents": [media_content(media)]}

    async def complete(self, exchange: Exchange) -> Json:
        """Answer `completion/complete` for the variables of the resource templates."""
        template, name, value, given = _completed(exchange.params)
        call = _call(exchange, exchange.method, {"uri": template, name: value})
        found = await self._calls.complete(call, template, name, value, given)
        return {"completion": {"values": list(found.values), "hasMore": found.more}}


def _call(exchange: Exchange, tool: str, arguments: Json) -> IncomingCall:
    return IncomingCall(
        caller=exchange.caller,
        tool=tool,
        arguments=arguments,
        protocol=exchange.peer.revision.version,
        client=exchange.peer.client,
        id=exchange.request_id,
    )


def _completed(params: Json) -> tuple[str, str, str, Mapping[str, str]]:
    """Return the template, the variable, how its value begins, and the variables before it."""
    ref, argument, context = params["ref"], params["argument"], params.get("context") or {}
    assert isinstance(ref, dict)
    assert isinstance(argument, dict)
    assert isinstance(context, dict)
    given = context.get("arguments") or {}
    if ref["type"] != "ref/resource" or not isinstance(ref.get("uri"), str):
        raise ProtocolError(INVALID_PARAMS, "params.ref must be a resource template; dbtools has no prompts.")
    return ref["uri"], argument["name"], argument["value"], given


def _page(exchange: Exchange, name: str, contents: Sequence[bytes]) -> Json:
    """Return the page of *contents*, JSON already, that the request asks for."""
    start = _start(exchange.params.get("cursor"), len(contents))
    page = {name: [orjson.Fragment(each) for each in contents[start : start + PAGE]]}
    return {**page, "nextCursor": str(start + PAGE)} if start + PAGE < len(contents) else page


def _start(cursor: object, count: int) -> int:
    """Return where the page at *cursor* begins: a multiple of PAGE."""
    if cursor is None:
        return 0
    if str(cursor) not in map(str, range(PAGE, count, PAGE)):
        raise ProtocolError(INVALID_PARAMS, FOREIGN)
    return int(str(cursor))


def answer_content(answer: Answer, contents: frozenset[str]) -> Json:
    """Return *answer* as the result of a call, of the kinds of *contents* that the client knows."""
    content: list[Json] = [{"type": "text", "text": answer.text}]
    content.extend(_attachment(each, contents) for each in answer.media)
    if "resource_link" in contents:
        content.extend(
            {"type": "resource_link", "uri": each.uri, "name": each.name, "mimeType": each.type}
            for each in answer.links
        )
    return {"content": content, "structuredContent": orjson.Fragment(answer.json), "isError": False}


def error_content(message: str) -> Json:
    """Return the result of a call that failed: text only."""
    return {"content": [{"type": "text", "text": visible(message)}], "isError": True}


def media_content(media: Media) -> Json:
    """Return *media* as the contents of a resource."""
    head = {"uri": media.uri, "mimeType": media.type}
    if media.type in TEXTUAL:
        return {**head, "text": media.content.decode()}
    return {**head, "blob": base64.b64encode(media.content).decode()}


def _attachment(media: Media, contents: frozenset[str]) -> Json:
    kind = media.type.partition("/")[0]
    if kind in ("image", "audio") and kind in contents:
        return {"type": kind, "mimeType": media.type, "data": base64.b64encode(media.content).decode()}
    return {"type": "resource", "resource": media_content(media)}


def _error(method: str, exc: Exception) -> ProtocolError:
    """Return the error that answers a request where *exc* was raised; nothing internal is quoted."""
    match exc:
        case ProtocolError():
            return exc
        case errors.UnknownArgument():
            return ProtocolError(INVALID_PARAMS, str(exc))
        case errors.CallError():
            return ProtocolError(INTERNAL_ERROR, _said(exc))
        case _:
            return ProtocolError(INTERNAL_ERROR, _logged(method))


def _said(error: errors.CallError) -> str:
    """Return the message of *error* for a client; why the database is unavailable is for the operator."""
    return UNAVAILABLE if isinstance(error, errors.DatabaseUnavailable) else str(error)


def _logged(what: str) -> str:
    """Log the current exception; return a message with a mark to find it, which quotes nothing of it."""
    mark = secrets.token_hex(4)
    logger.exception("internal error %s in %s", mark, what)
    return f"Internal error {mark}. The operator can find it in the server's log."
