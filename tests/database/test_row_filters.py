"""Row filters mean what is written, and claims are values, so nothing else can be read through them."""

from collections.abc import Mapping, Sequence

import pytest

from dbtools import errors
from dbtools.schema.uris import ROW_TEMPLATE
from dbtools.settings.sections import GrantSection, RoleSection
from tests.database.role_callers import (
    COUNT,
    FILTER,
    NORTH,
    RICH_GRANTS,
    Ask,
    Caller,
    Grants,
    calling,
    calling_as,
    reading,
    shops as shops,
)
from tests.database.shop import Serve, Shop, open_shops

READS: list[tuple[str, Ask]] = [
    ("list", calling("list_patients")),
    ("list of any", calling("list_rows", table="patients")),
    ("get", calling("get_patients", id=1)),
    ("get of an absent row", calling("get_patients", id=99)),
    ("aggregate", calling("aggregate_rows", table="patients", measures=COUNT)),
    ("path", calling("list_visits", columns=["patient.name"])),
    ("resource", reading("dbtools://row/patients/1")),
    ("cell", reading("dbtools://cell/patients/1/name")),
]


@pytest.mark.parametrize(
    "claims",
    [
        pytest.param({}, id="missing"),
        pytest.param({"region": None}, id="null"),
        pytest.param({"Region": "north", "claims.region": "north", "claim0": "north"}, id="others"),
    ],
)
@pytest.mark.parametrize("ask", [pytest.param(ask, id=name) for name, ask in READS])
def test_missing_claim_denies(ask: Ask, claims: Mapping[str, object], shop: Shop) -> None:
    with calling_as(shop, RICH_GRANTS, claims) as caller:
        assert caller.outcome(ask)[0] == errors.Denied.code


def test_missing_claim_completes_nothing_and_leaves_other_tables(shop: Shop) -> None:
    with calling_as(shop, RICH_GRANTS) as caller:
        keys = caller.portal.call(
            caller.toolbox.complete, caller.identity, ROW_TEMPLATE, "key", "", {"table": "patients"}
        )

        assert keys.values == ()
        assert len(caller.rows("list_visits")) == 5


@pytest.mark.parametrize(
    ("where", "found"),
    [
        pytest.param("region = :claims.region", [1, 3, 5], id="plain"),
        pytest.param("region = :claims.region -- or true", [1, 3, 5], id="trailing comment"),
        pytest.param("region = :claims.region /* ) or (true */", [1, 3, 5], id="block comment"),
        pytest.param("-- first\nregion = :claims.region\n--", [1, 3, 5], id="lines"),
        pytest.param("region = :claims.region or id = 2", [1, 2, 3, 5], id="or"),
        pytest.param("id = 2 or id = 4 and region = :claims.region", [2], id="or with and"),
        pytest.param("not region = :claims.region", [2, 4], id="not"),
        pytest.param(
            "exists (select 1 from visits v where v.patient_id = patients.id and v.price > 10)"
            " and region = :claims.region",
            [3],
            id="subquery",
        ),
        pytest.param(
            "doctor_id in (select id from doctors where name like 'Dr S%')", [1, 4], id="hidden table"
        ),
        pytest.param("name like 'A%' or name like '%n'", [1, 4], id="percent"),
        pytest.param("name <> '%' and name <> '%s' and id < 2", [1], id="percent s"),
        pytest.param("'%(x)s' = '%' || '(x)s' and id < 2", [1], id="percent and a name"),
        pytest.param("'%(limit)s' = '%' || '(limit)s' and id < 2", [1], id="percent and a parameter"),
        pytest.param("'%(c0_0)s' = '%' || '(c0_0)s' and id < 2", [1], id="percent and a value"),
        pytest.param(
            "'%(claim0)s' = '%' || '(claim0)s' and region = :claims.region", [1, 3, 5], id="its own"
        ),
        pytest.param("'%%' = '%' || '%' and id < 2", [1], id="two percents"),
        pytest.param(
            "'__[POSTCOMPILE_limit]' = '__[' || 'POSTCOMPILE_limit]' and id < 2", [1], id="a later step"
        ),
        pytest.param("':limit' = ':' || 'limit' and id < 2", [1], id="colon in quotes"),
        pytest.param("'?' = '?' || '' and '$1' = '$' || '1' and id < 2", [1], id="marks in quotes"),
        pytest.param("'it''s' = 'it' || '''' || 's' and id < 2", [1], id="quote in quotes"),
        pytest.param("\"region\" = :claims.region and 'a\\' <> ''", [1, 3, 5], id="backslash"),
        pytest.param(
            ":claims.region = region and region in (:claims.region, :claims.region)", [1, 3, 5], id="thrice"
        ),
        pytest.param("id = (select min(id) from patients)", [1], id="its own table"),
        pytest.param("false or id % 2 = 0", [2, 4], id="modulo"),
    ],
)
def test_filter_means_what_is_written(where: str, found: list[int], shop: Shop) -> None:
    condition = [{"column": "id", "op": "lt", "value": "99"}, {"column": "id", "op": "gt", "value": "-1"}]
    with calling_as(shop, {"patients": GrantSection(where=where), "visits": True}, NORTH) as caller:
        assert caller.problems() == ()
        listed = caller.rows("list_patients", columns=["id"])
        searched = caller.rows("list_patients", columns=["id"], where=condition, match="any", limit=100)
        along = caller.rows("list_rows", table="visits", columns=["patient.id"], order_by=["id"])
        count = caller.rows("aggregate_rows", table="patients", measures=COUNT)

    assert [listed, searched] == [[[each] for each in found]] * 2
    assert along == [[each if each in found else None] for each in (1, 2, 3, None, 4)]
    assert count == [[len(found)]]


