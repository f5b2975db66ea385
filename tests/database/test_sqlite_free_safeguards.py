"""Each of the two safeguards of ad-hoc SQL stops attacks by itself, with the other one disabled."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from itertools import cycle, islice

import pytest

from dbtools.backends.sqlite.run_sql.worker import Refusal, Sandbox
from dbtools.settings.sections import GrantSection
from tests.database.free_attacks import COLUMN_FORMS, OPENING, TABLES
from tests.database.free_clinic import GRANTS, RICH, SCHEMA, SEEN, open_sandbox, run_in
from tests.database.role_callers import Grants
from tests.database.twins import CANARY

#: The same grants, with a filter that reads no other table.
ALONE: Grants = {**GRANTS, "customers": GrantSection(columns=SEEN, where="region = :claims.region")}


Open = Callable[..., Sandbox]


class OnlyProgram(Sandbox):
    """A connection in which hidden names stand for the hidden tables."""

    def shadow(self, names: Iterable[str]) -> None:
        pass


class OnlyNames(Sandbox):
    """A connection without an authorizer and an audit."""

    def allow_statement(self, action: int, first: str | None, second: str | None, *rest: str | None) -> int:
        return sqlite3.SQLITE_OK

    def audit(self, sql: str) -> bool:
        return True


class Neither(OnlyNames, OnlyProgram):
    """A connection without either."""


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    """Yield a factory: a kind of connection and grants in, the role's connection to the rich database out."""
    path = tmp_path_factory.mktemp("safeguards") / "rich.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(RICH.ddl)
    opened: dict[tuple[object, bool], Sandbox] = {}
    with ExitStack() as stack:

        def sandbox(kind: type[Sandbox], grants: Grants = ALONE) -> Sandbox:
            key = (kind, grants is ALONE)
            if key not in opened:
                opened[key] = stack.enter_context(open_sandbox(path, grants, kind))
            return opened[key]

        yield sandbox


def leaks(opened: Sandbox, sql: str) -> bool:
    """Return whether *sql* runs and its result depends on what is hidden, as far as canaries show."""
    found = run_in(opened, sql)
    return not isinstance(found, Refusal) and bool(CANARY.search(str(found)))


def runs(opened: Sandbox, sql: str) -> bool:
    return not isinstance(run_in(opened, sql), Refusal)


@pytest.mark.parametrize("kind", [OnlyProgram, OnlyNames])
def test_each_safeguard_alone_hides_tables_columns_and_rows(sandbox: Open, kind: type[Sandbox]) -> None:
    names = cycle(TABLES)
    alone, joint = sandbox(kind), sandbox(kind, GRANTS)
    opening = [each.replace("{t}", name) for each in OPENING for name in ("secrets", *islice(names, 3))]
    columns = [each.replace("{c}", column) for each in COLUMN_FORMS for column in ("ssn", "Salary")]
    columns += ["select * from customers", "select max(amount), group_concat(name) from customers"]

    assert [sql for sql in opening if runs(alone, sql)] == []
    assert [sql for sql in columns if leaks(joint, sql)] == []


def test_only_the_program_stops_tables_of_the_engine_and_functions(sandbox: Open) -> None:
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
        # The authorizer gets the name of a WITH query as it gets that of a view.
        "with customers as (select v from secrets) select * from customers",
        f"with paid as (select ssn from {SCHEMA}.customers) select * from paid",
    )
    names, program = sandbox(OnlyNames), sandbox(OnlyProgram)

    assert [sql for sql in statements if runs(program, sql)] == []
    stopped = [sql for sql in statements if not runs(names, sql)]
    assert stopped == ["attach ':memory:' as other", statements[-2]]


def test_only_names_stop_what_reads_no_column_of_a_table_of_a_filter(sandbox: Open) -> None:
    """SQLite reports no event with a column for it, and the filter opens the same pages."""
    for sql in (
        "select count(*) from (select 'CANARY' as v) join secrets using (v)",
        "select v from (select 'x' as v) full join secrets using (v)",
        "select count(*) from secrets",
        "select id from orders limit (select count(*) from secrets)",
    ):
        run = [runs(sandbox(kind, GRANTS), sql) for kind in (OnlyProgram, OnlyNames, Sandbox)]

        assert run == [True, False, False], sql


def test_silent_joins_still_exist_without_both_safeguards(sandbox: Open) -> None:
    """Otherwise, the tests of each safeguard would prove nothing."""
    opened = sandbox(Neither)
    resolved = [sql for each in OPENING if runs(opened, sql := each.replace("{t}", "secrets"))]

    assert len(resolved) > 40
    assert leaks(opened, "select * from secrets")
    assert leaks(opened, f"select ssn from {SCHEMA}.customers")


def test_only_hidden_tables_that_a_statement_names_cost_anything(sandbox: Open) -> None:
    """A database may have thousands, and SQLite takes longer for each view."""
    created = []

    class Counting(Sandbox):
        def create_view(self, name: str, sql: str) -> None:
            created.append(name)
            super().create_view(name, sql)

    opened = sandbox(Counting)
    created.clear()
    for sql, hidden in (("select 1", 0), ("select * from SECRETS", 1), ('select * from "secrets"', 1)):
        runs(opened, sql)
        assert len(created) == hidden
