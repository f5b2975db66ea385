"""The oracle: a toolbox served by the official SDK. A toolbox in, the SDK's low-level server out.

Nothing here imports `dbtools.server`, which is compared with it. Nothing is counted or written down either,
and what goes wrong inside is left to the SDK.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from typing import Any

import anyio
import mcp_types as types
from anyio.abc import TaskStatus
from mcp.server import ServerRequestContext
from mcp.server.caching import CACHEABLE_METHODS, CacheHint
from mcp.server.connection import Connection
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.types import ASGIApp

from dbtools import __version__, errors
from dbtools.answers.results import Answer, Media
from dbtools.policy.roles import Caller
from dbtools.schema.uris import CELL_TEMPLATE, ROW_TEMPLATE
from dbtools.service.snapshot import Snapshot
from dbtools.service.toolbox import Toolbox
from dbtools.tools.definition import ListChange, tool_content
from dbtools.values.cells import escape
from tests.oracle.exchanges import Side

PAGE = 200  #: tools
PROGRESS = 1.0  #: seconds between two reports
GRACE = 3.0  #: seconds for what is being answered when the client has said all that it will
RESOURCE_NOT_FOUND = -32002  #: until 2025-11-25; later versions take INVALID_PARAMS
LINKS_SINCE = "2025-06-18"
AUDIO_SINCE = "2025-03-26"
CALLER = Caller()  #: the user who started the server

Context = ServerRequestContext[Any, Any]
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


class OracleServer(Server[Any]):
    """The SDK's server, which *tells* clients of the 2025 era of changes, and whose streams can be ended."""

    tells = False
    listening: ListenHandler | None = None

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.bus = InMemorySubscriptionBus()
        self.connections: list[Connection] = []  #: of clients that have shaken hands

    def create_initialization_options(
        self, notification_options: NotificationOptions | None = None, *rest: Any, **named: Any
    ) -> InitializationOptions:
        """Return what `initialize` answers."""
        told = NotificationOptions(tools_changed=self.tells, resources_changed=self.tells)
        return super().create_initialization_options(notification_options or told, *rest, **named)

    async def follow(self, context: Context, params: types.NotificationParams | None) -> None:
        """Note a client of the 2025 era, once it is ready to hear."""
        # The SDK (2.3) has no other way to a connection that outlives the request.
        self.connections.append(context.session._connection)

    async def tell(self, change: ListChange) -> None:
        """Tell all clients of *change*."""
        for event in _events(change):
            await self.bus.publish(event)
            for each in self.connections:
                match event:
                    case ToolsListChanged():
                        await each.send_tool_list_changed()
                    case ResourcesListChanged():
                        await each.send_resource_list_changed()
                    case _:
                        pass  # subscribers are notified of it

    def close(self) -> None:
        """End the streams of `subscriptions/listen` with their results."""
        if self.listening is not None:
            self.listening.close()


def sdk_server(
    toolbox: Toolbox, instructions: str, *, listen: bool = True, stateless: bool = False
) -> OracleServer:
    """Return the SDK's server of *toolbox*; it tells clients of changes if they can *listen*."""
    # Only one role sees this.
    hints: dict[Any, CacheHint] = dict.fromkeys(CACHEABLE_METHODS, CacheHint(ttl_ms=0, scope="private"))
    # No schema of ours maps arguments to headers: without the lookup the SDK would list all tools to see.
    server = OracleServer(
        "dbtools",
        version=__version__,
        instructions=instructions or None,
        get_tool_input_schema=lambda _: None,
        cache_hints=hints,
    )
    server.tells = listen and not stateless
    protocol = _Protocol(toolbox)
    page = types.PaginatedRequestParams
    server.add_request_handler("tools/list", page, protocol.list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, protocol.call_tool)
    server.add_request_handler("resources/list", page, protocol.list_resources)
    server.add_request_handler("resources/templates/list", page, protocol.list_templates)
    server.add_request_handler("resources/read", types.ReadResourceRequestParams, protocol.read_resource)
    server.add_request_handler("completion/complete", types.CompleteRequestParams, protocol.complete)
    if listen:
        server.listening = ListenHandler(server.bus)
        wanted = types.SubscriptionsListenRequestParams
        server.add_request_handler("subscriptions/listen", wanted, server.listening)
        server.add_notification_handler("notifications/initialized", types.NotificationParams, server.follow)
    return server


