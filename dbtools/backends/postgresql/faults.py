"""Why a connection cannot be opened: the driver's error in, a message with a remedy for operators out.

The server's own message is not passed on: it may quote secrets, in any language. Where the SQLSTATE is
ambiguous, the name of the server's function that raised the error decides.
"""

import errno
import socket
import ssl
from collections.abc import Mapping

import asyncpg

from dbtools.backends.postgresql.urls import Destination
from dbtools.errors import DatabaseUnavailable

Words = tuple[str, str]  #: the problem and the remedy, with {…} for facts of the connection

NO_SERVER = (
    "This is not a PostgreSQL server, or it closed the connection.",
    "Check host and port: PostgreSQL usually listens on 5432.",
)
NO_ENTRY = (
    "The server's pg_hba.conf does not allow {user} to connect to {database} from here.",
    "It may require a client certificate: sslcert=FILE and sslkey=FILE. "
    "Or add this line at the server: host {database} {user} ADDRESS scram-sha-256.",
)
NO_PLAIN_ENTRY = (
    "The server's pg_hba.conf does not allow {user} to connect to {database} from here without TLS.",
    "Ask for TLS: sslmode=require.",
)
NO_SETTING = ("The server rejected a setting from the URL.", "Check its options.")
NO_PASSWORD = (
    "The server asks for a password, and none was given, or a wrong one in a password file.",
    "Set PGPASSWORD, or write postgresql://USER:PASSWORD@HOST/DATABASE.",
)
REFUSED = ("The server refused the connection, with SQLSTATE {state}.", "Its log says why.")
#: By SQLSTATE or its class, and by the function of the server (field R) or none.
STATES: Mapping[str, Words] = {
    "28P01": (
        "The server refused the password.",
        "Check user and password. In a URL, percent-encode all but letters and digits (@ is %40).",
    ),
    "28000 ClientAuthentication": NO_ENTRY,
    "28000 InitializeSessionUserId": (
        "The server has no user {user} with the right to log in.",
        'Check the name, or, as an administrator: create role "{user}" login;',
    ),
    "28000": (
        "The server refused the login.",
        "Its pg_hba.conf asks for a method, such as peer or cert, that does not accept {user}.",
    ),
    "3D000": (
        "The server has no database {database}.",
        "Check the name after the last slash of the URL; `psql --list` shows all databases.",
    ),
    "42501 CheckMyDatabase": (
        "{user} has no right to connect to this database.",
        'As its owner: grant connect on database "{database}" to "{user}";',
    ),
    **dict.fromkeys(("22", "42"), NO_SETTING),
    "53300": (
        "The server, the database or the user has no connection left.",
        "Close some, or raise max_connections, or the CONNECTION LIMIT of {user}.",
    ),
    "57": (
        "The server is starting up or shutting down, or is a standby that accepts no connections.",
        "Try again in a moment. A standby accepts them with hot_standby = on.",
    ),
    "08P01": (
        "The server, or a pooler in front of it, rejected the login or a setting from the URL.",
        "Check user, password and options; its log says more.",
    ),
    "08": NO_SERVER,
}
#: asyncpg's message if the server rejects TLS. It connects without TLS if the URL allows that.
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
#: By X.509 error: 62 and 64 are another name and address, 9 and 10 are not yet and no longer valid.
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
#: By type, for errors of neither the server nor TLS; the first that fits counts.
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
    """Return the error for operators: why *target* cannot be reached."""
    facts = {
        "user": target.user,
        "database": target.database,
        "host": ", ".join(host for host, _ in target.addresses),
        "mode": target.mode,
        "timeout": target.timeout,
        "attrs": target.parameters.get("target_session_attrs"),
        "state": getattr(exc, "sqlstate", None),
    }
    problem, remedy = (each.format(**facts) for each in _words(exc, target))
    return DatabaseUnavailable(f"{target.place}: {problem}", hint=remedy)


def _words(exc: Exception, target: Destination) -> Words:
    if isinstance(exc, asyncpg.PostgresError) and exc.sqlstate:
        return _of_state(exc, exc.sqlstate, target)
    if isinstance(exc, ssl.SSLError):
        return _of_tls(exc)
    if NO_TLS in str(exc):
        return NO_SERVER if target.mode in ("allow", "prefer") else TLS_REFUSED
    if f"[Errno {errno.ECONNREFUSED}]" in str(exc):
        # asyncio merges the errors of several addresses into one.
        return NOT_LISTENING
    return next(words for kind, words in ERRORS.items() if isinstance(exc, kind))


def _of_state(exc: asyncpg.PostgresError, state: str, target: Destination) -> Words:
    if state == "28P01" and "password" not in target.parameters:
        return NO_PASSWORD
    ways = (f"{state} {getattr(exc, 'server_source_function', None)}", state, state[:2])
    words = next((STATES[way] for way in ways if way in STATES), REFUSED)
    return NO_PLAIN_ENTRY if words is NO_ENTRY and target.mode == "disable" else words


def _of_tls(exc: ssl.SSLError) -> Words:
    if isinstance(exc, ssl.SSLCertVerificationError):
        return CERTIFICATES.get(exc.verify_code, UNTRUSTED)
    if "CERTIFICATE_REQUIRED" in (exc.reason or ""):
        return NO_CERTIFICATE
    # Loading a file fails without a reason, or with one of X.509.
    return NO_PEM if exc.library == "X509" or not exc.reason else NO_HANDSHAKE
