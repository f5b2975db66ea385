"""URLs of PostgreSQL, as libpq and hosting companies write them. A URL in, what the driver takes out."""

import getpass
import os
import random
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from configparser import Error as FormatError, RawConfigParser
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from dbtools.backends.postgresql.parameters import (
    FILES,
    MODES,
    NUMBERS,
    PARAMETERS,
    SECRETS,
    SETTINGS_ALONE,
    SYNONYMS,
    SYSTEM,
    TLS,
)
from dbtools.errors import ConfigurationError, DatabaseUnavailable, listing, nearest

CONNECT_TIMEOUT = 10.0  #: seconds, unless connect_timeout says otherwise
PORT = 5432
ROOT, SERVICES = "~/.postgresql/root.crt", "~/.pg_service.conf"  #: where libpq looks
MOST_PORTS = 2**16
SETTINGS = {
    "application_name": "dbtools",
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",  # the conditions of operators are read so
    "lock_timeout": "5003",  # shows whether settings arrive: nobody else sets it so
    "idle_in_transaction_session_timeout": "60000",
}
#: Settings that a URL cannot change, since dbtools relies on its own.
FIXED = {*SETTINGS, "client_encoding", "session_authorization"} - {"application_name"}


#: Characters that end a part of a URL (RFC 3986, 3.2.1).
RAW = {"@": "%40", "/": "%2F", "?": "%3F", "#": "%23", "%": "%25", "[": "%5B", "]": "%5D"}
BROKEN = re.compile("%(?![0-9A-Fa-f]{2})")
PLACES = (*FILES, "passfile", "servicefile")
SCHEME = re.compile(r"^[a-zA-Z]+(\+\w+)?://")
AUTHORITY = re.compile("[^/?#]*")
HOST = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::(.*))?")
WORDS = re.compile(r"(?:\\.|\S)+")
SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


