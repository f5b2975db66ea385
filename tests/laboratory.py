"""Runs tests of a commit, with a fault in it or not. Their names in; how they end out.

The tests run in a copy of the commit and a process forked from this one, which has imported the libraries.
"""

import ctypes
import importlib
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
import venv
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import psutil  # type: ignore[import-untyped]
import pytest

from tests.mutations import Mutant
from tests.postgresql_server import LOGIN, VARIABLE, ServerProgramError, open_cluster

ROOT = Path(__file__).parents[1]
LIBRARIES = (
    *("aiosqlite", "alembic.command", "asyncpg", "cryptography.x509", "httptools", "httpx2", "jsonschema"),
    *("jwt", "mcp.client", "mcp.server.lowlevel", "opentelemetry.trace", "orjson", "pydantic.json_schema"),
    *("rich.console", "rich.table", "sqlalchemy.dialects.postgresql.asyncpg", "sqlalchemy.ext.asyncio"),
    *("sqlalchemy.dialects.sqlite.aiosqlite", "sqlglot.dialects.postgres", "starlette.applications"),
    *("tomlkit", "uvicorn", "uvloop"),
)
OPTIONS = (
    *("-q", "-n0", "--no-header", "--tb=short", "-p", "no:cacheprovider", "--hypothesis-seed=0"),
    "-Wignore::pytest.PytestAssertRewriteWarning",  # plugins are among the libraries
)
LONGEST = 1200.0  #: seconds for a file whose time is not known
MEMORY = 8 * 2**30  #: bytes for each process
LARGEST = 2 * 2**30  #: bytes of a file, such as the output of a mutant that prints without end
MEMORY_FOLDER = Path("/dev/shm")
NICE = 10
SERVED = 20  #: mutants that share a server
SUBREAPER = 36  #: of prctl: orphans become children of this process
SITE = "import os, sys; 'COVERAGE_PROCESS_START' in os.environ and __import__('coverage').process_startup()\n"
FOLLOWED = """[run]
branch = true
concurrency = thread
data_file = {folder}/lines/child
disable_warnings = no-data-collected,module-not-measured
parallel = true
patch = fork,_exit
sigterm = true
source = {folder}/tree/dbtools
"""


class Event(NamedTuple):
    """What happens to a test, or to the process, whose status is its figure."""

    what: str
    test: str
    figure: float | None  #: seconds of processor time


@contextmanager
def open_lab(commit: str) -> Iterator["Lab"]:
    """Yield a copy of *commit* to test, at low priority; end in the end what its tests leave running."""
    for library in LIBRARIES:
        importlib.import_module(library)
    os.nice(NICE)
    ctypes.CDLL(None).prctl(SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit("interrupted"))
    with tempfile.TemporaryDirectory(dir=MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None) as folder:
        lab = Lab(Path(folder), commit)
        try:
            yield lab
        finally:
            lab.close()


