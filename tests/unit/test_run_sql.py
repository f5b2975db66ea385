"""The tool run_sql: its definition, who gets it, what the audit log keeps, and how tables become views."""

import threading
from collections.abc import Hashable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from dbtools import errors
from dbtools.answers.results import ResultSet
from dbtools.backends.port import Backend
from dbtools.backends.run_sql import LONG, SqlOffer, check, unknown_column
from dbtools.backends.sqlite.run_sql.lens import literal
from dbtools.backends.sqlite.schema.syntax import lexis
from dbtools.configured.privileges import offered_server
from dbtools.configured.roles import roles_of
from dbtools.findings import Source
from dbtools.policy.roles import NO_RULES, Caller, FunctionRules, Limits, Role
from dbtools.records.entries import AuditEntry
from dbtools.schema.catalog import Catalog, Column, Table
from dbtools.service.execution import sql_run
from dbtools.service.snapshot import take_snapshot
from dbtools.settings import Settings
from dbtools.settings.sections import FunctionsSection, RoleSection, ToolsSection
from dbtools.statements.select import Output, SqlStatement
from dbtools.tools import define, unknown_tool
from dbtools.tools.calls import SqlCall
from dbtools.tools.definition import ToolContext, tokens_in
from dbtools.tools.run_sql import MISSPELT, TRUNCATED, unique_names
from dbtools.values.types import ColumnType, Family, Mask
from tests.unit.shop import resolved

DECIMAL = ColumnType(family=Family.DECIMAL, name="numeric")
INTEGER = ColumnType(family=Family.INTEGER, name="integer")
CATALOG = Catalog(tables=(Table(name="orders", columns=(Column(name="id", type=INTEGER),)),))


def context(dialect: str) -> ToolContext:
    return ToolContext(catalog=CATALOG, limits=Limits(), server=dialect)


def test_tool_exists_only_with_a_dialect_which_its_short_description_names() -> None:
    definition = define(context("PostgreSQL 16.2"))["run_sql"].definition

    assert "run_sql" not in define(context(""))
    assert "SELECT of PostgreSQL 16.2" in definition.description
    assert tokens_in(len(definition.description)) <= 150
    assert definition.annotations["readOnlyHint"]


def test_column_masked_by_a_hash_is_told_from_an_unknown_one() -> None:
    hashed = ColumnType(family=Family.TEXT, name="text", mask=Mask.HASH)
    table = Table(name="orders", columns=(Column(name="id", type=INTEGER), Column(name="card", type=hashed)))
    catalog = Catalog(tables=(table,))

    masked, unknown = (
        str(unknown_column(name, f"select {name} from orders", catalog, tables=["orders"]))
        for name in ("orders.card", "cards")
    )

    assert masked.startswith("run_sql cannot read 'card', which is masked by a hash.")
    assert unknown.startswith("There is no column 'cards'. describe_tables")


def test_column_in_double_quotes_may_be_meant_as_text() -> None:
    bare, quoted = (
        str(unknown_column("paid", f"select id from orders where id = {text}", CATALOG, tables=["orders"]))
        for text in ("paid", '"paid"')
    )

    assert bare.endswith("describe_tables lists tables and columns.")
    assert quoted == f"{bare} Write text in single quotes."


def test_unknown_tool_with_sql_in_its_name_suggests_it() -> None:
    refusal = str(unknown_tool("execute_sql", define(context("SQLite 3.40.1")), ["run_sql"]))

    assert "Use run_sql." in refusal


@pytest.mark.parametrize(
    ("condition", "is_explained"),
    [
        ("status = 'shiped'", True),
        ("status IN ( 'shiped')", True),
        ("status <> 'shiped'", False),
        ("placed >= 'a'", False),
        ("placed = '2024-02-30'", False),
        ("total = 5", False),
    ],
)
def test_answer_without_a_match_says_how_texts_are_compared(condition: str, is_explained: bool) -> None:
    call = define(context("SQLite 3.40.1"))["run_sql"].bind(
        {"sql": f"select id from orders where {condition}"}
    )
    one = ResultSet(outputs=(Output(term=Column(name="id", type=INTEGER)),), rows=((1,),))
    assert isinstance(call, SqlCall)
    full, *empty = (call.answer(replace(one, rows=rows)) for rows in (one.rows, (), ((0,),), ((None,),)))

    assert [each.structured.get("note") == MISSPELT for each in empty] == [is_explained] * 3
    assert "note" not in full.structured


