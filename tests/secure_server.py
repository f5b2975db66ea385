"""A PostgreSQL server with TLS, passwords, and lines of pg_hba.conf that reject; and certificates for it."""

import datetime
import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from anyio.from_thread import BlockingPortal
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from tests.postgresql_server import LOGIN, execute, open_cluster

PASSWORD = "sec ret@1"
ENCODED = "sec%20ret%401"
KEY_PASSWORD = "of the key"
#: Who may connect to which database, and how.
HBA = """
host    postgres   all  127.0.0.1/32  trust
host    closed     all  127.0.0.1/32  trust
host    open       all  127.0.0.1/32  scram-sha-256
hostssl secure     all  127.0.0.1/32  scram-sha-256
hostssl certified  all  127.0.0.1/32  trust  clientcert=verify-ca
host    missing    all  127.0.0.1/32  trust
"""
SETUP = f"""
create role ann login password '{PASSWORD}';
create role bob login connection limit 0;
create role idle nologin;
create database open;
create database secure owner ann;
create database certified;
create database closed;
revoke connect on database closed from public;
"""
NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Signed:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_text(self) -> bytes:
        """The certificate in PEM."""
        return self.certificate.public_bytes(Encoding.PEM)

    def key_text(self, password: str = "") -> bytes:
        """Return the key in PEM, encrypted with *password* where there is one."""
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def signed(name: str, authority: Signed | None = None, *, expired: bool = False) -> Signed:
    """Return a certificate for *name*, signed by *authority*, or one of an authority itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer = authority.certificate.subject if authority else subject
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - 3 * DAY)
        .not_valid_after(NOW + (-DAY if expired else DAY))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_alternative(name)]), critical=False)
    )
    return Signed(certificate=builder.sign(authority.key if authority else key, hashes.SHA256()), key=key)


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name.replace(" ", "-"))


@dataclass(frozen=True, kw_only=True)
class SecureServer:
    """The running server, whose certificate is for localhost, and files for its clients."""

    port: int
    starting: int  #: the port of a standby that takes no connections
    folder: Path  #: with root.crt, client.crt, client.key, locked.key and other.crt
    authority: Signed

    def url(self, database: str, query: str = "", *, user: str = "ann", host: str = "127.0.0.1") -> str:
        """Return a URL of this server; {files} in *query* is the folder of files."""
        return (
            f"postgresql://{user}:{ENCODED}@{host}:{self.port}/{database}?{query.format(files=self.folder)}"
        )


@contextmanager
def open_secure_server(portal: BlockingPortal, folder: Path) -> Iterator[SecureServer]:
    """Start the server and its standby, give them with files in *folder*, and stop them in the end."""
    authority = signed("test authority")
    _write_files(folder, authority)
    server = signed("localhost", authority)
    with open_cluster(tls=True) as cluster:
        cluster.write("server.crt", server.certificate_text)
        cluster.write("server.key", server.key_text())
        cluster.write("root.crt", authority.certificate_text)
        standby = cluster.copied("standby")
        standby.write("standby.signal", b"")
        cluster.write("pg_hba.conf", HBA.encode())
        port = cluster.start("ssl=on", "ssl_ca_file=root.crt")
        try:
            starting = standby.start("hot_standby=off")
            try:
                portal.call(_set_up, f"postgresql://{LOGIN}@127.0.0.1:{port}/postgres")
                yield SecureServer(port=port, starting=starting, folder=folder, authority=authority)
            finally:
                standby.stop()
        finally:
            cluster.stop()


async def _set_up(url: str) -> None:
    for statement in filter(str.strip, SETUP.split(";")):
        await execute(url, statement)


def _write_files(folder: Path, authority: Signed) -> None:
    client = signed("client", authority)
    (folder / "root.crt").write_bytes(authority.certificate_text)
    (folder / "other.crt").write_bytes(signed("another authority").certificate_text)
    (folder / "client.crt").write_bytes(client.certificate_text)
    (folder / "client.key").write_bytes(client.key_text())
    (folder / "locked.key").write_bytes(client.key_text(KEY_PASSWORD))
    (folder / "text.crt").write_text("no certificate")
