"""The HTTP application in this process, which may answer further methods."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn

from dbtools.policy import Caller
from dbtools.server.calls import Calls
from dbtools.server.connections import BoundedProtocol
from dbtools.server.endpoint import Endpoint
from dbtools.server.http import application
from dbtools.server.identity import Identity
from dbtools.server.limiter import Limiter
from dbtools.server.protocol import Handler, Server
from dbtools.service.serving import open_served
from dbtools.settings.sections import ServerSection
from tests.protocol.conftest import settings_for


@asynccontextmanager
async def http_application(
    path: Path, handlers: Mapping[str, Handler], *, stateless: bool = False
) -> AsyncIterator[str]:
    """Serve the database file at *path* and *handlers*, by their methods; give the URL without a path."""
    served, limiter, section = open_served(settings_for(path)), Limiter(), ServerSection()
    server = Server(served.toolbox, Calls(served.toolbox, limiter, None))
    server.handlers |= handlers
    identity = Identity(served, Caller())
    endpoint = Endpoint(server, identity, limiter, most=section.max_body, stateless=stateless)
    app = application(endpoint, identity, served, section, local=True)
    config = uvicorn.Config(app, http=BoundedProtocol, lifespan="off", log_config=None, log_level="critical")
    at_socket = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        async with asyncio.TaskGroup() as group:
            group.create_task(at_socket.serve([bound]))
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
            endpoint.end()
            endpoint.stop()
            at_socket.should_exit = True
    await served.backend.close()