@pytest.mark.parametrize("dialect", ["postgresql"])
@pytest.mark.parametrize(
    ("where", "found"),
    [
        pytest.param("region::text = :claims.region::text", [1, 3, 5], id="two colons"),
        pytest.param("height::numeric > :claims.least::numeric", [2, 4], id="a claim's cast"),
        pytest.param("height > :claims.least", [2, 4], id="an inferred cast"),
        pytest.param("region = any(string_to_array(:claims.region, ','))", [1, 3, 5], id="an array of parts"),
        pytest.param("region = $$north$$", [1, 3, 5], id="dollars"),
        pytest.param("region = E'no\\x72th'", [1, 3, 5], id="escapes"),
        pytest.param("(array[name, region])[2] = :claims.region", [1, 3, 5], id="index"),
    ],
)
def test_filter_may_be_of_the_databases_own_sort(where: str, found: list[int], shop: Shop) -> None:
    with calling_as(shop, {"patients": GrantSection(where=where)}, {**NORTH, "least": 170}) as caller:
        assert caller.problems() == ()
        assert caller.rows("list_patients", columns=["id"]) == [[each] for each in found]


@pytest.mark.parametrize("least", [pytest.param(170, id="number"), pytest.param("170", id="text")])
@pytest.mark.parametrize(
    "where",
    [
        pytest.param("height > :claims.least", id="column"),
        pytest.param("height + 0 > :claims.least", id="sum"),
        pytest.param("coalesce(height, 0) > :claims.least", id="function"),
        pytest.param("height > :claims.least + 0", id="computed claim"),
        pytest.param("not coalesce(height, 0) <= :claims.least", id="negated"),
        pytest.param("height > 170 and :claims.least >= 100 and :claims.least < 1000", id="constants"),
    ],
)
def test_claim_is_compared_as_a_number_however_it_was_written(where: str, least: object, shop: Shop) -> None:
    with calling_as(shop, {"patients": GrantSection(where=where)}, {"least": least}) as caller:
        assert caller.rows("list_patients", columns=["id"]) == [[2], [4]]


@pytest.mark.parametrize("level", [pytest.param(1, id="number"), pytest.param("1", id="text")])
@pytest.mark.parametrize(
    "where",
    [
        pytest.param(":claims.level >= 3", id="claim and constant"),
        pytest.param("coalesce(height, 999) <= :claims.level", id="function and claim"),
        pytest.param("abs(height) < :claims.level", id="number and claim"),
        pytest.param("length(name) <= :claims.level", id="length and claim"),
    ],
)
def test_claim_that_is_too_low_opens_nothing(where: str, level: object, shop: Shop) -> None:
    with calling_as(shop, {"patients": GrantSection(where=where)}, {"level": level}) as caller:
        assert caller.rows("list_patients", columns=["id"]) == []


BY_SIZE = ["abs(height) <= :claims.level", "height <= :claims.level", "not height > :claims.level"]


@pytest.mark.parametrize("where", BY_SIZE)
@pytest.mark.parametrize("level", ["high", "", "1.5", True, "one", "99999999999999999999", None, " "])
def test_claim_that_is_no_value_of_its_type_denies(where: str, level: object, shop: Shop) -> None:
    with calling_as(shop, {"patients": GrantSection(where=where)}, {"level": level}) as caller:
        assert caller.outcome(calling("list_patients"))[0] == errors.Denied.code


@pytest.mark.parametrize("where", BY_SIZE)
@pytest.mark.parametrize("level", ["160", "0160", "+160", 160])
def test_claim_is_the_same_however_it_is_written(where: str, level: object, shop: Shop) -> None:
    with calling_as(shop, {"patients": GrantSection(where=where)}, {"level": level}) as caller:
        heights = [each for (each,) in caller.rows("list_patients", columns=["height"])]

    assert heights
    assert all(isinstance(each, int) and each <= 160 for each in heights)


