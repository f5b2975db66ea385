"""Each of the two safeguards of free SQL stops attacks by itself, with the other one disabled."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from dbtools.backends.free import FreeRun
from dbtools.backends.sqlite.files import location_of
from dbtools.backends.sqlite.lens import lens_of, specification
from dbtools.backends.sqlite.refusals import readable
from dbtools.backends.sqlite.syntax import names_in
from dbtools.backends.sqlite.worker import Refusal, Sandbox
from dbtools.catalog import Catalog, Selection
from dbtools.errors import SqlRefused
from dbtools.policy import FunctionRules, restrict
from dbtools.service.serving import open_database
from dbtools.settings import DatabaseSection, Settings
from dbtools.settings.roles import roles_of
from dbtools.settings.sections import GrantSection, PolicySection, RoleSection
from tests.database.free_attacks import COLUMN_POSITIONS, TABLE_POSITIONS, TABLES
from tests.database.free_clinic import CANARY, GRANTS, NORTH, NUMBER, RICH, SEEN

#: The same grants, with a filter that reads no other table.
ALONE = {**GRANTS, "customers": GrantSection(columns=SEEN, where="region = :claims.region")}
SCHEMA = "xfile"
REQUEST = {"limit": 100, "longest": 1_000, "bytes": 100_000, "explains": False}


class OnlyProgram(Sandbox):
    """A connection in which hidden names stand for the hidden tables."""

    def shadow(self, names: Iterable[str]) -> None:
        pass


class OnlyNames(Sandbox):
    """A connection without an authorizer and an audit."""

    def strict(self, action: int, first: str | None, second: str | None, *rest: str | None) -> int:
        return sqlite3.SQLITE_OK

    def audit(self, sql: str) -> bool:
        return True


Open = Callable[[type[Sandbox], Mapping[str, bool | GrantSection]], Awaitable[Sandbox]]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the rich database."""
    path = tmp_path_factory.mktemp("safeguards") / "rich.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(RICH)
    return path


@pytest.fixture
async def sandbox(file: Path) -> AsyncIterator[Open]:
    """Give a factory: a kind of connection and grants in, the connection of the role out."""
    opened: list[Sandbox] = []

    async def open_sandbox(kind: type[Sandbox], grants: Mapping[str, bool | GrantSection]) -> Sandbox:
        settings = Settings(
            database=DatabaseSection(url=f"sqlite:///{file}"),
            roles={"reader": RoleSection(tables=dict(grants), sql=True)},
            policy=PolicySection(hash_key="a key of the operator's", claims={"region": "text"}),
        )
        backend = open_database(settings)
        catalog = await backend.introspect(Selection())
        (role,) = roles_of(settings, backend.facts.lexis)
        run = free_run(restrict(catalog, role), catalog)
        lens = lens_of(run, SCHEMA)
        opened.append(
            kind(specification(lens, location_of(backend.url), catalog.stamp, SCHEMA, FunctionRules()))
        )
        return opened[-1]

    yield open_sandbox
    for each in opened:
        each.close()


def free_run(catalog: Catalog, whole: Catalog) -> FreeRun:
    return FreeRun(
        sql="",
        catalog=catalog,
        whole=whole,
        claims=NORTH,
        caller="a",
        limit=1,
        longest=1,
        most_bytes=1,
        timeout=1,
    )


def leaks(sandbox: Sandbox, sql: str) -> bool:
    """Return whether *sql* runs and its result depends on what is hidden, as far as canaries show."""
    try:
        found = str(sandbox.run({**REQUEST, "sql": sql, "names": [*names_in(sql)]}))
    except Refusal:
        return False
    return CANARY in found or NUMBER in found


def runs(sandbox: Sandbox, sql: str) -> bool:
    try:
        sandbox.run({**REQUEST, "sql": sql, "names": [*names_in(sql)]})
    except Refusal:
        return False
    return True


#: Statements that do not resolve the table, so that they run even if there is none.
UNRESOLVED = ("with a(x) as (select v from {t}) select 1",)
#: Names of the common table expression's own.
POSITIONS = [each for each in TABLE_POSITIONS if each not in UNRESOLVED]


async def test_program_alone_stops_every_hidden_table(sandbox: Open) -> None:
    opened = await sandbox(OnlyProgram, ALONE)
    ran = [sql for each in POSITIONS for t in TABLES if runs(opened, sql := each.replace("{t}", t))]

    assert ran == []


