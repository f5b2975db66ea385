"""Our side of each comparison: what serves lines, and what serves HTTP. All that has to know how we do it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import cast

from starlette.types import ASGIApp, Receive, Scope, Send

from dbtools.policy import Caller
from dbtools.server.calls import Calls
from dbtools.server.endpoint import Endpoint
from dbtools.server.identity import Admitted, Identity
from dbtools.server.limiter import Limiter
from dbtools.server.notices import Notices
from dbtools.server.protocol import Server
from dbtools.server.requests import ID
from dbtools.server.stdio import LineConnection
from dbtools.service.toolbox import Toolbox

MAX_BODY = 2**20  #: bytes


class Anybody:
    """Asks nobody who they are."""

    async def admit(self, authorization: Sequence[str]) -> Admitted:
        """Admit whoever asks."""
        return Admitted(caller=Caller())

    async def still(self, authorization: Sequence[str], admitted: Admitted) -> Admitted:
        """Let them stay."""
        return admitted


def _server(toolbox: Toolbox, instructions: str, *, stateless: bool = False) -> Server:
    calls = Calls(toolbox, Limiter(), None)
    return Server(toolbox, calls, instructions=instructions, notices=Notices(), stateless=stateless)


async def serve_lines(
    toolbox: Toolbox, instructions: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Serve *toolbox* to one client, until *reader* ends."""
    connection = LineConnection(_server(toolbox, instructions), Caller())
    connection.write_to(writer.write)
    while data := await reader.read(2**16):
        connection.data_received(data)
    connection.eof_received()
    await connection.finish()
    await writer.drain()


@asynccontextmanager
async def http_app(toolbox: Toolbox, instructions: str, *, stateless: bool) -> AsyncIterator[ASGIApp]:
    """Give the application that serves *toolbox* at any path, to whoever asks."""
    server = _server(toolbox, instructions, stateless=stateless)
    identity = cast(Identity, Anybody())
    endpoint = Endpoint(server, identity, Limiter(), most=MAX_BODY, stateless=stateless)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await endpoint({**scope, ID: "differential"}, receive, send)

    yield app
