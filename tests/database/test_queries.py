"""Permitted queries on both databases: who may call which, what is withdrawn, and what `check` says of it."""

import json
import re
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest

from dbtools.errors import DatabaseUnavailable
from dbtools.service.explanation import Explanation
from tests.database.query_shop import FILES, QueryShop, ServeQueries
from tests.protocol.test_command_line import run

DDL = """
create table customers (
    id integer primary key, name text not null, email text, country text not null, tenant integer not null
);
create table secrets (id integer primary key, customer_id integer not null, price integer not null);
insert into customers values
    (1, 'Ada', 'ada@example.com', 'PT', 7), (2, 'Bo', 'bo@example.com', 'JP', 8),
    (3, 'Cy', 'cy@example.com', 'PT', 7);
insert into secrets values (1, 2, 100);
"""
QUERIES = {"shop.sql": (FILES / "shop.sql").read_text()}
ROLES = """
[roles.named]
tables.customers = true
queries = ["customers_of", "mine"]
[roles.patterned]
queries = ["*s"]
[roles.child]
inherits = ["named"]
queries = [{ name = "pe?k", accept_reads = true }]
[roles.none]
tables.customers = true
[roles.all]
tables."*" = true
queries = ["*"]
"""
ENDLESS = """
with recursive n (i) as (select 1 union all select i + 1 from n where i < :most)
select count(*) as total from n
"""


@pytest.fixture(scope="module")
def shops(serve_queries: ServeQueries) -> Iterator[object]:
    """Give the shop of each dialect with its roles."""
    with ExitStack() as stack:
        yield cache(lambda dialect: stack.enter_context(serve_queries(dialect, DDL, QUERIES, ROLES)))


def _queries(shop: QueryShop, role: str) -> list[str]:
    return [each.name for each in shop.view(role).setting.queries]


@pytest.mark.parametrize(
    ("role", "names"),
    [
        pytest.param("named", ["customers_of", "mine"], id="by name"),
        pytest.param("patterned", ["emails"], id="by pattern"),
        pytest.param("child", ["customers_of", "mine", "peek"], id="inherited"),
        pytest.param("none", [], id="none"),
        pytest.param("all", ["customers_of", "emails", "idle", "mine", "peek"], id="all"),
    ],
)
def test_role_has_the_queries_that_it_is_granted(shop: QueryShop, role: str, names: list[str]) -> None:
    general = ["find_queries", "run_query"] if names else []

    assert _queries(shop, role) == names
    assert [each for each in shop.listed(role) if each in {*names, *general}] == names
    assert [each for each in shop.view(role).tools if each in {*names, *general}] == [*general, *names]


def test_hidden_query_is_absent_to_the_byte(shop: QueryShop) -> None:
    def told(name: str) -> list[str]:
        answers = [
            shop.refusal(name, {}, role="named"),
            shop.refusal("run_query", {"query": name}, role="named"),
            shop.refusal("run_query", {"query": name, "arguments": {"country": "PT"}}, role="named"),
            shop.call("find_queries", {"search": name}, role="named").text,
            str(shop.explain(name, {}, role="named")),
            str(shop.explain("run_query", {"query": name}, role="named")),
        ]
        return [answer.replace(name, "…") for answer in answers]

    assert told("peek") == told("poke")
    assert told("idle") == told("idly")


def test_role_without_queries_has_no_tools_for_them(shop: QueryShop) -> None:
    hidden, absent = (
        shop.refusal(name, {}, role="none").replace(name, "…") for name in ("run_query", "rum_query")
    )

    assert hidden == absent


def test_query_reads_what_its_role_does_not_see(shop: QueryShop) -> None:
    assert shop.rows("peek", role="child") == [[1, 100, "bo@example.com"]]
    assert shop.refusal("list_rows", {"table": "secrets"}, role="child").startswith("unknown_table")


