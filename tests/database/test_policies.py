"""A role sees what its rules grant."""

import pytest

from dbtools import errors
from dbtools.settings.sections import GrantSection, RoleSection
from dbtools.types import Mask
from tests.database.role_callers import COUNT, FILTER, NORTH, Grants, calling, calling_as, shops as shops
from tests.database.shop import Serve, Shop, open_shops


@pytest.mark.parametrize(
    ("grants", "tables"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"*": False}, [], id="nothing of all"),
        pytest.param({"*": True}, ["burdens", "doctors", "patients", "visits"], id="all"),
        pytest.param({"*": True, "doctors": False}, ["patients", "visits"], id="all but one"),
        pytest.param({"*": False, "visits": True}, ["visits"], id="one of none"),
        pytest.param({"p*": True, "pat*": False, "visits": True}, ["visits"], id="two patterns"),
        pytest.param({"*": False, "doc*": True}, ["doctors"], id="longer pattern"),
        pytest.param({"*o*": False, "*s": True}, ["patients", "visits"], id="first of equals"),
    ],
)
def test_role_sees_the_tables_that_its_most_precise_rules_grant(
    grants: Grants, tables: list[str], shop: Shop
) -> None:
    with calling_as(shop, grants) as caller:
        described = caller.call("describe_tables", detail="names")
        named = [tool.removeprefix("list_") for tool in caller.tools() if tool.startswith("list_")]

    assert described["tables"] == [{"name": name} for name in tables]
    assert sorted(named) == sorted([*tables, "rows", "tables"])


def test_own_rules_count_before_inherited_ones(shop: Shop) -> None:
    parents = {
        "first": RoleSection(tables={"patients": GrantSection(columns=("id", "name")), "visits": True}),
        "second": RoleSection(
            tables={"patients": GrantSection(columns=("id", "region")), "doctors": True}, inherits=("third",)
        ),
        "third": RoleSection(tables={"burdens": GrantSection(), "doctors": False}),
    }
    with calling_as(
        shop, {"visits": GrantSection(columns=("id",))}, roles=parents, inherits=("first", "second")
    ) as caller:
        found = caller.call("describe_tables")

    tables = found["tables"]
    assert isinstance(tables, list)
    assert {table["name"]: [column.split()[0] for column in table["columns"]] for table in tables} == {
        "burdens": ["id", "name", "remark"],
        "doctors": ["id", "name"],
        "patients": ["id", "name"],
        "visits": ["id"],
    }


def test_heir_of_a_role_is_filtered_as_the_role_is(shop: Shop) -> None:
    parents = {"parent": RoleSection(tables={"patients": GrantSection(where=FILTER)})}
    with calling_as(shop, {}, NORTH, roles=parents, inherits=("parent",)) as caller:
        assert caller.rows("list_patients", columns=["id"]) == [[1], [3], [5]]


@pytest.mark.parametrize(
    "grant",
    [
        pytest.param(GrantSection(exclude=("secrets",)), id="excluded"),
        pytest.param(GrantSection(columns=("id", "nome")), id="listed"),
        pytest.param(GrantSection(mask={"Email": Mask.NULL}), id="masked"),
        pytest.param(GrantSection(where="reggion = 'north'"), id="unknown column in a filter"),
        pytest.param(GrantSection(where="region = "), id="half a filter"),
        pytest.param(GrantSection(where="region = 'north' group by id"), id="more than a filter"),
    ],
)
def test_table_whose_grant_cannot_be_meant_is_withheld(grant: GrantSection, shop: Shop) -> None:
    with calling_as(shop, {"*": True, "patients": grant}) as caller:
        with pytest.raises(errors.UnknownTable):
            caller.call("list_rows", table="patients")
        problems = caller.problems()

    (problem,) = problems
    assert "tables.patients" in problem


def test_table_without_any_visible_column_is_not_there(shop: Shop) -> None:
    nothing = GrantSection(columns=())
    with calling_as(shop, {"patients": nothing, "visits": True}) as caller:
        tools = caller.tools()

        assert not [tool for tool in tools if "patients" in tool]
        with pytest.raises(errors.UnknownTable):
            caller.call("list_rows", table="patients")


