"""The databases that dbtools speaks: one folder each, and BACKENDS."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from dbtools import errors
from dbtools.backends.port import Backend
from dbtools.backends.records import Registry
from dbtools.errors import listing, nearest

__all__ = [
    "BACKENDS",
    "announcement_of",
    "open_backend",
    "read_registry",
    "resolved_url",
    "url_of_file",
]


#: The packages of databases by the scheme of their URLs, up to a plus sign; each has a class Backend.
BACKENDS: Mapping[str, str] = {
    "sqlite": "dbtools.backends.sqlite",
    "postgresql": "dbtools.backends.postgresql",
    "postgres": "dbtools.backends.postgresql",
}


def open_backend(url: str) -> Backend:
    """Return the database at *url*, to which nothing is opened yet; or raise ConfigurationError."""
    backend: Backend = _package(url).Backend(url)
    return backend


async def read_registry(url: str) -> Registry | None:
    """Return what the registry in the database at *url* holds, None where there is none."""
    backend = open_backend(url)
    try:
        return await backend.registry()
    finally:
        await backend.close()


def url_of_file(path: Path) -> str:
    """Return the URL of the database that the file at *path* is, relative where *path* is."""
    name = str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"sqlite:///{name}"


def resolved_url(url: str, folder: Path) -> str:
    """Return *url* with the relative paths of files in it made absolute below *folder*."""
    if _scheme(url) not in BACKENDS:
        return url  # it is refused where it is opened
    resolved: str = _package(url).Backend.resolved(url, folder)
    return resolved


def announcement_of(name: str) -> str | None:
    """Return the statement with which a migration of a *name* database announces itself, if there is one."""
    if name not in BACKENDS:
        return None
    backend: type[Backend] = _package(f"{name}:").Backend
    return backend.facts.announcement


def _package(url: str) -> Any:
    scheme = _scheme(url)
    if scheme not in BACKENDS:
        raise errors.ConfigurationError(
            f"Databases with URLs that begin with {scheme!r} are not supported.",
            hint=f"{nearest(scheme, BACKENDS)}A URL begins with one of: {listing(BACKENDS)}.",
        )
    return import_module(BACKENDS[scheme])


def _scheme(url: str) -> str:
    return url.partition(":")[0].partition("+")[0].lower()
