"""What keeps a connection from being opened: the driver's error in, words for operators out, with a remedy.

The server's own text is in none of them: it may quote what nobody else is to read, in any language. Where it
says what a code alone does not, the name of the server's function that raised it does as well.
"""

import errno
import socket
import ssl
from collections.abc import Mapping

import asyncpg

from dbtools.backends.plans import identifier
from dbtools.backends.postgresql.urls import Destination
from dbtools.errors import DatabaseUnavailable

NO_SERVER = (
    "This is not a PostgreSQL server, or it closed the connection.",
    "Check host and port: PostgreSQL usually listens on 5432.",
)
NOT_READY = (
    "The server is starting up or shutting down, or is a standby that accepts no connections.",
    "Try again in a moment. A standby accepts them with hot_standby = on.",
)
NO_ENTRY = (
    "The server's pg_hba.conf does not allow {user} to connect to {database} from here{plainly}.",
    "{tls}Or add this line at the server: host {database} {user} ADDRESS scram-sha-256.",
)
NO_SETTING = ("The server rejected a setting from the URL.", "Check its options.")

Words = tuple[str, str]  #: what is the matter, and what to do; {…} stand for the connection's own
#: By SQLSTATE, or by its class, and where one is not enough by the function of the server (its field R).
STATES: Mapping[tuple[str, str], Words] = {
    ("28P01", ""): (
        "The server refused the password.",
        "Check user and password. In a URL, percent-encode all but letters and digits (@ is %40).",
    ),
    ("28000", "ClientAuthentication"): NO_ENTRY,
    ("28000", "InitializeSessionUserId"): (
        "The server has no user {user} with the right to log in.",
        "Check the name, or, as an administrator: create role {user_name} login;",
    ),
    ("28000", ""): (
        "The server refused the login.",
        "Its pg_hba.conf asks for a method, such as peer or cert, that does not accept {user}.",
    ),
    ("3D000", ""): (
        "The server has no database {database}.",
        "Check the name after the last slash of the URL; `psql --list` shows all databases.",
    ),
    ("42501", "CheckMyDatabase"): (
        "{user} has no right to connect to this database.",
        "As its owner: grant connect on database {database_name} to {user_name};",
    ),
    ("42501", ""): NO_SETTING,
    ("22", ""): NO_SETTING,
    ("42", ""): NO_SETTING,
    ("53300", ""): (
        "The server, the database or the user has no connection left.",
        "Close some, or raise max_connections, or the CONNECTION LIMIT of {user}.",
    ),
    ("57", ""): NOT_READY,
    ("08P01", ""): (
        "The server, or a pooler in front of it, rejected the login or a setting from the URL.",
        "Check user, password and options; its log says more.",
    ),
    ("08", ""): NO_SERVER,
}
REFUSED = ("The server refused the connection, with SQLSTATE {state}.", "Its log says why.")
NO_PASSWORD = (
    "The server asks for a password, and none was given, or a wrong one in a password file.",
    "Set PGPASSWORD, or write postgresql://USER:PASSWORD@HOST/DATABASE.",
)
#: What asyncpg says where the server takes no TLS. It goes on without where the URL allows that.
NO_TLS = "rejected SSL upgrade"
TLS_REFUSED = (
    "The server does not support TLS, which sslmode={mode} requires.",
    "Set ssl = on at the server, or, in a trusted network, sslmode=prefer.",
)
MISMATCH = (
    "The server's certificate is not valid for {host}.",
    "Connect by a name in the certificate, or, without comparing names, with sslmode=verify-ca.",
)
EXPIRED = ("The server's certificate has expired or is not valid yet.", "Renew it, or set the clock.")
#: By the codes of X.509: another name or address; not yet valid, or not any more.
CERTIFICATES: Mapping[int, Words] = {62: MISMATCH, 64: MISMATCH, 9: EXPIRED, 10: EXPIRED}
UNTRUSTED = (
    "The server's certificate is not signed by a trusted authority.",
    "Name the authority's certificate: sslrootcert=FILE, or sslrootcert=system for a public one.",
)
NO_CERTIFICATE = (
    "The server requires a client certificate.",
    "Name it and its key: sslcert=FILE and sslkey=FILE.",
)
NO_PEM = (
    "A certificate or key is not in PEM format, or the key does not fit the certificate.",
    "Check sslrootcert, sslcrl, sslcert and sslkey, and the key's sslpassword.",
)
NO_HANDSHAKE = (
    "The TLS handshake with the server failed.",
    "Check the port, sslnegotiation and ssl_min_protocol_version.",
)
NOT_LISTENING = (
    "The server cannot be reached: nothing listens on this port.",
    "Is PostgreSQL running, are host and port right?",
)
#: Of other errors than the server's and those of TLS: the first whose type fits.
ERRORS: Mapping[type[Exception], Words] = {
    socket.gaierror: (
        "The host name {host} cannot be resolved (DNS).",
        "Check its spelling and the network.",
    ),
    ConnectionRefusedError: NOT_LISTENING,
    TimeoutError: (
        "The server did not answer within {timeout:g} seconds.",
        "Check host, port and firewall; connect_timeout=SECONDS in the URL allows more time.",
    ),
    FileNotFoundError: (
        "The server cannot be reached: there is no socket in this folder.",
        "Is it running on this machine?",
    ),
    asyncpg.TargetServerAttributeNotMatched: (
        "No host matches target_session_attrs={attrs}.",
        "Name more hosts, or remove it.",
    ),
    ConnectionError: NO_SERVER,
    asyncpg.InternalClientError: NO_SERVER,
    asyncpg.ClientConfigurationError: (
        "asyncpg, the driver, rejects this URL.",
        "Check its parameters, and the PG… variables of the environment.",
    ),
    asyncpg.InterfaceError: (
        "The server asks for an authentication method that asyncpg, the driver, does not support.",
        "It supports scram-sha-256, md5 and certificates.",
    ),
    Exception: ("The server cannot be reached.", "Is it running, are host, port and network right?"),
}


