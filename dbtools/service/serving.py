"""Serve a database. Settings in; a toolbox out, and a Watch that refreshes it when something changes.

The Watch polls the schema, the files and the registry, and compares their stamps with those of the snapshot;
a notification makes it poll at once. A change during a refresh leads to another refresh. If a refresh fails,
the Watch keeps the snapshot, reports the failure once, and tries again.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

import anyio

from dbtools import errors
from dbtools.answers.results import Answer
from dbtools.backends import open_backend
from dbtools.backends.port import Backend, OnChange
from dbtools.configured.claims import typed_claims
from dbtools.configured.permitted import may_change
from dbtools.configured.privileges import remedy
from dbtools.configured.query_sources import registry_url
from dbtools.configured.resolve import resolve, with_write_privileges
from dbtools.configured.resolved import Resolved
from dbtools.configured.roles import roles_of
from dbtools.findings import Finding
from dbtools.policy.roles import Caller
from dbtools.service.execution import Execution
from dbtools.service.reloading import CurrentSettings
from dbtools.service.snapshot import DATABASE, Snapshot
from dbtools.service.toolbox import Toolbox
from dbtools.settings import Settings, settings_of
from dbtools.tools.definition import ListChange, ToolDefinition

FILES, REGISTRY = "files", "registry"  #: the names of stamps
FILES_INTERVAL = 1.0  #: seconds between two polls
PAUSE_SHARE = 100  #: a pause lasts at least this many times as long as the poll before it
MOST = 3  #: maximum length of a pause, in intervals
RETRY, SLOWEST = 2.0, 30.0  #: seconds before a retry, and at most if retries fail

#: Returns a value that differs after each change, or raises DatabaseUnavailable.
Poll = Callable[[], Awaitable[Hashable]]


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Something that may change, by the name of its stamp in a snapshot."""

    name: str
    poll: Poll
    interval: float  #: seconds between two polls
    #: Returns a context in which notifications call a function.
    listen: Callable[[OnChange], AbstractAsyncContextManager[None]] = lambda _: nullcontext()


@dataclass(frozen=True, kw_only=True)
class Served:
    """A served database, and what a Watch observes in it."""

    toolbox: Toolbox
    backend: Backend  #: to be closed
    current: CurrentSettings  #: the settings
    observed: tuple[Observed, ...]

    def settings_in_force(self) -> Settings:
        """Return the settings that the current snapshot was made from."""
        snapshot = self.toolbox.current
        return self.current.settings if snapshot is None else snapshot.settings


def open_served(
    settings: Settings, only: str | None = None, vet: Callable[[Snapshot], None] | None = None
) -> Served:
    """Open the database of *settings* for serving, for all roles or the role *only*.

    *vet* raises ConfigurationError for a snapshot that must not be served.
    """
    backend = open_database(settings)
    current = CurrentSettings(settings, backend.facts.lexis, only)
    execution = Execution(backend, settings.database.request_id)
    toolbox = Toolbox(partial(_resolve_settings, current, backend), execution, settings.server.secret, vet)
    return Served(
        toolbox=toolbox,
        backend=backend,
        current=current,
        observed=tuple(_observations(current, backend, toolbox)),
    )


def open_database(settings: Settings) -> Backend:
    """Return the database of *settings*, without opening a connection."""
    database = settings.database
    return open_backend(database.url, write_url=database.write_url, lock_timeout=database.lock_timeout)


def open_toolbox(settings: Settings, only: str | None = None) -> tuple[Toolbox, Backend]:
    """Return the toolbox of *settings*, for all roles or the role *only*, and the database to be closed."""
    served = open_served(settings, only)
    return served.toolbox, served.backend


async def snapshot_of(settings: Settings) -> Snapshot:
    """Return what *settings* serve at this moment."""
    toolbox, backend = open_toolbox(settings)
    try:
        return await toolbox.snapshot()
    finally:
        await backend.close()


