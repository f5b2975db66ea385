"""Run callers' SQL in worker processes. A FreeRun in; rows out, or a refusal in dbtools' own words."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
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
from dbtools.backends.sqlite.files import FileLocation, connect, location_of
from dbtools.backends.sqlite.lens import FILE_OF, claims_of, lens_of, random_name, specification
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
ATTEMPTS = 2  #: at a statement, if its worker ends or the file cannot be opened
LENSES = 64  #: that are kept, one for each role and its claims
LARGEST_ANSWER = 128 * 2**20  #: bytes
ANY = ColumnType(family=Family.ANY, name="any")
ENVIRONMENT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  #: what an interpreter may need to start
NOT_STARTED = "run_sql could not start a process for the statement."
OTHERS = "Use the other tools, or try again in a moment."


class WorkerLost(Exception):
    """The process has ended."""


class Worker:
    """A process that runs one statement at a time."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._has_started = False
        self.is_usable = True

    @classmethod
    async def start(cls) -> "Worker":
        """Start a process without secrets, environment and open files of the server; or raise Busy."""
        kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(Path(worker.__file__))),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                limit=LARGEST_ANSWER,
                cwd="/",
                env=kept,
                start_new_session=True,
            )
        except OSError as exc:
            raise errors.Busy(NOT_STARTED, hint=OTHERS) from exc
        return cls(process)

    async def ask(self, request: Mapping[str, object]) -> Mapping[str, Any]:
        """Return the answer to *request*, or raise WorkerLost; end the process if that is interrupted."""
        if not self._has_started:
            try:
                await self._answer()
            except WorkerLost as exc:
                raise errors.Busy(NOT_STARTED, hint=OTHERS) from exc
            self._has_started = True
        assert self.process.stdin is not None
        with suppress(ConnectionError):
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
        return await self._answer()

    async def _answer(self) -> Mapping[str, Any]:
        assert self.process.stdout is not None
        try:
            answer: Mapping[str, Any] = json.loads(await self.process.stdout.readuntil())
        except EOFError as exc:
            self.is_usable = False
            raise WorkerLost from exc
        except BaseException:
            self.kill()
            raise
        self.is_usable = not answer.get("last")
        return answer

    def kill(self) -> None:
        """End the process, even within one step of SQLite, if it does not end already."""
        if self.is_usable:
            self.is_usable = False
            with suppress(ProcessLookupError):
                self.process.kill()

    def end(self) -> "asyncio.Future[object]":
        """End the process, and return a future for its end."""
        self.kill()
        return asyncio.ensure_future(self.process.wait())


class SqliteFreeRunner:
    """The FreeRunner of SQLite."""

    def __init__(self, location: FileLocation) -> None:
        self._location = location
        self.pool = Pool(Worker.start, size=WORKERS, is_usable=lambda each: each.is_usable, end=self._end)
        self._ending: set[asyncio.Future[object]] = set()
        self._checking = anyio.CapacityLimiter(1)
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        #: By catalog and claims; each with its catalog, so that no other gets the same identity.
        self._lenses: dict[object, tuple[Catalog, Mapping[str, Any], frozenset[str]]] = {}

    async def run(self, run: FreeRun) -> ResultSet:
        """Return the rows of *run*."""
        answer = await self._answer(run, explains=False)
        rows = tuple(tuple(map(_cell, row)) for row in answer["rows"])
        outputs = tuple(Output(term=Column(name=name, type=ANY)) for name in answer["names"])
        return ResultSet(outputs=outputs, rows=rows, more=answer["more"])

    async def explain(self, run: FreeRun) -> FreeExplanation:
        """Return the views that *run* reads, and what both safeguards say."""
        await self._answer(run, explains=True)
        lens = lens_of(run, FILE_OF)
        read = {name: sql for name, sql in lens.views.items() if fold(name) in names_in(run.sql)}
        views = [f"create temp view {identifier(name)} as {sql};\n" for name, sql in read.items()]
        seen = errors.listing(read)
        named = f", and reads {seen} as the role sees them" if read else ""
        return FreeExplanation(
            sql="".join(views) + readable(run.sql),
            parameters=(),
            verdicts=(
                f"It can name {len(lens.direct) + len(lens.views)} tables{named}.",
                "The program that SQLite compiles opens only these, and changes nothing.",
            ),
        )

    async def close(self) -> None:
        """End the processes."""
        await self.pool.dispose()
        await asyncio.gather(*self._ending)

    def _end(self, process: Worker) -> "asyncio.Future[object]":
        ended = process.end()
        self._ending.add(ended)
        ended.add_done_callback(self._ending.discard)
        return ended

    async def _answer(self, run: FreeRun, *, explains: bool) -> Mapping[str, Any]:
        ends = asyncio.get_running_loop().time() + run.timeout
        sql = await check(run.sql, partial(readable, run.sql), self._checking)
        spec, denied = self._lens(run)
        names = names_in(sql)
        if not denied.isdisjoint(names):
            raise errors.Denied
        request = {
            "key": spec["schema"],
            "sql": sql,
            # Before a word, SQLite takes a byte order mark for white space.
            "names": [name.lstrip("\ufeff") for name in names],
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
            elif answer.get("error") != "lost":
                break
        if "error" in answer:
            raise worded(answer, run)
        return answer

    async def _asked(
        self, request: Mapping[str, object], spec: Mapping[str, Any], caller: str, ends: float
    ) -> Mapping[str, Any]:
        """Return the answer of a worker to *request* of *caller*, which has time until *ends*."""
        turn = self._turns.setdefault(caller, asyncio.Semaphore(SHARE))
        process: Worker | None = None
        try:
            async with asyncio.timeout_at(ends + GRACE), turn, self.pool.connection() as process:
                left = max(ends - asyncio.get_running_loop().time(), LEAST)
                answer: Mapping[str, Any] = await process.ask({**request, "timeout": left})
                if "needs" in answer:
                    answer = await process.ask({**request, "timeout": left, "spec": spec})
                return answer
        except WorkerLost:
            return {"error": "lost"}
        except TimeoutError as exc:
            if process is None:
                raise errors.Busy("Too many statements are running.", hint="Try again in a moment.") from exc
            raise errors.TimedOut from exc

    def _lens(self, run: FreeRun) -> tuple[Mapping[str, Any], frozenset[str]]:
        """Return the specification of the lens of *run*, and the tables that lack a claim."""
        key = (id(run.catalog), run.stamp, repr([run.claims.get(name) for name in claims_of(run.catalog)]))
        found = self._lenses.pop(key, None)
        if found is None:
            schema = random_name()
            lens = lens_of(run, schema)
            found = (
                run.catalog,
                specification(lens, self._location, run.stamp, schema, run.functions),
                lens.denied,
            )
        # The last one is that which was used last.
        self._lenses[key] = found
        if len(self._lenses) > LENSES:
            del self._lenses[next(iter(self._lenses))]
        return found[1:]


def open_free(url: str) -> SqliteFreeRunner:
    """Return the FreeRunner of the file at *url*."""
    return SqliteFreeRunner(location_of(url))


def _cell(cell: object) -> object:
    """Return *cell* of an answer as the driver would."""
    if not isinstance(cell, dict):
        return cell
    start = bytes.fromhex(cell["hex"]) if "hex" in cell else cell["text"]
    return start if len(start) == cell["length"] else Cut(start=start, length=cell["length"])
