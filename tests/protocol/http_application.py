"""The HTTP application in this process, optionally with further methods."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from unittest.mock import create_autospec

import uvicorn

from dbtools.policy.roles import Caller
from dbtools.server.http.app import HttpApp, ListenAddress, Startup, config_of
from dbtools.server.http.endpoint import Endpoint
from dbtools.server.mcp.protocol import Handler
from dbtools.server.running import Reporter, RunningServer
from dbtools.settings import Settings
from dbtools.settings.sections import ServerSection
from tests.protocol.conftest import settings_for

NOTHING: Mapping[str, Handler] = MappingProxyType({})


@asynccontextmanager
async def http_application(
    path: Path, handlers: Mapping[str, Handler], *, stateless: bool = False
) -> AsyncIterator[str]:
    """Serve the database file at *path* and *handlers*, by their methods; give the URL without a path."""
    async with http_endpoint(path, handlers, stateless=stateless) as (url, _):
        yield url


class App(HttpApp):
    """The package's application, which answers further methods."""

    def __init__(self, startup: Startup, handlers: Mapping[str, Handler]) -> None:
        super().__init__(startup)
        self._handlers = handlers
        self.opened = asyncio.Event()
        self.endpoint: Endpoint

    def open(self, run: RunningServer) -> Endpoint:
        """Add the methods before the first request is answered."""
        run.server.handlers |= self._handlers
        self.endpoint = super().open(run)
        self.opened.set()
        return self.endpoint


@asynccontextmanager
async def http_endpoint(
    path: Path,
    handlers: Mapping[str, Handler],
    *,
    stateless: bool = False,
    section: ServerSection | None = None,
) -> AsyncIterator[tuple[str, Endpoint]]:
    """The same, limited by *section*; give the endpoint as well."""
    settings = settings_for(path).model_copy(update={"server": section or ServerSection()})
    async with served_over_http(settings, handlers, stateless=stateless) as served:
        yield served


@asynccontextmanager
async def served_over_http(
    settings: Settings, handlers: Mapping[str, Handler] = NOTHING, *, stateless: bool = False
) -> AsyncIterator[tuple[str, Endpoint]]:
    """Serve *settings* and *handlers*; give the URL without a path, and the endpoint."""
    startup = Startup(
        settings=settings,
        anonymous=Caller(),
        operator=create_autospec(Reporter),
        address=ListenAddress(host="127.0.0.1", port=0),
        stateless=stateless,
        workers=1,
    )
    app = App(startup, handlers)
    server = uvicorn.Server(config_of(lambda: app))
    with socket.create_server(("127.0.0.1", 0)) as bound:
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve([bound]))
            await app.opened.wait()
            yield f"http://127.0.0.1:{bound.getsockname()[1]}", app.endpoint
            server.should_exit = True