@dataclass(frozen=True, kw_only=True)
class Destination:
    """Where a URL leads, with what the environment and a service file add to it."""

    parameters: Mapping[str, str]  #: by the names of PARAMETERS

    @property
    def place(self) -> str:
        """Where the database is and who reads it, for people."""
        hosts = zip(self.hosts or ["localhost"], self.ports, strict=True)
        places = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts)
        return f"{places}/{self.database} as {self.user}"

    @cached_property
    def user(self) -> str:
        """The name of the login."""
        try:
            return self.parameters.get("user") or getpass.getuser()
        except (KeyError, OSError) as exc:
            hint = "Write postgresql://USER@HOST/DATABASE, or set PGUSER."
            raise ConfigurationError("The database's URL names no user.", hint=hint) from exc

    @property
    def database(self) -> str:
        """The name of the database."""
        return self.parameters.get("dbname") or self.user

    @property
    def hosts(self) -> Sequence[str]:
        """The names of hosts, or folders of sockets; none where the driver is to look."""
        written = self.parameters.get("host") or self.parameters.get("hostaddr")
        return written.split(",") if written else ()

    @cached_property
    def ports(self) -> Sequence[int]:
        """One port for each host, or for the one that the driver finds."""
        number = max(1, len(self.hosts))
        ports = [_port(each) for each in self.parameters.get("port", "").split(",")]
        if len(ports) not in (1, number):
            raise ConfigurationError("The database's URL must have one port, or one for each host.")
        return ports * number if len(ports) == 1 else ports

    @property
    def mode(self) -> str:
        """How TLS is asked for."""
        strictest = self.parameters.get("sslrootcert") == SYSTEM
        return self.parameters.get("sslmode", "verify-full" if strictest else "prefer")

    @property
    def timeout(self) -> float:
        """Seconds that opening a connection may take."""
        return max(0.0, float(self.parameters.get("connect_timeout", 0))) or CONNECT_TIMEOUT

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """What is set on a connection, some of it by the URL."""
        named, words = read_options(self.parameters.get("options", ""))
        schema = self.parameters.get("schema")
        path = {"search_path": '"{}"'.format(schema.replace('"', '""'))} if schema else {}
        names = [self.parameters.get(each) for each in ("application_name", "fallback_application_name")]
        name = next(filter(None, names), SETTINGS["application_name"])
        # The words, such as Neon's endpoint=…, are for a proxy.
        rest = {"options": " ".join(words)} if words else {}
        alone = {each: self.parameters[each] for each in SETTINGS_ALONE if each in self.parameters}
        return {**SETTINGS, "application_name": name, **path, **alone, **named, **rest}

    def arguments(self) -> dict[str, Any]:
        """Return what the driver takes, or raise DatabaseUnavailable where a file cannot be used."""
        addresses = self.parameters["hostaddr"].split(",") if "hostaddr" in self.parameters else self.hosts
        pairs = list(zip(addresses, self.ports, strict=False))
        if self.parameters.get("load_balance_hosts") == "random":
            random.shuffle(pairs)
        given = ("password", "passfile", "target_session_attrs", "krbsrvname", "gsslib")
        return {
            "host": [host for host, _ in pairs] or None,
            "port": [port for _, port in pairs] or self.ports[0],
            "user": self.user,
            "database": self.database,
            "timeout": self.timeout,
            "direct_tls": self.parameters.get("sslnegotiation") == "direct",
            **{name: self.parameters[name] for name in given if name in self.parameters},
            **self._tls(),
        }

    def _tls(self) -> dict[str, Any]:
        files = {name: self.parameters[name] for name in FILES if self.parameters.get(name, SYSTEM) != SYSTEM}
        if self.mode != "disable":
            self._check_authority()
            for name, file in files.items():
                with self._loading(name, file), open(file, "rb"):
                    pass
        if self.parameters.get("sslrootcert") == SYSTEM:
            return {"ssl": self._loaded(ssl.create_default_context(), files)}
        if files and self.mode != "disable":
            self._loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), files)
        own = {name: self.parameters[name] for name in TLS if name in self.parameters}
        return {"dsn": f"postgresql:///?{urlencode(own)}"}

    def _loaded(self, context: ssl.SSLContext, files: Mapping[str, str]) -> ssl.SSLContext:
        """Return *context* with what is in *files*, or raise DatabaseUnavailable."""
        context.set_alpn_protocols(["postgresql"])
        for name, end in (("min", "minimum"), ("max", "maximum")):
            if version := self.parameters.get(f"ssl_{name}_protocol_version"):
                setattr(context, f"{end}_version", ssl.TLSVersion[version.replace(".", "_")])
        for name in ("sslrootcert", "sslcrl"):
            if name in files:
                with self._loading(name, files[name]):
                    context.load_verify_locations(files[name])
        if "sslcert" in files:
            password = self.parameters.get("sslpassword", "")
            with self._loading("sslcert", files["sslcert"]):
                context.load_cert_chain(files["sslcert"], files.get("sslkey"), password=lambda: password)
        return context

    @contextmanager
    def _loading(self, name: str, file: str) -> Iterator[None]:
        """Raise DatabaseUnavailable where the *file* that the parameter *name* names cannot be used."""
        try:
            yield
        except (OSError, ValueError) as exc:
            problem = next(problem for kind, problem in UNUSABLE if isinstance(exc, kind))
            if isinstance(exc, ssl.SSLError) and name == "sslcert":
                problem = "is not a PEM certificate with a matching key, or sslpassword is wrong"
            raise DatabaseUnavailable(f"{self.place}: {name}: the file {file} {problem}.") from exc

    def _check_authority(self) -> None:
        """Raise DatabaseUnavailable where there is nothing to hold the server's certificate against."""
        known = "sslrootcert" in self.parameters or os.path.exists(os.path.expanduser(ROOT))
        if self.mode.startswith("verify-") and not known:
            raise DatabaseUnavailable(
                f"{self.place}: sslmode={self.mode} requires the certificate of a trusted authority.",
                hint="Add sslrootcert=FILE, or sslrootcert=system for a public authority.",
            )


UNUSABLE: Sequence[tuple[type[Exception], str]] = (
    (ssl.SSLError, "contains no PEM certificate"),
    (FileNotFoundError, "does not exist"),
    (PermissionError, "is not readable for this user"),
    (Exception, "cannot be read"),
)