@asynccontextmanager
async def sdk_app(server: OracleServer, *, stateless: bool = False) -> AsyncIterator[ASGIApp]:
    """Yield the SDK's ASGI application of *server*, whatever the path."""
    manager = StreamableHTTPSessionManager(server, stateless=stateless)
    async with manager.run():
        yield manager.asgi_app


@asynccontextmanager
async def open_sdk_side(toolbox: Toolbox, instructions: str) -> AsyncIterator[Side]:
    """Serve *toolbox* by the SDK, over lines and over HTTP, and tell clients of its changes."""
    server = sdk_server(toolbox, instructions)
    ending = anyio.Event()

    async def serve(*, task_status: TaskStatus[ASGIApp]) -> None:
        async with sdk_app(server) as app:
            task_status.started(app)
            await ending.wait()

    def end() -> None:
        server.close()
        ending.set()

    async with anyio.create_task_group() as group:
        app: ASGIApp = await group.start(serve)

        def note(_: Snapshot, changes: Mapping[str, ListChange]) -> None:
            group.start_soon(server.tell, changes[CALLER.role])

        unsubscribe = toolbox.subscribe(note)
        yield Side(serve_lines=partial(serve_sdk_lines, server), app=app, end=end)
        unsubscribe()
        end()


def _events(change: ListChange) -> Iterator[ServerEvent]:
    if change.tools:
        yield ToolsListChanged()
    if change.resources:
        yield ResourcesListChanged()
    yield from (ResourceUpdated(uri=uri) for uri in change.updated)