def unavailable(exc: Exception, target: Destination) -> DatabaseUnavailable:
    """Return what keeps *target* from being reached, without the server's words."""
    if isinstance(exc, asyncpg.PostgresError) and exc.sqlstate:
        message, hint = _of_state(exc, target)
    elif isinstance(exc, ssl.SSLError):
        message, hint = _of_tls(exc)
    elif NO_TLS in str(exc):
        message, hint = NO_SERVER if target.mode in ("allow", "prefer") else TLS_REFUSED
    elif f"[Errno {errno.ECONNREFUSED}]" in str(exc):
        # A name with several addresses has one error for all.
        message, hint = NOT_LISTENING
    else:
        message, hint = next(words for kind, words in ERRORS.items() if isinstance(exc, kind))
    words = _own(exc, target)
    return DatabaseUnavailable(f"{target.place}: {message.format(**words)}", hint=hint.format(**words))


def _of_state(exc: asyncpg.PostgresError, target: Destination) -> Words:
    state, function = exc.sqlstate or "", getattr(exc, "server_source_function", None) or ""
    if state == "28P01" and "password" not in target.parameters:
        return NO_PASSWORD
    ways = ((state, function), (state, ""), (state[:2], ""))
    return next((STATES[way] for way in ways if way in STATES), REFUSED)


def _of_tls(exc: ssl.SSLError) -> Words:
    if isinstance(exc, ssl.SSLCertVerificationError):
        return CERTIFICATES.get(exc.verify_code, UNTRUSTED)
    if "CERTIFICATE_REQUIRED" in (exc.reason or ""):
        return NO_CERTIFICATE
    # What fails before there is a handshake has no reason, or one of X.509.
    return NO_PEM if exc.library == "X509" or not exc.reason else NO_HANDSHAKE


def _own(exc: Exception, target: Destination) -> Mapping[str, object]:
    """Return what the words for *exc* may name of *target*."""
    is_plain = target.mode == "disable"
    wanted = (
        ""
        if "sslcert" in target.parameters
        else "It may require a client certificate: sslcert=FILE and sslkey=FILE. "
    )
    return {
        "user": target.user,
        "user_name": identifier(target.user),
        "database": target.database,
        "database_name": identifier(target.database),
        "host": ", ".join(host for host, _ in target.addresses),
        "mode": target.mode,
        "timeout": target.timeout,
        "attrs": target.parameters.get("target_session_attrs", "any"),
        "state": getattr(exc, "sqlstate", ""),
        "plainly": " without TLS" if is_plain else "",
        "tls": "Ask for TLS: sslmode=require. " if is_plain else wanted,
    }