@pytest.mark.parametrize(
    ("sql", "cell", "is_explained"),
    [
        ("select sum(status = 'no-show') / count(*) from orders", 0, True),
        ("select count(*) filter (where a) / count(*) as share from orders", 0, True),
        ("select sum(total)/count(*) from orders where status = 'a'", 3, True),
        ("with a as (select sum(id) / 2 as half from orders) select half from a", 7, True),
        ("select coalesce((select id / 3 from orders), 0)", None, False),
        ("select sum(id) / count(*) from orders", 0.5, False),
        ("select 1.0 * sum(id) / count(*) > 0.5 from orders", 0, False),
        ("select cast(cast(sum(id) as real) / count(*) as integer) from orders", 0, False),
        ("select id from orders where id / 2 = 3", 6, False),
        ("select count(*) from orders where placed = '2024/01/01' -- a / b", 0, False),
        ("select '1/2', \"a/b\" /* 1/2 */ from orders", 1, False),
        ("select id ) / (", 1, False),
    ],
)
def test_quotient_of_integers_is_explained(sql: str, cell: object, is_explained: bool) -> None:
    call = define(context("SQLite 3.40.1"))["run_sql"].bind({"sql": sql})
    assert isinstance(call, SqlCall)
    outputs = tuple(Output(term=Column(name=name, type=INTEGER)) for name in ("a", "b"))
    answer = call.answer(ResultSet(outputs=outputs, rows=((cell, "x"), (None, "y"))))

    assert (answer.structured.get("note") == TRUNCATED) == is_explained


def test_quotient_of_decimals_is_not_explained() -> None:
    call = define(context("PostgreSQL 16.2"))["run_sql"].bind({"sql": "select id, total / 2 from orders"})
    assert isinstance(call, SqlCall)
    outputs = tuple(Output(term=Column(name=each.name, type=each)) for each in (INTEGER, DECIMAL))
    answer = call.answer(ResultSet(outputs=outputs, rows=((1, "0.50"),)))

    assert "note" not in answer.structured


@pytest.mark.parametrize(
    ("names", "unique"),
    [
        ([], []),
        (["a", "b"], ["a", "b"]),
        (["a", "a", "a"], ["a", "a_2", "a_3"]),
        (["a", "a", "a_2"], ["a", "a_3", "a_2"]),
        (["", ""], ["", "_2"]),
        (["a", "a_2", "a", "a", "a_2"], ["a", "a_2", "a_3", "a_4", "a_2_2"]),
    ],
)
def test_columns_of_one_name_are_numbered(names: list[str], unique: list[str]) -> None:
    assert unique_names(names) == unique


class Offering(Backend):
    def __init__(self, offer: SqlOffer) -> None:
        self._offer = offer
        self.asked = 0

    async def offer(self, catalog: Catalog, functions: FunctionRules = NO_RULES) -> SqlOffer:
        self.functions = functions
        self.asked += 1
        return self._offer

    place = ""
    introspect = describe = stamp = load_runner = None  # type: ignore[assignment]


GOOD, BAD = SqlOffer(server="SQL 1"), SqlOffer(server="SQL 1", obstacle="the login may write.")


@pytest.mark.parametrize(
    ("settings", "offer", "dialect", "found"),
    [
        pytest.param(Settings(), GOOD, "SQL 1", [], id="auto"),
        pytest.param(Settings(), BAD, "", ["warning"], id="auto, unsuitable"),
        pytest.param(Settings(tools=ToolsSection(sql=True)), BAD, "", ["error"], id="wanted, unsuitable"),
        pytest.param(Settings(roles={"r": RoleSection(sql=True)}), GOOD, "SQL 1", [], id="granted"),
        (Settings(roles={"r": RoleSection(sql=True)}), BAD, "", ["error"]),
    ],
)
async def test_offer_depends_on_the_login(
    settings: Settings, offer: SqlOffer, dialect: str, found: list[str]
) -> None:
    role = Role(name="r", sql=True, source=Source())
    shown_dialect, findings = await offered_server(settings, role, CATALOG, CATALOG, Offering(offer), {})

    assert shown_dialect == dialect
    assert [each.level for each in findings] == found
    assert all(each.code == "no_sql" and "the login may write" in each.message for each in findings)


