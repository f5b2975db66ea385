"""PostgreSQL URLs, as libpq and hosting companies write them. A URL in, arguments for the driver out."""

import getpass
import os
import random
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from dbtools.backends.urls import UrlParameter, check_name, check_value
from dbtools.errors import ConfigurationError, DatabaseUnavailable

CONNECT_TIMEOUT = 10.0  #: seconds, the default of connect_timeout
PORT = 5432
ROOT = "~/.postgresql/root.crt"  #: the default file of libpq
MOST_PORTS = 2**16
SYSTEM_AUTHORITIES = "system"  #: as sslrootcert: the authorities that the system trusts
SETTINGS = {
    "application_name": "dbtools",
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",  # as dbtools parses operators' SQL
    "lock_timeout": "5003",  # an unusual value that shows whether a pooler passes settings on
    "idle_in_transaction_session_timeout": "60000",
}
#: Settings that a URL cannot change.
FIXED = {*SETTINGS, "client_encoding", "session_authorization"} - {"application_name"}


NO_SUCH = "asyncpg, the driver, does not support this"
NO_GSS = "asyncpg, the driver, does not support GSSAPI encryption; use sslmode for TLS"
NO_BINDING = (
    "asyncpg, the driver, does not support channel binding. Remove the parameter; "
    "sslmode=verify-full with sslrootcert=system, or a file, verifies the server as well"
)
SSL = {"true": "require", "false": "disable"}  #: values of ssl, as values of sslmode
MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
SERVER_STATES = ("any", "read-write", "read-only", "primary", "standby", "prefer-standby")
STANDBYS = ("standby", "prefer-standby")
STANDBY = "target_session_attrs={} in the URL: answers come from a standby, which may be behind its primary."
VERSIONS = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
#: The parameters of libpq (https://www.postgresql.org/docs/current/libpq-connect.html) and of other clients.
PARAMETERS: Mapping[str, UrlParameter] = {
    **{
        name: UrlParameter(f"PG{name.upper()}")
        for name in (
            *("host", "port", "user", "password", "passfile", "options", "sslrootcert"),
            *("sslcert", "sslkey", "sslpassword", "sslcrl", "krbsrvname"),
        )
    },
    "dbname": UrlParameter("PGDATABASE"),
    "sslmode": UrlParameter("PGSSLMODE", MODES),
    "ssl": UrlParameter("", (*SSL, *MODES)),
    "ssl_min_protocol_version": UrlParameter("PGSSLMINPROTOCOLVERSION", VERSIONS),
    "ssl_max_protocol_version": UrlParameter("PGSSLMAXPROTOCOLVERSION", VERSIONS),
    "sslnegotiation": UrlParameter("PGSSLNEGOTIATION", ("postgres", "direct")),
    "target_session_attrs": UrlParameter("PGTARGETSESSIONATTRS", SERVER_STATES),
    "load_balance_hosts": UrlParameter("PGLOADBALANCEHOSTS", ("disable", "random")),
    "gsslib": UrlParameter("PGGSSLIB", ("gssapi", "sspi")),
    "connect_timeout": UrlParameter("PGCONNECT_TIMEOUT"),
    "schema": UrlParameter(),
    "application_name": UrlParameter("PGAPPNAME"),
    "pgbouncer": UrlParameter("", ("true", "false"), "dbtools detects a pooler by itself"),
    "client_encoding": UrlParameter(
        "PGCLIENTENCODING", ("auto", "utf8", "UTF8", "utf-8", "UTF-8"), "dbtools reads UTF-8"
    ),
    "gssencmode": UrlParameter("PGGSSENCMODE", ("disable", "prefer"), NO_GSS),
    "channel_binding": UrlParameter("PGCHANNELBINDING", ("disable", "prefer"), NO_BINDING),
    "sslsni": UrlParameter("PGSSLSNI", ("1",), "asyncpg, the driver, always sends the name"),
    "service": UrlParameter("PGSERVICE", (), "dbtools reads no service files"),
    "hostaddr": UrlParameter("PGHOSTADDR", (), "asyncpg, the driver, takes the address as host"),
    "require_auth": UrlParameter("PGREQUIREAUTH", (), NO_SUCH),
    "requirepeer": UrlParameter("PGREQUIREPEER", (), NO_SUCH),
    "sslcrldir": UrlParameter("PGSSLCRLDIR", (), f"{NO_SUCH}: name one file in sslcrl"),
}
OPTIONS_HINT = "A setting of the server goes in options=-c%20NAME%3DVALUE."
SECRETS = ("password", "sslpassword")
FILE_PARAMETERS = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
PLACES = (*FILE_PARAMETERS, "passfile")
#: Passed to the driver as arguments, and in a URL.
DRIVER_ARGUMENTS = ("password", "passfile", "target_session_attrs", "krbsrvname", "gsslib")
TLS = (
    *(*FILE_PARAMETERS, "sslmode", "sslpassword", "sslnegotiation"),
    *("ssl_min_protocol_version", "ssl_max_protocol_version"),
)
SCHEME = r"[a-zA-Z]+(?:\+\w+)?://"
#: The characters @ / ? # end a component (RFC 3986, 3.2.1).
URL = re.compile(
    rf"(?:{SCHEME})?(?:(?P<user>[^:@/?#\[\]]*)(?::(?P<password>[^@/?#\[\]]*))?@)?"
    r"(?P<hosts>[^@/?#]*)(?:/(?P<dbname>[^@?#]*))?(?:\?(?P<query>[^#]*))?"
)
BROKEN = re.compile("%(?![0-9A-Fa-f]{2})|%00")
HOST = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::(.*))?")
URL_WORDS = re.compile(r"(?:\\.|\S)+")
SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