def test_claims_are_the_callers(shop: QueryShop) -> None:
    assert shop.rows("mine", role="named", tenant=7) == [[1, "Ada"], [3, "Cy"]]
    assert shop.rows("mine", role="named", tenant="8") == [[2, "Bo"]]
    assert shop.refusal("mine", role="named", tenants=7) == "denied: The caller may not read this."


def test_call_is_explained(shop: QueryShop) -> None:
    allowed = shop.explain("customers_of", {"country": "PT"}, role="named")
    by_name = shop.explain(
        "run_query", {"query": "customers_of", "arguments": {"country": "PT"}}, role="named"
    )
    denied = shop.explain("mine", {}, role="named")
    wrong = shop.explain("customers_of", {}, role="named")

    assert allowed == by_name
    assert (allowed.allowed, list(allowed.parameters)[:2], allowed.rule.line) == (True, ["PT", 201], 8)
    assert "where country = " in str(allowed.sql)
    assert allowed.reason == "the query customers_of may be called, and reads what it says."
    assert (denied.allowed, denied.sql, denied.rule.line) == (False, None, 8)
    assert denied.reason == "The query mine requires the claim tenant, which is missing."
    assert wrong.reason == "country is missing. It is text: Two letters."
    assert shop.explain("peek", {}, role="child").rule.line == 13
    assert isinstance(allowed, Explanation)


