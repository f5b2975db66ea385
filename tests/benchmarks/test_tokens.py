"""What the definitions of tools cost a model, in tokens, on either surface.

Real databases are measured where DBTOOLS_BENCH_DATA names a folder with chinook.sqlite.gz and pagila.sql.gz.
"""

import gzip
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dbtools.answers.styles import Listing, Surface
from dbtools.backends import open_backend
from dbtools.policy.roles import Role
from dbtools.schema.catalog import Catalog, Column, ForeignKey, Key, Selection, Table
from dbtools.service.snapshot import take_snapshot
from dbtools.tools.definition import tokens_of, tool_content
from dbtools.values.types import ColumnType, Family
from tests.unit.shop import resolved

pytestmark = pytest.mark.benchmark

ROOT = Path(__file__).parents[2]
VARIABLE = "DBTOOLS_BENCH_DATA"
SCHEMAS, TABLES, COLUMNS = 27, 1_500, 14
MOST_OF_GENERIC = 2_500
DIALECT = "PostgreSQL 18.4"
#: parts of a dump that are not SQL: rows, and commands of psql
ROWS = re.compile(r"^COPY .*?^\\\.$", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^\\.*$", re.MULTILINE)
WIDTHS = (24, 8, 8, 8, 8)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What the definitions of one surface cost."""

    database: str
    tables: int
    surface: Surface
    tools: int
    tokens: int

    def line(self) -> str:
        """Return the cost as a line of the table."""
        cells = (self.database, f"{self.tables:,}", str(self.surface), f"{self.tools:,}", f"{self.tokens:,}")
        return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


@pytest.fixture(scope="module")
def costs(pytestconfig: pytest.Config) -> Iterator[list[Cost]]:
    """Yield a list of what was measured, and print it in the end."""
    costs: list[Cost] = []
    yield costs
    plugins = pytestconfig.pluginmanager
    reporter, capture = plugins.get_plugin("terminalreporter"), plugins.get_plugin("capturemanager")
    assert reporter is not None
    assert capture is not None
    headings = ("database", "tables", "surface", "tools", "tokens")
    with capture.global_and_fixture_disabled():
        reporter.section("tokens of definitions")
        for line in ("  ".join(map(str.ljust, headings, WIDTHS)), *(cost.line() for cost in costs)):
            reporter.write_line(line)


@pytest.fixture(scope="session")
def bench_data() -> Path:
    if VARIABLE not in os.environ:
        pytest.skip(f"{VARIABLE} names no folder of real databases")
    return Path(os.environ[VARIABLE])


def _cost(database: str, catalog: Catalog, surface: Surface) -> Cost:
    listing = Listing(surface=surface)
    found = resolved(catalog, (Role(),), listing)
    # A login that can only read is offered run_sql.
    roles = tuple(replace(each, server=DIALECT) for each in found.roles)
    definitions = take_snapshot(replace(found, roles=roles)).views["default"].definitions
    return Cost(
        database=database,
        tables=len(catalog.tables),
        surface=surface,
        tools=len(definitions),
        tokens=sum(tokens_of(tool_content(each)) for each in definitions),
    )


def _measured(database: str, catalog: Catalog, costs: list[Cost]) -> tuple[int, int]:
    """Return the tokens of the typed and of the generic definitions."""
    typed, generic = (_cost(database, catalog, surface) for surface in (Surface.TYPED, Surface.GENERIC))
    costs += [typed, generic]
    return typed.tokens, generic.tokens


async def _read(url: str) -> Catalog:
    database = open_backend(url)
    catalog = await database.introspect(Selection())
    await database.close()
    return catalog


def _many_tables() -> Catalog:
    """Return tables whose names return in other schemas, each with a parent in the first one."""
    return Catalog(tables=tuple(map(_one_of_many, range(TABLES))), default_schema="schema_00")


def _one_of_many(number: int) -> Table:
    integer = ColumnType(family=Family.INTEGER, name="integer")
    text = ColumnType(family=Family.TEXT, name="text")
    parent = ForeignKey(
        columns=("parent_id",), target_schema="schema_00", target="table_0000", target_columns=("id",)
    )
    return Table(
        name=f"table_{number // 2:04}",
        schema=f"schema_{number % SCHEMAS:02}",
        columns=(
            Column(name="id", type=integer, nullable=False),
            Column(name="parent_id", type=integer),
            *(Column(name=f"column_{at:02}", type=text, comment="What it is") for at in range(2, COLUMNS)),
        ),
        keys=(Key(columns=("id",), primary=True),),
        foreign_keys=(parent,),
        comment="One of many tables",
    )


async def test_sample_costs_less_than_the_default_budget(costs: list[Cost]) -> None:
    typed, generic = _measured("sample.db", await _read(f"sqlite:///{ROOT / 'sample.db'}"), costs)

    assert typed <= Listing().budget
    assert generic < MOST_OF_GENERIC


def test_very_many_tables_cost_no_more_than_a_few(costs: list[Cost]) -> None:
    typed, generic = _measured(f"made up, {SCHEMAS} schemas", _many_tables(), costs)

    assert generic < MOST_OF_GENERIC < Listing().budget < typed


async def test_chinook_costs_less_than_the_default_budget(
    bench_data: Path, tmp_path: Path, costs: list[Cost]
) -> None:
    path = tmp_path / "chinook.sqlite"
    path.write_bytes(gzip.decompress((bench_data / "chinook.sqlite.gz").read_bytes()))

    typed, generic = _measured("Chinook", await _read(f"sqlite:///{path}"), costs)

    assert typed <= Listing().budget
    assert generic < MOST_OF_GENERIC


async def test_pagila_is_measured(
    bench_data: Path, postgresql_database: Callable[[str], AbstractContextManager[str]], costs: list[Cost]
) -> None:
    dump = gzip.decompress((bench_data / "pagila.sql.gz").read_bytes()).decode()

    with postgresql_database(COMMANDS.sub("", ROWS.sub("", dump))) as url:
        _, generic = _measured("Pagila", await _read(url), costs)

    assert generic < MOST_OF_GENERIC
