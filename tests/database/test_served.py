"""A configuration that changes while its database is served: what takes effect, and what is listed."""

import os
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from dbtools.alembic import upgrade
from dbtools.records.registry import add
from dbtools.service.serving import FILES, REGISTRY, Poll, open_served
from dbtools.settings import load

DDL = "create table thing (id integer primary key, name text);"
ROLES = '[roles.default]\ntables."*" = true\nqueries = ["*"]\n'


@pytest.fixture
def url(url_of: Callable[[str], str]) -> str:
    return url_of(DDL)


class Configured:
    """A configuration, and what serves its database."""

    def __init__(self, path: Path, url: str, rest: str) -> None:
        self._path = path
        self._url = url
        self.write(rest)
        self.served = open_served(load(path))

    def write(self, rest: str) -> None:
        """Write the configuration with *rest*, dated an hour ago."""
        self._path.write_text(f'[database]\nurl = "{self._url}"\n{rest}')
        then = self._path.stat().st_mtime - 3600
        os.utime(self._path, (then, then))

    async def refresh(self) -> None:
        """Let the new configuration take effect."""
        await self.served.toolbox.refresh()

    async def listed(self) -> list[str]:
        """Return the names of the tools, without run_sql, which depends on the login."""
        names = [each.name for each in await self.served.toolbox.list("default")]
        return [name for name in names if name != "run_sql"]

    async def stamp(self, name: str) -> Hashable:
        """Return the stamp of this *name* that is in force."""
        return (await self.served.toolbox.snapshot()).stamps[name]


@asynccontextmanager
async def _configured(path: Path, url: str, rest: str, name: str) -> AsyncIterator[tuple[Configured, Poll]]:
    """Yield the configuration at *path*, and what polls the thing of this *name*."""
    configured = Configured(path, url, rest)
    (observed,) = (each for each in configured.served.observed if each.name == name)
    try:
        async with observed.listen(lambda: None):
            yield configured, observed.poll
    finally:
        await configured.served.backend.close()


@pytest.fixture
async def registry(url: str) -> str:
    """Return the URL of a database with a registry that has a query."""
    await anyio.to_thread.run_sync(upgrade, url)
    await add(url, {"one": "-- name: one\n-- description: One.\nselect 1 as one\n"})
    return url


@pytest.mark.parametrize("written", [("", ROLES, ""), (ROLES, "", ROLES)], ids=["without", "with"])
async def test_registry_that_is_not_named_counts_while_there_are_no_roles(
    written: tuple[str, ...], registry: str, tmp_path: Path
) -> None:
    stamps: list[Hashable] = []
    path = tmp_path / "dbtools.toml"
    async with _configured(path, registry, written[0], REGISTRY) as (configured, poll):
        for rest in written:
            configured.write(rest)
            await configured.refresh()
            stamps.append(await poll())

            assert await configured.stamp(REGISTRY) == stamps[-1]
            assert ("one" in await configured.listed()) is (rest == "")

    assert [stamp is not None for stamp in stamps] == [rest == "" for rest in written]
    assert stamps[0] == stamps[2]


async def test_registry_that_is_named_counts_with_roles_as_well(registry: str, tmp_path: Path) -> None:
    named = f'[registry]\nurl = "{registry}"\n'
    async with _configured(tmp_path / "dbtools.toml", registry, named, REGISTRY) as (configured, poll):
        await configured.refresh()
        before = await poll()
        configured.write(named + ROLES)
        await configured.refresh()
        after = await poll()

        assert before is not None
        assert after == before == await configured.stamp(REGISTRY)
        assert "one" in await configured.listed()


async def test_style_of_tools_that_changes_is_in_force(url: str, tmp_path: Path) -> None:
    listed: list[list[str]] = []
    typed, generic = (f'[tools]\nstyle = "{style}"\n' for style in ("typed", "generic"))
    async with _configured(tmp_path / "dbtools.toml", url, typed, FILES) as (configured, poll):
        listed.append(await configured.listed())
        for style in (generic, typed):
            configured.write(style)
            assert await poll() != await configured.stamp(FILES)

            await configured.refresh()
            assert await poll() == await configured.stamp(FILES)
            listed.append(await configured.listed())

    before, changed, after = listed
    assert before == after == ["describe_tables", "aggregate_rows", "list_thing", "get_thing"]
    assert changed == ["list_tables", "describe_tables", "aggregate_rows", "list_rows", "get_row"]


async def test_roles_that_see_the_same_share_it(url: str, tmp_path: Path) -> None:
    """With fifty roles, a schema of a thousand tables takes the memory of a few."""
    roles = (
        '[roles.reader]\ntables."*" = true\n[roles.auditor]\ntables."*" = true\n'
        '[roles.clerk]\ntables.thing = { columns = ["id"] }\n'
    )
    served = Configured(tmp_path / "dbtools.toml", url, roles).served
    try:
        snapshot = await served.toolbox.snapshot()
    finally:
        await served.backend.close()

    reader, auditor, clerk = (snapshot.view(name) for name in ("reader", "auditor", "clerk"))
    assert reader.context is auditor.context
    assert reader.tools is auditor.tools
    assert reader.catalog.tables[0] is snapshot.catalog.tables[0]
    assert clerk.context is not reader.context
    assert [each.name for each in clerk.catalog.tables[0].columns] == ["id"]
