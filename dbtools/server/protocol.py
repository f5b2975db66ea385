"""The toolbox as an MCP server: the SDK's requests in, its results out, for both eras of the protocol.

Results are plain mappings, which the SDK checks and narrows to the version that the client speaks.
"""

import base64
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from itertools import count
from typing import Any

import anyio
import mcp_types as types
from mcp.server import ServerRequestContext
from mcp.server.caching import CACHEABLE_METHODS, CacheHint
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from dbtools import __version__, errors
from dbtools.cells import visible
from dbtools.links import CELL_TEMPLATE, ROW_TEMPLATE
from dbtools.policy import Caller
from dbtools.results import Answer, Link, Media
from dbtools.server.calls import Calls, Request
from dbtools.server.notices import MOST_STREAMS, Notices
from dbtools.server.quotas import Quotas
from dbtools.server.requests import ID
from dbtools.server.running import Running
from dbtools.server.sessions import USE
from dbtools.service.toolbox import Toolbox
from dbtools.tools.definition import ToolDefinition, tool_content

PAGE = 200  #: tools
PROGRESS = 1.0  #: seconds between two reports
UNAVAILABLE = str(errors.DatabaseUnavailable())
NOT_HELD: AbstractContextManager[None] = nullcontext()
MALFORMED = "malformed"  #: the code of a call that is no request of the protocol
RESOURCE_NOT_FOUND = -32002  #: until 2025-11-25; later versions take INVALID_PARAMS
LINKS_SINCE = "2025-06-18"
AUDIO_SINCE = "2025-03-26"

Context = ServerRequestContext[Any, Any]
CallNext = Callable[[Context], Awaitable[Any]]
Identify = Callable[[Context], Caller]  #: who makes a request
Content = dict[str, object]
TEMPLATES: list[Content] = [
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
logger = logging.getLogger("dbtools")


class ToldServer(Server[Any]):
    """The SDK's server, which says to clients of the 2025 era whether they are told of changes."""

    tells = True

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *rest: Any, **named: Any
    ) -> InitializationOptions:
        """Return what `initialize` answers."""
        told = NotificationOptions(tools_changed=self.tells, resources_changed=self.tells)
        return super().create_initialization_options(notification_options or told, *rest, **named)


def build_server(
    toolbox: Toolbox,
    identify: Identify,
    instructions: str,
    *,
    calls: Calls | None = None,
    listed: anyio.Event | None = None,
    notices: Notices | None = None,
    fresh: float = 0.0,
    stateless: bool = False,
) -> Server[Any]:
    """Return the SDK's server for whom *identify* names.

    Calls go through *calls*; *listed* is set when a client has its first list of tools. With *notices*
    clients are told of changes, those before 2026-07-28 unless it is *stateless*; who is not may take what
    it has read for current for *fresh* seconds.
    """
    # What a role sees is nobody else's.
    hint = CacheHint(ttl_ms=round(fresh * 1000), scope="private")
    hints: dict[Any, CacheHint] = dict.fromkeys(CACHEABLE_METHODS, hint)
    # Rows change without anybody being told.
    hints["resources/read"] = CacheHint(ttl_ms=0, scope="private")
    # No schema of ours maps arguments to headers: without the lookup the SDK would list all tools to see.
    server = ToldServer(
        "dbtools",
        version=__version__,
        instructions=instructions or None,
        get_tool_input_schema=lambda _: None,
        cache_hints=hints,
    )
    server.tells = notices is not None and not stateless
    calls = calls or Calls(toolbox, Quotas(), None)
    protocol = Protocol(toolbox, identify, calls, listed or anyio.Event())
    page = types.PaginatedRequestParams
    server.middleware.append(protocol.take_request)
    server.add_request_handler("tools/list", page, protocol.list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, protocol.call_tool)
    server.add_request_handler("resources/list", page, protocol.list_resources)
    server.add_request_handler("resources/templates/list", page, protocol.list_templates)
    server.add_request_handler("resources/read", types.ReadResourceRequestParams, protocol.read_resource)
    server.add_request_handler("completion/complete", types.CompleteRequestParams, protocol.complete)
    if notices is not None:
        listen = types.SubscriptionsListenRequestParams
        server.add_request_handler("subscriptions/listen", listen, notices.on_listen)
        initialized = "notifications/initialized"
        server.add_notification_handler(initialized, types.NotificationParams, notices.on_initialized)
    return server


