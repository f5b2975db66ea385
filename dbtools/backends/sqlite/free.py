"""Run callers' SQL in worker processes. A FreeRun in; rows out, or a refusal in dbtools' own words."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import anyio

from dbtools import errors
from dbtools.backends.free import FreeExplanation, FreeRun, check
from dbtools.backends.plans import identifier
from dbtools.backends.pool import Pool
from dbtools.backends.sqlite import worker
from dbtools.backends.sqlite.files import Location, connect, location_of
from dbtools.backends.sqlite.lens import FILE_OF, Lens, claims_of, lens_of, random_name, specification
from dbtools.backends.sqlite.refusals import readable, worded
from dbtools.backends.sqlite.syntax import fold, names_in
from dbtools.catalog import Catalog, Column
from dbtools.cells import Cut
from dbtools.results import ResultSet
from dbtools.statement import Output
from dbtools.types import ColumnType, Family

WORKERS = max(2, min(4, os.cpu_count() or 2))
SHARE = WORKERS // 2  #: workers that one caller may use at once
GRACE = 0.1  #: seconds after its deadline when a statement is ended with its process
LEAST = 0.01  #: seconds that a statement gets after it has waited
ATTEMPTS = 2  #: at a statement, if its worker is lost or the file has been replaced
LENSES = 64  #: that are kept, one for each role and its claims
LARGEST_FRAME = 128 * 2**20
ANY = ColumnType(family=Family.ANY, name="any")
ENVIRONMENT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  #: what an interpreter may need to start


class WorkerLost(Exception):
    """The process has ended."""


class Worker:
    """A process that runs one statement at a time."""

    def __init__(self, process: "subprocess.Popen[bytes]", streams: Any) -> None:
        self._process = process
        self._reader, self._writer = streams
        self.is_usable = True

    @classmethod
    async def start(cls) -> "Worker":
        """Start a process that has no secret, no environment and no open file of the server."""
        ours, theirs = socket.socketpair()
        spawning = asyncio.ensure_future(asyncio.to_thread(_spawn, theirs))
        try:
            process = await asyncio.shield(spawning)
            return cls(process, await asyncio.open_connection(sock=ours))
        except BaseException:
            ours.close()
            with anyio.CancelScope(shield=True), suppress(OSError):
                process = await spawning
                process.kill()
                await asyncio.to_thread(process.wait)
            raise

    async def ask(self, request: Mapping[str, object]) -> Mapping[str, Any]:
        """Return the answer to *request*, or raise WorkerLost; end the process if that is interrupted."""
        try:
            content = json.dumps(request).encode()
            self._writer.write(worker.HEAD.pack(len(content)) + content)
            await self._writer.drain()
            (length,) = worker.HEAD.unpack(await self._reader.readexactly(worker.HEAD.size))
            if length > LARGEST_FRAME:
                raise WorkerLost
            answer: dict[str, Any] = json.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError, ValueError) as exc:
            self.kill()
            raise WorkerLost from exc
        except BaseException:
            self.kill()
            raise
        if "last" in answer:
            self.kill()
        return answer

    def kill(self) -> None:
        """End the process, even within one step of SQLite."""
        self.is_usable = False
        self._process.kill()

    def end(self) -> "asyncio.Future[object]":
        """End the process, and return a future for its end."""
        self.kill()
        self._writer.close()
        return asyncio.ensure_future(asyncio.to_thread(self._process.wait))


def _spawn(channel: socket.socket) -> "subprocess.Popen[bytes]":
    """Start a process at the other end of *channel*, and close it, even if the call has been cancelled."""
    kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    with channel:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(worker.__file__))],
            stdin=channel.fileno(),
            stdout=channel.fileno(),
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=kept,
            start_new_session=True,
        )


class SqliteFreeRunner:
    """The FreeRunner of SQLite."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._pool = Pool(Worker.start, size=WORKERS, is_usable=lambda each: each.is_usable, end=Worker.end)
        self._checking = anyio.CapacityLimiter(1)
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        #: By catalog and claims; each with its catalog, so that no other gets the same identity.
        self._lenses: OrderedDict[object, tuple[Catalog, Lens, Mapping[str, Any]]] = OrderedDict()

    async def run(self, run: FreeRun) -> ResultSet:
        """Return the rows of *run*."""
        answer = await self._answer(run, explains=False)
        rows = tuple(tuple(map(_cell, row)) for row in answer["rows"])
        outputs = tuple(Output(term=Column(name=name, type=ANY)) for name in answer["names"])
        return ResultSet(outputs=outputs, rows=rows, more=answer["more"])

    async def explain(self, run: FreeRun) -> FreeExplanation:
        """Return the views that *run* reads, and what both safeguards say."""
        await self._answer(run, explains=True)
        lens = lens_of(run, FILE_OF, "partial")
        read = [view for view in lens.views if fold(view.name) in names_in(run.sql)]
        views = [f"create temp view {identifier(view.name)} as {view.sql};\n" for view in read]
        names = errors.listing(view.name for view in read)
        named = f", these as views of what the role sees: {names}" if read else ""
        return FreeExplanation(
            sql="".join(views) + readable(run.sql),
            verdicts=(
                f"The names permit it: it can name {len(lens.direct) + len(lens.views)} tables{named}.",
                "The compiled program permits it: it opens only these tables, and changes nothing.",
            ),
        )

    async def close(self) -> None:
        """End the processes."""
        await self._pool.dispose()

    async def _answer(self, run: FreeRun, *, explains: bool) -> Mapping[str, Any]:
        ends = asyncio.get_running_loop().time() + run.timeout
        sql = await check(run.sql, partial(readable, run.sql), self._checking)
        lens, spec = self._lens(run)
        request = {
            "key": spec["schema"],
            "sql": sql,
            "limit": run.limit,
            "longest": run.longest,
            "bytes": run.most_bytes,
            "explains": explains,
        }
        answer: Mapping[str, Any] = {"error": "lost"}
        for _ in range(ATTEMPTS):
            answer = await self._asked(request, spec, run.caller, ends)
            if answer.get("error") == "open":
                # Explains why, or recovers the file.
                (await asyncio.to_thread(connect, self._location)).close()
            elif answer.get("error") not in ("lost", "changed"):
                break
        if "error" in answer:
            raise worded(answer, run, lens)
        return answer

    async def _asked(
        self, request: Mapping[str, object], spec: Mapping[str, Any], caller: str, ends: float
    ) -> Mapping[str, Any]:
        """Return the answer of a worker to *request* of *caller*, which has time until *ends*."""
        turn = self._turns.setdefault(caller, asyncio.Semaphore(SHARE))
        process: Worker | None = None
        try:
            async with asyncio.timeout_at(ends + GRACE), turn, self._pool.connection() as process:
                left = max(ends - asyncio.get_running_loop().time(), LEAST)
                answer: Mapping[str, Any] = await process.ask({**request, "timeout": left})
                if "needs" in answer:
                    answer = await process.ask({**request, "timeout": left, "spec": spec})
                return answer
        except WorkerLost:
            return {"error": "lost"}
        except TimeoutError as exc:
            if process is None:
                raise errors.Busy("Other statements are still running.", hint="Try again.") from exc
            raise errors.TimedOut from exc

    def _lens(self, run: FreeRun) -> tuple[Lens, Mapping[str, Any]]:
        """Return the lens of *run*, and its specification; raise Denied if a claim is missing."""
        key = (id(run.catalog), run.stamp, repr([run.claims.get(name) for name in claims_of(run.catalog)]))
        if key not in self._lenses:
            schema, mask = random_name(), random_name()
            lens = lens_of(run, schema, mask)
            spec = specification(lens, self._location, run.stamp, schema, mask)
            self._lenses[key] = run.catalog, lens, spec
            if len(self._lenses) > LENSES:
                self._lenses.popitem(last=False)
        self._lenses.move_to_end(key)
        _, lens, spec = self._lenses[key]
        return lens, spec


def open_free(url: str) -> SqliteFreeRunner:
    """Return the FreeRunner of the file at *url*."""
    return SqliteFreeRunner(location_of(url))


def _cell(cell: object) -> object:
    """Return *cell* of a frame as the driver would."""
    if not isinstance(cell, dict):
        return cell
    start = bytes.fromhex(cell["hex"]) if "hex" in cell else cell["text"]
    return start if len(start) == cell["length"] else Cut(start=start, length=cell["length"])
