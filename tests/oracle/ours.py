"""Our side of each comparison: what serves lines, and what serves HTTP. All that has to know how we do it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from dbtools.policy import Caller
from dbtools.server.bodies import Bodies
from dbtools.server.identity import CALLER
from dbtools.server.notices import Notices
from dbtools.server.protocol import always, build_server
from dbtools.server.requests import ID
from dbtools.server.sessions import OwnIds, SharedSessions
from dbtools.server.stdio import LineStreams
from dbtools.service.toolbox import Toolbox

MAX_BODY = 2**20  #: bytes


async def serve_lines(
    toolbox: Toolbox, instructions: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Serve *toolbox* to one client, until *reader* ends."""
    notices = Notices(always(Caller()))
    server = build_server(toolbox, always(Caller()), instructions, notices=notices)
    streams = LineStreams(reader, writer, notices.close)
    await server.run(streams, streams, server.create_initialization_options())


@asynccontextmanager
async def http_app(toolbox: Toolbox, instructions: str, *, stateless: bool) -> AsyncIterator[ASGIApp]:
    """Give the application that serves *toolbox* at any path, to whoever asks."""
    notices = Notices(always(Caller()))
    server = build_server(toolbox, always(Caller()), instructions, notices=notices, stateless=stateless)
    sessions = SharedSessions(server, stateless=stateless)
    bounded = Bodies(OwnIds(sessions.asgi_app), MAX_BODY)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await bounded({**scope, CALLER: Caller(), ID: "differential"}, receive, send)

    async with sessions.run():
        yield app