def open_protocol(
    run: Running, identify: Identify, *, streams: int = MOST_STREAMS, stateless: bool = False
) -> tuple[Server[Any], Notices]:
    """Return the SDK's server of what runs, and what tells its clients of changes, on so many *streams*."""
    notices = Notices(identify, streams=streams)
    run.tell(notices)
    server = build_server(
        run.served.toolbox,
        identify,
        run.instructions,
        calls=run.calls,
        listed=run.listed,
        notices=notices,
        fresh=run.served.backend.facts.interval,
        stateless=stateless,
    )
    return server, notices


def always(caller: Caller) -> Identify:
    """Return what takes every request for one of *caller*: who started the server is trusted."""
    return lambda _: caller


class Protocol:
    """The requests that a client makes."""

    def __init__(self, toolbox: Toolbox, identify: Identify, calls: Calls, listed: anyio.Event) -> None:
        self._toolbox = toolbox
        self._identify = identify
        self._calls = calls
        self._has_listed = listed
        self._listed: tuple[tuple[ToolDefinition, ...], list[Content]] = ((), [])

    async def take_request(self, ctx: Context, call_next: CallNext) -> Any:
        """Hold the id of a request while it is answered.

        Write down a call that the SDK refuses because it has no name, or arguments that are no object.
        """
        try:
            with _held(ctx):
                return await call_next(ctx)
        except ValidationError:
            params = ctx.params or {}
            if ctx.method == "tools/call":
                request = self._request(ctx, str(params.get("name", "")), {})
                self._calls.refuse(request, MALFORMED)
            raise

    async def list_tools(self, context: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        """Answer `tools/list`, two hundred tools a page."""
        with _safe("tools/list"):
            tools = self._tools(await self._toolbox.list(self._identify(context).role))
        start = _offset(params.cursor, len(tools))
        more = {"nextCursor": str(start + PAGE)} if start + PAGE < len(tools) else {}
        self._has_listed.set()
        return complete(tools=tools[start : start + PAGE], **more)

    def _tools(self, definitions: tuple[ToolDefinition, ...]) -> list[Content]:
        if self._listed[0] is not definitions:
            self._listed = (definitions, [tool_content(each) for each in definitions])
        return self._listed[1]

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        """Answer `tools/call`; what the model can mend is a result with isError."""
        request = self._request(context, params.name, params.arguments or {})
        try:
            if not _wants_progress(context):
                answer = await self._calls.call(request)
            else:
                async with self._progress(context, request.caller):
                    answer = await self._calls.call(request)
        except errors.CallError as exc:
            return error_content(_said(exc))
        except errors.UnknownTool as exc:
            raise MCPError(code=types.INVALID_PARAMS, message=str(exc)) from exc
        except Exception:
            return error_content(_logged(f"the call of {params.name}"))
        return answer_content(answer, context.protocol_version)

    def _request(self, context: Context, tool: str, arguments: Mapping[str, object]) -> Request:
        told = context.session.client_params
        return Request(
            caller=self._identify(context),
            tool=tool,
            arguments=arguments,
            protocol=context.protocol_version,
            client=told.client_info.name if told is not None else None,
            **_id_of(context),
        )

    @asynccontextmanager
    async def _progress(self, context: Context, caller: Caller) -> AsyncIterator[None]:
        """Report each second of a long call."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._report, context, caller)
                try:
                    yield
                finally:
                    group.cancel_scope.cancel()
        except ExceptionGroup as exc:
            # The group wraps whatever ended the call: a CallError has to reach the client as itself.
            raise exc.exceptions[0] from exc.exceptions[0].__cause__

    async def _report(self, context: Context, caller: Caller) -> None:
        await anyio.sleep(PROGRESS)
        timeout = (await self._toolbox.view(caller.role)).role.limits.timeout
        for second in count(1):
            told = f"{second} s of at most {timeout:g} s"
            await context.session.report_progress(float(second), timeout, told)
            await anyio.sleep(PROGRESS)

    async def list_resources(self, context: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        """Answer `resources/list`: the schema; rows and cells are too many, their templates are there."""
        with _safe("resources/list"):
            view = await self._toolbox.view(self._identify(context).role)
        start = _offset(params.cursor, len(view.resources))
        shown = [each.content() for each in view.resources[start : start + PAGE]]
        more = {"nextCursor": str(start + PAGE)} if start + PAGE < len(view.resources) else {}
        return complete(resources=shown, **more)

    async def list_templates(self, context: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        """Answer `resources/templates/list`."""
        _offset(params.cursor, len(TEMPLATES))
        return complete(resourceTemplates=TEMPLATES)

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> dict[str, Any]:
        """Answer `resources/read`."""
        request = self._request(context, context.method, {"uri": str(params.uri)})
        try:
            media = await self._calls.read(request, str(params.uri))
        except (errors.UnknownResource, errors.NoRow) as exc:
            modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
            code = types.INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
            raise MCPError(code=code, message=str(exc), data={"uri": str(params.uri)}) from exc
        except errors.CallError as exc:
            raise MCPError(code=types.INTERNAL_ERROR, message=_said(exc)) from exc
        except Exception as exc:
            raise MCPError(code=types.INTERNAL_ERROR, message=_logged("resources/read")) from exc
        return complete(contents=[media_content(media)])

    async def complete(self, context: Context, params: types.CompleteRequestParams) -> dict[str, Any]:
        """Answer `completion/complete` for the variables of the resource templates."""
        if not isinstance(params.ref, types.ResourceTemplateReference):
            raise MCPError(code=types.INVALID_PARAMS, message="ref: there are no prompts.")
        given = (params.context and params.context.arguments) or {}
        template, wanted = str(params.ref.uri), params.argument
        request = self._request(context, context.method, {"uri": template, wanted.name: wanted.value})
        with _safe("completion/complete"):
            found = await self._calls.complete(request, template, wanted.name, wanted.value, given)
        return complete(completion={"values": list(found.values), "hasMore": found.more})


def complete(**members: Any) -> dict[str, Any]:
    """Return a result of *members* that waits for nothing more, which versions before 2026-07-28 drop."""
    return {**members, "resultType": "complete"}


def answer_content(answer: Answer, version: str) -> dict[str, Any]:
    """Return *answer* as the result of a call, with no content that *version* does not know."""
    content: list[Content] = [{"type": "text", "text": answer.text}]
    content.extend(_attachment(each, version) for each in answer.media)
    if version >= LINKS_SINCE:
        content.extend(_link(each) for each in answer.links)
    return complete(content=content, structuredContent=answer.structured, isError=False)


def error_content(message: str) -> dict[str, Any]:
    """Return the result of a call that failed: text only."""
    return complete(content=[{"type": "text", "text": visible(message)}], isError=True)


def media_content(media: Media) -> Content:
    """Return *media* as the contents of a resource."""
    head: Content = {"uri": media.uri, "mimeType": media.type}
    if media.type in ("text/plain", "application/json"):
        return {**head, "text": media.content.decode()}
    return {**head, "blob": base64.b64encode(media.content).decode()}


def _attachment(media: Media, version: str) -> Content:
    kind = media.type.partition("/")[0]
    if kind == "image" or (kind == "audio" and version >= AUDIO_SINCE):
        return {"type": kind, "mimeType": media.type, "data": base64.b64encode(media.content).decode()}
    return {"type": "resource", "resource": media_content(media)}


def _link(link: Link) -> Content:
    return {"type": "resource_link", "uri": link.uri, "name": link.name, "mimeType": link.type}


def _offset(cursor: str | None, count: int) -> int:
    """Return where the page at *cursor* begins: a multiple of PAGE."""
    if cursor is None:
        return 0
    if cursor not in map(str, range(PAGE, count, PAGE)):
        message = "The cursor is not one that this server gave, or the list has changed: begin again."
        raise MCPError(code=types.INVALID_PARAMS, message=message)
    return int(cursor)


def _said(error: errors.CallError) -> str:
    """Return what a client is told of *error*; why the database is away is for the operator."""
    return UNAVAILABLE if isinstance(error, errors.DatabaseUnavailable) else str(error)


def _logged(what: str) -> str:
    """Log the exception that is being handled; return words that name it and tell nothing of it."""
    mark = secrets.token_hex(4)
    logger.exception("internal error %s in %s", mark, what)
    return f"Internal error {mark}: the operator finds it in the server's log."


@contextmanager
def _safe(what: str) -> Iterator[None]:
    """Answer any exception in general words: the SDK would send its text to clients of the 2025 era."""
    try:
        yield
    except errors.UnknownArgument as exc:
        raise MCPError(code=types.INVALID_PARAMS, message=str(exc)) from exc
    except errors.CallError as exc:
        raise MCPError(code=types.INTERNAL_ERROR, message=_said(exc)) from exc
    except Exception as exc:
        raise MCPError(code=types.INTERNAL_ERROR, message=_logged(what)) from exc


def _id_of(context: Context) -> dict[str, str]:
    """Return the id of the request of HTTP, where it is one."""
    return {"id": context.request.scope[ID]} if context.request is not None else {}


def _held(context: Context) -> AbstractContextManager[None]:
    """Return what holds the id of a request while it is answered, whether its client waits or not."""
    use: Callable[[], AbstractContextManager[None]] | None = None
    if context.request is not None:
        use = context.request.scope.get(USE)
    return NOT_HELD if use is None else use()


def _wants_progress(context: Context) -> bool:
    return bool(context.meta) and "progress_token" in dict(context.meta or {})
