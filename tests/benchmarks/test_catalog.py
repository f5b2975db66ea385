"""What it costs to read a catalog of 1,000 tables and to define its tools."""

from collections.abc import Callable

import orjson
import pytest

from dbtools.answers.styles import Listing, Surface
from dbtools.policy.roles import Role
from dbtools.service.snapshot import take_snapshot
from dbtools.tools.definition import tool_content
from tests.benchmarks.bare_drivers import open_bare
from tests.benchmarks.conftest import Target
from tests.benchmarks.contest import Figure, bests
from tests.benchmarks.databases import COLUMNS, TABLES
from tests.database.shop import catalog_of
from tests.unit.shop import resolved

pytestmark = pytest.mark.benchmark

Report = Callable[[Figure], Figure]

#: every column of every table, which any introspection must read
COLUMN_NAMES = {
    "SQLite": (
        "select s.name, c.name, c.type from sqlite_schema as s"
        " join pragma_table_xinfo(s.name) as c where s.type = 'table'"
    ),
    "PostgreSQL": (
        "select c.relname, a.attname, format_type(a.atttypid, a.atttypmod) from pg_class as c"
        " join pg_attribute as a on a.attrelid = c.oid"
        " where c.relkind = 'r' and c.relnamespace = 'public'::regnamespace and a.attnum > 0"
    ),
}


async def test_catalog_is_read_in_little_more_time_than_its_columns(wide: Target, report: Report) -> None:
    async def introspect() -> object:
        return await catalog_of(wide.url)

    async def connect_and_read_columns() -> object:
        async with open_bare(wide.url) as bare:
            rows = list(await bare.fetch(COLUMN_NAMES[wide.dialect]))
        assert len(rows) == TABLES * COLUMNS
        return rows

    found = await bests(ours=introspect, floor=connect_and_read_columns, rounds=7)

    figure = report(
        found.figure(
            "connect and introspect 1,000 tables",
            wide.dialect,
            floor_is="driver: connect, read names and types of columns",
        )
    )
    assert figure.ratio < 25


#: All tools are defined; by itself this database would get the few for any table.
TYPED = Listing(surface=Surface.TYPED)


async def test_tools_are_defined_in_little_more_time_than_they_are_parsed(
    wide: Target, report: Report
) -> None:
    catalog = await catalog_of(wide.url)
    definitions: list[dict[str, object]] = []

    async def define() -> object:
        snapshot = take_snapshot(resolved(catalog, (Role(),), TYPED))
        definitions[:] = [tool_content(each) for each in snapshot.views["default"].definitions]
        return definitions

    await define()
    text = orjson.dumps(definitions)

    async def parse() -> object:
        return orjson.loads(text)

    found = await bests(ours=define, floor=parse, rounds=7)

    figure = report(
        found.figure(
            f"define the {len(definitions):,} tools of 1,000 tables",
            wide.dialect,
            floor_is=f"orjson.loads of the same {len(text) / 2**20:.1f} MiB",
        )
    )
    assert len(catalog.tables) == TABLES
    assert figure.ratio < 15
