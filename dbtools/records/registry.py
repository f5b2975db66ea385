"""The permitted queries that a registry keeps: the URL of a database in, entries by name out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from dbtools import errors
from dbtools.backends import dialect_of
from dbtools.backends.registered import Change, Disable, Enable, Registered, Registry, Remove, Save
from dbtools.errors import listing, nearest
from dbtools.types import quoted

LATEST = "registry_0001"  #: the revision of the tables that this release knows, as `migrations` name it
KNOWN = frozenset({LATEST})
NO_REGISTRY = "The database has no registry."


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One query of a registry."""

    current: Registered
    previous: Registered | None  #: what it was before the last change, None where it is new


async def find_registry(url: str) -> Registry | None:
    """Return what the registry in the database at *url* holds, None where there is none.

    Raise DatabaseUnavailable where it cannot be read.
    """
    registry: Registry | None = await dialect_of(url).read_registry(url)
    return registry


async def find_entries(url: str) -> Mapping[str, Entry] | None:
    """Return the queries of the registry in the database at *url* by name, None where there is none.

    Raise DatabaseUnavailable where it cannot be read, and ConfigurationError where it is of a later release.
    """
    registry = await find_registry(url)
    return None if registry is None else entries_of(registry)


def entries_of(registry: Registry) -> Mapping[str, Entry]:
    """Return the queries of *registry* by name, or raise ConfigurationError where a later release made it."""
    unknown = sorted({*registry.revisions} - KNOWN)
    if unknown:
        raise errors.ConfigurationError(
            f"The registry is of a newer version, {quoted(unknown[-1])}: this dbtools knows {LATEST}.",
            hint="Install a newer dbtools.",
        )
    entries: dict[str, Entry] = {}
    for name, group in groupby(registry.queries, lambda each: each.name):
        current, *before = group
        entries[name] = Entry(current=current, previous=before[0] if before else None)
    return entries


async def read_entries(url: str) -> Mapping[str, Entry]:
    """Return the queries of the registry in the database at *url*, or raise ConfigurationError."""
    entries = await find_entries(url)
    if entries is None:
        raise errors.ConfigurationError(NO_REGISTRY, hint="`dbtools registry upgrade URL` makes one.")
    return entries


async def entry_of(url: str, name: str) -> Entry:
    """Return the query *name* of the registry at *url*, or raise ConfigurationError."""
    entries = await read_entries(url)
    if name not in entries:
        hint = f"{nearest(name, entries)}Queries: {listing(entries)}." if entries else "It is empty."
        raise errors.ConfigurationError(f"The registry has no query {quoted(name)}.", hint=hint)
    return entries[name]


async def add(url: str, texts: Mapping[str, str]) -> Mapping[str, Entry]:
    """Keep *texts*, by the names of their queries, in the registry at *url*; return what it has of them then.

    What has its text already gets no new version, which would push out the one before: it is only enabled.
    """
    before = await read_entries(url)
    changes = [change for name, text in texts.items() for change in _changes(before.get(name), name, text)]
    if changes:
        await dialect_of(url).change_registry(url, changes)
    after = await read_entries(url)
    return {name: after[name] for name in texts}


def _changes(entry: Entry | None, name: str, text: str) -> Sequence[Change]:
    """Return what has the query *name*, which is *entry* now, served with *text*."""
    if entry is None or entry.current.text != text:
        return [Save(name=name, text=text)]
    return [] if entry.current.enabled else [Enable(name=name)]


async def remove(url: str, name: str) -> None:
    """Drop the query *name* and the version before from the registry at *url*."""
    await entry_of(url, name)
    await dialect_of(url).change_registry(url, [Remove(name=name)])


async def enable(url: str, name: str) -> None:
    """Have the query *name* of the registry at *url* served."""
    await entry_of(url, name)
    await dialect_of(url).change_registry(url, [Enable(name=name)])


async def disable(url: str, name: str) -> None:
    """Have the query *name* of the registry at *url* kept, and not served."""
    await entry_of(url, name)
    await dialect_of(url).change_registry(url, [Disable(name=name)])
