"""The HTTP server: its socket, its worker processes, and the application of each."""

import asyncio
import gc
import os
import re
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import ip_address

import anyio
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from dbtools import errors
from dbtools.policy.roles import Caller
from dbtools.server.http.connections import SHUTDOWN_KEY, BoundedProtocol, most_connections
from dbtools.server.http.endpoint import Endpoint
from dbtools.server.http.identity import WELL_KNOWN, Identity
from dbtools.server.http.requests import RequestMiddleware
from dbtools.server.running import (
    Reporter,
    RunningServer,
    begin_log,
    check_shared,
    exporting,
    first_snapshot,
    open_server,
    report,
)
from dbtools.service.serving import Served, open_toolbox
from dbtools.service.snapshot import Snapshot
from dbtools.settings import Settings

HOST_AND_PORT = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<name>[^:]+)):(?P<port>\d{1,5})")  #: of an address
MCP_PATH = "/mcp"
HEALTH = ("/healthz", "/readyz")
KEEP_ALIVE = 30  #: seconds until an idle connection is closed
UNREAD_TIMEOUT = 20_000  #: milliseconds until a connection whose client does not read is closed
CONNECTION_GRACE = 3  #: seconds to deliver all answers during a shutdown
PARENT_CHECK_INTERVAL = 1.0  #: seconds between two checks for the parent process
GC_THRESHOLDS = (10_000, 20, 20)  #: thresholds of the garbage collector
READY_TIMEOUT = 2.0  #: seconds to wait for a database connection
READY_CACHE = 1.0  #: seconds to cache the answer of /readyz, which needs no token


@dataclass(frozen=True, kw_only=True)
class ListenAddress:
    """Where a server listens."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> "ListenAddress":
        """Parse HOST:PORT, or raise ConfigurationError."""
        found = HOST_AND_PORT.fullmatch(text)
        if found is None or int(found["port"]) > 65535:
            raise errors.ConfigurationError(
                f"--http must be HOST:PORT, such as 127.0.0.1:8000, not {text!r}."
            )
        return cls(host=found["v6"] or found["name"], port=int(found["port"]))

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect; a host name may stand for any address."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, kw_only=True)
class Startup:
    """What each worker needs to start."""

    settings: Settings
    anonymous: Caller  #: the caller if [auth] is empty
    operator: Reporter
    address: ListenAddress
    stateless: bool
    workers: int
    parent: int = field(default_factory=os.getpid)  #: the process that starts the workers


def listen(startup: Startup) -> None:
    """Serve *startup* until a signal arrives; raise ConfigurationError if it cannot be served."""
    _check(startup.settings, startup.address)
    snapshot = anyio.run(_first_snapshot, startup.settings)
    if snapshot and not startup.settings.auth:
        snapshot = replace(snapshot, views={startup.anonymous.role: snapshot.view(startup.anonymous.role)})
    if snapshot and startup.workers > 1:
        check_shared(snapshot)
    with listening_socket(startup.address) as listener:
        host, port = listener.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}{MCP_PATH}"
        announce = partial(startup.operator.listening, url, snapshot, tuple(_notes(startup)))

        def make() -> HttpApp:
            announce()
            return HttpApp(startup)

        try:
            # Announce the server when uvicorn handles signals.
            if startup.workers == 1:
                uvicorn.Server(config_of(make)).run([listener])
                return
            workers = Workers(config_of(partial(HttpApp, startup), startup.workers), [listener])
            announce()
            workers.run()
            if any(each.exitcode == STARTUP_FAILURE for each in workers.processes):
                raise SystemExit(STARTUP_FAILURE)
        except SystemExit as exc:
            # The reason has been reported: the configuration or the database.
            raise SystemExit(2 if exc.code == STARTUP_FAILURE else exc.code) from None


class Workers(Multiprocess):
    """The worker processes of uvicorn."""

    def handle_int(self) -> None:
        """End the workers, and raise the interrupt again, as a server with one process does."""
        self.terminate_all()
        self.join_all()
        raise KeyboardInterrupt

    def keep_subprocess_alive(self) -> None:
        """Replace workers that have ended."""
        before = [each.pid for each in self.processes]
        super().keep_subprocess_alive()
        for old, new in zip(before, self.processes, strict=True):
            if old != new.pid:
                report(f"Worker {old} has ended; worker {new.pid} replaces it.")


def config_of(make: Callable[[], ASGIApp], workers: int = 1) -> uvicorn.Config:
    """Return the configuration of uvicorn for the application that *make* returns."""
    return uvicorn.Config(
        make,
        factory=True,
        workers=workers,
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=CONNECTION_GRACE,
    )


def listening_socket(address: ListenAddress) -> socket.socket:
    """Return a socket that listens at *address*, or raise ConfigurationError."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        family, *_, place = found[0]
        listener = socket.create_server(place[:2], family=family, backlog=2048)
    except OSError as exc:
        raise errors.ConfigurationError(
            f"Cannot listen at {address.host}:{address.port}: {exc.strerror or 'no such address'}."
        ) from exc
    listener.set_inheritable(True)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; connections inherit the option
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_TIMEOUT)
    return listener


def _check(settings: Settings, address: ListenAddress) -> None:
    """Raise ConfigurationError if other machines could reach a server without authentication."""
    if address.is_local:
        return
    if not settings.auth:
        raise errors.ConfigurationError(
            f"Other machines can reach {address.host}, so the server must require authentication.",
            hint="Configure [auth], for example with `dbtools token new`, or listen on 127.0.0.1.",
        )
    if not settings.server.allowed_hosts:
        raise errors.ConfigurationError(
            f"Other machines can reach {address.host}, so the server must know its host names.",
            hint='Configure [server] allowed_hosts = ["db.example.com"]; the server rejects other hosts.',
        )