async def serve_sdk_lines(
    server: OracleServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Let *server* answer what *reader* gives, until it ends."""
    streams = _LineStreams(reader, writer, server.close)
    await server.run(streams, streams, server.create_initialization_options())


class _LineStreams:
    """Both streams of the SDK's server in one: `receive` and iteration read, `send` writes."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, end: Callable[[], None]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._end = end  #: to be called when the client has said all that it will
        self._unanswered: set[object] = set()
        self._answered = anyio.Event()

    def __aiter__(self) -> "_LineStreams":
        return self

    async def __anext__(self) -> SessionMessage:
        return await self.receive()

    async def receive(self) -> SessionMessage:
        """Return the next message; at the end, once those before have been answered."""
        line = await self._reader.readline()
        if line:
            message = types.jsonrpc_message_adapter.validate_python(json.loads(line), by_name=False)
            if isinstance(message, types.JSONRPCRequest):
                self._unanswered.add(message.id)
            elif getattr(message, "method", None) == "notifications/cancelled":
                self._drop((getattr(message, "params", None) or {}).get("requestId"))
            return SessionMessage(message)
        self._end()
        if self._unanswered:
            self._answered = anyio.Event()
            with anyio.move_on_after(GRACE):
                await self._answered.wait()
        raise StopAsyncIteration

    def _drop(self, cancelled: object) -> None:
        # The SDK takes "1" for 1 here.
        for id in [each for each in self._unanswered if str(each) == str(cancelled)]:
            self._settle(id)

    def _settle(self, id: object) -> None:
        if isinstance(id, str | int):
            self._unanswered.discard(id)
        if not self._unanswered:
            self._answered.set()

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message."""
        message = item.message
        self._writer.write(json.dumps(message.model_dump(by_alias=True, exclude_unset=True)).encode() + b"\n")
        await self._writer.drain()
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._settle(message.id)

    async def aclose(self) -> None:
        """Do nothing: the server owns the writer."""

    async def __aenter__(self) -> "_LineStreams":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


class _Protocol:
    """The requests that a client makes."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox

    async def list_tools(self, context: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        with _safe():
            tools = [tool_content(each) for each in await self._toolbox.list(CALLER.role)]
        start = _offset(params.cursor, len(tools))
        return _complete(tools=tools[start : start + PAGE], **_more(start, len(tools)))

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        try:
            async with self._progress(context):
                answer = await self._toolbox.call(CALLER, params.name, params.arguments or {})
        except errors.CallError as exc:
            text = escape(_said(exc))
            return _complete(content=[{"type": "text", "text": text}], isError=True)
        except errors.UnknownTool as exc:
            raise MCPError(code=types.INVALID_PARAMS, message=str(exc)) from exc
        return _answer_content(answer, context.protocol_version)

    @asynccontextmanager
    async def _progress(self, context: Context) -> AsyncIterator[None]:
        """Report each second of a long call; the SDK sends it if the client has asked for progress."""
        task = asyncio.create_task(self._report(context))
        try:
            yield
        finally:
            task.cancel()

    async def _report(self, context: Context) -> None:
        await asyncio.sleep(PROGRESS)
        timeout = (await self._toolbox.view(CALLER.role)).role.limits.timeout
        for second in count(1):
            told = f"{second} s of at most {timeout:g} s"
            await context.session.report_progress(float(second), timeout, told)
            await asyncio.sleep(PROGRESS)

    async def list_resources(self, context: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        with _safe():
            view = await self._toolbox.view(CALLER.role)
        start = _offset(params.cursor, len(view.resources))
        shown = [each.content() for each in view.resources[start : start + PAGE]]
        return _complete(resources=shown, **_more(start, len(view.resources)))

    async def list_templates(self, context: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        _offset(params.cursor, len(TEMPLATES))
        return _complete(resourceTemplates=TEMPLATES)

    async def read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> dict[str, Any]:
        uri = str(params.uri)
        try:
            media = await self._toolbox.read(CALLER, uri)
        except (errors.UnknownResource, errors.NoRow) as exc:
            modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
            code = types.INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
            raise MCPError(code=code, message=str(exc), data={"uri": uri}) from exc
        except errors.CallError as exc:
            raise MCPError(code=types.INTERNAL_ERROR, message=_said(exc)) from exc
        return _complete(contents=[_media_content(media)])

    async def complete(self, context: Context, params: types.CompleteRequestParams) -> dict[str, Any]:
        if not isinstance(params.ref, types.ResourceTemplateReference):
            raise MCPError(code=types.INVALID_PARAMS, message="ref: there are no prompts.")
        given = (params.context and params.context.arguments) or {}
        name, value = params.argument.name, params.argument.value
        with _safe():
            found = await self._toolbox.complete(CALLER, str(params.ref.uri), name, value, given)
        return _complete(completion={"values": list(found.values), "hasMore": found.more})


def _complete(**members: Any) -> dict[str, Any]:
    """Return a result of *members* that waits for nothing more, which versions before 2026-07-28 drop."""
    return {**members, "resultType": "complete"}


def _answer_content(answer: Answer, version: str) -> dict[str, Any]:
    content: list[Content] = [{"type": "text", "text": answer.text}]
    content.extend(_attachment(each, version) for each in answer.media)
    if version >= LINKS_SINCE:
        content.extend(
            {"type": "resource_link", "uri": each.uri, "name": each.name, "mimeType": each.type}
            for each in answer.links
        )
    return _complete(content=content, structuredContent=answer.structured, isError=False)


def _attachment(media: Media, version: str) -> Content:
    kind = media.type.partition("/")[0]
    if kind == "image" or (kind == "audio" and version >= AUDIO_SINCE):
        return {"type": kind, "mimeType": media.type, "data": base64.b64encode(media.content).decode()}
    return {"type": "resource", "resource": _media_content(media)}


def _media_content(media: Media) -> Content:
    head: Content = {"uri": media.uri, "mimeType": media.type}
    if media.type in ("text/plain", "application/json"):
        return {**head, "text": media.content.decode()}
    return {**head, "blob": base64.b64encode(media.content).decode()}


def _offset(cursor: str | None, count: int) -> int:
    """Return where the page at *cursor* begins: a multiple of PAGE."""
    if cursor is None:
        return 0
    if cursor not in map(str, range(PAGE, count, PAGE)):
        message = "The cursor is not one that this server gave, or the list has changed: begin again."
        raise MCPError(code=types.INVALID_PARAMS, message=message)
    return int(cursor)


def _more(start: int, count: int) -> Content:
    return {"nextCursor": str(start + PAGE)} if start + PAGE < count else {}


def _said(error: errors.CallError) -> str:
    """Return the text of *error* for a client; only the operator learns why the database is unavailable."""
    return str(errors.DatabaseUnavailable() if isinstance(error, errors.DatabaseUnavailable) else error)


@contextmanager
def _safe() -> Iterator[None]:
    """Raise the SDK's error for one of ours."""
    try:
        yield
    except errors.UnknownArgument as exc:
        raise MCPError(code=types.INVALID_PARAMS, message=str(exc)) from exc
    except errors.CallError as exc:
        raise MCPError(code=types.INTERNAL_ERROR, message=_said(exc)) from exc