def _found(shop: QueryShop) -> list[dict[str, object]]:
    """Return what `dbtools check` finds, in files by their names in the folder of queries.

    Of the login, which may do everything, it is nothing.
    """
    told = run("check", str(shop.path), "--json").stdout.replace(f"{shop.path.parent / 'queries'}/", "")
    found = json.loads(told)["findings"]
    return [each for each in found if each["code"] != "posture"]


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
queries = [{ name = "*", accept_reads = true }]
[roles.partly]
queries = ["peek", { name = "emails", accept_reads = true }]
[roles.wrong]
tables.customers = true
queries = ["peak", "x*"]
"""
UNREAD = "A registry counts only where [registry] url names it."


def test_check_tells_what_queries_uncover(dialect: str, serve_queries: ServeQueries) -> None:
    with serve_queries(dialect, DDL, QUERIES, READING_ROLES) as shop:
        found = [
            (each["line"], each["code"], each["message"])
            for each in _found(shop)
            if each["code"] in ("reads_hidden", "unknown_query")
        ]

    meant = "The role can call it nevertheless. If that is intended, write { name = "
    assert found == [
        (22, "unknown_query", f"role wrong, queries: there is no query 'peak'. Did you mean peek? {UNREAD}"),
        (22, "unknown_query", f"role wrong, queries: there is no query 'x*'. {UNREAD}"),
        (
            9,
            "reads_hidden",
            "role sees, queries: peek reads customer_id of secrets, which the role does not see. "
            f'{meant}"peek", accept_reads = true }}.',
        ),
        (
            13,
            "reads_hidden",
            "role masks, queries: peek reads email of customers, masked for the role; "
            "and secrets, of which the role sees some rows. "
            f'{meant}"peek", accept_reads = true }}.',
        ),
        (
            15,
            "reads_hidden",
            "role blind, queries: emails reads customers, which the role does not see. "
            f'{meant}"emails", accept_reads = true }}.',
        ),
        (
            19,
            "reads_hidden",
            "role partly, queries: peek reads customers, which the role does not see; "
            "and secrets, which the role does not see. "
            f'{meant}"peek", accept_reads = true }}.',
        ),
    ]


def test_role_of_queries_alone_is_no_mistake(dialect: str, serve_queries: ServeQueries) -> None:
    with serve_queries(dialect, DDL, QUERIES, READING_ROLES) as shop:
        config = shop.path.read_text().replace("[roles.blind]", "[roles.nothing]\n[roles.blind]")
        shop.path.write_text(config)
        found = [each["message"] for each in _found(shop) if each["code"] == "sees_nothing"]
        listed = shop.listed("blind")

    assert found == ["role nothing: it sees no table."]
    assert listed == ["emails"]


def test_query_of_a_registry_that_is_named_is_merely_unknown(
    dialect: str, serve_queries: ServeQueries
) -> None:
    roles = '[registry]\nurl = "sqlite:///nowhere.db"\n[roles.a]\nqueries = ["x"]'
    with serve_queries(dialect, DDL, QUERIES, roles) as shop:
        found = [each["message"] for each in _found(shop) if each["code"] == "unknown_query"]

    assert found == ["role a, queries: there is no query 'x'."]


MISTAKES: dict[str, str | bytes] = {
    **{name: (FILES / name).read_text() for name in ("mistakes.sql", "again.sql")},
    "latin.sql": "select 'é' as e".encode("latin-1"),
    "below/good.sql": "-- description: In a folder below.\nselect 1 as one",
}


def test_check_tells_every_mistake_in_its_place(dialect: str, serve_queries: ServeQueries) -> None:
    with serve_queries(dialect, DDL, MISTAKES) as shop:
        found = _found(shop)
        served = _queries(shop, "default")

    assert found == json.loads((FILES / f"mistakes.{dialect}.json").read_text())
    assert served == ["good", "undescribed"]


def test_what_is_wrong_is_told_in_the_log(dialect: str, serve_queries: ServeQueries) -> None:
    with serve_queries(dialect, DDL, MISTAKES) as shop:
        warnings = [each for each in map(str, shop.view().problems) if "quer" in each or "latin" in each]

    assert len([each for each in warnings if re.match(r"queries/mistakes\.sql:\d+: ", each)]) == 20
    assert any("query no_table is withdrawn: " in each and "custmers" in each for each in warnings)


def test_folder_that_is_not_there_is_told(dialect: str, serve_queries: ServeQueries) -> None:
    with serve_queries(dialect, DDL, {}, '[tools]\nstyle = "typed"\n') as shop:
        (shop.path.parent / "queries").rmdir()
        found = _found(shop)

    assert [(each["code"], each["level"], each["line"]) for each in found] == [("no_queries", "error", 4)]


PLACEHOLDERS = {
    "alone.sql": "select id from customers\nwhere id = ?",
    "close.sql": "select id from customers\nwhere id=? and name is not null",
    "listed.sql": "select id from customers\nwhere id in (?, ?)",
    "limit.sql": "select id from customers\nlimit ?",
    "value.sql": "select id,\n? as x from customers",
    "sorted.sql": "-- param p: text\nselect id from customers order by :p",
}


def test_what_is_no_parameter_and_what_does_nothing_is_told_in_its_place(
    dialect: str, serve_queries: ServeQueries
) -> None:
    with serve_queries(
        dialect, DDL, PLACEHOLDERS, '[roles.r]\ntables.customers = { where = "id = ?" }\n'
    ) as shop:
        found = _found(shop)

    told = {each["file"]: (each["line"], each["level"], str(each["message"])) for each in found}
    for name in ("alone.sql", "close.sql", "listed.sql", "limit.sql", "value.sql"):
        line, level, message = told[name]
        assert (name, line, level) == (name, 2, "error")
        assert message.endswith("? is no parameter here, only :name is.")
    assert told["sorted.sql"][:2] == (2, "error")
    (filter,) = [each for each in found if each["code"] == "bad_filter"]
    assert "? is no parameter here, only :name is" in str(filter["message"])


def test_question_mark_that_is_an_operator_works(serve_queries: ServeQueries) -> None:
    body = """'{"a": 1}'::jsonb"""
    query = f"-- param key: text\nselect {body} ? :key as has, {body} ?| array['b'] as any_of"
    with serve_queries("postgresql", DDL, {"q.sql": query}) as shop:
        assert shop.rows("q", {"key": "a"}) == [[True, False]]


WITHDRAWN = """
[roles.clerk]
tables.customers = true
queries = ["*"]
"""


def test_operator_is_told_why_a_query_is_withdrawn(dialect: str, serve_queries: ServeQueries) -> None:
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


RENAME = "alter table customers rename column name to full_name"
RENAME_BACK = "alter table customers rename column full_name to name"


def test_query_that_a_change_breaks_is_withdrawn_until_it_is_mended(
    dialect: str, serve_queries: ServeQueries
) -> None:
    with serve_queries(dialect, DDL, QUERIES) as shop:
        before = shop.listed()
        answer = shop.call("customers_of", {"country": "PT"})
        shop.bare.execute(RENAME)
        stale = shop.refusal("customers_of", {"country": "PT"})
        shop.refresh()
        broken, reasons = shop.listed(), tuple(map(str, shop.view().problems))
        gone, absent = shop.refusal("customers_of"), shop.refusal("customers_at")
        kept = shop.rows("emails")
        shop.bare.execute(RENAME_BACK)
        shop.refresh()
        after = shop.listed()
        again = shop.call("customers_of", {"country": "PT"})

    assert stale == gone
    assert [each for each in before if each not in broken] == ["customers_of", "mine"]
    assert [each for each in broken if each not in before] == []
    assert [
        each
        for each in reasons
        if re.match(r"queries/shop.sql:[34]: error: query customers_of is withdrawn: ", each)
    ]
    assert gone.replace("customers_of", "…") == absent.replace("customers_at", "…")
    assert len(kept) == 3 if isinstance(kept, list) else False
    assert after == before
    assert again == answer


def test_plan_of_a_query_follows_the_types_of_its_parameters(serve_queries: ServeQueries) -> None:
    ddl = "create table t (name text, at integer); insert into t values ('x', 1);"
    query = "-- name: q\n-- param at: integer\nselect name from t where at = :at"
    with serve_queries("postgresql", ddl, {"q.sql": query}) as shop:
        assert shop.rows("q", {"at": 1}) == [["x"]]
        shop.bare.execute("alter table t alter column at type bigint; update t set at = 3000000000")
        shop.refresh()

        assert shop.rows("q", {"at": 3_000_000_000}) == [["x"]]


def test_file_that_changes_is_read_again(dialect: str, serve_queries: ServeQueries) -> None:
    with serve_queries(dialect, DDL, {"a.sql": "select 1 as one", "b.sql": "select 2 as two"}) as shop:
        (shop.path.parent / "queries" / "a.sql").write_text("select 10 as ten")
        (shop.path.parent / "queries" / "b.sql").unlink()
        shop.refresh()

        assert shop.call("a").structured["rows"] == [[10]]
        assert "b" not in shop.view().tools


TIMES = {
    "endless.sql": f"-- param most: integer\n{ENDLESS}",
    "short.sql": f"-- timeout: 200ms\n-- param most: integer\n{ENDLESS}",
    "long.sql": f"-- timeout: 5s\n-- param most: integer\n{ENDLESS}",
}
NEVER = {"most": 2_000_000_000}


def test_timeout_of_a_query_is_lower_than_the_role_s_and_never_higher(
    dialect: str, serve_queries: ServeQueries
) -> None:
    with serve_queries(dialect, DDL, TIMES, '[limits]\ntimeout = "700ms"\n') as shop:
        told = {name: shop.refusal(name, NEVER).split(" and ")[0] for name in ("endless", "short", "long")}
        found = shop.rows("short", {"most": 10})

    assert told == {
        "endless": "timeout: The call reached its timeout of 0.7 seconds",
        "short": "timeout: The call reached its timeout of 0.2 seconds",
        "long": "timeout: The call reached its timeout of 0.7 seconds",
    }
    assert found == [[10]]


COUNTS = """
-- name: numbers
-- param most: integer
with recursive n (i) as (select 1 union all select i + 1 from n where i < :most)
select i from n order by i desc
"""


@pytest.mark.parametrize(
    ("header", "limit", "wanted", "rows", "truncated"),
    [
        pytest.param("", 5, 5, 5, False, id="as many as the role may have"),
        pytest.param("", 5, 6, 5, True, id="one more"),
        pytest.param("-- max_rows: 3\n", 5, 3, 3, False, id="as many as the query may have"),
        pytest.param("-- max_rows: 3\n", 5, 4, 3, True, id="one more than the query may have"),
        pytest.param("-- max_rows: 9\n", 5, 6, 5, True, id="the query cannot have more"),
    ],
)
def test_truncation_is_exact_and_keeps_the_order(
    dialect: str,
    serve_queries: ServeQueries,
    header: str,
    limit: int,
    wanted: int,
    rows: int,
    truncated: bool,
) -> None:
    text = COUNTS.replace("-- param", f"{header}-- param")
    with serve_queries(dialect, DDL, {"n.sql": text}, f"[limits]\nmax_rows = {limit}\n") as shop:
        answer = shop.call("numbers", {"most": wanted})

    assert (answer.rows, answer.truncated, answer.structured["truncated"]) == (rows, truncated, truncated)
    assert answer.structured["rows"] == [[wanted - at] for at in range(rows)]


def test_list_of_ten_thousand_items_is_one_parameter(dialect: str, serve_queries: ServeQueries) -> None:
    queries = {
        "some.sql": "-- param ids: integer[]\nselect id from customers where id in (:ids) order by id",
        "others.sql": "-- param ids: integer[]\nselect id from customers where id not in (:ids) order by id",
        "names.sql": "-- param names: text[]\nselect id from customers where name = any(:names) order by id",
    }
    many = [*range(10, 10_008), 1, 3]
    names = [f"nobody ' {at}" for at in range(9_999)]
    with serve_queries(dialect, DDL, queries) as shop:
        assert shop.rows("some", {"ids": many}) == [[1], [3]]
        assert shop.rows("some", {"ids": json.dumps(many)}) == [[1], [3]]
        assert shop.rows("others", {"ids": many}) == [[2]]
        assert shop.rows("names", {"names": [*names, "Bo"]}) == [[2]]
        assert "more than 20,000 values" in shop.refusal("some", {"ids": list(range(20_001))})
        assert "more than 20,000 values" in shop.refusal("some", {"ids": json.dumps(list(range(20_001)))})


def test_one_row_is_never_fetched_beyond_what_an_answer_shows(serve_queries: ServeQueries) -> None:
    query = (
        "-- name: q\n-- returns: one\nselect repeat('x', 20000000) as x, repeat('y', 20000000)::bytea as y"
    )
    with serve_queries("postgresql", "create table t (id integer);", {"q.sql": query}) as shop:
        shop.refusal("q", {"unknown": 1})  # so that all is loaded
        tracemalloc.start()
        try:
            row: Any = shop.call("q").structured["row"]
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert row["x"].endswith("x… [20,000,000 characters]")
    assert row["y"] == "[20,000,000 bytes, application/octet-stream]"
    assert most < 10_000_000


def test_one_document_is_whole_though_it_is_longer_with_its_blanks(serve_queries: ServeQueries) -> None:
    document = "('[1' || repeat(',   1', 1000) || ']')::json as document"
    query = f"-- name: q\n-- returns: one\nselect {document}"
    rest = "[limits]\nmax_tokens = 1000\n"
    with serve_queries("postgresql", "create table t (id integer);", {"q.sql": query}, rest) as shop:
        assert shop.call("q").structured["row"] == {"document": [1] * 1001}


BAD_VALUES = {
    "divided.sql": "-- param by: integer\nselect id / :by as part from customers",
    "cast.sql": "select cast(name as integer) as number from customers",
    "json.sql": "-- param text: text\nselect cast(name as integer) as n from customers where name = :text",
}


def test_words_of_the_database_reach_no_caller(dialect: str, serve_queries: ServeQueries) -> None:
    with serve_queries(dialect, DDL, BAD_VALUES) as shop:
        told = [
            shop.refusal(name, arguments) if dialect == "postgresql" else shop.call(name, arguments).text
            for name, arguments in (("divided", {"by": 0}), ("cast", {}), ("json", {"text": "Ada"}))
        ]

    if dialect == "postgresql":
        assert told == [
            "bad_value: The database cannot compute this query with these values. Arguments: by (bigint).",
            "unreadable: The database cannot compute this query.",
            "bad_value: The database cannot compute this query with these values. Arguments: text (text).",
        ]
    assert not re.search("syntax|division|zero|Error|invalid", "".join(told))


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
create function leak(integer) returns integer language sql as 'select price from secrets where id = $1';
create view leaks as select id, leak(id) as price from customers;
"""
LEAKS = "-- name: leaks_of\n-- description: Prices.\nselect id, leak(id) as price from customers"
LEAKING_ROLES = """
[roles.clerk]
tables.customers = true
queries = ["leaks_of"]
[roles.meant]
tables.customers = true
queries = [{ name = "leaks_of", accept_reads = true }]
"""


