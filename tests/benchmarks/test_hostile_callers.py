"""How a hostile client affects another one: the longest call of a normal client while the other attacks."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.benchmarks.conftest import Target
from tests.benchmarks.contest import Figure
from tests.benchmarks.http_client import MODERN, HttpProcess, call_of, open_http

pytestmark = pytest.mark.benchmark

Report = Callable[[Figure], Figure]
Attack = Callable[[HttpProcess], Awaitable[object]]
LONG = 4.0  #: seconds of the attack
WORST = 1.0  #: seconds that a call of another one may take meanwhile
HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n"
JSON = HEAD + b"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
OPEN = "[limits]\ncalls_per_minute = 1000000000\n"


def _body(body: bytes) -> bytes:
    return JSON + b"Content-Length: %d\r\n\r\n" % len(body) + body


def _sending(first: bytes, more: bytes = b"", *, times: int) -> Attack:
    """Return an attack of so many connections that send *first*, and then *more* for as long as they can."""

    async def one(process: HttpProcess) -> None:
        reader, writer = await asyncio.open_connection(process.host, process.port)
        try:
            writer.write(first)
            while more and not reader.at_eof():
                writer.write(more)
                await writer.drain()
            await reader.read()
        except ConnectionError:
            pass  # the server has left
        finally:
            writer.transport.abort()

    return lambda process: asyncio.gather(*(one(process) for _ in range(times)))


async def _open_sessions(process: HttpProcess) -> None:
    connection = await process.connect()
    try:
        while True:
            await connection.shake_hands()
    except AssertionError:
        pass  # those that are too many are refused
    finally:
        await connection.close()


async def _do_nothing(process: HttpProcess) -> None:
    await asyncio.sleep(LONG)


ATTACKS: dict[str, Attack] = {
    "a header without an end": _sending(HEAD + b"a: ", b"a" * 65_536, times=4),
    "headers without an end": _sending(HEAD, b"a: b\r\n" * 10_000, times=4),
    "trailers without an end": _sending(
        JSON + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b"a: b\r\n" * 1_000, times=4
    ),
    "deep JSON of 200 kB": _sending(_body(b"[" * 65 + b'"' + b'\\"' * 100_000), times=20),
    "JSON of 160,000 values": _sending(_body(b"[" + b"[]," * 80_000 + b"[]]"), times=20),
    "1,000 idle connections": _sending(b"GET /", times=1_000),
    "60 bodies that do not come": _sending(JSON + b"Content-Length: 1000\r\n\r\n{", times=60),
    "sessions": _open_sessions,
}


@asynccontextmanager
async def _served(target: Target, folder: Path) -> AsyncIterator[HttpProcess]:
    path = folder / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{target.url}"\n[log]\nfile = "{folder / "calls.jsonl"}"\n{OPEN}')
    async with open_http("-m", "dbtools", "serve", str(path), "--http", "127.0.0.1:0") as process:
        yield process


async def _longest(process: HttpProcess, attack: Attack) -> float:
    """Return the seconds of the longest call while *attack* runs; each must be answered."""
    call = call_of(MODERN, "get_customers", {"id": 4711})
    connection = await process.connect()
    await connection.call(call)
    hostile = asyncio.ensure_future(attack(process))
    longest, ends = 0.0, time.perf_counter() + LONG
    while time.perf_counter() < ends:
        began = time.perf_counter()
        await connection.call(call)
        longest = max(longest, time.perf_counter() - began)
    hostile.cancel()
    with suppress(asyncio.CancelledError, ConnectionError):
        await hostile
    await connection.close()
    return longest


async def test_callers_do_not_slow_each_other_down(shop: Target, report: Report, tmp_path: Path) -> None:
    async with _served(shop, tmp_path) as process:
        idle, before = await _longest(process, _do_nothing), process.memory()
        longest = {name: await _longest(process, attack) for name, attack in ATTACKS.items()}
        after = process.memory()

    def tell(name: str, ours: float, floor: float, unit: str = "s") -> None:
        figure = Figure(
            measured=f"{name}: " + ("memory" if unit == "bytes" else "longest call of another"),
            dialect=shop.dialect,
            ours=ours,
            floor=floor,
            floor_is="before" if unit == "bytes" else "nobody",
            unit=unit,
        )
        report(figure)

    for name, seconds in longest.items():
        tell(name, seconds, idle)
    tell("all of that", after, before, "bytes")
    assert max(longest.values()) < WORST