@pytest.mark.parametrize("where", [*BY_SIZE, "name between 'a' and :claims.level", "name != :claims.level"])
def test_comparison_by_size_wants_a_type_where_the_database_knows_none(
    where: str, shop: Shop, dialect: str
) -> None:
    grants: Grants = {"patients": GrantSection(where=where), "visits": True}
    with calling_as(shop, grants, {"level": "1"}, declared={}) as caller:
        withheld = "list_patients" not in caller.tools()
        problems = " ".join(caller.problems())

    assert withheld == (dialect == "sqlite")
    assert ("[policy.claims]" in problems) == withheld


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param("south' or '1'='1", id="quotes"),
        pytest.param("north' --", id="comment"),
        pytest.param("%", id="percent"),
        pytest.param("NORTH", id="case"),
        pytest.param("", id="empty"),
        pytest.param(0, id="zero"),
        pytest.param(True, id="boolean"),
        pytest.param(2**70, id="large"),
        pytest.param(1.5, id="fraction"),
        pytest.param("nor\0th", id="NUL"),
        pytest.param("\ud800", id="half a character"),
        pytest.param(["north"], id="list"),
        pytest.param({"region": "north"}, id="object"),
    ],
)
def test_odd_claim_opens_nothing(claim: object, shop: Shop) -> None:
    with calling_as(shop, {"patients": GrantSection(where=FILTER)}, {"region": claim}) as caller:
        kind, told = caller.outcome(calling("list_patients", columns=["id"]))

    assert kind != "answer" or '"rows":[]' in str(told)


def _note(caller: Caller, tool: str, **arguments: object) -> object:
    page = caller.call(tool, **arguments)
    return page.get("note")


TALL = {"column": "height", "op": "gt", "value": "500"}
FAR = {"column": "patient.height", "op": "gt", "value": "500"}


def test_table_whose_rows_are_all_hidden_is_like_one_without_rows(serve: Serve, dialect: str) -> None:
    ddl = (
        "create table empty (id integer, height integer); create table full_up (id integer, height integer);"
    )
    grants: Grants = {"empty": True, "full_up": GrantSection(where="height > 1000")}
    calls: Sequence[dict[str, object]] = (
        {},
        {"where": [TALL]},
        {"where": [{"column": "id", "value": "3"}]},
        {"where": [{"column": "id + 1", "op": "ne", "value": "3"}]},
    )
    with (
        open_shops(serve, {dialect: f"{ddl} insert into full_up values (3, 170);"}) as shops,
        calling_as(shops(dialect), grants) as caller,
    ):
        for arguments in calls:
            for name in ("empty", "full_up"):
                assert _note(caller, f"list_{name}", **arguments) == f"{name} has no rows."
                measures = {"measures": [{"function": "max", "column": "height"}]}
                told = _note(caller, "aggregate_rows", table=name, **arguments, **measures)
                assert told == f"{name} has no rows."


def test_rows_that_may_not_be_aggregated_have_no_range(shop: Shop) -> None:
    grants: Grants = {"patients": GrantSection(aggregate=False), "visits": True}
    with calling_as(shop, grants) as caller:
        assert _note(caller, "list_patients", where=[TALL]) is None
        assert _note(caller, "list_visits", where=[FAR]) is None
        assert _note(caller, "list_visits", where=[FAR | {"column": "patient.height + 1"}]) is None
        assert _note(caller, "list_patients", where=[{"column": "name", "value": "ann"}]) == (
            "Stored values of name: 'Ann', …"
        )


def test_heir_of_a_role_is_filtered_as_the_role_is(shop: Shop) -> None:
    parents = {"parent": RoleSection(tables={"patients": GrantSection(where=FILTER)})}
    with calling_as(shop, {}, NORTH, roles=parents, inherits=("parent",)) as caller:
        assert caller.rows("list_patients", columns=["id"]) == [[1], [3], [5]]


@pytest.mark.parametrize(
    "where",
    [
        pytest.param("reggion = 'north'", id="unknown column"),
        pytest.param("region = ", id="half a filter"),
        pytest.param("region = 'north' group by id", id="more than a filter"),
    ],
)
def test_filter_that_the_database_refuses_withholds_its_table(where: str, shop: Shop) -> None:
    with calling_as(shop, {"*": True, "patients": GrantSection(where=where)}) as caller:
        outcome = caller.outcome(calling("list_rows", table="patients"))
        (problem,) = caller.problems()

    assert outcome[0] == errors.UnknownTable.code
    assert "tables.patients" in problem


def _hostile_name(reads: str) -> str:
    """Return a name that would be SQL if what stands for a condition could be imitated."""
    return f"\x01{reads.encode().hex()}\x01"


def test_name_of_a_column_is_never_sql(serve: Serve, dialect: str) -> None:
    name = {
        "sqlite": _hostile_name('id"||(select v from s)||t."id'),
        "postgresql": _hostile_name('id"||(table s)||t."'),
    }[dialect]
    ddl = f"""
    create table open (id integer primary key, "{name}" text);
    insert into open values (1, 'plain');
    create table s (v text);
    insert into s values ('CANARY');
    """
    with serve(dialect, ddl) as shop, calling_as(shop, {"open": True}) as caller:
        told = repr(caller.outcome(calling("list_open"))) + repr(caller.outcome(calling("get_open", id=1)))

    assert "plain" in told
    assert "CANARY" not in told
