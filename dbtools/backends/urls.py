"""The paths and parameters in database URLs. A text in; a path, nothing, or a ConfigurationError out."""

import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from dbtools.errors import ConfigurationError, did_you_mean, listing
from dbtools.schema.sql import words

#: Parameters in URLs of other tools, which mean nothing to a database.
OTHER_TOOLS: Mapping[str, str] = {
    **dict.fromkeys(words("connection_limit pool_timeout socket_timeout sslaccept sslidentity"), "Prisma"),
    **dict.fromkeys(
        words("pool_size max_overflow pool_recycle pool_pre_ping pool_use_lifo pool_class charset"),
        "SQLAlchemy",
    ),
    **dict.fromkeys(
        words("check_same_thread detect_types isolation_level cached_statements timeout"), "Python's driver"
    ),
    **dict.fromkeys(
        words("statement_cache_size prepared_statement_cache_size command_timeout min_size max_size"),
        "asyncpg",
    ),
    **dict.fromkeys(
        words("pool_max_conns pool_min_conns pool_max_conn_lifetime default_query_exec_mode"), "pgx"
    ),
    **dict.fromkeys(
        words("currentSchema ApplicationName prepareThreshold loginTimeout socketTimeout tcpKeepAlive"),
        "JDBC",
    ),
    **dict.fromkeys(words("uselibpqcompat max idleTimeoutMillis connectionTimeoutMillis"), "node-postgres"),
    **dict.fromkeys(words("supa workaround"), "Supabase"),
    **dict.fromkeys(words("encoding pool conn_max_age"), "Django or Rails"),
    **dict.fromkeys(words("_journal_mode _busy_timeout _fk _txlock _query_only _loc"), "go-sqlite3"),
}


class UrlParameter(NamedTuple):
    """A parameter of a URL."""

    variable: str = ""  #: of the environment, used if the URL lacks it
    values: Sequence[str] = ()  #: all valid ones; empty: any
    why: str = ""  #: other values are refused, and why


def home_path(text: str, folder: Path = Path()) -> Path:
    """Return the path *text*, resolved against *folder*.

    A leading ~ means a home directory unless such a file exists.
    """
    path = folder / text
    return path if os.path.lexists(path) else folder / os.path.expanduser(text)


def check_name(name: str, known: Mapping[str, UrlParameter], advice: str = "") -> None:
    """Raise ConfigurationError if *name* is not *known*: with the nearest one, or else with *advice*."""
    if name in known:
        return
    if tool := OTHER_TOOLS.get(name):
        message = f"{name} in the database's URL: this is a parameter of another tool ({tool})."
        raise ConfigurationError(message, hint="Remove it.")
    like = get_close_matches(name, known, n=1, cutoff=0.8)
    hint = f"Did you mean {like[0]}?" if like else advice
    raise ConfigurationError(f"{name}: unknown parameter of the database's URL.", hint=hint)


def check_value(name: str, value: str, parameter: UrlParameter) -> None:
    """Raise ConfigurationError if *parameter*, called *name*, does not take *value*."""
    if value in parameter.values or not (parameter.values or parameter.why):
        return
    if parameter.why:
        raise ConfigurationError(f"{name}={value} in the database's URL: {parameter.why}.")
    hint = f"{did_you_mean(value, parameter.values)}It takes one of: {listing(parameter.values)}."
    raise ConfigurationError(f"{name}={value} in the database's URL: unknown value.", hint=hint)