class OpenToolbox:
    """The tools of a database in a Python program, without MCP."""

    def __init__(self, toolbox: Toolbox, settings: Settings) -> None:
        self._toolbox = toolbox
        self._settings = settings

    async def list(self, role: str = Caller.role) -> tuple[ToolDefinition, ...]:
        """Return the definitions of the tools that *role* sees."""
        return await self._toolbox.list(role)

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, object] | None = None,
        *,
        role: str = Caller.role,
        claims: Mapping[str, object] | None = None,
    ) -> Answer:
        """Return the answer of *tool* to a caller with this *role* and these *claims*.

        Raise DbtoolsError if the call is refused.
        """
        known = typed_claims(self._settings, claims or {})
        return await self._toolbox.call(Caller(role=role, claims=known), tool, arguments or {})


@asynccontextmanager
async def open_target(target: str | Path | Settings) -> AsyncIterator[OpenToolbox]:
    """Open *target*: a database file, a database URL, a `dbtools.toml`, or settings.

    `from dbtools import open_toolbox` imports this function.
    """
    settings = target if isinstance(target, Settings) else settings_of(str(target))
    toolbox, backend = open_toolbox(settings)
    try:
        await toolbox.snapshot()
        yield OpenToolbox(toolbox, settings)
    finally:
        await backend.close()


async def _resolve_settings(current: CurrentSettings, backend: Backend) -> Resolved:
    """Read changed files again, and resolve the settings against the database."""
    await anyio.to_thread.run_sync(current.read)
    settings = current.settings
    roles = [each for each in roles_of(settings, backend.facts.lexis) if current.role in (None, each.name)]
    writing = [
        query.name for query in current.loaded_queries.queries if query.writes and may_change(settings)
    ]
    writes = any(role.may_write or any(map(role.may_call, writing)) for role in roles)
    if writes:
        await backend.recover()
    catalog = await backend.introspect(settings.selection())
    if settings.server.strict and catalog.posture:
        advice = remedy(settings, writes=writes)
        hint = f"{advice} [server] strict = false serves with this one."
        raise errors.ConfigurationError(" ".join(catalog.posture), hint=hint)
    resolved = await resolve(settings, catalog, backend, roles=roles, written=current.loaded_queries)
    resolved = await with_write_privileges(resolved, backend)
    return replace(
        resolved,
        findings=(*current.findings, *resolved.findings),
        stamps={FILES: current.stamp_of_read, REGISTRY: resolved.library.registry},
    )


def _observations(current: CurrentSettings, backend: Backend, toolbox: Toolbox) -> Iterator[Observed]:
    """Yield what may change while *current* settings are served by *toolbox*."""

    async def recover() -> None:
        if toolbox.current is not None and toolbox.current.writes:
            await backend.recover()

    async def poll_schema() -> Hashable:
        await recover()
        return await backend.stamp()

    yield Observed(name=DATABASE, poll=poll_schema, interval=backend.facts.interval, listen=backend.listen)
    settings = current.settings
    if settings.origin.path:
        poll_files: Poll = partial(anyio.to_thread.run_sync, current.stamp)
        yield Observed(name=FILES, poll=poll_files, interval=FILES_INTERVAL)
    url = settings.registry.url or settings.database.url
    registry = backend if url == backend.url else open_backend(url)

    async def poll_registry() -> Hashable:
        # With roles, which may come and go, only a registry that the configuration names is read.
        if registry_url(current.settings) != url:
            return None
        await recover()
        return await registry.registry()

    if settings.origin.path or registry_url(settings):
        yield Observed(
            name=REGISTRY,
            poll=poll_registry,
            interval=registry.facts.interval,
            listen=registry.listen,
        )


