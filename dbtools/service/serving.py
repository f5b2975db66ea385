"""What serves a database: settings in, a toolbox out, with what may change of what it was made from."""

from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

import anyio

from dbtools.backends import open_backend
from dbtools.backends.port import Backend, Look, Subject
from dbtools.service.catalogs import check_strictness, read_catalog
from dbtools.service.current import Current
from dbtools.service.execution import Execution
from dbtools.service.following import Observed
from dbtools.service.permitted import UNCHECKED
from dbtools.service.queries import registry_url
from dbtools.service.resolve import Resolved, resolve
from dbtools.service.snapshot import DATABASE, Snapshot
from dbtools.service.toolbox import Toolbox
from dbtools.settings.roles import roles_of
from dbtools.settings.sections import Settings

FILES, REGISTRY = "files", "registry"  #: the names of stamps
FILES_INTERVAL = 1.0  #: seconds between two looks


@dataclass(frozen=True, kw_only=True)
class Served:
    """What serves a database, and what may change of it."""

    toolbox: Toolbox
    backend: Backend  #: to be closed
    current: Current  #: the settings
    observed: tuple[Observed, ...]

    def settled(self) -> Settings:
        """Return the settings that the current snapshot was made from."""
        snapshot = self.toolbox.current
        return self.current.settings if snapshot is None else snapshot.settings


def open_served(settings: Settings, only: str | None = None) -> Served:
    """Return what serves the database that *settings* describe, for all roles, or for the role *only*."""
    backend = open_backend(settings.database.url)
    current = Current(settings, backend.facts.lexis, only)
    resolved = partial(_resolved, current, backend, only)
    return Served(
        toolbox=Toolbox(resolved, Execution(backend, settings.database.request_id)),
        backend=backend,
        current=current,
        observed=tuple(_observed(current, backend)),
    )


def open_toolbox(settings: Settings, only: str | None = None) -> tuple[Toolbox, Backend]:
    """Return the toolbox that *settings* describe, and the database behind it, which is to be closed.

    It is for all roles, or for the role *only*.
    """
    served = open_served(settings, only)
    return served.toolbox, served.backend


async def snapshot_of(settings: Settings) -> Snapshot:
    """Return what *settings* serve at this moment."""
    toolbox, backend = open_toolbox(settings)
    try:
        return await toolbox.snapshot()
    finally:
        await backend.close()


async def _resolved(current: Current, backend: Backend, only: str | None) -> Resolved:
    """Return what the settings, read again where they have changed, mean to the database now."""
    await anyio.to_thread.run_sync(current.read)
    settings, written, before = current.settings, current.written, current.library
    catalog = await read_catalog(settings, backend)
    check_strictness(settings, catalog)
    roles = [each for each in roles_of(settings, backend.facts.lexis) if only in (None, each.name)]
    resolved = await resolve(settings, catalog, backend, roles=roles, written=written, before=before)
    current.library = resolved.library
    stamps: dict[str, Hashable] = {FILES: current.stamp_of_read, REGISTRY: resolved.library.registry}
    if any(each.code == UNCHECKED for each in resolved.problems):
        # It is no stamp that a look finds: all is looked at again soon.
        stamps[DATABASE] = UNCHECKED
    return replace(resolved, findings=(*current.findings, *resolved.findings), stamps=stamps)


def _observed(current: Current, backend: Backend) -> Iterator[Observed]:
    """Yield what may change while the database is served with the *current* settings."""
    yield Observed(
        name=DATABASE, open=partial(backend.listen, Subject.SCHEMA), interval=backend.facts.interval
    )
    settings = current.settings
    url = settings.registry.url or settings.database.url
    if settings.origin.path:

        @asynccontextmanager
        async def look_at_files(heard: Callable[[], None]) -> AsyncIterator[Look]:
            yield partial(anyio.to_thread.run_sync, current.stamp)

        yield Observed(name=FILES, open=look_at_files, interval=FILES_INTERVAL)
    if settings.origin.path or registry_url(settings):
        registry = backend if url == backend.url else open_backend(url)

        @asynccontextmanager
        async def look_at_registry(heard: Callable[[], None]) -> AsyncIterator[Look]:
            async with AsyncExitStack() as stack:
                look: Look | None = None

                async def look_where_it_counts() -> Hashable:
                    # With roles, which may come and go, one that nobody has named does not.
                    nonlocal look
                    if registry_url(current.settings) != url:
                        return None
                    if look is None:
                        look = await stack.enter_async_context(registry.listen(Subject.REGISTRY, heard))
                    return await look()

                yield look_where_it_counts

        yield Observed(name=REGISTRY, open=look_at_registry, interval=registry.facts.interval)
