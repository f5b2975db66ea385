"""dbtools' side of each comparison, over lines and over HTTP. Only this module knows dbtools' internals."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

from starlette.types import ASGIApp, Receive, Scope, Send

from dbtools.policy.roles import Caller
from dbtools.records import AuditLog
from dbtools.server.calls import Calls, Limiter
from dbtools.server.http.endpoint import Endpoint
from dbtools.server.http.identity import Identity
from dbtools.server.mcp.exchange import Notifications
from dbtools.server.mcp.protocol import Server
from dbtools.server.stdio import LineConnection
from dbtools.service.toolbox import Toolbox
from tests.oracle.exchanges import Side

MAX_BODY = 2**20  #: bytes


class Anybody:
    """Authenticates no caller."""

    async def admit(self, authorization: Sequence[str]) -> Caller:
        """Admit any caller."""
        return Caller()


def _server(toolbox: Toolbox, instructions: str, *, stateless: bool = False) -> Server:
    calls = Calls(toolbox, Limiter(), AuditLog([], arguments=False))
    return Server(
        toolbox, calls, instructions=instructions, notifications=Notifications(), stateless=stateless
    )


async def serve_lines(
    toolbox: Toolbox, instructions: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Serve *toolbox* to one client, until *reader* ends."""
    await _serve_lines(_server(toolbox, instructions), reader, writer)


async def _serve_lines(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    connection = LineConnection(server, Caller())
    connection.write = writer.write
    while data := await reader.read(2**16):
        connection.data_received(data)
    connection.eof_received()
    await connection.finish()
    await writer.drain()


@asynccontextmanager
async def http_app(toolbox: Toolbox, instructions: str, *, stateless: bool) -> AsyncIterator[ASGIApp]:
    """Return the application that serves *toolbox* at any path, to any caller."""
    yield _app(_endpoint(_server(toolbox, instructions, stateless=stateless), stateless=stateless))


@asynccontextmanager
async def open_our_side(toolbox: Toolbox, instructions: str) -> AsyncIterator[Side]:
    """Serve *toolbox*, over lines and over HTTP, and tell clients of its changes."""
    server = _server(toolbox, instructions)
    endpoint = _endpoint(server, stateless=False)
    unsubscribe = toolbox.subscribe(server.notifications.publish)
    yield Side(serve_lines=partial(_serve_lines, server), app=_app(endpoint), end=endpoint.end)
    unsubscribe()
    endpoint.end()


def _endpoint(server: Server, *, stateless: bool) -> Endpoint:
    return Endpoint(server, cast(Identity, Anybody()), Limiter(), most=MAX_BODY, stateless=stateless)


def _app(endpoint: Endpoint) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await endpoint(scope, receive, send)

    return app
