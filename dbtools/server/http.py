"""The HTTP application of one worker: MCP at one path, health, and what it needs while it runs."""

import asyncio
import gc
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import orjson
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from dbtools import errors
from dbtools.policy import Caller
from dbtools.server.connections import END, BoundedProtocol, most_connections
from dbtools.server.endpoint import Endpoint
from dbtools.server.exporting import exporting
from dbtools.server.hosts import Address, Hosts
from dbtools.server.identity import WELL_KNOWN, Identity
from dbtools.server.limiter import Limiter
from dbtools.server.logs import begin_log
from dbtools.server.requests import Requests
from dbtools.server.running import Operator, Running, running
from dbtools.service.serving import Served
from dbtools.settings import Settings
from dbtools.settings.sections import ServerSection

LOOK = 1.0  #: seconds between two looks for the parent
PATH = "/mcp"
HEALTH = ("/healthz", "/readyz")
COLLECTIONS = (10_000, 20, 20)  #: objects, and collections of younger ones, between two
GRACE = 2.5  #: seconds for running requests when the server ends
READY_IN = 2.0  #: seconds in which the pool has to provide a connection
FRESH = 1.0  #: seconds in which the same answer is given: clients need no token to ask


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What every worker is given."""

    settings: Settings
    anybody: Caller  #: who calls if [auth] is empty
    operator: Operator
    address: Address
    stateless: bool
    workers: int
    parent: int = field(default_factory=os.getpid)  #: the process that starts the workers


class HttpApp:
    """The ASGI application of one worker."""

    def __init__(self, plan: Plan) -> None:
        begin_log(plan.settings.log)
        BoundedProtocol.most = most_connections(plan.settings.server.max_connections)
        self._plan = plan
        self._app: Requests  # uvicorn takes no request before the start is complete

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or start and end with the server (ASGI 3, lifespan)."""
        if scope["type"] == "http":
            await self._app(scope, receive, send)
            return
        await receive()
        try:
            async with exporting(), self._started(scope):
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except errors.DbtoolsError as exc:
            self._plan.operator.tell(str(exc))
            await send({"type": "lifespan.startup.failed", "message": ""})
            return
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def _started(self, scope: Scope) -> AsyncIterator[None]:
        plan = self._plan
        limiter = Limiter(plan.settings.limits.storage, plan.settings.server, share=plan.workers)
        async with running(plan.settings, plan.operator, limiter, stateless=plan.stateless) as run:
            await run.served.toolbox.snapshot()
            # What exists now stays: the garbage collector need not look at it, and less often at the rest.
            gc.collect()
            gc.freeze()
            gc.set_threshold(*COLLECTIONS)
            if plan.workers > 1:
                run.group.start_soon(_end_with, plan.parent)
            endpoint = self.open(run, limiter)

            def end() -> None:
                endpoint.end()
                asyncio.get_running_loop().call_later(GRACE, endpoint.stop)

            scope["state"][END] = end
            yield
        self._app.report()

    def open(self, run: Running, limiter: Limiter) -> Endpoint:
        """Begin to answer requests; return what answers those of MCP."""
        plan, section = self._plan, self._plan.settings.server
        identity = Identity(run.served, plan.anybody)
        endpoint = Endpoint(run.server, identity, limiter, most=section.max_body, stateless=plan.stateless)
        run.group.start_soon(endpoint.sessions.expire)
        self._app = application(endpoint, identity, run.served, section, local=plan.address.is_local)
        return endpoint


def application(
    endpoint: Endpoint, identity: Identity, served: Served, section: ServerSection, *, local: bool
) -> Requests:
    """Return what answers at which path, behind the middleware of every request.

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
        Route(HEALTH[1], Readiness(served).answer),
        Route(f"{WELL_KNOWN}{{rest:path}}", metadata),
    ]
    router = Router(routes, redirect_slashes=False, default=nothing)
    return Requests(Hosts(router, section, local=local, exempt=HEALTH))


class Readiness:
    """Whether the database answers, and the age of the snapshot."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._looking = anyio.Lock()
        self._looked_at = -FRESH
        self._is_ready = False
        self._seen = time.monotonic()
        served.toolbox.subscribe(self._note)

    def _note(self, *_: object) -> None:
        self._seen = time.monotonic()

    async def answer(self, request: Request) -> Response:
        """Answer 200 if the pool has a connection, else 503, with the seconds since the tools were made.

        A configuration that cannot be used is reported, and no reason for 503: the previous one is in force.
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


async def _end_with(parent: int) -> None:
    """End this process when its *parent* is gone: nobody would end it or start it again."""
    while os.getppid() == parent:  # noqa: ASYNC110 (nobody tells)
        await anyio.sleep(LOOK)
    os.kill(os.getpid(), signal.SIGTERM)
