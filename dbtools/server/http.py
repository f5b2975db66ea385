"""MCP over Streamable HTTP: one ASGI application for both eras, and what it needs while it runs.

A request passes from the outside in: host and origin, who makes it, how many there are, its body, the SDK.
"""

import asyncio
import gc
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import orjson
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from sse_starlette.sse import AppStatus
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dbtools import errors
from dbtools.policy import Caller
from dbtools.server.bodies import Bodies
from dbtools.server.connections import BoundedProtocol
from dbtools.server.exporting import exporting
from dbtools.server.hosts import LOOPBACK_ORIGIN, Hosts, is_loopback
from dbtools.server.identified import Identified
from dbtools.server.identity import CALLER, Identity
from dbtools.server.load import Load, end_with_parent, most_connections
from dbtools.server.logs import begin_log
from dbtools.server.notices import Notices
from dbtools.server.protocol import open_protocol
from dbtools.server.requests import Requests
from dbtools.server.running import Operator, Running, running
from dbtools.server.sessions import OwnIds, SharedSessions
from dbtools.service.serving import Served
from dbtools.settings import Settings

PATH = "/mcp"
CALLS_PER_MINUTE = 600  #: of one caller, where the configuration says nothing
COLLECTIONS = (10_000, 20, 20)  #: objects, and collections of younger ones, between two
GRACE = 2.5  #: seconds for what is being answered when the server ends
PATIENCE = 2.0  #: seconds that the database has to lend a connection
FRESH = 1.0  #: seconds in which the same is answered: nobody has to show who they are to ask


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What every worker is given."""

    settings: Settings
    anybody: Caller  #: who calls where nobody is asked
    operator: Operator
    host: str  #: that is listened at
    stateless: bool
    workers: int


class HttpApp:
    """The ASGI application of one worker."""

    def __init__(self, plan: Plan) -> None:
        begin_log(plan.settings.log)
        # Streams of events would end with the first signal, although what they answer has time yet.
        AppStatus.disable_automatic_graceful_drain()  # type: ignore[no-untyped-call]
        BoundedProtocol.most = most_connections(plan.settings.server.max_connections)
        self._plan = plan
        self._app: ASGIApp = PlainTextResponse("Not ready.\n", 503)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or begin and end with the server (ASGI 3, lifespan)."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            async with exporting(), self._started():
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except errors.DbtoolsError as exc:
            self._plan.operator.tell(str(exc))
            await send({"type": "lifespan.startup.failed", "message": ""})
            return
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def _started(self) -> AsyncIterator[None]:
        plan = self._plan
        async with running(
            plan.settings,
            plan.operator,
            calls_per_minute=CALLS_PER_MINUTE,
            share=plan.workers,
            at_once=plan.settings.server.max_requests,
        ) as run:
            await run.served.toolbox.snapshot()
            _spare_garbage()
            if plan.workers > 1:
                run.group.start_soon(end_with_parent)
            server = plan.settings.server
            protocol, notices = self._open(run)
            manager = SharedSessions(
                protocol,
                stateless=plan.stateless,
                max_request_body_size=server.max_body,
                max_sessions=server.max_sessions,
            )
            async with manager.run():
                load = self._assemble(manager, run)

                def end() -> None:
                    notices.close()
                    load.end()
                    asyncio.get_running_loop().call_later(GRACE, load.stop)

                with _ending(end):
                    yield

    def _open(self, run: Running) -> tuple[Server[Any], Notices]:
        streams = self._plan.settings.server.max_streams
        return open_protocol(run, identify, streams=streams, stateless=self._plan.stateless)

    def _assemble(self, manager: SharedSessions, run: Running) -> Load:
        server = self._plan.settings.server
        identity = Identity(run.served, self._plan.anybody)
        identity.prepare()
        load = Load(
            Bodies(OwnIds(manager.asgi_app), server.max_body),
            requests=server.max_requests,
            streams=server.max_streams,
        )
        protocol: ASGIApp = Identified(load, identity)
        if self._plan.stateless:
            protocol = Posts(protocol)
        local = is_loopback(self._plan.host)
        paths = Paths(protocol, identity)
        shared = _shared(paths, server.allowed_origins, local=local)
        hosts = Hosts(paths, shared, server.allowed_hosts, server.allowed_origins, local=local)
        requests = Requests(hosts)
        run.group.start_soon(requests.run)
        self._app = Probed(requests, Health(run.served))
        return load


class Health:
    """Looks at the database, and at the age of the snapshot."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._looking = anyio.Lock()
        self._looked_at = -FRESH
        self._is_ready = False
        self._seen = time.monotonic()
        served.toolbox.subscribe(self._note)

    def _note(self, *_: object) -> None:
        self._seen = time.monotonic()

    async def ready(self) -> Response:
        """Answer 200 where a connection is free, else 503, with the seconds since the tools were made.

        A configuration that cannot be used is told, and refuses nobody: older settings are in force.
        """
        async with self._looking:
            if time.monotonic() - self._looked_at > FRESH:
                self._is_ready = await self._look()
                self._looked_at = time.monotonic()
        age = round(time.monotonic() - self._seen, 1)
        configuration = "refused" if self._served.current.is_refused else "in force"
        content = {"ready": self._is_ready, "snapshot_age": age, "configuration": configuration}
        status = 200 if self._is_ready else 503
        return Response(orjson.dumps(content), status, media_type="application/json")

    async def _look(self) -> bool:
        try:
            with anyio.fail_after(PATIENCE):
                await (await self._served.backend.runner()).ready()
                return True
        except (TimeoutError, errors.DbtoolsError):
            return False


