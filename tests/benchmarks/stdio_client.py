"""A minimal stdio client: lines of JSON to a process and back, many at once."""

import asyncio
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

import orjson

ROOT = Path(__file__).parents[2]
LONGEST_LINE = 64 * 2**20
NUMBER = re.compile(rb'"id": ?(\d+)')
VERSION = "2025-11-25"


class StdioClient:
    """The client's end of a server process."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid = process.pid
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    async def shake_hands(self) -> None:
        """Do what the protocol asks for before the first request."""
        information = {"name": "benchmark", "version": "1"}
        parameters = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": information}
        await self.request("initialize", parameters)
        self._send({"method": "notifications/initialized"})

    async def request(self, method: str, parameters: Mapping[str, object]) -> bytes:
        """Return the line that answers."""
        number = next(self._numbers)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._send({"id": number, "method": method, "params": parameters})
        return await answer

    async def call(self, tool: str, arguments: Mapping[str, object]) -> bytes:
        """Return the line that answers a call which must not fail."""
        line = await self.request("tools/call", {"name": tool, "arguments": arguments})
        assert b'"error":' not in line[:60], line
        assert b'"isError":true' not in line, line
        return line

    def _send(self, message: Mapping[str, object]) -> None:
        self._stdin.write(orjson.dumps({"jsonrpc": "2.0", **message}) + b"\n")

    async def receive(self) -> None:
        """Hand out answers until the server leaves."""
        while line := await self._stdout.readline():
            # The id stands near one of the ends: a long line is not parsed whole.
            found = NUMBER.search(line, 0, 64) or NUMBER.search(line, max(0, len(line) - 64))
            if found:
                self._waiting.pop(int(found[1])).set_result(line)
        for answer in self._waiting.values():
            answer.set_exception(ConnectionError("the server has left"))


@asynccontextmanager
async def open_process(*arguments: str) -> AsyncIterator[Process]:
    """Run Python with *arguments*, and end it at once in the end: how it leaves is not measured."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=ROOT, stdin=PIPE, stdout=PIPE, limit=LONGEST_LINE
    )
    try:
        yield process
    finally:
        # It may have ended by itself.
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@asynccontextmanager
async def open_client(*arguments: str) -> AsyncIterator[StdioClient]:
    """Run a server by Python with *arguments*, and give a client that has shaken hands."""
    async with open_process(*arguments) as process:
        client = StdioClient(process)
        receiving = asyncio.create_task(client.receive())
        await client.shake_hands()
        yield client
    await receiving