async def test_names_alone_stop_every_hidden_table(sandbox: Open) -> None:
    opened = await sandbox(OnlyNames, ALONE)
    ran = [sql for each in POSITIONS for t in TABLES if runs(opened, sql := each.replace("{t}", t))]

    assert ran == []


@pytest.mark.parametrize("kind", [OnlyProgram, OnlyNames])
async def test_each_safeguard_alone_hides_columns_and_rows(sandbox: Open, kind: type[Sandbox]) -> None:
    opened = await sandbox(kind, GRANTS)
    statements = [each.replace("{c}", column) for each in COLUMN_POSITIONS for column in ("ssn", "Salary")]
    statements += ["select * from customers", "select max(amount), group_concat(name) from customers"]

    assert [sql for sql in statements if leaks(opened, sql)] == []


async def test_only_the_program_stops_tables_of_the_engine_and_functions(sandbox: Open) -> None:
    statements = (
        "select * from sqlite_master",
        f"select * from {SCHEMA}.sqlite_master",
        "select count(*) from (select 'secrets' as name) join sqlite_temp_master using (name)",
        "select * from pragma_table_list",
        "select sqlite_compileoption_get(1)",
        "select randomblob(4)",
        f"select v from {SCHEMA}.secrets",
        "attach ':memory:' as other",
        "pragma table_info(customers)",
    )
    names, program = await sandbox(OnlyNames, ALONE), await sandbox(OnlyProgram, ALONE)

    assert [sql for sql in statements if runs(program, sql)] == []
    assert [sql for sql in statements if not runs(names, sql)] == ["attach ':memory:' as other"]


@pytest.mark.parametrize(
    "sql",
    [
        f"select count(*) from (select '{CANARY}' as v) join secrets using (v)",
        "select v from (select 'x' as v) full join secrets using (v)",
        "select count(*) from secrets",
        "select id from orders limit (select count(*) from secrets)",
    ],
)
async def test_only_names_stop_what_reads_no_column_of_a_table_of_a_filter(sandbox: Open, sql: str) -> None:
    """SQLite reports no event with a column for it, and the filter opens the same pages."""
    assert runs(await sandbox(OnlyProgram, GRANTS), sql)
    assert not runs(await sandbox(OnlyNames, GRANTS), sql)
    assert not runs(await sandbox(Sandbox, GRANTS), sql)


@pytest.mark.parametrize("name", ["sqlite_stmt", "sqlite_temp_master", "pragma_database_list"])
def test_tables_of_the_engine_are_refused_before_either_safeguard(name: str) -> None:
    for written in (name, name.upper(), f'"{name}"', f"\ufeff{name}", f"main.\ufeff\ufeff{name}"):
        with pytest.raises(SqlRefused):
            readable(f"select count(*) from {written}")


async def test_silent_joins_still_exist_without_both_safeguards(sandbox: Open) -> None:
    """Otherwise, the tests of each safeguard would prove nothing."""

    class Neither(OnlyNames, OnlyProgram):
        pass

    opened = await sandbox(Neither, ALONE)
    resolved = [sql for each in POSITIONS if runs(opened, sql := each.replace("{t}", "secrets"))]

    assert len(resolved) > 40
    assert leaks(opened, "select * from secrets")
    assert leaks(opened, "select ssn from xfile.customers")


async def test_only_hidden_tables_that_a_statement_names_cost_anything(sandbox: Open) -> None:
    """A database may have thousands, and SQLite takes longer for each view."""

    class Counting(Sandbox):
        created = 0

        def create_view(self, name: str, sql: str) -> None:
            self.created += 1
            super().create_view(name, sql)

    opened = await sandbox(Counting, ALONE)
    assert isinstance(opened, Counting)
    before = opened.created

    for sql, hidden in (("select 1", 0), ("select * from SECRETS", 1), ('select * from "secrets"', 1)):
        runs(opened, sql)
        assert opened.created - before == hidden


async def test_forged_context_opens_no_page(sandbox: Open) -> None:
    """The authorizer gets the name of a WITH query as it gets that of a view."""
    opened = await sandbox(OnlyProgram, ALONE)

    assert not runs(opened, "with customers as (select v from secrets) select * from customers")
    assert not runs(opened, "with paid as (select ssn from xfile.customers) select * from paid")