def test_functions_whose_reads_nobody_knows_are_told(serve_queries: ServeQueries) -> None:
    with serve_queries("postgresql", FUNCTIONS, {"q.sql": LEAKS}, LEAKING_ROLES) as shop:
        found = json.loads(run("check", str(shop.path), "--json").stdout)
        script = run("grants", str(shop.path), "--role", "clerk")

    assert found["queries"]["leaks_of"]["reads"] == [
        "customers.id",
        "what the function public.leak reads",
    ]
    assert [each["message"] for each in found["findings"] if each["code"] == "reads_hidden"] == [
        "role clerk, queries: leaks_of reads what the function public.leak reads. "
        "The role can call it nevertheless. "
        'If that is intended, write { name = "leaks_of", accept_reads = true }.'
    ]
    unreported = "query leaks_of: the database does not report what the function public.leak reads."
    assert unreported in script.stderr


def test_mistake_in_a_clause_is_told_on_its_line(dialect: str, serve_queries: ServeQueries) -> None:
    text = (
        "-- name: q\n-- description: Some.\n-- param a: text?\n-- param b: text?\n\nselect id\n"
        "from customers where true\n  /*? and name = :a ?*/\n  /*? and\n  nmae = :b ?*/\norder by id"
    )
    with serve_queries(dialect, DDL, {"q.sql": text}) as shop:
        (found,) = _found(shop)

    assert (found["code"], found["line"]) == ("withdrawn", 10)