def destination(url: str) -> Destination:
    """Return where *url* leads, or raise ConfigurationError, which never quotes a password."""
    written = _written(url)
    environment = {
        name: os.environ[each.variable]
        for name, each in PARAMETERS.items()
        if each.variable and os.environ.get(each.variable)
    }
    service = _service({**environment, **written})
    found = Destination(parameters={**_canonical(environment), **service, **_canonical(written)})
    _ = found.ports, found.settings, found.user
    _check_together(found)
    return found


def _written(url: str) -> dict[str, str]:
    """Return the parameters that *url* has, wherever they stand in it."""
    rest = SCHEME.sub("", url)
    authority = AUTHORITY.match(rest)
    assert authority is not None
    tail = rest[authority.end() :]
    _check_characters(authority[0], tail)
    login, _, hosts = authority[0].rpartition("@")
    user, _, password = login.partition(":")
    path, _, query = tail.partition("?")
    parts = {"user": user, "password": password, "dbname": path.removeprefix("/"), **_addresses(hosts)}
    named = [each.partition("=") for each in query.split("&") if each]
    # libpq takes a plus sign as it is; other clients write a space so, which is in no other parameter.
    read = {
        name: unquote(value.replace("+", " ") if name == "options" else value)
        for name, _, value in named
        if _is_known(unquote(name))
    }
    return {**{name: unquote(value) for name, value in parts.items() if value}, **read}


def _check_characters(authority: str, tail: str) -> None:
    """Raise ConfigurationError where a character ends the user or the password too early."""
    login, at, hosts = authority.rpartition("@")
    found = next((each for each in "@[]" if each in login), "")
    path, _, query = tail.partition("?")
    names = [each.partition("=")[0] for each in query.split("&")]
    # No port: what stands there is the beginning of a password, whose end is behind.
    is_cut = not at and bool(re.search(r":(?![\d:]*$)[^\]]*$", hosts) or names[0] not in {*PARAMETERS, ""})
    if "@" in path + "".join(names) or ("@" in tail and is_cut):
        found = found or ("@" if at else tail[0])
    if BROKEN.search(authority + tail):
        found = found or "%"
    if "#" in tail:
        found = found or "#"
    if found:
        others = ", ".join(f"{each} as {code}" for each, code in RAW.items() if each != found)
        raise ConfigurationError(
            f"The database's URL contains a raw {found}, for instance in the password. "
            f"Write it as {RAW[found]}.",
            hint=f"Other characters to encode: {others}.",
        )
    if "%00" in authority + tail:
        raise ConfigurationError("The database's URL contains the character %00.")


def _addresses(text: str) -> dict[str, str]:
    """Return the hosts and the ports of *text*, with commas between."""
    found = [HOST.fullmatch(each) for each in text.split(",")] if text else []
    if not all(found):
        raise ConfigurationError("The host in the database's URL cannot be read.")
    pairs = [(each[1].strip("[]"), each[2] or "") for each in found if each]
    hosts, ports = ",".join(host for host, _ in pairs), [port for _, port in pairs]
    return {"host": hosts, "port": ",".join(each or str(PORT) for each in ports) if any(ports) else ""}


def _port(text: str) -> int:
    if not text:
        return PORT
    if not (text.isascii() and text.isdigit()):
        raise ConfigurationError("The port in the database's URL is no number.")
    if not 0 < int(text[:6]) < MOST_PORTS:
        raise ConfigurationError("The port in the database's URL is no port.")
    return int(text)


def _is_known(name: str) -> bool:
    """Return True, or raise ConfigurationError with the nearest name."""
    if name in PARAMETERS:
        return True
    like = get_close_matches(name, PARAMETERS, n=1, cutoff=0.8)
    hint = (
        f"Did you mean {like[0]}?" if like else "A setting of the server goes in options=-c%20NAME%3DVALUE."
    )
    raise ConfigurationError(f"{name}: unknown parameter of the database's URL.", hint=hint)


def _canonical(given: Mapping[str, str]) -> dict[str, str]:
    """Return what *given* says, under one name each, or raise ConfigurationError where it cannot be done."""
    canonical = {}
    for name, value in given.items():
        if value:
            _check_value(name, value)
            other, meanings = SYNONYMS.get(name, (name, {}))
            if other == name or not given.get(other):
                canonical[other] = meanings.get(value, value)
    return canonical


