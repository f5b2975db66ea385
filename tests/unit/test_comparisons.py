"""Claims without a type in conditions and queries: where another type could let rows in."""

import pytest

from dbtools.backends.sqlite.syntax import lexis
from dbtools.sql import scan
from dbtools.vetting import uncertain_claims

SELECT = "select id from t where "


def _uncertain(sql: str) -> list[str]:
    return list(uncertain_claims(scan(sql, lexis), lexis))


@pytest.mark.parametrize(
    "sql",
    [
        "a = :claims.x",
        "a == :claims.x and b < 5",
        "b > 5 and ((a) = :claims.x or c is null)",
        "coalesce(a, b) = :claims.x",
        "data->>'$.a' = :claims.x",
        "exists (select 1 from u where u.a = :claims.x and u.b > 1)",
        "b in (select b from u join v on v.id = u.v and v.a = :claims.x) and c > 1",
        "b in (select b from u where (a = :claims.x or a = 1))",
    ],
)
def test_claim_that_only_narrows_may_have_any_type(sql: str) -> None:
    assert _uncertain(sql) == []
    assert _uncertain(f"{SELECT}{sql} group by id order by id limit 5") == []


def test_negation_beside_the_claim_wants_its_type() -> None:
    assert _uncertain("a = :claims.x and b is not null") == ["x"]


@pytest.mark.parametrize(
    "sql",
    [
        "a < :claims.x",
        ":claims.x = a",
        ":claims.x = a = b",
        "a in (:claims.x, 'all')",
        "a is :claims.x",
        "a = :claims.x || 'x'",
        "(a = :claims.x, 1) = (0, 1)",
        "0 = exists (select 1 from u where u.a = :claims.x)",
        "0 = (a = :claims.x)",
        ":claims.x >= a",
        "a != :claims.x",
        "a <> :claims.x",
        "a between 1 and :claims.x",
        "a between :claims.x and 5",
        "a between 1 and b = :claims.x",
        "a not in (:claims.x)",
        "a is not :claims.x",
        "not a = :claims.x",
        "not (a = :claims.x)",
        "(a = :claims.x) = 0",
        "a = :claims.x is null",
        ":claims.x = a is null",
        "a < max(:claims.x, 1)",
        "a < (select :claims.x)",
        "a > case when b = 1 then :claims.x else 0 end",
        "case when a = :claims.x then 0 else 1 end",
        "case :claims.x when 7 then 0 else 1 end",
        "iif(a = :claims.x, 0, 1)",
        "1 - (a = :claims.x)",
        "nullif(a, :claims.x)",
        "flags & :claims.x = 0",
        "instr(a, :claims.x) = 0",
        "instr(a, :claims.x)",
        ":claims.x",
        "a like :claims.x",
        "(a, b) < (:claims.x, 1)",
        "not exists (select 1 from u where u.a = :claims.x)",
        "exists (select 1 from u where u.a = :claims.x) = 0",
        "(select 1 from u where u.a = :claims.x) is null",
        "(select count(*) from u where u.a = :claims.x) = 0",
        "a not in (select a from u where b = :claims.x)",
        "b in (select b from u where c = 1 except select b from u where a = :claims.x)",
        "b in (select u.b from u left join v on v.a = :claims.x where v.b is null)",
        "a >/* - */:claims.x",
        "5 - a > :claims.x",
    ],
)
def test_claim_that_may_let_rows_in_wants_a_type(sql: str) -> None:
    assert _uncertain(sql) == ["x"]
    assert _uncertain(SELECT + sql) == ["x"]


@pytest.mark.parametrize(
    "sql",
    [
        "select d.id from docs d left join blocked b on b.id = d.id and b.uid = :claims.x where b.id is null",
        "select id from docs except select id from blocked where uid = :claims.x",
        "with mine as (select id from t where a = :claims.x) select id from t where id > 1",
        "select id, (select b from u where a = :claims.x) as b from t",
        "select case when a = :claims.x then '***' else b end as b from t",
        "select count(*) filter (where a = :claims.x) as n from t",
        "select id from t limit :claims.x",
        "select a = :claims.x as mine from t",
    ],
)
def test_claim_elsewhere_in_a_query_wants_a_type(sql: str) -> None:
    assert _uncertain(sql) == ["x"]


def test_each_claim_is_reported_once() -> None:
    sql = "a < :claims.x and b < :claims.x and c = :claims.y and d > :claims.z and e = :z"

    assert _uncertain(sql) == ["x", "z"]
