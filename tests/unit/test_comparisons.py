"""Claims without a type in conditions and queries: of which another value may let rows in."""

import pytest

from dbtools.config.comparisons import uncertain_claims
from dbtools.dialects.sqlite.syntax import lexis
from dbtools.parameters import scan

SELECT = "select id from t where "


@pytest.mark.parametrize(
    "sql",
    [
        "a = :claims.x",
        ":claims.x == a and b < 5",
        "b > 5 and (a) = (:claims.x) order by c",
        "a in (:claims.x, 'all')",
        "a is :claims.x and b is not null",
        "coalesce(:claims.x, '') = a and b <> 1",
        "a like :claims.x || '%' and b > 1",
        "data->>'$.a' = :claims.x",
        "data -> '$.a' = :claims.x",
        "(a, b) = (:claims.x, 1)",
        "exists (select 1 from u where u.a = :claims.x and u.b > 1)",
        "b in (select b from u where a = :claims.x) and c between 1 and 2",
        "b > (select max(b) from u where a = :claims.x)",
        "b in ((select b from u where a = :claims.x))",
        "case when a = :claims.x then 1 else 0 end",
        "instr(a, :claims.x)",
        ":claims.x",
    ],
)
def test_claim_that_is_looked_for_may_have_any_type(sql: str) -> None:
    assert list(uncertain_claims(scan(SELECT + sql, lexis), lexis)) == []
    assert list(uncertain_claims(scan(sql, lexis), lexis)) == []


@pytest.mark.parametrize(
    "sql",
    [
        "a < :claims.x",
        ":claims.x >= a",
        "a != :claims.x",
        "a <> :claims.x",
        "a between 1 and :claims.x",
        "a between :claims.x and 5",
        "a not in (:claims.x)",
        "a is not :claims.x",
        "not a = :claims.x",
        "not (a = :claims.x)",
        "(a = :claims.x) = 0",
        "a < max(:claims.x, 1)",
        "a < (select :claims.x)",
        "a > case when b = 1 then :claims.x else 0 end",
        "not exists (select 1 from u where u.a = :claims.x)",
        "a not in (select a from u where b = :claims.x)",
        "(a, b) < (:claims.x, 1)",
        "a >/* - */:claims.x",
        "5 - a > :claims.x",
    ],
)
def test_claim_that_is_compared_by_size_or_negated_wants_a_type(sql: str) -> None:
    assert list(uncertain_claims(scan(SELECT + sql, lexis), lexis)) == ["x"]
    assert list(uncertain_claims(scan(sql, lexis), lexis)) == ["x"]


def test_claim_that_is_handed_on_wants_a_type_where_something_is_compared_by_size() -> None:
    sql = "with c as (select :claims.x as v) select id from t, c where t.a {} c.v"

    assert list(uncertain_claims(scan(sql.format("<"), lexis), lexis)) == ["x"]
    assert list(uncertain_claims(scan(sql.format("="), lexis), lexis)) == []


def test_each_claim_is_told_once() -> None:
    sql = "a < :claims.x and b < :claims.x and c = :claims.y and d > :claims.z and e = :z"

    assert list(uncertain_claims(scan(sql, lexis), lexis)) == ["x", "z"]