def test_query_that_reads_what_database_leaves_out_is_told(dialect: str, serve_queries: ServeQueries) -> None:
    with serve_queries(dialect, DDL, QUERIES) as shop:
        config = shop.path.read_text().replace("[database]", '[database]\nexclude = ["secrets"]')
        shop.path.write_text(config)
        found = [(each["level"], each["message"]) for each in _found(shop) if each["code"] == "reads_hidden"]

    label = "secrets" if dialect == "sqlite" else "public.secrets"
    message = f"query peek reads {label}, which the role does not see."
    assert found == [("warning", message)]


WRITES = """
create table t (id integer primary key);
create function write() returns integer language plpgsql as 'begin insert into t values (1); return 1; end';
"""


def test_function_that_writes_is_refused_in_words_of_its_own(serve_queries: ServeQueries) -> None:
    with serve_queries("postgresql", WRITES, {"q.sql": "select write() as x"}) as shop:
        assert shop.refusal("q") == "refused: The statement tries to write, but dbtools only reads."


MADE = """
create table t (id integer primary key, made timestamp);
insert into t values (1, '2024-03-05T09:00:00'), (2, '2024-03-05T11:00:00'), (3, '2024-03-05 09:00:00');
"""


def test_moment_is_bound_as_the_caller_wrote_it_where_moments_are_texts(serve_queries: ServeQueries) -> None:
    header = "-- param t: timestamp\nselect id from t"
    queries = {
        "texts.sql": f"{header} where made <= :t order by id",
        "same.sql": f"{header} where made = :t",
        "listed.sql": "-- param ts: timestamp[]\nselect id from t where made in (:ts)",
        "moments.sql": f"{header} where datetime(made) <= datetime(:t) order by id",
    }
    with serve_queries("sqlite", MADE, queries) as shop:
        assert shop.rows("texts", {"t": "2024-03-05T10:00:00"}) == [[1], [3]]
        assert shop.rows("same", {"t": "2024-03-05 09:00:00"}) == [[3]]
        assert shop.rows("listed", {"ts": ["2024-03-05T09:00:00"]}) == [[1]]
        assert shop.rows("moments", {"t": "2024-03-05T10:00:00"}) == [[1], [3]]
        assert shop.rows("moments", {"t": "2024-03-05 10:00:00"}) == [[1], [3]]