@dataclass(frozen=True, kw_only=True)
class Destination:
    """The parameters of a URL and the environment together."""

    parameters: Mapping[str, str]  #: by the names of PARAMETERS

    @property
    def place(self) -> str:
        """The host, port, database and user, for messages."""
        places = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.addresses]
        return f"{','.join(places)}/{self.database} as {self.user}"

    @cached_property
    def user(self) -> str:
        """The name of the user."""
        try:
            return self.parameters.get("user") or getpass.getuser()
        except (KeyError, OSError) as exc:
            hint = "Write postgresql://USER@HOST/DATABASE, or set PGUSER."
            raise ConfigurationError("The database's URL names no user.", hint=hint) from exc

    @property
    def database(self) -> str:
        """The name of the database."""
        return self.parameters.get("dbname") or self.user

    @cached_property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """The hosts, or folders of sockets, with their ports."""
        hosts = self.parameters.get("host", "localhost").split(",")
        ports = [_port(each) for each in self.parameters.get("port", "").split(",")]
        if len(ports) not in (1, len(hosts)):
            raise ConfigurationError("The database's URL must have one port, or one for each host.")
        return list(zip(hosts, ports * len(hosts), strict=False))

    @property
    def mode(self) -> str:
        """The effective sslmode."""
        strictest = self.parameters.get("sslrootcert") == SYSTEM_AUTHORITIES
        return self.parameters.get("sslmode", "verify-full" if strictest else "prefer")

    @property
    def warnings(self) -> tuple[str, ...]:
        """What parameters of the URL do to answers."""
        state = self.parameters.get("target_session_attrs", "")
        return (STANDBY.format(state),) if state in STANDBYS else ()

    @property
    def timeout(self) -> float:
        """Seconds that opening a connection may take."""
        return max(0.0, float(self.parameters.get("connect_timeout", 0))) or CONNECT_TIMEOUT

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """The settings of a session."""
        named, words = _options(self.parameters.get("options", ""))
        found = {**SETTINGS, **named}
        if "application_name" in self.parameters:
            found["application_name"] = self.parameters["application_name"]
        if "schema" in self.parameters:
            found.setdefault("search_path", '"{}"'.format(self.parameters["schema"].replace('"', '""')))
        # The other words, such as Neon's endpoint=…, are for a proxy.
        return {**found, "options": " ".join(words)} if words else found

    def arguments(self) -> dict[str, Any]:
        """Return arguments for the driver, or raise DatabaseUnavailable if a file cannot be read."""
        is_random = self.parameters.get("load_balance_hosts") == "random"
        pairs = random.sample(self.addresses, len(self.addresses)) if is_random else self.addresses
        return {
            # Without a host, the driver looks for a socket first.
            "host": [host for host, _ in pairs] if "host" in self.parameters else None,
            "port": [port for _, port in pairs] if "host" in self.parameters else pairs[0][1],
            "user": self.user,
            "database": self.database,
            "timeout": self.timeout,
            **{name: self.parameters[name] for name in DRIVER_ARGUMENTS if name in self.parameters},
            **self._tls(),
        }

    def _tls(self) -> dict[str, Any]:
        given = {name: self.parameters[name] for name in TLS if name in self.parameters}
        if self.mode != "disable":
            self._check_files()
        if self.parameters.get("sslrootcert") != SYSTEM_AUTHORITIES:
            return {"dsn": f"postgresql:///?{urlencode(given)}"}
        context = ssl.create_default_context()
        context.set_alpn_protocols(["postgresql"])
        for name, end in (("min", "minimum"), ("max", "maximum")):
            if version := given.get(f"ssl_{name}_protocol_version"):
                setattr(context, f"{end}_version", ssl.TLSVersion[version.replace(".", "_")])
        if "sslcert" in given:
            context.load_cert_chain(given["sslcert"], given.get("sslkey"), given.get("sslpassword", ""))
        return {"ssl": context, "direct_tls": given.get("sslnegotiation") == "direct"}

    def _check_files(self) -> None:
        """Raise DatabaseUnavailable if a file that TLS needs cannot be read."""
        for name in FILE_PARAMETERS:
            file = self.parameters.get(name, SYSTEM_AUTHORITIES)
            try:
                _ = file == SYSTEM_AUTHORITIES or Path(file).read_bytes()
            except OSError as exc:
                message = f"{self.place}: {name}: the file {file} cannot be read: {exc.strerror}."
                raise DatabaseUnavailable(message) from exc
        known = "sslrootcert" in self.parameters or os.path.exists(os.path.expanduser(ROOT))
        if self.mode.startswith("verify-") and not known:
            raise DatabaseUnavailable(
                f"{self.place}: sslmode={self.mode} requires the certificate of a trusted authority.",
                hint="Add sslrootcert=FILE, or sslrootcert=system for a public authority.",
            )


