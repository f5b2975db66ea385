"""What serves a database: settings in, a toolbox out, with what may change of what it was made from."""

from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

import anyio

from dbtools.backends import open_backend
from dbtools.backends.port import Backend, Look
from dbtools.catalog import Catalog
from dbtools.service.current import Current
from dbtools.service.descriptions import described, description_findings
from dbtools.service.execution import Execution
from dbtools.service.library import UNCHECKED, held_with_queries, library_of
from dbtools.service.login import check_strictness, posture_findings, unreadable_tables
from dbtools.service.registered import NO_REGISTRY, registry_url
from dbtools.service.roles import roles_of, token_findings
from dbtools.service.snapshot import DATABASE, Settled, Snapshot
from dbtools.service.toolbox import Toolbox
from dbtools.service.watch import Observed
from dbtools.settings.sections import Settings

UNREAD = (NO_REGISTRY, "error")  #: code and level of a registry that should be read and cannot
FILES, REGISTRY = "files", "registry"  #: the names of stamps
FILES_INTERVAL = 1.0  #: seconds between two looks


async def read_catalog(settings: Settings, backend: Backend) -> Catalog:
    """Return what *database* holds, with the descriptions that *settings* add to it."""
    catalog = described(await backend.introspect(settings.selection()), settings)
    if settings.roles:
        # What they name and the login may not select is told with the rules that name it.
        return catalog
    return replace(catalog, warnings=(*unreadable_tables(catalog), *catalog.warnings))


@dataclass(frozen=True, kw_only=True)
class Served:
    """What serves a database, and what may change of it."""

    toolbox: Toolbox
    backend: Backend  #: to be closed
    settings: Callable[[], Settings]  #: the newest that can be used
    settled: Callable[[], Settings]  #: those that the current snapshot was made from
    is_refused: Callable[[], bool]  #: whether the files cannot be used, so that older settings are in force
    observed: tuple[Observed, ...]


def open_served(settings: Settings, only: str | None = None, *, before: Snapshot | None = None) -> Served:
    """Return what serves the database that *settings* describe, for all roles, or for the role *only*.

    Roles that were in the snapshot *before* keep their surface.
    """
    backend = open_backend(settings.database.url)
    current = Current(settings, backend.facts.lexis, only)

    async def introspect() -> Catalog:
        await anyio.to_thread.run_sync(current.read)
        catalog = await read_catalog(current.settings, backend)
        check_strictness(current.settings, catalog)
        return catalog

    async def settle(catalog: Catalog) -> Settled:
        return await _settled(current, catalog, backend, only)

    execution = Execution(backend, settings.database.request_id)
    toolbox = Toolbox(introspect, execution, roles=settle, manner=settings.manner(), before=before)

    def settled() -> Settings:
        made_from = toolbox.current.settings if toolbox.current is not None else None
        return made_from if isinstance(made_from, Settings) else settings

    return Served(
        toolbox=toolbox,
        backend=backend,
        settings=lambda: current.settings,
        settled=settled,
        is_refused=lambda: current.is_refused,
        observed=tuple(_observed(current, backend)),
    )


def open_toolbox(settings: Settings, only: str | None = None) -> tuple[Toolbox, Backend]:
    """Return the toolbox that *settings* describe, and the database behind it, which is to be closed.

    It is for all roles, or for the role *only*.
    """
    served = open_served(settings, only)
    return served.toolbox, served.backend


async def snapshot_of(settings: Settings, before: Snapshot | None = None) -> Snapshot:
    """Return what *settings* serve at this moment; roles that were in *before* keep their surface."""
    served = open_served(settings, before=before)
    try:
        return await served.toolbox.snapshot()
    finally:
        await served.backend.close()


async def _settled(current: Current, catalog: Catalog, backend: Backend, only: str | None) -> Settled:
    """Return the roles and queries of the *current* settings, held against *database*."""
    settings, stamp = current.settings, current.stamp_of_read
    before = current.library
    library = await library_of(settings, catalog, backend, written=current.written, before=before)
    current.library = library
    found = [
        await held_with_queries(settings, role, catalog, backend, library.queries)
        for role in roles_of(settings, backend.facts.lexis)
        if only in (None, role.name)
    ]
    findings = (
        *current.findings,
        *description_findings(catalog, settings),
        *token_findings(settings),
        *posture_findings(settings, catalog),
        *(finding for each in found for finding in each.findings),
        *library.findings,
    )
    return Settled(
        roles=[each.served for each in found],
        catalogs={each.served.name: each.catalog for each in found},
        queries=library.queries,
        findings=findings,
        missing=tuple(str(each) for each in library.findings if (each.code, each.level) == UNREAD),
        manner=settings.manner(),
        hash_key=settings.policy.hash_key.encode(),
        settings=settings,
        stamps={FILES: stamp, REGISTRY: library.registry}
        # It is no stamp that a look finds: all is looked at again soon.
        | ({DATABASE: UNCHECKED} if any(each.code == UNCHECKED for each in findings) else {}),
    )


def _observed(current: Current, backend: Backend) -> Iterator[Observed]:
    """Yield what may change while *database* is served with the *current* settings."""
    yield Observed(name=DATABASE, open=backend.watcher, interval=backend.facts.interval)
    settings = current.settings
    url = settings.registry.url or settings.database.url
    if settings.path:

        @asynccontextmanager
        async def look_at_files(heard: Callable[[], None]) -> AsyncIterator[Look]:
            yield partial(anyio.to_thread.run_sync, current.stamp)

        yield Observed(name=FILES, open=look_at_files, interval=FILES_INTERVAL)
    if settings.path or registry_url(settings):
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
                        look = await stack.enter_async_context(registry.registry_watcher(heard))
                    return await look()

                yield look_where_it_counts

        yield Observed(name=REGISTRY, open=look_at_registry, interval=registry.facts.interval)
