"""The smallest HTTP server that the SDK can make, with several processes. `python -m` runs it."""

import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Mount
from uvicorn.supervisors import Multiprocess

from tests.benchmarks.constant_server import call_tool, list_tools


def app() -> Starlette:
    """Return the application."""
    server: Server[Any] = Server(
        "constant", on_list_tools=list_tools, on_call_tool=call_tool, get_tool_input_schema=lambda _: None
    )
    manager = StreamableHTTPSessionManager(server, stateless="stateless" in sys.argv)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    return Starlette(routes=[Mount("/", app=manager.asgi_app)], lifespan=lifespan)


def main(workers: int) -> None:
    """Serve a free port of the loopback address."""
    config = uvicorn.Config(
        "tests.benchmarks.constant_http_server:app",
        factory=True,
        workers=workers,
        log_level="critical",
        access_log=False,
        timeout_keep_alive=600,
    )
    bound = socket.create_server(("127.0.0.1", 0), backlog=2048)
    bound.set_inheritable(True)
    sys.stderr.write(f"http://127.0.0.1:{bound.getsockname()[1]}/mcp\n")
    sys.stderr.flush()
    if workers > 1:
        Multiprocess(config, [bound]).run()
    else:
        uvicorn.Server(config).run([bound])


if __name__ == "__main__":
    main(int(sys.argv[1]))