def destination(url: str) -> Destination:
    """Return the destination of *url*, or raise ConfigurationError, which never quotes a password."""
    environment = {
        name: os.environ[each.variable]
        for name, each in PARAMETERS.items()
        if each.variable and os.environ.get(each.variable)
    }
    found = Destination(
        parameters={**_canonical_parameters(environment), **_canonical_parameters(_parameters_of(url))}
    )
    _ = found.addresses, found.settings, found.user
    is_complete = found.mode == "verify-full" and "sslcrl" not in found.parameters
    if found.parameters.get("sslrootcert") == SYSTEM_AUTHORITIES and not is_complete:
        raise ConfigurationError("sslrootcert=system requires sslmode=verify-full, and takes no sslcrl.")
    if found.parameters.get("sslnegotiation") == "direct" and found.mode in MODES[: MODES.index("require")]:
        raise ConfigurationError("sslnegotiation=direct requires sslmode=require or stricter.")
    return found


def _parameters_of(url: str) -> dict[str, str]:
    """Return the parameters in all components of *url*."""
    found = URL.fullmatch(url)
    query = [each.partition("=") for each in (found["query"] or "").split("&") if each] if found else []
    # A raw question mark in a password makes the rest of it look like a parameter.
    is_cut = any("@" in name or ("@" in value and name not in PARAMETERS) for name, _, value in query)
    if found is None or is_cut or BROKEN.search(url):
        raise ConfigurationError(
            "The database's URL cannot be read: a character of the user name or password must be encoded.",
            hint="Write @ as %40, / as %2F, ? as %3F, # as %23, % as %25, [ as %5B, ] as %5D.",
        )
    parts = {name: found[name] for name in ("user", "password", "dbname")} | _addresses(found["hosts"])
    # libpq takes a plus sign literally. Other clients write spaces as plus signs; only options contain any.
    named = {
        unquote(name): unquote(value.replace("+", " ") if name == "options" else value)
        for name, _, value in query
    }
    for name in named:
        check_name(name, PARAMETERS, OPTIONS_HINT)
    return {**{name: unquote(value) for name, value in parts.items() if value}, **named}


