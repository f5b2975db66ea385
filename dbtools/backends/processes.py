"""Processes that read callers' SQL and can be killed. The name of a module in; answers to requests out."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from dbtools.backends.pool import Pool
from dbtools.backends.refusals import Cause

SCRIPT = Path(__file__).with_name("answering.py")
WORKERS = max(2, min(4, os.cpu_count() or 2))
MOST_OF_CALLER = WORKERS // 2  #: workers that one caller may use at once
PROCESS_GRACE = 0.1  #: seconds after its deadline when a request is ended with its process
LEAST = 0.01  #: seconds that a request gets after it has waited
LOST: Mapping[str, Any] = {"error": "lost"}  #: the answer of a process that has ended
LARGEST_ANSWER = 128 * 2**20  #: bytes
ENVIRONMENT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  #: what an interpreter may need to start
UNLIMITED = "run_sql has to limit the memory of a process, which this system (Windows) cannot do."


class WorkerLost(Exception):
    """The process has ended, or has been killed because its answer cannot be read."""


class Worker:
    """A process that answers one request at a time."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._has_started = False
        self.is_usable = True

    @classmethod
    async def start(cls, module: str, folders: Iterable[str] = ()) -> "Worker":
        """Start a process without secrets, environment and open files of the server; or raise Busy.

        *module* answers the requests, and imports packages from *folders*.
        """
        kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(SCRIPT), module, *folders),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                limit=LARGEST_ANSWER,
                cwd="/",
                env=kept,
                start_new_session=True,
            )
        except OSError as exc:
            raise Cause.NO_PROCESS.error() from exc
        return cls(process)

    async def ask(self, request: Mapping[str, object]) -> Mapping[str, Any]:
        """Return the answer to *request*, or raise WorkerLost; end the process if that is interrupted.

        A process that is still starting then becomes the one of a later call.
        """
        if not self._has_started:
            try:
                await self._answer()
            except WorkerLost as exc:
                raise Cause.NO_PROCESS.error() from exc
            self._has_started = True
        assert self.process.stdin is not None
        with suppress(ConnectionError):
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
        try:
            return await self._answer()
        except WorkerLost:
            raise
        except BaseException:
            self.kill()
            raise

    async def _answer(self) -> Mapping[str, Any]:
        assert self.process.stdout is not None
        try:
            answer: Mapping[str, Any] = json.loads(await self.process.stdout.readuntil())
        except EOFError as exc:
            # A signal would take its status from who waits for it.
            self.is_usable = False
            raise WorkerLost from exc
        except (asyncio.LimitOverrunError, ValueError) as exc:
            # Its answer is too long or no JSON.
            self.kill()
            raise WorkerLost from exc
        self.is_usable = not answer.get("last")
        return answer

    def kill(self) -> None:
        """End the process, even within one call of C code, if it does not end already."""
        if self.is_usable:
            self.is_usable = False
            with suppress(ProcessLookupError):
                self.process.kill()

    def end(self) -> "asyncio.Future[object]":
        """End the process, and return a future for its end."""
        self.kill()
        return asyncio.ensure_future(self.process.wait())


class WorkerPool:
    """Processes in which *module* answers callers' requests. It imports packages from *folders*."""

    def __init__(self, module: str, folders: Iterable[str] = ()) -> None:
        start = partial(Worker.start, module, folders)
        self.pool = Pool(start, size=WORKERS, is_usable=lambda each: each.is_usable, end=self._end)
        self._ending: set[asyncio.Future[object]] = set()
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def ask(
        self,
        request: Mapping[str, object],
        specify: Callable[[], Awaitable[object]],
        *,
        caller: str,
        ends: float,
    ) -> Mapping[str, Any]:
        """Return the answer to *request* of *caller*, LOST if the process ends; or raise Busy or TimedOut.

        The process is killed if it has not answered when the time of the loop is *ends*. A process that does
        not know the key of the request gets what *specify* returns as well.
        """
        turn = self._turns.setdefault(caller, asyncio.Semaphore(MOST_OF_CALLER))
        process: Worker | None = None
        try:
            async with asyncio.timeout_at(ends + PROCESS_GRACE), turn, self.pool.connection() as process:
                answer: Mapping[str, Any] = await process.ask(
                    {**request, "timeout": _remaining_seconds(ends)}
                )
                if "needs" in answer:
                    spec = await specify()
                    answer = await process.ask({**request, "spec": spec, "timeout": _remaining_seconds(ends)})
                return answer
        except WorkerLost:
            return LOST
        except TimeoutError as exc:
            if process is None:
                raise Cause.OVERLOADED.error() from exc
            raise Cause.TIMED_OUT.error() from exc

    async def close(self) -> None:
        """End the processes."""
        await self.pool.dispose()
        await asyncio.gather(*self._ending)

    def _end(self, process: Worker) -> "asyncio.Future[object]":
        ended = process.end()
        self._ending.add(ended)
        ended.add_done_callback(self._ending.discard)
        return ended


def _remaining_seconds(ends: float) -> float:
    """Return the seconds until the time of the loop is *ends*."""
    return max(ends - asyncio.get_running_loop().time(), LEAST)
