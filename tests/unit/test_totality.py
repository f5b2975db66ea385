"""Which row filters may raise an error, by their text."""

import pytest

from dbtools.backends.postgresql.types import lexis as postgresql
from dbtools.backends.sqlite.syntax import lexis as sqlite
from dbtools.sql import Lexis, scan, words
from dbtools.vetting import KnownNames, is_total

BOTH = (sqlite, postgresql)
NAMES = KnownNames(
    columns=words(
        "a account active b c country created customer_id day exact id kind level name note number owner "
        "photo raw region x y"
    )
    | {"odd name"},
    tables=frozenset({"customers", "permits", "regions", "levels", "c", "t"}),
    raising=frozenset({"odd_view", "odd_function", "odd_column", 'odd"view', "==>", "ärzte"}),
)


@pytest.mark.parametrize("lexis", BOTH, ids=["sqlite", "postgresql"])
@pytest.mark.parametrize(
    "condition",
    [
        "region = :claims.region",
        "(a < 1 or not b >= -2.5) and c is not null -- as agreed",
        "exists (select 1 from customers c where c.id = t.customer_id and c.region = :claims.region)",
        "exists (select * from customers where active)",
        "id in (select customer_id from permits) and kind not in ('a', 'b')",
        "lower(name) like 'a%' and coalesce(level, 0) between 1 and 3",
        "region in (select r.region from regions as r join permits p on p.id = r.id where p.level is null)",
        '"odd name" <> \'x\' and "t"."y" = 1',
        "case when kind = 'a' then level else 0 end > 1",
    ],
)
def test_comparisons_are_total(condition: str, lexis: Lexis) -> None:
    assert is_total(scan(condition, lexis), lexis, NAMES)


@pytest.mark.parametrize("lexis", BOTH, ids=["sqlite", "postgresql"])
@pytest.mark.parametrize(
    "condition",
    [
        "name = 'customers' unknown_name",
        "json_extract(raw, '$.a') = 1",
        "abs(x) > 1",
        "name like pattern",
        "name like :claims.pattern",
        "name like 'x' escape 'x'",
        'name like "raw"',
        "exists (select 1 from not_known)",
        "exists (select 1 from json_each as e where e.raw = name)",
        'exists (select 1 from "Ärzte" where level > 0)',
        "not_known = 1",
        "t.to_jsonb is null",
        "t = t",
        "count(*) over w > 1",
        "name like 'a\\'",
        "odd_function.lower(name) = 'x'",
        "t.odd_function > 0",
        "name = 'a' or odd_column = 1",
        'id in (select id from "odd""view")',
        "exists (select 1 from levels limit level)",
        "name like 'a'\n'b\\'",
        "own_function(x)",
        "name ==> 'x'",
        '"own_function"(x)',
        "name || 'x' = 'y'",
        "exists (select 1 from odd_view where odd_view.id = id)",
        'id in (select id from "Odd_View")',
    ],
)
def test_what_may_raise_an_error_is_not_total(condition: str, lexis: Lexis) -> None:
    assert not is_total(scan(condition, lexis), lexis, NAMES)


@pytest.mark.parametrize(
    ("condition", "on_sqlite", "on_postgresql"),
    [
        pytest.param("x * 2 > 1", True, False, id="arithmetic"),
        pytest.param("(select level from levels) > 1", True, False, id="subquery as a value"),
        pytest.param("cast(raw as integer) = 1", True, False, id="cast"),
        pytest.param("raw -> 'a' = '1'", False, True, id="part of JSON"),
        pytest.param("level = (values (1), (2))", True, False, id="rows as a value"),
        pytest.param("coalesce(a, (select b from c)) = 1", True, False, id="rows as an argument"),
        pytest.param("a in (1, (select b from c))", True, False, id="rows in a list"),
    ],
)
def test_what_may_raise_an_error_depends_on_the_database(
    condition: str, on_sqlite: bool, on_postgresql: bool
) -> None:
    found = [is_total(scan(condition, lexis), lexis, NAMES) for lexis in BOTH]

    assert found == [on_sqlite, on_postgresql]


@pytest.mark.parametrize(
    ("condition", "total"),
    [
        ("level = :claims.level::int", True),
        ("day > '2024-01-01'::date", True),
        ("day > now() - interval '30 days' and day <= current_date + 1", True),
        ("current_setting('app.region', true) = region", False),
        ('"level"::int > 0', False),
        ("²::int > 0", False),
        ("array[a, b] @> array['x']", False),
        ("region is distinct from (select b from c)", False),
        ("level>=-2", True),
        ("length(photo, 'UTF8') > 1", False),
        ("raw::int = 1", False),
        ("(raw)::int = 1", False),
    ],
)
def test_cast_of_a_constant_is_total(condition: str, total: bool) -> None:
    assert is_total(scan(condition, postgresql), postgresql, NAMES) == total