def _check_value(name: str, value: str) -> None:
    known = PARAMETERS[name]
    if name in NUMBERS and not re.fullmatch(r"\s*[-+]?\d{1,9}\s*", value):
        raise ConfigurationError(f"{name}: the database's URL must have a whole number here.")
    if value in known.values or not (known.values or known.why):
        return
    if known.why:
        raise ConfigurationError(f"{name}={value} in the database's URL: {known.why}.")
    hint = f"{nearest(value, known.values)}It takes one of: {listing(known.values)}."
    raise ConfigurationError(f"{name}={value} in the database's URL: unknown value.", hint=hint)


def _check_together(found: Destination) -> None:
    parameters = found.parameters
    if parameters.get("sslrootcert") == SYSTEM and found.mode != "verify-full":
        raise ConfigurationError("sslrootcert=system requires sslmode=verify-full.")
    if parameters.get("sslnegotiation") == "direct" and MODES.index(found.mode) < MODES.index("require"):
        raise ConfigurationError("sslnegotiation=direct requires sslmode=require or stricter.")
    if "hostaddr" in parameters and found.mode == "verify-full":
        hint = "Remove hostaddr: the driver compares the certificate with the address, not with the name."
        raise ConfigurationError("hostaddr cannot be combined with sslmode=verify-full.", hint=hint)


def _service(given: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of the service that *given* names, none where it names none."""
    name = given.get("service")
    if not name:
        return {}
    folder = os.environ.get("PGSYSCONFDIR")
    own = os.path.expanduser(given.get("servicefile") or SERVICES)
    files = [own, *([str(Path(folder) / "pg_service.conf")] if folder else [])]
    services = RawConfigParser(delimiters=("=",), comment_prefixes=("#",), strict=False)
    try:
        services.read(files, encoding="utf-8")
    except (FormatError, OSError, ValueError) as exc:
        raise ConfigurationError(f"service={name}: {listing(files)} cannot be read.") from exc
    if name not in services:
        hint = nearest(name, services.sections()).strip()
        raise ConfigurationError(f"service={name}: {listing(files)} has no such service.", hint=hint)
    return _canonical({key: value for key, value in services[name].items() if _is_known(key)})


def read_options(text: str) -> tuple[dict[str, str], list[str]]:
    """Return the settings in *text*, as `-c name=value` and `--name=value`, and the words for a proxy."""
    settings, rest = {}, []
    words = iter(re.sub(r"\\(.)", r"\1", word) for word in WORDS.findall(text))
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
            raise ConfigurationError(
                f"options: dbtools sets {name} itself. Remove it from the database's URL."
            )
        else:
            settings[name] = value
    return settings, rest


def without_password(url: str) -> tuple[str, Mapping[str, str]]:
    """Return *url* without its passwords, and the variables that libpq reads: PGPASSWORD among them."""
    parts = urlsplit(with_full_paths(url, Path.cwd()))
    login, at, host = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    options = [each.partition("=") for each in parts.query.split("&") if each]
    secrets = {name: unquote(value) for name, _, value in options if name in SECRETS}
    secrets |= {"password": unquote(password)} if password else {}
    query = "&".join("".join(each) for each in options if each[0] not in SECRETS)
    known = sorted({each.variable for each in PARAMETERS.values() if os.environ.get(each.variable)})
    told = {PARAMETERS[name].variable: value for name, value in secrets.items() if value}
    shared = f"{parts.scheme}://{user}{at}{host}{parts.path}{'?' if query else ''}{query}"
    return shared, {**{name: os.environ[name] for name in known}, **told}


def with_full_paths(url: str, folder: Path) -> str:
    """Return *url* with the full paths of the files that it names, below *folder* where they are relative."""
    rest, mark, query = url.partition("?")
    options = [each.partition("=") for each in query.split("&")]
    full = (
        f"{name}={quote(str(folder.absolute() / unquote(value)))}"
        if name in PLACES and value not in ("", SYSTEM)
        else f"{name}{equals}{value}"
        for name, equals, value in options
    )
    return f"{rest}{mark}{'&'.join(full)}"