def _addresses(text: str) -> dict[str, str]:
    """Return the hosts and ports in *text*, each separated by commas."""
    found = [HOST.fullmatch(each) for each in text.split(",")] if text else []
    if not all(found):
        raise ConfigurationError("The host in the database's URL cannot be read.")
    pairs = [(each[1].strip("[]"), each[2] or "") for each in found if each]
    hosts, ports = ",".join(host for host, _ in pairs), [port for _, port in pairs]
    return {"host": hosts, "port": ",".join(each or str(PORT) for each in ports) if any(ports) else ""}


def _port(text: str) -> int:
    if not re.fullmatch("[0-9]{0,5}", text) or not 0 < int(text or PORT) < MOST_PORTS:
        raise ConfigurationError("The port in the database's URL is not a port number.")
    return int(text or PORT)


def _canonical_parameters(given: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters *given* with ssl as sslmode, or raise ConfigurationError for a bad value."""
    canonical = {name: value for name, value in given.items() if value}
    for name, value in canonical.items():
        _check_value(name, value)
    if "ssl" in canonical:
        mode = canonical.pop("ssl")
        canonical.setdefault("sslmode", SSL.get(mode, mode))
    return canonical


def _check_value(name: str, value: str) -> None:
    if name == "connect_timeout" and not re.fullmatch(r"\s*[-+]?\d{1,9}\s*", value):
        raise ConfigurationError(f"{name}: the database's URL must have a whole number here.")
    check_value(name, value, PARAMETERS[name])


def _options(text: str) -> tuple[dict[str, str], list[str]]:
    """Return the settings in *text* (`-c name=value`, `--name=value`), and the other words."""
    settings, rest = {}, []
    words = iter(re.sub(r"\\(.)", r"\1", word) for word in URL_WORDS.findall(text))
    for word in words:
        setting = next(words, "") if word == "-c" else re.sub("^(-c|--)", "", word)
        name, equals, value = setting.partition("=")
        name = name.replace("-", "_")
        if not equals or not SETTING.fullmatch(name):
            hint = "Write -c name=value, any number of times."
            raise ConfigurationError(f"options: {word} in the database's URL is not a setting.", hint=hint)
        if not word.startswith("-"):
            rest.append(word)
        elif name.lower() in FIXED:
            raise ConfigurationError(f"options: dbtools sets {name} itself. Remove it from the URL.")
        else:
            settings[name] = value
    return settings, rest


def without_password(url: str) -> tuple[str, Mapping[str, str]]:
    """Return *url* without passwords, and the variables that replace them and that libpq reads."""
    parts = urlsplit(with_full_paths(url, Path.cwd()))
    login, at, host = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    options = [each.partition("=") for each in parts.query.split("&") if each]
    secrets = {name: unquote(value) for name, _, value in options if name in SECRETS}
    secrets |= {"password": unquote(password)} if password else {}
    query = "&".join("".join(each) for each in options if each[0] not in SECRETS)
    known = sorted({each.variable for each in PARAMETERS.values() if os.environ.get(each.variable)})
    secret = {PARAMETERS[name].variable: value for name, value in secrets.items() if value}
    shared = f"{parts.scheme}://{user}{at}{host}{parts.path}{'?' if query else ''}{query}"
    return shared, {**{name: os.environ[name] for name in known}, **secret}


def with_full_paths(url: str, folder: Path) -> str:
    """Return *url* with absolute paths of files; relative ones are relative to *folder*."""
    rest, mark, query = url.partition("?")
    options = [each.partition("=") for each in query.split("&")]
    full = (
        f"{name}={quote(str(folder.absolute() / unquote(value)))}"
        if name in PLACES and value not in ("", SYSTEM_AUTHORITIES)
        else f"{name}{equals}{value}"
        for name, equals, value in options
    )
    return f"{rest}{mark}{'&'.join(full)}"
