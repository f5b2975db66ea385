"""Why PostgreSQL cannot be reached, each with a real cause: the message names place, fact and remedy."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio.lowlevel
import asyncpg
import pytest
from anyio.from_thread import BlockingPortal

from dbtools.backends import open_backend
from dbtools.backends.postgresql.connection.connections import connect, end
from dbtools.backends.postgresql.connection.urls import PARAMETERS, destination
from dbtools.errors import DatabaseUnavailable
from dbtools.policy.roles import Caller, Role
from dbtools.schema.catalog import Selection
from dbtools.service.toolbox import Toolbox
from tests.postgresql_server import PostgresqlServer, free_port
from tests.protocol import client
from tests.protocol.client import build_server
from tests.secure_server import ENCODED, KEY_PASSWORD, PASSWORD, SecureServer, signed
from tests.unit.shop import resolving

#: A URL in, the message for the operator out.
Refusal = Callable[[str], str]
Answer = Callable[[socket.socket], None]


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the files and variables of the user who runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for each in PARAMETERS.values():
        monkeypatch.delenv(each.variable, raising=False)


async def _read(url: str) -> dict[str, object]:
    """Return what a connection to *url* is like."""
    connection = await connect(url)
    try:
        (row,) = await connection.fetch(
            "select s.ssl, s.version, current_setting('search_path') as path, "
            "current_setting('statement_timeout') as timeout, current_setting('application_name') as name "
            "from pg_stat_ssl as s where s.pid = pg_backend_pid()"
        )
        return dict(row)
    finally:
        await end(connection)


@pytest.fixture(scope="session")
def refusal(portal: BlockingPortal) -> Refusal:
    """Return a function that returns the message about a URL, and checks that it has no password."""

    def refusal(url: str) -> str:
        told: str = portal.call(_told, url)
        assert not [each for each in (PASSWORD, ENCODED, KEY_PASSWORD) if each in told]
        return told

    return refusal


async def _told(url: str) -> str:
    backend = open_backend(url)
    with pytest.raises(DatabaseUnavailable) as caught:
        await backend.introspect(Selection())
    await backend.close()
    return str(caught.value)


@pytest.mark.parametrize(
    ("database", "query", "encrypted"),
    [
        ("open", "sslmode=disable", False),
        ("open", "sslmode=allow", False),
        ("open", "sslmode=prefer", True),
        ("open", "", True),
        ("open", "ssl=true", True),
        ("secure", "", True),
        ("secure", "sslmode=allow", True),
        ("secure", "sslmode=require", True),
        ("secure", "sslmode=require&sslrootcert={files}/root.crt", True),
        ("secure", "sslmode=verify-ca&sslrootcert={files}/root.crt", True),
        ("certified", "sslmode=require&sslcert={files}/client.crt&sslkey={files}/client.key", True),
        (
            "certified",
            f"sslcert={{files}}/client.crt&sslkey={{files}}/locked.key&sslpassword={KEY_PASSWORD}",
            True,
        ),
        ("secure", "sslmode=require&sslnegotiation=postgres&ssl_min_protocol_version=TLSv1.3", True),
        ("secure", "channel_binding=prefer&gssencmode=disable&pgbouncer=true", True),
        ("open", "target_session_attrs=read-write&connect_timeout=5&load_balance_hosts=random", True),
    ],
)
async def test_url_connects(secure: SecureServer, database: str, query: str, encrypted: bool) -> None:
    found = await _read(secure.url(database, query))

    assert found["ssl"] is encrypted


@pytest.mark.parametrize("query", ["sslmode=verify-full&sslrootcert={files}/root.crt", "sslrootcert=system"])
def test_name_in_the_certificate_is_compared(
    secure: SecureServer,
    portal: BlockingPortal,
    query: str,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Refusal,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(secure.folder / "root.crt"))
    found = portal.call(_read, secure.url("secure", query, host="localhost"))

    assert found["ssl"] is True
    assert "certificate is not valid for '127.0.0.1'" in refusal(secure.url("secure", query))


async def test_settings_of_the_url_arrive(secure: SecureServer) -> None:
    options = "options=-c%20statement_timeout%3D7s%20--search-path%3Dpg_catalog"
    found = await _read(secure.url("open", f"{options}&application_name=billing"))
    schema = await _read(secure.url("open", 'schema=a"b&application_name=other'))

    assert (found["timeout"], found["path"], found["name"]) == ("7s", "pg_catalog", "billing")
    assert (schema["path"], schema["name"]) == ('"a""b"', "other")


async def test_engine_of_migrations_takes_the_same_parameters(secure: SecureServer) -> None:
    url = secure.url("secure", "sslmode=verify-ca&sslrootcert={files}/root.crt&application_name=migration")
    engine = open_backend(url).open_engine()
    async with engine.connect() as connection:  # type: ignore[union-attr]
        found = await connection.exec_driver_sql("show application_name")
        name = found.scalar_one()
    await engine.dispose()  # type: ignore[misc]

    assert name == "migration"


OF_SERVER = [
    pytest.param("open", "", "ann:wrong", "refused the password", "%40", id="wrong password"),
    pytest.param("open", "", "ann", "asks for a password", "PGPASSWORD", id="no password"),
    pytest.param("secure", "sslmode=disable", None, "without TLS", "sslmode=require", id="TLS required"),
    pytest.param("template1", "", None, "pg_hba.conf does not allow", "scram-sha-256", id="no entry"),
    pytest.param(
        "certified", "", None, "pg_hba.conf does not allow", "sslcert", id="no certificate of the client"
    ),
    pytest.param("closed", "", None, "no right to connect", 'on database "closed" to "ann"', id="no CONNECT"),
    pytest.param("missing", "", None, "no database missing", "psql --list", id="no such database"),
    pytest.param("postgres", "", "bob", "no connection left", "CONNECTION LIMIT", id="too many connections"),
    pytest.param("postgres", "", "eve", "no user eve", 'create role "eve"', id="no such user"),
    pytest.param("postgres", "", "idle", "no user idle", "login", id="user that may not log in"),
    pytest.param(
        "postgres", "options=-c%20nothing%3D1", None, "a setting from the URL", "options", id="setting"
    ),
    pytest.param(
        "postgres", "options=endpoint%3Dx", None, "a setting from the URL", "options", id="endpoint"
    ),
]


@pytest.mark.parametrize(("database", "query", "login", "said", "step"), OF_SERVER)
def test_refusal_of_the_server_names_the_place_and_the_step(
    secure: SecureServer,
    portal: BlockingPortal,
    database: str,
    query: str,
    login: str | None,
    said: str,
    step: str,
    refusal: Refusal,
) -> None:
    url = secure.url(database, query)
    url = url.replace(f"ann:{ENCODED}", login) if login else url
    told = refusal(url)

    user = (login or "ann").partition(":")[0]
    assert told.startswith(f"127.0.0.1:{secure.port}/{database} as {user}: ")
    assert said in told
    assert step in told
    assert portal.call(_text_of_server, url) not in told


async def _text_of_server(url: str) -> str:
    target = destination(url)
    with pytest.raises(asyncpg.PostgresError) as caught:
        await asyncpg.connect(server_settings=dict(target.settings), **target.arguments())
    return str(caught.value)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        pytest.param("sslmode=verify-full", "sslrootcert=system", id="no authority"),
        pytest.param(
            "sslmode=require&sslrootcert={files}/none.crt",
            "none.crt cannot be read: No such file",
            id="missing",
        ),
        pytest.param("sslmode=require&sslrootcert={files}/text.crt", "not in PEM format", id="no PEM"),
        pytest.param("sslmode=require&sslrootcert={files}", "cannot be read", id="folder"),
        pytest.param("sslmode=verify-ca&sslrootcert={files}/other.crt", "cannot be verified", id="untrusted"),
        pytest.param("sslrootcert=system", "cannot be verified", id="untrusted by the system"),
        pytest.param("sslcert={files}/client.crt&sslkey={files}/locked.key", "sslpassword", id="locked key"),
        pytest.param("sslcert={files}/client.crt&sslkey={files}/none.key", "sslkey: the file", id="no key"),
    ],
)
def test_certificate_that_cannot_be_used_is_named(
    secure: SecureServer, query: str, said: str, refusal: Refusal
) -> None:
    told = refusal(secure.url("secure", query))

    assert told.startswith(f"127.0.0.1:{secure.port}/secure as ann: ")
    assert said in told


def test_server_without_tls_is_distinguished_from_one_with_it(
    postgresql_server: PostgresqlServer, refusal: Refusal
) -> None:
    told = refusal(f"{postgresql_server.url}?sslmode=require")

    assert "does not support TLS, which sslmode=require requires" in told


def test_standby_that_takes_no_connections_is_named(secure: SecureServer, refusal: Refusal) -> None:
    told = refusal(f"postgresql://dbtools@127.0.0.1:{secure.starting}/postgres")

    assert "a standby that accepts no connections" in told
    assert "Try again" in told


@contextmanager
def _listener(answer: Answer) -> Iterator[int]:
    """Yield the port of a server that gives each connection *answer*."""
    with socket.create_server(("127.0.0.1", 0)) as bound:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    peer, _ = bound.accept()
                    with peer, suppress(OSError):
                        answer(peer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield bound.getsockname()[1]
        bound.shutdown(socket.SHUT_RDWR)
        thread.join()


def _answer_http(peer: socket.socket) -> None:
    peer.recv(1000)
    peer.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


@pytest.mark.parametrize("query", ["", "?sslmode=disable", "?sslmode=allow"])
def test_port_of_a_web_server_is_no_database(query: str, refusal: Refusal) -> None:
    with _listener(_answer_http) as port:
        told = refusal(f"postgresql://ann@127.0.0.1:{port}/shop{query}")

    assert told.startswith(f"127.0.0.1:{port}/shop as ann: The server closed the connection, or is not")


def test_proxy_that_hangs_is_waited_for_as_long_as_the_url_says(refusal: Refusal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
        told = refusal(f"postgresql://ann@127.0.0.1:{port}/shop?connect_timeout=1")

    assert "did not answer within 1 second" in told
    assert "connect_timeout" in told


def test_expired_certificate_is_named(secure: SecureServer, tmp_path: Path, refusal: Refusal) -> None:
    expired = signed("127.0.0.1", secure.authority, expired=True)
    (tmp_path / "server.pem").write_bytes(expired.certificate_text + expired.key_text())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")

    def answer(peer: socket.socket) -> None:
        peer.recv(8)
        peer.sendall(b"S")
        context.wrap_socket(peer, server_side=True)

    with _listener(answer) as port:
        query = f"sslmode=verify-full&sslrootcert={secure.folder}/root.crt"
        told = refusal(f"postgresql://ann@127.0.0.1:{port}/shop?{query}")

    assert "certificate has expired" in told


def test_unknown_name_and_refused_port_have_different_messages(refusal: Refusal) -> None:
    unknown = refusal("postgresql://ann@nowhere.invalid/shop")
    refused = refusal(f"postgresql://ann@127.0.0.1:{free_port()}/shop")
    socketless = refusal("postgresql://ann@%2Fnowhere/shop")

    assert (
        "nowhere.invalid:5432/shop as ann: The host name nowhere.invalid cannot be resolved (DNS)" in unknown
    )
    assert "nothing listens on this port" in refused
    assert (
        "/nowhere:5432/shop as ann: The server cannot be reached: there is no socket in this folder"
        in socketless
    )


def test_missing_host_of_the_wanted_kind_is_reported(
    postgresql_server: PostgresqlServer, refusal: Refusal
) -> None:
    told = refusal(f"{postgresql_server.url}?target_session_attrs=standby")

    assert "target_session_attrs=standby" in told


def open_sockets() -> set[str]:
    """Return the sockets of this process, by number."""
    files = Path("/proc/self/fd").iterdir()
    return {str(file.readlink()) for file in files if file.is_symlink() and "socket:" in str(file.readlink())}


async def test_refused_login_closes_its_socket_at_once(secure: SecureServer) -> None:
    before = open_sockets()
    with pytest.raises(DatabaseUnavailable):
        await connect(secure.url("missing"))

    await anyio.lowlevel.checkpoint()

    assert open_sockets() <= before


async def test_error_to_the_client_names_no_server_and_the_log_does(secure: SecureServer) -> None:
    backend = open_backend(secure.url("missing"))
    toolbox = Toolbox(resolving(lambda: backend.introspect(Selection()), (Role(),)), None)  # type: ignore[arg-type]
    async with client.connect(build_server(toolbox, Caller(), "")) as peer:
        error = await peer.error("tools/list")
    with pytest.raises(DatabaseUnavailable) as caught:
        await backend.stamp()

    assert error["message"] == str(DatabaseUnavailable())
    assert backend.place in str(caught.value)
