"""The supported databases: one folder each, and BACKENDS."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from dbtools import errors
from dbtools.backends.port import CHANGE_LOCK_TIMEOUT, Backend
from dbtools.backends.records import Registry
from dbtools.backends.urls import home_path
from dbtools.errors import did_you_mean, listing

__all__ = [
    "BACKENDS",
    "announcement_of",
    "home_path",
    "is_url",
    "open_backend",
    "read_registry",
    "resolved_url",
    "url_of_file",
]


#: The package of each database by URL scheme (up to a plus sign). Each package has a class Backend.
BACKENDS: Mapping[str, str] = {
    "sqlite": "dbtools.backends.sqlite",
    "file": "dbtools.backends.sqlite",
    "postgresql": "dbtools.backends.postgresql",
    "postgres": "dbtools.backends.postgresql",
}


def open_backend(url: str, *, write_url: str = "", lock_timeout: float = CHANGE_LOCK_TIMEOUT) -> Backend:
    """Return the database at *url* without opening a connection, or raise ConfigurationError.

    *write_url*: of the connections that change rows, by default *url*; *lock_timeout*: the seconds that a
    change waits for a lock.
    """
    backend: type[Backend] = _package(url).Backend
    return backend(url, write_url=write_url, lock_timeout=lock_timeout)


async def read_registry(url: str) -> Registry | None:
    """Return the content of the registry in the database at *url*, None if it has none."""
    backend = open_backend(url)
    try:
        return await backend.registry()
    finally:
        await backend.close()


def is_url(text: str) -> bool:
    """Return whether *text* is a URL; otherwise it is the path of a database file."""
    return "://" in text or text.startswith("file:")


def url_of_file(path: Path) -> str:
    """Return the URL of the database file at *path*, relative if *path* is."""
    name = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"sqlite:///{name}"


def resolved_url(url: str, folder: Path) -> str:
    """Return *url* with its relative paths resolved against *folder*."""
    if _scheme(url) not in BACKENDS:
        return url  # opening it will fail
    resolved: str = _package(url).Backend.absolute_url(url, folder)
    return resolved


def announcement_of(name: str) -> str | None:
    """Return the statement with which a migration announces itself on a *name* database, if any."""
    if name not in BACKENDS:
        return None
    backend: type[Backend] = _package(f"{name}:").Backend
    return backend.facts.announcement


def _package(url: str) -> Any:
    scheme = _scheme(url)
    if scheme not in BACKENDS:
        raise errors.ConfigurationError(
            f"Databases with URLs that begin with {scheme!r} are not supported.",
            hint=f"{did_you_mean(scheme, BACKENDS)}A URL begins with one of: {listing(BACKENDS)}.",
        )
    return import_module(BACKENDS[scheme])


def _scheme(url: str) -> str:
    return url.partition(":")[0].partition("+")[0].lower()
