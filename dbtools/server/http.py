"""The HTTP application of one worker: MCP at one path, health, and what it needs while it runs."""

import asyncio
import gc
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import orjson
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from dbtools import errors
from dbtools.policy import Caller
from dbtools.server.connections import BoundedProtocol, most_connections
from dbtools.server.endpoint import Endpoint
from dbtools.server.exporting import exporting
from dbtools.server.hosts import Hosts, is_loopback
from dbtools.server.identity import WELL_KNOWN, Identity
from dbtools.server.limiter import Limiter
from dbtools.server.logs import begin_log
from dbtools.server.requests import Refusals, Requests
from dbtools.server.running import Operator, Running, running
from dbtools.service.serving import Served
from dbtools.settings import Settings
from dbtools.settings.sections import ServerSection

LOOK = 1.0  #: seconds between two looks for the parent
PATH = "/mcp"
HEALTH = ("/healthz", "/readyz")
CALLS_PER_MINUTE = 600  #: of one caller, where the configuration says nothing
COLLECTIONS = (10_000, 20, 20)  #: objects, and collections of younger ones, between two
GRACE = 2.5  #: seconds for what is being answered when the server ends
READY_IN = 2.0  #: seconds in which the database has to lend a connection
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
    parent: int = field(default_factory=os.getpid)  #: the process that starts the workers


class HttpApp:
    """The ASGI application of one worker."""

    def __init__(self, plan: Plan) -> None:
        begin_log(plan.settings.log)
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
        limiter = limiter_of(plan)
        async with running(plan.settings, plan.operator, limiter, stateless=plan.stateless) as run:
            await run.served.toolbox.snapshot()
            _spare_garbage()
            if plan.workers > 1:
                run.group.start_soon(_end_with, plan.parent)
            endpoint = self.open(run, limiter)

            def end() -> None:
                endpoint.end()
                asyncio.get_running_loop().call_later(GRACE, endpoint.stop)

            with _ending(end):
                yield

    def open(self, run: Running, limiter: Limiter) -> Endpoint:
        """Begin to answer requests with what runs; return what answers those of MCP."""
        plan, refusals = self._plan, Refusals()
        identity = Identity(run.served, plan.anybody)
        identity.prepare()
        most = plan.settings.server.max_body
        endpoint = Endpoint(run.server, identity, limiter, most=most, stateless=plan.stateless)
        run.group.start_soon(refusals.run)
        run.group.start_soon(endpoint.sessions.expire)
        local = is_loopback(plan.host)
        self._app = application(
            endpoint, identity, Health(run.served), refusals, plan.settings.server, local=local
        )
        return endpoint


def limiter_of(plan: Plan) -> Limiter:
    """Return what counts for a worker of *plan*."""
    section = plan.settings.server
    return Limiter(
        plan.settings.limits.storage,
        calls_per_minute=CALLS_PER_MINUTE,
        share=plan.workers,
        requests=section.max_requests,
        streams=section.max_streams,
        sessions=section.max_sessions,
    )


def application(
    endpoint: Endpoint,
    identity: Identity,
    health: "Health",
    refusals: Refusals,
    section: ServerSection,
    *,
    local: bool,
) -> ASGIApp:
    """Return what is at which path, behind what every request passes.

    A whole Starlette has middleware for errors, which takes as long as all of ours; uvicorn handles them.
    """
    nothing = PlainTextResponse(f"Nothing is here. MCP is at {PATH}.\n", 404)

    async def alive(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def metadata(request: Request) -> Response:
        found = identity.metadata_at(request.url.path.rstrip("/"))
        return nothing if found is None else _json(found)

    routes = [
        Route(PATH, endpoint),
        Route(f"{PATH}/", endpoint),
        Route(HEALTH[0], alive),
        Route(HEALTH[1], health.ready),
        Route(f"{WELL_KNOWN}{{rest:path}}", metadata),
    ]
    router = Router(routes, redirect_slashes=False, default=nothing)
    hosts = Hosts(router, section.allowed_hosts, section.allowed_origins, local=local, exempt=HEALTH)
    return Requests(hosts, refusals)


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

    async def ready(self, request: Request) -> Response:
        """Answer 200 where a connection is free, else 503, with the seconds since the tools were made.

        A configuration that cannot be used is reported, and refuses nobody: older settings are in force.
        """
        async with self._looking:
            if time.monotonic() - self._looked_at > FRESH:
                self._is_ready = await self._look()
                self._looked_at = time.monotonic()
        age = round(time.monotonic() - self._seen, 1)
        configuration = "refused" if self._served.current.is_refused else "in force"
        content = {"ready": self._is_ready, "snapshot_age": age, "configuration": configuration}
        return _json(content, 200 if self._is_ready else 503)

    async def _look(self) -> bool:
        try:
            with anyio.fail_after(READY_IN):
                await (await self._served.backend.runner()).ready()
                return True
        except (TimeoutError, errors.DbtoolsError):
            return False


def _json(content: object, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")


def _spare_garbage() -> None:
    """Have the garbage collector look no more through what is there to stay, and less often at all."""
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


async def _end_with(parent: int) -> None:
    """End this process when its *parent* is gone: nobody would end it or start it again."""
    while os.getppid() == parent:  # noqa: ASYNC110 (nobody tells)
        await anyio.sleep(LOOK)
    os.kill(os.getpid(), signal.SIGTERM)