SIZED = """
create type mood as enum ('ok', 'fine');
create table t (id integer primary key, mood mood, at timestamp);
"""


@pytest.mark.parametrize(
    ("declared", "where", "told"),
    [
        pytest.param(
            "text = bad", "mood = :a", "default: The database takes it for mood, and 'bad' is not", id="label"
        ),
        pytest.param(
            "text[] = '[\"bad\"]'", "mood in (:a)", "default: The database takes it for mood[]", id="labels"
        ),
        pytest.param("text in (ok, great)", "mood = :a", "in: The database takes it for mood", id="choice"),
        pytest.param("text in (ok, fine) = ok", "mood = :a", "", id="fitting labels"),
        pytest.param("text[] = '[\"ok\"]'", "mood in (:a)", "", id="fitting list"),
        pytest.param("integer min +1 max 9 = 5", "id = :a", "", id="fitting numbers"),
        pytest.param("timestamp = 2024-01-01T00:00Z", "at = :a", "", id="fitting moment"),
    ],
)
def test_declared_value_is_one_of_the_type_that_the_database_has(
    serve_queries: ServeQueries, declared: str, where: str, told: str
) -> None:
    query = f"-- name: q\n-- description: Some.\n\n-- param a: {declared}\nselect id from t where {where}"
    with serve_queries("postgresql", SIZED, {"q.sql": query}) as shop:
        found = [(each["line"], str(each["message"])) for each in _found(shop)]
        served = "q" in shop.view().tools

    assert served is not bool(told)
    assert [line for line, _ in found] == ([4] if told else [])
    assert all(message.startswith(f"query q is withdrawn: param a: {told}") for _, message in found)