@pytest.mark.parametrize(
    ("grants", "relations"),
    [
        pytest.param({"patients": True, "visits": True}, ["patient"], id="seen"),
        pytest.param({"visits": True}, [], id="to a hidden table"),
        pytest.param(
            {"patients": GrantSection(exclude=("id",)), "visits": True}, [], id="to a hidden column"
        ),
        pytest.param(
            {"patients": GrantSection(mask={"id": Mask.HASH}), "visits": True}, [], id="to a masked column"
        ),
        pytest.param(
            {"patients": True, "visits": GrantSection(mask={"patient_id": Mask.HASH})},
            [],
            id="on a masked column",
        ),
        pytest.param(
            {"patients": True, "visits": GrantSection(exclude=("patient_id",))}, [], id="on a hidden column"
        ),
    ],
)
def test_foreign_key_whose_ends_are_not_seen_is_no_path(
    grants: Grants, relations: list[str], shop: Shop
) -> None:
    with calling_as(shop, grants) as caller:
        described = caller.call("describe_tables", tables=["visits"], detail="full")
        tables = described["tables"]
        assert isinstance(tables, list)
        code = caller.outcome(calling("list_rows", table="visits", columns=["patient.name"]))[0]

    assert list(tables[0].get("relations", {})) == relations
    assert ("references" in tables[0]) == bool(relations)
    assert code == ("answer" if relations else errors.UnknownColumn.code)


AGGREGATE_FALSE: Grants = {"patients": GrantSection(aggregate=False), "visits": True}


def test_rows_that_may_not_be_aggregated_are_still_listed(shop: Shop) -> None:
    with calling_as(shop, AGGREGATE_FALSE) as caller:
        with pytest.raises(errors.Denied):
            caller.call("aggregate_rows", table="patients", measures=COUNT)

        assert len(caller.rows("list_patients")) == 5


@pytest.mark.parametrize("function", ["count", "count_distinct", "sum", "avg", "min", "max"])
def test_rows_that_may_not_be_aggregated_are_not_along_a_path(function: str, shop: Shop) -> None:
    measures = [{"function": function, "column": "patient.height"}]
    with calling_as(shop, AGGREGATE_FALSE) as caller, pytest.raises(errors.Denied):
        caller.call("aggregate_rows", table="visits", measures=measures)


STOLEN = "CANARY-stolen"


def _hostile_name(reads: str) -> str:
    """Return a name that would be SQL if what stands for a condition could be imitated."""
    return f"\x01{reads.encode().hex()}\x01"


HOSTILE = {
    "sqlite": _hostile_name('id"||(select v from hidden)||t."id'),
    "postgresql": _hostile_name('id"||(table s)||t."'),
}


def test_name_of_a_column_is_never_sql(serve: Serve, dialect: str) -> None:
    name, short = HOSTILE[dialect], {"sqlite": "hidden", "postgresql": "s"}[dialect]
    ddl = f"""
    create table open (id integer primary key, "{name}" text);
    insert into open values (1, 'plain');
    create table {short} (v text);
    insert into {short} values ('{STOLEN}');
    """
    with open_shops(serve, {dialect: ddl}) as shops, calling_as(shops(dialect), {"open": True}) as caller:
        told = repr(caller.outcome(calling("list_open"))) + repr(caller.outcome(calling("get_open", id=1)))

    assert "plain" in told
    assert STOLEN not in told


@pytest.mark.parametrize(
    "grant",
    [
        GrantSection(exclude=("email",)),
        GrantSection(columns=("id",)),
        GrantSection(where="1 = 0"),
        GrantSection(mask={"email": Mask.NULL}),
        GrantSection(aggregate=False),
        False,
    ],
    ids=["exclude", "columns", "where", "mask", "aggregate", "false"],
)
def test_rule_that_narrows_what_is_not_there_opens_nothing(grant: GrantSection | bool, shop: Shop) -> None:
    with calling_as(shop, {"*": True, "patiens": grant, "visits": True}) as caller:
        tools = caller.tools()

    assert "list_patients" not in tools
    assert "list_visits" in tools


def test_rule_that_only_shows_a_table_that_is_not_there_withholds_none(shop: Shop) -> None:
    with calling_as(shop, {"*": True, "patiens": True}) as caller:
        assert "list_patients" in caller.tools()


TWO_CASES = 'create table a (id integer, ssn text); create table b (id integer, "SSN" text);'


def test_column_of_a_pattern_is_meant_in_any_case(serve: Serve, dialect: str) -> None:
    with (
        open_shops(serve, {dialect: TWO_CASES}) as shops,
        calling_as(shops(dialect), {"*": GrantSection(exclude=("ssn",))}) as caller,
    ):
        assert [each for each in caller.tools() if each.startswith("list_") and each[5:] in "ab"] == []
        assert "'SSN' in b" in " ".join(caller.problems())
