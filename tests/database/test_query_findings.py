"""What `check` and the log report about permitted queries."""

import json
import re

import pytest

from dbtools.configured.query_sources import UNREAD
from tests.database.query_shop import FILES, ServeQueries
from tests.database.query_tables import DDL, QUERIES, findings_of, known_of, queries_of, shops as shops
from tests.protocol.command_line import run

READING_ROLES = """
[roles.sees]
tables.customers = true
tables.secrets = { columns = ["id", "price"] }
queries = ["peek", "emails"]
[roles.masks]
tables.customers = { mask = { email = "partial" } }
tables.secrets = { where = "price < 50" }
queries = ["peek"]
[roles.blind]
queries = ["emails"]
[roles.meant]
queries = ["*"]
[roles.partly]
queries = ["peek", "emails"]
[roles.wrong]
tables.customers = true
queries = ["peak", "x*"]
"""


def test_check_tells_what_queries_read_that_roles_do_not_see(
    dialect: str, serve_queries: ServeQueries
) -> None:
    with serve_queries(dialect, DDL, QUERIES, READING_ROLES) as shop:
        unknown = [each for each in findings_of(shop) if each["code"] == "unknown_query"]
        told = known_of(shop)
        printed = run("check", str(shop.path)).stdout

    assert [(each["line"], each["message"]) for each in unknown] == [
        (22, f"role wrong, queries: there is no query 'peak'. Did you mean peek? {UNREAD}"),
        (22, f"role wrong, queries: there is no query 'x*'. {UNREAD}"),
    ]
    everything = ("customers, secrets, which the role does not see",)
    assert told["peek"]["unseen"] == {
        "sees": ["customer_id of secrets, which the role does not see"],
        "masks": ["email of customers, masked for the role", "secrets, of which the role sees some rows"],
        "meant": [*everything],
        "partly": [*everything],
    }
    customers = ["customers, which the role does not see"]
    assert told["emails"]["unseen"] == dict.fromkeys(("blind", "meant", "partly"), customers)
    reading = "customer_id of secrets, which the role does not see"
    assert f"The role sees may call peek, although it reads {reading}." in printed


def test_check_lists_the_views_that_patterns_do_not_grant(dialect: str, serve_queries: ServeQueries) -> None:
    ddl = f"{DDL} create view named as select 1 as one; create view others as select 2 as two;"
    roles = '[roles.r]\ntables = { "*" = true, secrets = false, named = true }\n'
    with serve_queries(dialect, ddl, QUERIES, roles) as shop:
        told = known_of(shop)["views"]
        printed = run("check", str(shop.path)).stdout

    assert told == {"r": ["others"]}
    assert "may show what it does not see: others. Name" in printed


def test_role_of_queries_alone_is_no_mistake(dialect: str, serve_queries: ServeQueries) -> None:
    with serve_queries(dialect, DDL, QUERIES, READING_ROLES) as shop:
        config = shop.path.read_text().replace("[roles.blind]", "[roles.nothing]\n[roles.blind]")
        shop.path.write_text(config)
        found = [each["message"] for each in findings_of(shop) if each["code"] == "sees_nothing"]
        listed = shop.listed("blind")

    assert found == ["role nothing: it sees no table."]
    assert listed == ["emails"]


def test_query_of_a_registry_that_is_named_is_merely_unknown(
    dialect: str, serve_queries: ServeQueries
) -> None:
    roles = '[registry]\nurl = "sqlite:///nowhere.db"\n[roles.a]\nqueries = ["x"]'
    with serve_queries(dialect, DDL, QUERIES, roles) as shop:
        found = [each["message"] for each in findings_of(shop) if each["code"] == "unknown_query"]

    assert found == ["role a, queries: there is no query 'x'."]


MISTAKES: dict[str, str | bytes] = {
    **{name: (FILES / name).read_text() for name in ("mistakes.sql", "again.sql")},
    "latin.sql": "select 'é' as e".encode("latin-1"),
    "below/good.sql": "-- description: In a folder below.\nselect 1 as one",
}


def test_check_reports_every_mistake_in_its_place(dialect: str, serve_queries: ServeQueries) -> None:
    with serve_queries(dialect, DDL, MISTAKES) as shop:
        found = findings_of(shop)
        served = queries_of(shop, "default")

    assert found == json.loads((FILES / f"mistakes.{dialect}.json").read_text())
    assert served == ["good", "undescribed"]


def test_findings_are_logged(dialect: str, serve_queries: ServeQueries) -> None:
    with serve_queries(dialect, DDL, MISTAKES) as shop:
        warnings = [each for each in map(str, shop.view().problems) if "quer" in each or "latin" in each]

    assert len([each for each in warnings if re.match(r"queries/mistakes\.sql:\d+: ", each)]) == 20
    assert any("query no_table is withdrawn: " in each and "custmers" in each for each in warnings)


def test_missing_folder_is_reported(dialect: str, serve_queries: ServeQueries) -> None:
    with serve_queries(dialect, DDL, {}, '[tools]\nstyle = "typed"\n') as shop:
        (shop.path.parent / "queries").rmdir()
        found = findings_of(shop)

    assert [(each["code"], each["level"], each["line"]) for each in found] == [("no_queries", "error", 4)]


PLACEHOLDERS = {
    "alone.sql": "select id from customers\nwhere id = ?",
    "close.sql": "select id from customers\nwhere id=? and name is not null",
    "listed.sql": "select id from customers\nwhere id in (?, ?)",
    "limit.sql": "select id from customers\nlimit ?",
    "value.sql": "select id,\n? as x from customers",
    "sorted.sql": "-- description: Sorted.\n-- param p: text\nselect id from customers order by :p",
}