def test_query_of_a_view_that_was_never_filled_touches_no_other(serve_queries: ServeQueries) -> None:
    ddl = f"{DDL} create materialized view empty as select id from customers with no data;"
    queries = {**QUERIES, "empty.sql": "-- description: Nothing yet.\nselect id from empty order by id"}
    with serve_queries("postgresql", ddl, queries) as shop:
        before = _queries(shop, "default")
        (found,) = [each for each in _found(shop) if each["code"] == "withdrawn"]
        shop.bare.execute("refresh materialized view empty")
        shop.refresh()

        assert "empty" not in before
        assert "emails" in before
        assert (found["file"], found["line"]) == ("empty.sql", 1)
        assert "has not been populated" in str(found["message"])
        assert shop.rows("empty") == [[1], [2], [3]]


def test_query_of_a_table_that_a_migration_holds_is_looked_at_again(serve_queries: ServeQueries) -> None:
    with serve_queries("postgresql", DDL, QUERIES) as shop:
        shop.bare.execute("begin; lock table secrets in access exclusive mode")
        shop.refresh()
        held, stamps = _queries(shop, "default"), shop.portal.call(shop.toolbox.snapshot).stamps
        shop.bare.execute("rollback")
        shop.refresh()
        after = _queries(shop, "default")
        shop.bare.execute("begin; lock table secrets in access exclusive mode")
        with pytest.raises(DatabaseUnavailable, match="peek"):
            shop.refresh()
        again = _queries(shop, "default")
        shop.bare.execute("rollback")

    assert again == after
    assert "peek" not in held
    assert "emails" in held
    assert stamps["database"] == "unchecked"
    assert "peek" in after