class Probed:
    """Tells anybody of the server's health, under any name: who balances load asks by address."""

    def __init__(self, app: ASGIApp, health: Health) -> None:
        self._app = app
        self._health = health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass the request on."""
        match scope["path"]:
            case "/healthz":
                await PlainTextResponse("ok\n")(scope, receive, send)
            case "/readyz":
                await (await self._health.ready())(scope, receive, send)
            case _:
                await self._app(scope, receive, send)


class Posts:
    """Passes on requests of the only method that there is without sessions."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 405, or pass the request on."""
        if scope["method"] != "POST":
            answer = PlainTextResponse("There are no sessions here.\n", 405, {"Allow": "POST"})
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)


class Paths:
    """What there is at which path."""

    def __init__(self, protocol: ASGIApp, identity: Identity) -> None:
        self._protocol = protocol
        self._identity = identity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 404 where nothing is."""
        path = scope["path"].rstrip("/")
        if path == PATH:
            await self._protocol(scope, receive, send)
            return
        answer: Response = PlainTextResponse(f"Nothing is here. MCP is at {PATH}.\n", 404)
        metadata = self._identity.metadata_at(path)
        if metadata is not None:
            answer = Response(orjson.dumps(metadata), media_type="application/json")
        await answer(scope, receive, send)


def identify(context: ServerRequestContext[Any, Any]) -> Caller:
    """Return who makes the HTTP request of *context*."""
    caller: Caller = context.request.scope[CALLER]  # type: ignore[union-attr]
    return caller


def _shared(app: ASGIApp, origins: tuple[str, ...], *, local: bool) -> ASGIApp:
    """Return *app* as pages of *origins*, or of the own machine, can call it (Fetch, CORS protocol)."""
    if not (origins or local):
        return app
    return CORSMiddleware(
        app,
        allow_origins=[origin.rstrip("/") for origin in origins],
        allow_origin_regex=LOOPBACK_ORIGIN if local else None,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=["Mcp-Session-Id", "WWW-Authenticate", "X-Request-Id"],
    )


def _spare_garbage() -> None:
    """Have the collector of garbage look no more through what is there to stay, and less often at all."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTIONS)


@contextmanager
def _ending(end: Callable[[], None]) -> Iterator[None]:
    """Have *end* called when a signal comes, which the server at the socket handles after it."""
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def handle(number: int, frame: Any) -> None:
        loop.call_soon_threadsafe(end)
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        end()
        for number, handler in before.items():
            signal.signal(number, handler)
