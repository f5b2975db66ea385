"""Row filters by their text: which may raise an error, which no row passes, and where claims want a type."""

import pytest

from dbtools.backends.postgresql.schema.types import lexis as postgresql
from dbtools.backends.sqlite.schema.syntax import lexis, lexis as sqlite
from dbtools.configured.claims import uncertain_claims
from dbtools.configured.conditions import KnownNames, is_total
from dbtools.configured.roles import roles_of
from dbtools.schema.sql import Lexis, scan, words
from dbtools.settings import Settings
from dbtools.settings.sections import GrantSection, PolicySection, RoleSection

SELECT = "select id from t where "


def _uncertain(sql: str) -> list[str]:
    return list(uncertain_claims(scan(sql, lexis), lexis))


@pytest.mark.parametrize(
    "sql",
    [
        *("a = :claims.x", "a == :claims.x and b < 5", "b > 5 and ((a) = :claims.x or c is null)"),
        *("coalesce(a, b) = :claims.x", "data->>'$.a' = :claims.x"),
        "exists (select 1 from u where u.a = :claims.x and u.b > 1)",
        "b in (select b from u join v on v.id = u.v and v.a = :claims.x) and c > 1",
        "b in (select b from u where (a = :claims.x or a = 1))",
    ],
)
def test_claim_that_only_narrows_may_have_any_type(sql: str) -> None:
    assert _uncertain(sql) == []
    assert _uncertain(f"{SELECT}{sql} group by id order by id limit 5") == []


@pytest.mark.parametrize(
    "sql",
    [
        "update t set b = 1 where a = :claims.x returning id",
        "update t set a = :claims.x where b = 1 returning *",
        "delete from t where b = 1 and (a = :claims.x) returning id, b",
        "insert into t select * from u where a = :claims.x on conflict do nothing returning id",
        "insert into t select u.a from u join v on v.a = :claims.x inner join w on w.id = v.id returning id",
        "update t set b = 1 from u where u.a = :claims.x and u.id = t.id returning t.id",
        "update t set b = 1 where a = :claims.x",
    ],
)
def test_claim_that_only_narrows_a_change_may_have_any_type(sql: str) -> None:
    assert _uncertain(sql) == []
    assert _uncertain(sql.replace("= :claims.x", "is not :claims.x")) == ["x"]


def test_negation_beside_the_claim_wants_its_type() -> None:
    assert _uncertain("a = :claims.x and b is not null") == ["x"]


@pytest.mark.parametrize(
    "sql",
    [
        *("a < :claims.x", ":claims.x = a", ":claims.x = a = b", "a in (:claims.x, 'all')", "a is :claims.x"),
        *("a = :claims.x || 'x'", "(a = :claims.x, 1) = (0, 1)"),
        *("0 = exists (select 1 from u where u.a = :claims.x)", "0 = (a = :claims.x)", ":claims.x >= a"),
        *("a != :claims.x", "a <> :claims.x", "a between 1 and :claims.x", "a between :claims.x and 5"),
        *("a between 1 and b = :claims.x", "a not in (:claims.x)", "a is not :claims.x", "not a = :claims.x"),
        *("not (a = :claims.x)", "(a = :claims.x) = 0", "a = :claims.x is null", ":claims.x = a is null"),
        *("a < max(:claims.x, 1)", "a < (select :claims.x)", "a > case when b = 1 then :claims.x else 0 end"),
        *("case when a = :claims.x then 0 else 1 end", "case :claims.x when 7 then 0 else 1 end"),
        *("iif(a = :claims.x, 0, 1)", "1 - (a = :claims.x)", "nullif(a, :claims.x)", "flags & :claims.x = 0"),
        *("instr(a, :claims.x) = 0", "instr(a, :claims.x)", ":claims.x", "a like :claims.x"),
        *("(a, b) < (:claims.x, 1)", "not exists (select 1 from u where u.a = :claims.x)"),
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
        *("region = :claims.region", "active", "not active or level>=-2", "x is true", "kind ilike 'a'"),
        "(a < 1 or not b >= -2.5) and c is not null -- as agreed",
        "exists (select 1 from customers o where o.id = t.customer_id and o.region = :claims.region)",
        "not exists (select * from public.customers where active)",
        "id in (select customer_id from permits) and kind not in ('a', 'b', :claims.kind)",
        "name not like 'a%' and level not between 1 and 3",
        "region in (select r.region from regions as r join permits p on p.id = r.id where p.level is null)",
        '"odd name" <> \'x\' and "t"."y" = 1',
    ],
)
def test_comparisons_are_total(condition: str, lexis: Lexis) -> None:
    assert is_total(scan(condition, lexis), lexis, NAMES)


@pytest.mark.parametrize("lexis", BOTH, ids=["sqlite", "postgresql"])
@pytest.mark.parametrize(
    "condition",
    [
        *("name = 'customers' unknown_name", "name like pattern", "name like :claims.pattern", "t = t"),
        *("name like 'x' escape 'x'", 'name like "raw"', "name like 'a\\'", "name like 'a'\n'b\\'"),
        *("exists (select 1 from not_known)", "exists (select 1 from levels limit level)", "a = b = c"),
        "exists (select 1 from json_each as e where e.raw = name)",
        *('exists (select 1 from "Ärzte" where level > 0)', 'id in (select id from "odd""view")'),
        *("exists (select 1 from odd_view where level = id)", 'id in (select id from "Odd_View")'),
        *(
            "exists (select 1 from 'odd_view')",
            "exists (select 1 from levels as region where region = region)",
        ),
        *(
            "exists (select 1 from levels natural join permits)",
            "id in (select id from levels union select 1)",
        ),
        *("exists (select 1 from levels join permits using (id))", "exists (select 1 from levels, permits)"),
        *("(a, b) = (1, 2)", "id in (1, 2) is null", "x is distinct from y", "exists (values (1))"),
    ],
)
def test_what_is_of_another_form_is_not_total(condition: str, lexis: Lexis) -> None:
    assert not is_total(scan(condition, lexis), lexis, NAMES)