def test_placeholders_are_reported_in_their_place_and_order_by_a_parameter_is_not(
    dialect: str, serve_queries: ServeQueries
) -> None:
    with serve_queries(
        dialect, DDL, PLACEHOLDERS, '[roles.r]\ntables.customers = { where = "id = ?" }\n'
    ) as shop:
        found = findings_of(shop)

    told = {each["file"]: (each["line"], each["level"], str(each["message"])) for each in found}
    for name in ("alone.sql", "close.sql", "listed.sql", "limit.sql", "value.sql"):
        line, level, message = told[name]
        assert (name, line, level) == (name, 2, "error")
        assert message.endswith("? is not a parameter: write :name.")
    assert "sorted.sql" not in told
    (filter,) = [each for each in found if each["code"] == "bad_filter"]
    assert "? is not a parameter: write :name" in str(filter["message"])


WITHDRAWN = """
[roles.clerk]
tables.customers = true
queries = ["*"]
"""


def test_withdrawn_query_is_logged_with_its_reason(dialect: str, serve_queries: ServeQueries) -> None:
    queries = {
        "a.sql": "-- name: a\n-- description: A.\nselect nothing from customers",
        "ab.sql": "-- name: ab\n-- description: AB.\nselect :b",
    }
    with serve_queries(dialect, DDL, queries, WITHDRAWN) as shop:
        reasons = [shop.explain(name, {}, role="clerk").reason for name in ("a", "ab", "b")]
        called = [run("call", str(shop.path), "--role", "clerk", name) for name in ("a", "b")]
        refused = [shop.refusal(name, role="clerk") for name in ("a", "b")]

    begin = "The role clerk has no tool a. queries/a.sql:3: error: query a is withdrawn: "
    assert reasons[0].startswith(begin)
    assert reasons[1:] == [
        "The role clerk has no tool ab. queries/ab.sql:3: error: query ab: :b is not declared. "
        "Write -- param b: TYPE  text, or :claims.NAME for a claim of the caller.",
        "The role clerk has no tool b.",
    ]
    assert f"dbtools: {shop.path.parent}/queries/a.sql:3: error: query a is withdrawn: " in called[0].stderr
    assert "dbtools: There is no tool 'a'." in called[0].stderr
    assert "withdrawn" not in called[1].stderr
    assert refused[0].replace("'a'", "…") == refused[1].replace("'b'", "…")


BY_SIZE = "select name from t where at {sign} :claims.level"


@pytest.mark.parametrize("sign", ["<", "<= +", "!=", "<>", "between 0 and", "between"])
def test_claim_that_is_compared_by_size_wants_a_type_where_the_database_knows_none(
    sign: str, dialect: str, serve_queries: ServeQueries
) -> None:
    ddl = "create table t (name text, at integer); insert into t values ('x', 1);"
    sql = BY_SIZE.format(sign=sign) + (" and 5" if sign == "between" else "")
    with serve_queries(dialect, ddl, {"q.sql": f"-- name: q\n{sql}"}) as shop:
        withdrawn = "q" not in shop.portal.call(shop.toolbox.view, "default").tools

    assert withdrawn == (dialect == "sqlite")


FUNCTIONS = """
create table customers (id integer primary key, name text);
create table secrets (id integer primary key, price integer);
create function leak(integer) returns integer language sql set search_path = public
    as 'select price from secrets where id = $1';
create view leaks as select id, leak(id) as price from customers;
"""
LEAKS = "-- name: leaks_of\n-- description: Prices.\nselect id, leak(id) as price from customers"
LEAKING_ROLES = """
[roles.clerk]
tables.customers = true
queries = ["leaks_of"]
[roles.meant]
tables.customers = true
queries = ["leaks_of"]
"""


def test_functions_with_unknown_reads_are_reported(serve_queries: ServeQueries) -> None:
    with serve_queries("postgresql", FUNCTIONS, {"q.sql": LEAKS}, LEAKING_ROLES) as shop:
        found = json.loads(run("check", str(shop.path), "--json").stdout)
        script = run("grants", str(shop.path), "--role", "clerk")

    assert found["queries"]["leaks_of"]["reads"] == ["customers.id", "what the function public.leak reads"]
    unreported = "query leaks_of: the database does not report what the function public.leak reads."
    assert unreported in script.stderr


def test_mistake_in_a_clause_is_reported_on_its_line(dialect: str, serve_queries: ServeQueries) -> None:
    text = (
        "-- name: q\n-- description: Some.\n-- param a: text?\n-- param b: text?\n\nselect id\n"
        "from customers where true\n  /*? and name = :a ?*/\n  /*? and\n  nmae = :b ?*/\norder by id"
    )
    with serve_queries(dialect, DDL, {"q.sql": text}) as shop:
        (found,) = findings_of(shop)

    assert (found["code"], found["line"]) == ("withdrawn", 10)


def test_query_of_an_excluded_table_is_reported(dialect: str, serve_queries: ServeQueries) -> None:
    with serve_queries(dialect, DDL, QUERIES) as shop:
        config = shop.path.read_text().replace("[database]", '[database]\nexclude = ["secrets"]')
        shop.path.write_text(config)
        told = known_of(shop)["peek"]["unseen"]

    label = "secrets" if dialect == "sqlite" else "public.secrets"
    assert told == {"default": [f"{label}, which the role does not see"]}


WRITES = """
create table t (id integer primary key);
create function write() returns integer language plpgsql set search_path = public
    as 'begin insert into t values (1); return 1; end';
"""


def test_function_that_writes_is_refused_in_words_of_its_own(serve_queries: ServeQueries) -> None:
    with serve_queries("postgresql", WRITES, {"q.sql": "select write() as x"}) as shop:
        assert shop.refusal("q") == "refused: The statement tries to write, but may only read."
