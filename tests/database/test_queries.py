"""Permitted queries: which roles have them, their answers, and their limits."""

import json
import re
import tracemalloc
from typing import Any

import pytest

from dbtools.service.explanation import Explanation
from tests.database.query_shop import QueryShop, ServeQueries
from tests.database.query_tables import DDL, findings_of, queries_of, shops as shops

ENDLESS = """
with recursive n (i) as (select 1 union all select i + 1 from n where i < :most)
select count(*) as total from n
"""


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

    assert queries_of(shop, role) == names
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
    assert allowed.reason == (
        "The role may call the query customers_of; row filters and masks do not apply to it."
    )
    assert (denied.allowed, denied.sql, denied.rule.line) == (False, None, 8)
    assert denied.reason == "The query mine requires the claim tenant, which is missing."
    assert wrong.reason == "country is missing. Expected: text. Two letters."
    assert shop.explain("peek", {}, role="child").rule.line == 13
    assert isinstance(allowed, Explanation)


def test_question_mark_that_is_an_operator_works(serve_queries: ServeQueries) -> None:
    body = """'{"a": 1}'::jsonb"""
    query = f"-- param key: text\nselect {body} ? :key as has, {body} ?| array['b'] as any_of"
    with serve_queries("postgresql", DDL, {"q.sql": query}) as shop:
        assert shop.rows("q", {"key": "a"}) == [[True, False]]


TIMES = {
    "endless.sql": f"-- param most: integer\n{ENDLESS}",
    "short.sql": f"-- timeout: 200ms\n-- param most: integer\n{ENDLESS}",
    "long.sql": f"-- timeout: 9s\n-- param most: integer\n{ENDLESS}",
}
NAMES = ("endless", "short", "long")
HASTY = """
[roles.hasty]
queries = ["*"]
limits.timeout = "700ms"
[roles.patient]
queries = ["*"]
"""
NEVER = {"most": 2_000_000_000}


def test_timeout_of_a_query_is_lower_than_the_role_s_and_never_higher(
    dialect: str, serve_queries: ServeQueries
) -> None:
    with serve_queries(dialect, DDL, TIMES, HASTY) as shop:
        told = {name: shop.refusal(name, NEVER, role="hasty").split(" and ")[0] for name in NAMES}
        found = shop.rows("long", {"most": 10}, role="patient")

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
        assert "at most 20,000 values" in shop.refusal("some", {"ids": list(range(20_001))})
        assert "at most 20,000 values" in shop.refusal("some", {"ids": json.dumps(list(range(20_001)))})


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
            "text = bad",
            "mood = :a",
            "default: Its type in the database is mood, and 'bad' is not",
            id="label",
        ),
        pytest.param(
            "text[] = '[\"bad\"]'", "mood in (:a)", "default: Its type in the database is mood[]", id="labels"
        ),
        pytest.param("text in (ok, great)", "mood = :a", "in: Its type in the database is mood", id="choice"),
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
        found = [(each["line"], str(each["message"])) for each in findings_of(shop)]
        served = "q" in shop.view().tools

    assert served is not bool(told)
    assert [line for line, _ in found] == ([4] if told else [])
    assert all(message.startswith(f"query q is withdrawn: param a: {told}") for _, message in found)
