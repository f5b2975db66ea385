"""The fixtures that every folder of tests shares: a loop, and real databases."""

import os
import secrets
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import settings

from tests.postgresql_server import NoServerError, PostgresqlServer, open_server
from tests.secure_server import SecureServer, open_secure_server

#: A dialect and DDL in; the URL of a database out.
OpenDatabase = Callable[[str, str], AbstractContextManager[str]]

#: No test asserts on elapsed time. Each run tries other examples; `--hypothesis-profile=thorough` tries more.
settings.register_profile("quick", deadline=None, max_examples=15)
settings.register_profile("dbtools", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=1_000)
settings.load_profile("dbtools")

#: Folders and files that start processes, or take long.
SLOW = {"clients", "test_package.py"} | {
    f"test_{name}.py"
    for name in (
        *("postgresql_free_productions", "shadowed_names", "planned_functions", "replaced_names", "totality"),
        *(
            "write_crashes",
            "write_connections",
            "write_logins",
            "write_migrations",
            "write_disks",
            "giant_cells",
        ),
        *("passing_names", "hostile_texts", "poolers", "pgbouncer", "chosen_races", "differential"),
    )
}
#: Creating a database of PostgreSQL writes 300 files, which takes ten times as long on a disk.
MEMORY = Path("/dev/shm")
NEEDED = 4 * 2**30  #: bytes that must be free there
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > NEEDED:
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None  # so that it is read again

# Making a context of TLS takes longer than connecting. URLs of servers with TLS ask for it.
os.environ.setdefault("PGSSLMODE", "disable")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a job of the background: the processes that tests start would ignore it as well.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Run the suite with three workers, which keep two cores busy; benchmarks and named files with none."""
    measures = config.option.markexpr == "benchmark"
    return 0 if measures or config.args_source is pytest.Config.ArgsSource.ARGS else 3


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--quick` and `--shuffle`."""
    parser.addoption(
        "--quick", action="store_true", help="leave out what is marked slow, and try fewer examples"
    )
    parser.addoption(
        "--shuffle", type=int, metavar="SEED", help="run the files and their tests in random order"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the tests of `--quick`; before a whole run, install the clients for Node, where npm can."""
    if config.option.quick:
        config.option.markexpr = "not benchmark and not slow"
        settings.load_profile("quick")
        return
    packages, npm = Path(__file__).with_name("clients") / "node_modules", shutil.which("npm")
    runs_all = config.args_source is not pytest.Config.ArgsSource.ARGS and not hasattr(config, "workerinput")
    if not runs_all or npm is None or packages.exists():
        return
    command = (npm, "ci", "--silent", "--prefix", str(packages.parent))
    if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode:
        shutil.rmtree(packages, ignore_errors=True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the benchmarks, which import much, where none of them would run."""
    is_out = collection_path.name == "benchmarks" and config.option.markexpr.startswith("not benchmark")
    return True if is_out else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the files of this folder, which take long; the short ones of `unit` end the suite."""
    for item in items:
        if SLOW & {item.path.name, item.path.parent.name}:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.path.parent != Path(__file__).parent)
    if config.option.shuffle is not None:
        # Files stay together, since tests of a module share what is opened for it.
        order = Random(config.option.shuffle)
        order.shuffle(items)
        places = dict.fromkeys(item.path for item in items)
        ranks = {path: rank for rank, path in enumerate(order.sample([*places], len(places)))}
        items.sort(key=lambda item: ranks[item.path])


class Clock:
    """The monotonic clock of this process, which a test may turn: its event loops follow."""

    def __init__(self) -> None:
        self._read, self._ahead = time.monotonic, 0.0

    def __call__(self) -> float:
        """Return the seconds."""
        return self._read() + self._ahead

    def advance(self, seconds: float) -> None:
        """Turn it forward by *seconds*."""
        self._ahead += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on asyncio, which the drivers need."""
    return "asyncio"


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    """Yield a real server, started for the first test that needs it."""
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal("asyncio"))
        try:
            server = stack.enter_context(open_server(portal))
        except NoServerError as exc:
            pytest.skip(str(exc))
        yield server