class Watch:
    """Polls what is observed while a toolbox is served."""

    def __init__(
        self,
        toolbox: Toolbox,
        observed: Sequence[Observed],
        *,
        warn: Callable[[str | Finding], None],
        resolved: Callable[[str], None],
    ) -> None:
        self._toolbox = toolbox
        self._observed = observed
        self._warn = warn  #: reports a problem
        self._resolved = resolved  #: reports that one is over
        self._reported: dict[str, str] = {}  #: current problems by subject
        self._heard: dict[str, anyio.Event] = {}  #: set by notifications, by the name of what is observed

    async def run(self) -> None:
        """Watch until cancelled; raise DbtoolsError if there is nothing to serve and waiting cannot help."""
        snapshot = await self._wait_for_snapshot()
        self._problems = _problems(snapshot)
        unsubscribe = self._toolbox.subscribe(self._note)
        try:
            async with anyio.create_task_group() as group:
                for each in self._observed:
                    group.start_soon(self._watch, each)
        finally:
            unsubscribe()

    async def _wait_for_snapshot(self) -> Snapshot:
        """Return the first snapshot; while the database cannot be reached, try again."""
        take = self._toolbox.snapshot
        for times in count(1):
            try:
                snapshot = await take()
                break
            except errors.DatabaseUnavailable as exc:
                if not exc.temporary:
                    raise
                self._complain("start", f"{exc} The server waits for the database.")
            await anyio.sleep(min(times * RETRY, SLOWEST))
            take = self._toolbox.refresh
        if "start" in self._reported:
            self._settle("start", "The database answers.")
            for problem in _problems(snapshot):
                self._warn(problem)
        return snapshot

    def _note(self, snapshot: Snapshot, _: Mapping[str, ListChange]) -> None:
        """Report the problems that are new in *snapshot*, or, if there are none, those that are resolved."""
        before, self._problems = self._problems, _problems(snapshot)
        new = [each for each in self._problems if each not in before]
        gone = [each for each in before if each not in self._problems]
        for each in new:
            self._warn(each)
        for each in () if new else gone:
            self._resolved(f"Resolved: {each}")

    async def _refresh(self) -> None:
        try:
            await self._toolbox.refresh()
        except errors.DbtoolsError as exc:
            self._complain("refresh", f"Changes cannot be read, so the previous state stays in force: {exc}")
        else:
            self._settle("refresh", "Changes are in force again.")

    async def _watch(self, observed: Observed) -> None:
        """Poll *observed* until cancelled; open it again after a failure."""
        while True:
            self._heard[observed.name] = anyio.Event()
            try:
                # Anyone may send a notification, so it only makes the Watch poll at once.
                async with observed.listen(lambda: self._heard[observed.name].set()):
                    await self._poll(observed)
            except errors.DbtoolsError as exc:
                self._complain(
                    observed.name, f"{observed.name}: cannot watch for changes, but tries again: {exc}"
                )
            await anyio.sleep(RETRY)

    async def _poll(self, observed: Observed) -> None:
        """Poll in each interval, and refresh an outdated snapshot."""
        asked: object = None
        waits, times = 0.0, 0
        while True:
            on_change = self._heard[observed.name] = anyio.Event()
            began = anyio.current_time()
            stamp = await observed.poll()
            ended = anyio.current_time()
            self._settle(observed.name, f"{observed.name}: watching for changes again.")
            current = (await self._toolbox.snapshot()).stamps.get(observed.name)
            # After a failed refresh for the same stamp, wait before the next.
            if stamp != current and (stamp != asked or ended > waits):
                times = times + 1 if stamp == asked else 1
                asked, waits = stamp, ended + min(times * RETRY, SLOWEST)
                await self._refresh()
            pause = min(PAUSE_SHARE * (ended - began), MOST * observed.interval)
            with anyio.move_on_after(max(observed.interval, pause)):
                await on_change.wait()

    def _complain(self, about: str, problem: str) -> None:
        """Report *problem* once."""
        if self._reported.get(about) != problem:
            self._reported[about] = problem
            self._warn(problem)

    def _settle(self, about: str, news: str) -> None:
        """Report *news* if something was wrong."""
        if self._reported.pop(about, None) is not None:
            self._resolved(news)


def _problems(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(dict.fromkeys(each for view in snapshot.views.values() for each in view.problems))
