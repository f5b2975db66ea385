"""The smallest stdio server that the SDK can make: one tool with a constant answer. `python -m` runs it."""

import asyncio
import sys
from typing import Any, Self

from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool, jsonrpc_message_adapter

ANSWER = CallToolResult(content=[TextContent(type="text", text="hello from a constant tool")])
TOOLS = ListToolsResult(tools=[Tool(name="constant", input_schema={"type": "object"})])


class Lines:
    """Both streams of the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        return await self.__anext__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        line = await self._reader.readline()
        if not line:
            raise StopAsyncIteration
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message."""
        self._writer.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        await self._writer.drain()

    async def aclose(self) -> None:
        """Do nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


async def list_tools(*_: Any) -> ListToolsResult:
    """Return the tools."""
    return TOOLS


async def call_tool(*_: Any) -> CallToolResult:
    """Return the answer."""
    return ANSWER


async def main() -> None:
    """Serve stdin and stdout."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    lines = Lines(reader, asyncio.StreamWriter(transport, protocol, None, loop))
    server: Server[Any] = Server("constant", on_list_tools=list_tools, on_call_tool=call_tool)
    await server.run(lines, lines, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