async def _first_snapshot(settings: Settings) -> Snapshot | None:
    """Return what *settings* serve at this moment, or None if the server has to wait for the database."""
    toolbox, backend = open_toolbox(settings)
    try:
        return await first_snapshot(toolbox)
    finally:
        await backend.close()


def _notes(startup: Startup) -> Iterator[str]:
    """Yield what an operator should know about several workers."""
    workers = startup.workers
    if workers > 1:
        yield f"{workers} workers: clients before 2026-07-28 have no sessions and get no notifications."
        if startup.settings.limits.storage == "memory":
            yield f"Each allows 1/{workers} of calls_per_minute. With [limits] storage, they share one count."


class HttpApp:
    """The ASGI application of one worker."""

    def __init__(self, startup: Startup) -> None:
        begin_log(startup.settings.log)
        BoundedProtocol.most = most_connections(startup.settings.server.max_connections)
        self._startup = startup
        self._app: RequestMiddleware  # set before uvicorn accepts requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or start and stop with the server (ASGI 3, lifespan)."""
        if scope["type"] == "http":
            await self._app(scope, receive, send)
            return
        await receive()
        has_started = False
        try:
            with exporting():
                async with self._started(scope):
                    await send({"type": "lifespan.startup.complete"})
                    has_started = True
                    await receive()
        except errors.DbtoolsError as exc:
            report(str(exc))
            if has_started:
                # uvicorn ignores what happens here until it stops, so end its event loop.
                asyncio.get_running_loop().call_soon(sys.exit, STARTUP_FAILURE)
            else:
                await send({"type": "lifespan.startup.failed", "message": ""})
            return
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def _started(self, scope: Scope) -> AsyncIterator[None]:
        startup = self._startup
        async with open_server(
            startup.settings, startup.operator, startup.workers, stateless=startup.stateless
        ) as run:
            await first_snapshot(run.served.toolbox)
            await run.limiter.check()
            # Existing objects will stay, so the garbage collector can skip them and run less often.
            gc.collect()
            gc.freeze()
            gc.set_threshold(*GC_THRESHOLDS)
            if startup.workers > 1:
                run.group.start_soon(_end_with_parent, startup.parent)
            scope["state"][SHUTDOWN_KEY] = self.open(run).end
            yield
        self._app.report()

    def open(self, run: RunningServer) -> Endpoint:
        """Build the application; return its MCP endpoint."""
        startup, section = self._startup, self._startup.settings.server
        identity = Identity(run.served, startup.anonymous)
        endpoint = Endpoint(
            run.server, identity, run.limiter, most=section.max_body, stateless=startup.stateless
        )
        run.group.start_soon(endpoint.watch)
        nothing = PlainTextResponse(f"Not found. MCP is at {MCP_PATH}.\n", 404)

        async def metadata(request: Request) -> Response:
            found = identity.metadata_at(request.url.path.rstrip("/"))
            return nothing if found is None else JSONResponse(found)

        welcome = PlainTextResponse(f"dbtools serves MCP clients at {MCP_PATH}.\n")
        routes = [
            Route("/", welcome, methods=["GET"]),
            Route(MCP_PATH, endpoint),
            Route(f"{MCP_PATH}/", endpoint),
            Route(HEALTH[0], PlainTextResponse("ok\n"), methods=["GET"]),
            Route(HEALTH[1], Readiness(run.served).answer),
            Route(f"{WELL_KNOWN}{{rest:path}}", metadata),
        ]
        # Only a Router: the error middleware of a Starlette application is slow, and uvicorn handles errors.
        router = Router(routes, redirect_slashes=False, default=nothing)
        self._app = RequestMiddleware(router, section, local=startup.address.is_local, exempt=HEALTH)
        return endpoint


class Readiness:
    """The readiness check: whether the database answers, and the age of the snapshot."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._is_ready, self._checked_at = True, -READY_CACHE
        self._refreshed_at = time.monotonic()
        served.toolbox.subscribe(self._note_refresh)

    def _note_refresh(self, *_: object) -> None:
        self._refreshed_at = time.monotonic()

    async def answer(self, request: Request) -> Response:
        """Answer 200 if the pool provides a connection, otherwise 503; with the age of the snapshot.

        Changes that cannot be read are reported but do not cause 503, since the previous state stays in
        force. No token is needed, so only the log has the whole reason.
        """
        if time.monotonic() - self._checked_at > READY_CACHE:
            # Other requests get the previous answer meanwhile.
            self._checked_at = time.monotonic()
            try:
                with anyio.fail_after(READY_TIMEOUT):
                    await (await self._served.backend.runner()).ready()
                self._is_ready = True
            except (TimeoutError, errors.DbtoolsError):
                self._is_ready = False
        is_ready, current = self._is_ready and self._served.toolbox.current is not None, self._served.current
        content: dict[str, object] = {
            "ready": is_ready,
            "snapshot_age": round(time.monotonic() - self._refreshed_at, 1),
            "configuration": "refused" if current.is_refused else "in force",
        }
        reasons = [f"{each.code}, line {each.source.line}" for each in current.findings if current.is_refused]
        if not is_ready:
            reasons.insert(0, str(errors.DatabaseUnavailable()))
        elif self._served.toolbox.failure is not None:
            reasons.append("The latest change cannot be read.")
        if reasons:
            content["reasons"] = reasons
        return JSONResponse(content, 200 if is_ready else 503)


async def _end_with_parent(parent: int) -> None:
    """End this worker when its *parent* process is gone."""
    while os.getppid() == parent:  # noqa: ASYNC110 (there is no event to wait for)
        await anyio.sleep(PARENT_CHECK_INTERVAL)
    os.kill(os.getpid(), signal.SIGTERM)
