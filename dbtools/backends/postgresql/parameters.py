"""What may stand in a URL of PostgreSQL: each parameter of libpq and of clients, and who acts on it."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple


class By(StrEnum):
    """Who acts on a parameter."""

    DRIVER = "asyncpg"
    DBTOOLS = "dbtools"
    NOBODY = "nobody"


class Parameter(NamedTuple):
    """A parameter of a URL."""

    by: By
    variable: str = ""  #: of the environment, where the URL does not have it
    values: Sequence[str] = ()  #: all that it may be
    why: str = ""  #: other values, or all where there are none, are refused


NO_SUCH = "asyncpg, the driver, does not support this"
NO_GSS = "asyncpg, the driver, does not support GSSAPI encryption; sslmode asks for TLS"
NO_BINDING = (
    "asyncpg, the driver, does not support channel binding. Remove the parameter; "
    "sslmode=verify-full with sslrootcert=system, or a file, verifies the server as well"
)
ON_OFF = ("0", "1")
MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
STATES = ("any", "read-write", "read-only", "primary", "standby", "prefer-standby")
VERSIONS = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
#: All that is known: https://www.postgresql.org/docs/current/libpq-connect.html, and what clients add to it.
PARAMETERS: Mapping[str, Parameter] = {
    "host": Parameter(By.DBTOOLS, "PGHOST"),
    "hostaddr": Parameter(By.DBTOOLS, "PGHOSTADDR"),
    "port": Parameter(By.DBTOOLS, "PGPORT"),
    "dbname": Parameter(By.DBTOOLS, "PGDATABASE"),
    "database": Parameter(By.DBTOOLS),
    "user": Parameter(By.DBTOOLS, "PGUSER"),
    "password": Parameter(By.DBTOOLS, "PGPASSWORD"),
    "passfile": Parameter(By.DRIVER, "PGPASSFILE"),
    "sslmode": Parameter(By.DRIVER, "PGSSLMODE", MODES),
    "ssl": Parameter(By.DBTOOLS, "", ("true", "false", *MODES)),
    "requiressl": Parameter(By.DBTOOLS, "PGREQUIRESSL", ON_OFF),
    "sslrootcert": Parameter(By.DRIVER, "PGSSLROOTCERT"),
    "sslcert": Parameter(By.DRIVER, "PGSSLCERT"),
    "sslkey": Parameter(By.DRIVER, "PGSSLKEY"),
    "sslpassword": Parameter(By.DRIVER, "PGSSLPASSWORD"),
    "sslcrl": Parameter(By.DRIVER, "PGSSLCRL"),
    "ssl_min_protocol_version": Parameter(By.DRIVER, "PGSSLMINPROTOCOLVERSION", VERSIONS),
    "ssl_max_protocol_version": Parameter(By.DRIVER, "PGSSLMAXPROTOCOLVERSION", VERSIONS),
    "sslnegotiation": Parameter(By.DRIVER, "PGSSLNEGOTIATION", ("postgres", "direct")),
    "target_session_attrs": Parameter(By.DRIVER, "PGTARGETSESSIONATTRS", STATES),
    "krbsrvname": Parameter(By.DRIVER, "PGKRBSRVNAME"),
    "gsslib": Parameter(By.DRIVER, "PGGSSLIB", ("gssapi", "sspi")),
    "connect_timeout": Parameter(By.DBTOOLS, "PGCONNECT_TIMEOUT"),
    "options": Parameter(By.DBTOOLS, "PGOPTIONS"),
    "schema": Parameter(By.DBTOOLS),
    "search_path": Parameter(By.DBTOOLS),
    "statement_timeout": Parameter(By.DBTOOLS),
    "application_name": Parameter(By.DBTOOLS, "PGAPPNAME"),
    "fallback_application_name": Parameter(By.DBTOOLS),
    "load_balance_hosts": Parameter(By.DBTOOLS, "PGLOADBALANCEHOSTS", ("disable", "random")),
    "keepalives": Parameter(By.DBTOOLS, "", ON_OFF),
    "keepalives_idle": Parameter(By.DBTOOLS),
    "keepalives_interval": Parameter(By.DBTOOLS),
    "keepalives_count": Parameter(By.DBTOOLS),
    "tcp_user_timeout": Parameter(By.DBTOOLS),
    "service": Parameter(By.DBTOOLS, "PGSERVICE"),
    "servicefile": Parameter(By.DBTOOLS, "PGSERVICEFILE"),
    "pgbouncer": Parameter(By.NOBODY, "", ("true", "false")),
    **dict.fromkeys(
        ("connection_limit", "pool_timeout", "socket_timeout", "sslaccept", "sslidentity"),
        Parameter(By.NOBODY, why="it is for Prisma alone: remove it"),
    ),
    "sslcompression": Parameter(By.NOBODY, "PGSSLCOMPRESSION", ON_OFF),
    "client_encoding": Parameter(
        By.NOBODY, "PGCLIENTENCODING", ("auto", "utf8", "UTF8", "utf-8", "UTF-8"), "dbtools reads UTF-8"
    ),
    "gssencmode": Parameter(By.NOBODY, "PGGSSENCMODE", ("disable", "prefer"), NO_GSS),
    "gssdelegation": Parameter(By.NOBODY, "PGGSSDELEGATION", ("0",), NO_SUCH),
    "channel_binding": Parameter(By.NOBODY, "PGCHANNELBINDING", ("disable", "prefer"), NO_BINDING),
    "sslsni": Parameter(By.NOBODY, "PGSSLSNI", ("1",), "asyncpg, the driver, always sends the name"),
    "sslcertmode": Parameter(By.NOBODY, "PGSSLCERTMODE", ("allow",), NO_SUCH),
    "min_protocol_version": Parameter(By.NOBODY, "PGMINPROTOCOLVERSION", ("3.0",), NO_SUCH),
    "max_protocol_version": Parameter(By.NOBODY, "PGMAXPROTOCOLVERSION", ("3.0", "3.2", "latest")),
    "replication": Parameter(By.NOBODY, "", ("false", "off", "no", "0"), "dbtools does not replicate"),
    "require_auth": Parameter(By.NOBODY, "PGREQUIREAUTH", (), NO_SUCH),
    "requirepeer": Parameter(By.NOBODY, "PGREQUIREPEER", (), NO_SUCH),
    "sslcrldir": Parameter(By.NOBODY, "PGSSLCRLDIR", (), f"{NO_SUCH}: name one file in sslcrl"),
    "sslkeylogfile": Parameter(By.NOBODY, "", (), "the variable SSLKEYLOGFILE names this file"),
    "scram_client_key": Parameter(By.NOBODY, "", (), NO_SUCH),
    "scram_server_key": Parameter(By.NOBODY, "", (), NO_SUCH),
    "oauth_issuer": Parameter(By.NOBODY, "", (), NO_SUCH),
    "oauth_client_id": Parameter(By.NOBODY, "", (), NO_SUCH),
    "oauth_client_secret": Parameter(By.NOBODY, "", (), NO_SUCH),
    "oauth_scope": Parameter(By.NOBODY, "", (), NO_SUCH),
}
#: Settings of the server that drivers of other languages take by themselves.
SETTINGS_ALONE = ("search_path", "statement_timeout")
SECRETS = ("password", "sslpassword")
NUMBERS = (
    *("connect_timeout", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"),
)
FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
#: What the driver reads of TLS, from a URL of its own.
TLS = (*FILES, "sslmode", "sslpassword", "ssl_min_protocol_version", "ssl_max_protocol_version")
#: Other names of a parameter, and what their values mean.
SYNONYMS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "database": ("dbname", {}),
    "ssl": ("sslmode", {"true": "require", "false": "disable"}),
    "requiressl": ("sslmode", {"1": "require", "0": "prefer"}),
}
SYSTEM = "system"  #: as sslrootcert: the authorities that the operating system trusts
