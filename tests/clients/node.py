"""Node and the packages of this folder. Programs in, their output out; every process is ended."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.clients.places import Place
from tests.protocol.client import LONGEST_LINE, ROOT

FOLDER = Path(__file__).parent
PACKAGES = FOLDER / "node_modules"
NODE = PACKAGES / ".bin" / "node"
TIME = 120  #: seconds that one program may take on a busy machine

#: Without an installation these tests are skipped; half of one makes them fail.
needs_node = pytest.mark.skipif(
    not PACKAGES.exists(), reason="no clients in TypeScript to test with: run `npm ci --prefix tests/clients`"
)


@asynccontextmanager
async def run_node(folder: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program with its stderr in *folder*, within its time, and end it with all that it has started."""
    environment = {**os.environ, "MCP_STORAGE_DIR": str(folder)}  # the Inspector's, else in the user's home
    with (folder / "node.txt").open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            NODE,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            cwd=ROOT,
            env=environment,
            limit=LONGEST_LINE,
            start_new_session=True,
        )
    try:
        with anyio.fail_after(TIME):
            yield process
    finally:
        _end_group(process.pid)
        await process.wait()


def _end_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


async def visit(place: Place, **client: str) -> Any:
    """Let a TypeScript client visit *place*, change the database as it asks, and return what it sees."""
    plan = json.dumps({**client, **_where(place)})
    seen = None
    async with run_node(place.folder, str(FOLDER / "main.mjs"), plan) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        async for line in process.stdout:
            message = json.loads(line)
            seen = message.get("seen")
            if wanted := message.get("wanted"):
                await place.lend_a_hand(wanted)
                process.stdin.write(b"\n")
        status = await process.wait()
    assert status == 0, (place.folder / "node.txt").read_text()
    await place.lend_a_hand("see it stopped")
    return seen


def _where(place: Place) -> dict[str, object]:
    """Return *place* as the transports of TypeScript take it."""
    if place.url is not None:
        return {"url": place.url, "headers": dict(place.headers)}
    program, *arguments = place.command
    return {"command": program, "args": arguments, "cwd": str(ROOT)}