class Lab:
    """A copy of the commit, an interpreter that imports it, and a server of PostgreSQL for its tests."""

    def __init__(self, folder: Path, commit: str) -> None:
        self.folder, self.tree, self.original = folder, folder / "tree", folder / "commit"
        self._server, self._served = ExitStack(), 0
        folder.chmod(0o755)
        archive = subprocess.run(("git", "archive", commit), cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(self.original, filter="data")
        venv.create(folder / "venv", symlinks=True)
        packages = next((folder / "venv" / "lib").glob("python3*/site-packages"))
        sys.path[:] = [each for each in sys.path if Path(each) != ROOT]
        (packages / "lab.pth").write_text("\n".join([str(self.tree), *sys.path, SITE]))
        self._python = folder / "venv" / "bin" / "python"
        for name in ("dbtools", "dbtools-mcp"):
            script = self._python.with_name(name)
            script.write_text(
                f"#!{self._python}\nfrom dbtools.__main__ import main\nraise SystemExit(main())\n"
            )
            script.chmod(0o755)
        (folder / "coveragerc").write_text(FOLLOWED.format(folder=folder))

    def compile(self) -> None:
        """Keep what pytest compiles, so that it need not be compiled for each mutant."""
        self.renew()
        self.test(["--collect-only", "tests"], LONGEST, writes=True)
        shutil.rmtree(self.original)
        self.tree.rename(self.original)

    @cached_property
    def sources(self) -> dict[str, bytes]:
        """The files of the package."""
        package = self.original / "dbtools"
        return {path.relative_to(package).as_posix(): path.read_bytes() for path in package.rglob("*.py")}

    def renew(self, mutant: Mutant | None = None) -> None:
        """Put back the files of the commit, and the fault of *mutant* into them."""
        for path in (self.tree, self.folder / "tmp", self.folder / "lines"):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(exist_ok=True)
        (self.folder / "tmp").chmod(0o1777)
        shutil.copytree(self.original, self.tree, symlinks=True, dirs_exist_ok=True)
        if mutant:
            path = self.tree / "dbtools" / mutant.module
            path.write_bytes(mutant.applied(self.sources[mutant.module]))

    def serve(self) -> None:
        """Start a server, or another one where many have used it."""
        if self._served % SERVED == 0:
            self.close()
            cluster = self._server.enter_context(open_cluster())
            os.environ[VARIABLE] = f"postgresql://{LOGIN}@127.0.0.1:{cluster.start()}/postgres"
            self._server.callback(cluster.stop)
        self._served += 1

    def close(self) -> None:
        """Stop the server, if a mutant has not."""
        with suppress(ServerProgramError):
            self._server.close()

    def test(
        self,
        words: Sequence[str],
        seconds: float,
        plugin: Callable[[], object] = object,
        *,
        tests: Collection[str] | None = None,
        writes: bool = False,
    ) -> list[Event]:
        """Run pytest with *words* in the tree; return what happens to each test, and how the process ends.

        Only *tests* are run, if they are given. It is killed if it is silent for *seconds*. The *plugin* is
        made in its process. Only one that *writes* keeps what it has compiled.
        """
        kept, told = psutil.Process().children(), self.folder / "told"
        told.write_text("")
        pid = os.fork()
        if pid == 0:
            self._become(words, lambda: [Telling(told, tests), plugin()], writes)
        try:
            status = _wait(pid, told, seconds)
        finally:
            orphans = [each for each in psutil.Process().children() if each not in kept]
            for each in psutil.wait_procs(orphans, 0 if plugin is object else 20)[1]:
                _kill(each)
        if status is None:
            self._served = 0  # what the test has left there is not known
        ended = Event("ended", "", None if status is None else float(status))
        return [*(Event(*json.loads(line)) for line in told.read_text().splitlines()), ended]

    def _become(self, words: Sequence[str], plugins: Callable[[], list[object]], writes: bool) -> None:
        status = 70
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, resource.RLIM_INFINITY))
            with (self.folder / "output").open("wb") as output, open(os.devnull, "rb") as nothing:
                for stream, number in ((nothing, 0), (output, 1), (output, 2)):
                    os.dup2(stream.fileno(), number)
            for name in [each for each in sys.modules if each.partition(".")[0] == "tests"]:
                del sys.modules[name]
            os.chdir(self.tree)
            sys.path.insert(0, str(self.tree))
            sys.executable, sys.dont_write_bytecode = str(self._python), not writes
            os.environ["TMPDIR"] = f"{self.folder}/tmp"
            if not writes:
                os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
            os.environ.pop("PYTHONPATH", None)
            tempfile.tempdir = None
            status = pytest.main([*OPTIONS, *words], plugins())
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)


def _wait(pid: int, told: Path, seconds: float) -> int | None:
    """Return the status of *pid*; nothing if it is killed, since *told* does not grow for *seconds*."""
    size, ends = -1, 0.0
    while size != told.stat().st_size or time.monotonic() < ends:
        if size != told.stat().st_size:
            size, ends = told.stat().st_size, time.monotonic() + seconds
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    _kill(psutil.Process(pid))
    return None


def _kill(process: psutil.Process) -> None:
    """Kill *process* and what it has started."""
    with suppress(psutil.Error):
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                each.kill()
        process.wait(10)


class Telling:
    """Writes which test runs, which fails, and the seconds of processor time that each takes."""

    def __init__(self, path: Path, tests: Collection[str] | None) -> None:
        self._file, self._tests = path.open("a", buffering=1), tests
        self._used = 0.0

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self._tests is not None:
            config.hook.pytest_deselected(items=[each for each in items if each.nodeid not in self._tests])
            items[:] = [each for each in items if each.nodeid in self._tests]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._tell("runs", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tell("failed" if report.failed else "took", report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._tell("failed" if report.failed else "collected", report.nodeid)

    def _tell(self, what: str, name: str) -> None:
        used = sum(os.times()[:4])
        self._file.write(f"{json.dumps((what, name, used - self._used))}\n")
        self._used = used