@pytest.fixture(scope="session")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    """Yield a server with TLS, started for the first test that needs it."""
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal("asyncio"))
        try:
            server = stack.enter_context(open_secure_server(portal, tmp_path_factory.mktemp("certificates")))
        except NoServerError as exc:
            pytest.skip(str(exc))
        yield server


@pytest.fixture(scope="session")
def postgresql_database(
    postgresql_server: PostgresqlServer,
) -> Iterator[Callable[[str], AbstractContextManager[str]]]:
    """Yield a factory: DDL in, the URL of a database of one's own out, for any scope.

    From the second database with the same DDL on, they are copies of a template.
    """
    templates: dict[str, str | None] = {}

    def fill(name: str, ddl: str) -> str:
        postgresql_server.execute(ddl, url=postgresql_server.url_of(name))
        return name

    with ExitStack() as stack:

        @contextmanager
        def database(ddl: str) -> Iterator[str]:
            template = templates.get(ddl)
            if ddl in templates and template is None:
                template = fill(stack.enter_context(postgresql_server.database()), ddl)
            templates[ddl] = template
            with postgresql_server.database(template=template or "template0") as name:
                yield postgresql_server.url_of(name if template else fill(name, ddl))

        yield database


@pytest.fixture(scope="session")
def postgresql_login(postgresql_server: PostgresqlServer) -> Callable[..., AbstractContextManager[str]]:
    """Return a factory: a URL and what a new login is granted in; the URL with that login out.

    `{}` stands for the login's name, which is new.
    """

    @contextmanager
    def login(url: str, grants: str) -> Iterator[str]:
        name = f"dbtools_test_{secrets.token_hex(8)}"
        # Up to version 14 everybody may create in it.
        closed = "revoke create on schema public from public"
        # In one transaction.
        made = f"{closed}; create role {name} login; {grants.replace('{}', name)}"
        postgresql_server.execute(made, url=url)
        try:
            yield urlsplit(url)._replace(netloc=f"{name}@{urlsplit(url).netloc.rpartition('@')[2]}").geturl()
        finally:
            postgresql_server.execute(f"drop owned by {name}; drop role {name}", url=url)

    return login


@pytest.fixture(scope="session")
def open_database(request: pytest.FixtureRequest) -> OpenDatabase:
    """Return a factory: a dialect and DDL in, the URL of a database of one's own out, for any scope."""

    @contextmanager
    def open_database(dialect: str, ddl: str) -> Iterator[str]:
        if dialect == "sqlite":
            yield f"sqlite:///{request.getfixturevalue('sqlite_database')(ddl)}"
            return
        with request.getfixturevalue("postgresql_database")(ddl) as url:
            yield url

    return open_database


@pytest.fixture(params=["sqlite", "postgresql"])
def url_of(
    request: pytest.FixtureRequest, open_database: OpenDatabase
) -> Iterator[Callable[[str | Mapping[str, str]], str]]:
    """Yield a factory: DDL in, the URL of a database of the test's own with it out, on each dialect.

    The DDL is one text for all, or one by dialect.
    """
    with ExitStack() as stack:

        def url(written: str | Mapping[str, str]) -> str:
            ddl = written if isinstance(written, str) else written[request.param]
            return stack.enter_context(open_database(request.param, ddl))

        yield url


@pytest.fixture
def postgresql_url(postgresql_server: PostgresqlServer) -> Iterator[str]:
    """Yield the URL of an empty database of the test's own."""
    with postgresql_server.database() as name:
        yield postgresql_server.url_of(name)


@pytest.fixture(scope="session")
def sqlite_database(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a factory: DDL in, the path of a new database file out, for any scope."""

    def database(ddl: str) -> Path:
        path = tmp_path_factory.mktemp("sqlite") / "test.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(ddl)
        return path

    return database