PLACES = [
    *("{}", "not {}", "({})", "{} = 1", "1 <> {}", "{} in (1)", "1 not in (2, {})", "{} is not null"),
    *("{} between 1 and 2", "1 between {} and 2", "1 between 1 and {}", "{} like 'a'", "{} is false"),
    *(
        "a = 1 or {}",
        "a = 1 and (b = 2 or not {} > 1)",
        "exists (select {} from t)",
        "id in (select {} from t)",
    ),
    "exists (select a, {} from t)",
    "exists (select * from t where a = {})",
    "exists (select 1 from t join levels on {} = 1)",
    "exists (select 1 from t join levels on a = 1 where b in (select y from permits where {}))",
]


@pytest.mark.parametrize("lexis", BOTH, ids=["sqlite", "postgresql"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "term",
    [
        *("not_known", "odd_column", "t.odd_column", "t.to_jsonb", "own_function(x)", '"own_function"(x)'),
        *(
            "lower(name)",
            "odd_function.lower(name)",
            "t.odd_function",
            "count(*)",
            "abs(x)",
            "1 / 0",
            "x * 2",
        ),
        *("-x", "name || 'x'", "name ==> 'x'", "raw -> 'a'", "json_extract(raw, '$.a')", "coalesce(a, 0)"),
        *("(select level from levels)", "(values (1), (2))", "cast(raw as integer)", "array[a, b]", "x[1]"),
        *("raw::int", '"level"::int', "²::int", ":claims.level::int", "date '2024-02-29'", "now()"),
        *("case when a = 1 then x else y end", "count(*) over w", "name collate nocase", "(a, b)"),
    ],
)
def test_what_may_raise_an_error_is_total_nowhere(term: str, place: str, lexis: Lexis) -> None:
    assert is_total(scan(place.format("x"), lexis), lexis, NAMES)
    assert not is_total(scan(place.format(term), lexis), lexis, NAMES)


VAIN = [
    *("false", "FALSE", "(false)", "((false))", "0", "null", "1 = 0", "1 <> 1", "1 <> 1.0", "'a' = 'b'"),
    *("region = :claims.region and false", "false and (region = 'x' or id = 1)"),
    *("(id = 1 and 1 = 2) or false", "region = null", "region <> null"),
    "id > 1 and lower(region) = null and region is not null",
    "false or region = null -- none",
]
USEFUL = [
    *("true", "1 = 1", "'a' = 'a'", "1 <> 2", "false or region = 'x'", "not false", "not (false)"),
    *("id between 0 and 0", "id between 1 and 2 and region = 'null'", "region is null"),
    *("id = 1 and region is not null", "region = 'false'", 'region = "null"', "flag = false"),
    "coalesce(region, null) = 'x'",
    "case when region = 'x' and id = 1 then true else false end",
    *("id in (select id from other where false)", "exists (select 1 from other where a = null)"),
    *("region is (id = null) is null", "id in (0)", "0 = id", "1.0 = id", "1 = 1.0", "0x10 <> 0x11"),
]


def warnings(lexis: Lexis, grant: GrantSection, **claims: str) -> list[str]:
    settings = Settings(
        roles={"reader": RoleSection(tables={"t": grant})},
        policy=PolicySection.model_validate({"claims": claims}),
    )
    (role,) = roles_of(settings, lexis)
    return [f"{each.level}: {each.message}" for each in role.problems]


@pytest.mark.parametrize("lexis", [sqlite, postgresql], ids=["sqlite", "postgresql"])
@pytest.mark.parametrize("where", VAIN)
def test_condition_that_no_row_passes_is_a_warning(lexis: Lexis, where: str) -> None:
    (read,) = warnings(lexis, GrantSection(where=where))
    (checked,) = warnings(lexis, GrantSection(insert=True, check=where))

    assert read.startswith("warning: role reader, tables.t.where: no row passes: ")
    assert checked.startswith("warning: role reader, tables.t.check: no row passes: ")


@pytest.mark.parametrize("lexis", [sqlite, postgresql], ids=["sqlite", "postgresql"])
@pytest.mark.parametrize("where", USEFUL)
def test_condition_that_a_row_may_pass_is_no_warning(lexis: Lexis, where: str) -> None:
    assert warnings(lexis, GrantSection(where=where)) == []


def test_role_that_inserts_what_it_never_sees_says_so_with_after() -> None:
    assert warnings(sqlite, GrantSection(where="false", after="true", insert=True)) == []


@pytest.mark.parametrize("lexis", [sqlite, postgresql], ids=["sqlite", "postgresql"])
@pytest.mark.parametrize(
    ("where", "warns"),
    [
        ("team in (:claims.teams)", True),
        ("team not in (:claims.teams)", True),
        ("region = 'x' and (id = 1 or team in (1, :claims.teams))", True),
        ("id in (select id from other where team in (:claims.teams))", True),
        ("team in (:claims.region)", False),
        ("team in (select value from json_each(:claims.teams))", False),
        ("team in (:claims.teams ->> 'first')", False),
    ],
)
def test_claim_of_json_in_a_list_is_a_warning(lexis: Lexis, where: str, warns: bool) -> None:
    found = warnings(lexis, GrantSection(where=where), teams="json", region="text")

    assert [("claim teams has the type json" in each) for each in found] == [True] * warns