async def test_functions_that_the_operator_names_reach_the_database() -> None:
    named = RoleSection(functions=("public.search_*",), sql=True)
    settings = Settings(
        functions=FunctionsSection(exclude=("md5",)),
        roles={"r": RoleSection(inherits=("named",), functions=("rank",)), "named": named},
    )
    (role,) = (each for each in roles_of(settings, lexis) if each.name == "r")
    (everything,) = roles_of(Settings(functions=FunctionsSection(include=("f",), exclude=("g",))), lexis)
    backend = Offering(GOOD)
    await offered_server(settings, role, CATALOG, CATALOG, backend, {})
    statement = SqlStatement(sql="select 1", limit=1, longest=1, most_bytes=1)
    (view,) = take_snapshot(resolved(CATALOG, (role,))).views.values()

    assert role.functions == FunctionRules(include=("rank", "public.search_*"), exclude=("md5",))
    assert everything.functions == FunctionRules(include=("f",), exclude=("g",))
    assert backend.functions == role.functions
    assert sql_run(statement, view, Caller(role="r")).functions == role.functions


async def test_roles_with_the_same_functions_share_an_offer() -> None:
    backend, granted = Offering(GOOD), RoleSection(sql=True)
    settings = Settings(roles={"a": granted, "b": granted, "c": RoleSection(sql=True, functions=("f",))})
    offers: dict[Hashable, SqlOffer] = {}
    for role in roles_of(settings, lexis):
        assert (await offered_server(settings, role, CATALOG, CATALOG, backend, offers))[0] == "SQL 1"

    assert len(offers) == backend.asked == 2


async def test_role_without_a_grant_or_a_table_is_offered_nothing() -> None:
    for role, seen in ((Role(), CATALOG), (Role(sql=True), Catalog())):
        assert await offered_server(Settings(), role, seen, CATALOG, Offering(GOOD), {}) == ("", ())


def entry(**arguments: object) -> AuditEntry:
    now = datetime.now(UTC)
    return AuditEntry(
        time=now, identity=None, role="r", tool="run_sql", arguments=arguments, protocol=None, client=None
    )


def test_audit_log_keeps_a_digest_of_the_sql_or_all_of_it() -> None:
    sql = "select 'secret' from orders" + " " * 600 + "-- end"
    redacted = entry(sql=sql, limit=5).content(arguments=False)["arguments"]
    same = entry(sql=sql).content(arguments=False)["arguments"]
    other = entry(sql=sql + " ").content(arguments=False)["arguments"]

    assert isinstance(redacted, dict)
    assert isinstance(same, dict)
    assert isinstance(other, dict)
    assert redacted["limit"] == 5
    assert redacted["sql"].startswith("sha256:")
    assert redacted["sql"] == same["sql"] != other["sql"]
    assert "secret" not in str(redacted)
    assert entry(sql=sql, limit=5).content(arguments=True)["arguments"] == {"sql": sql, "limit": 5}


@pytest.mark.parametrize(
    ("value", "sql"),
    [
        (1, "1"),
        (-1, "(-1)"),
        (True, "1"),
        (False, "0"),
        (1.5, "(1.5)"),
        (float("-inf"), "(-9e999)"),
        ("it's", "'it''s'"),
        ("'; drop table a; --", "'''; drop table a; --'"),
        ("ä\n\\", "'ä\n\\'"),
    ],
)
def test_claim_is_a_literal(value: object, sql: str) -> None:
    assert literal(value) == sql


@pytest.mark.parametrize(
    "value", [None, "a\0b", "\ud800", 2**63, -(2**70), float("nan"), [1], {"a": 1}, b"x"], ids=repr
)
def test_claim_without_a_literal_denies_the_call(value: object) -> None:
    with pytest.raises(errors.Denied):
        literal(value)


def test_worker_imports_nothing_of_the_package() -> None:
    source = (Path(__file__).parents[2] / "dbtools/backends/sqlite/run_sql/worker.py").read_text(
        encoding="utf-8"
    )

    assert "import dbtools" not in source
    assert "from dbtools" not in source


@pytest.mark.parametrize(
    ("sql", "beside"),
    [pytest.param("x" * LONG, False, id="short"), pytest.param("x" * (LONG + 1), True, id="long")],
)
async def test_long_statement_is_checked_in_a_thread(sql: str, beside: bool) -> None:
    checked_in = await check(sql, threading.get_ident, anyio.CapacityLimiter(1))

    assert (checked_in != threading.get_ident()) == beside
