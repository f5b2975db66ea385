"""A view is granted by its name. Patterns grant tables, and views only to a role that hides nothing."""

from collections.abc import Mapping

import pytest

from dbtools.settings.sections import GrantSection
from dbtools.values.types import Mask
from tests.database.role_callers import NORTH, Caller, Grants, calling, calling_as
from tests.database.shop import Serve, Shop
from tests.database.viewed_tables import DERIVED, VIEWS, shops as shops

TABLES_ALONE = {"customers", "notes", "orders", "regions", "using"}
FILTERED = GrantSection(where="region = :claims.region")
HIDING: Mapping[str, Grants] = {
    "filter": {"*": True, "customers": FILTERED},
    "denial": {"*": True, "customers": False},
    "mask": {"*": True, "customers": GrantSection(mask={"email": Mask.PARTIAL})},
    "excluded column": {"*": True, "customers": GrantSection(exclude=("email",))},
    "no aggregates": {"*": True, "customers": GrantSection(aggregate=False)},
    "column of a view": {"*": True, "plain": GrantSection(columns=("id",))},
    "no rule": {"[!c]*": True},
}


def seen_by(caller: Caller) -> set[str]:
    """Return the names of all that *caller* sees."""
    found = caller.call("describe_tables", detail="names")["tables"]
    assert isinstance(found, list)
    return {each["name"] for each in found}


@pytest.mark.parametrize("hiding", HIDING)
def test_patterns_grant_no_views_to_a_role_that_hides_something(
    hiding: str, dialect: str, shop: Shop
) -> None:
    grants = HIDING[hiding]
    derived = {*VIEWS, *DERIVED[dialect]}
    with calling_as(shop, grants, NORTH) as caller:
        seen, problems = seen_by(caller), caller.problems()
        answers = {
            name: caller.outcome(calling("list_rows", table=name))[0]
            for name in [*(derived - grants.keys()), "none"]
        }
        tools = caller.tools()

    assert seen - grants.keys() == TABLES_ALONE - grants.keys() - (
        {"customers"} if hiding == "no rule" else set()
    )
    assert problems == ()
    assert set(answers.values()) == {answers["none"]}
    assert not {f"{verb}_{name}" for name in derived - grants.keys() for verb in ("list", "get")} & {*tools}


def test_view_that_a_rule_names_is_granted(dialect: str, shop: Shop) -> None:
    derived = {*VIEWS, *DERIVED[dialect]}
    grants: Grants = {**dict.fromkeys(derived, True), "plain": GrantSection(where="id > 1")}
    with calling_as(shop, grants, NORTH) as caller:
        seen, rows, problems = seen_by(caller), caller.rows("list_plain"), caller.problems()

    assert (seen, rows) == (derived, [[2, "Bob", "bob@example.org"]])
    assert problems == ()


@pytest.mark.parametrize("grants", [{"*": True}, {"*": True, "customers": GrantSection(update=True)}])
def test_patterns_grant_views_to_a_role_that_hides_nothing(grants: Grants, dialect: str, shop: Shop) -> None:
    with calling_as(shop, grants) as caller:
        seen = seen_by(caller)

    assert seen == {*TABLES_ALONE, *VIEWS, *DERIVED[dialect]}


def test_patterns_grant_no_view_of_what_is_left_out(dialect: str, shop: Shop) -> None:
    with calling_as(shop, {"*": True}, excluded=("orders",)) as caller:
        seen = seen_by(caller)

    assert seen == {*TABLES_ALONE, *VIEWS, *DERIVED[dialect]} - {"orders", "totals", "of_totals"}


def test_patterns_grant_nothing_that_shows_rows_of_what_is_left_out(dialect: str, shop: Shop) -> None:
    excluded = {"sqlite": "customers", "postgresql": "northern"}[dialect]
    with calling_as(shop, {"*": True}, excluded=(excluded,)) as caller:
        seen = seen_by(caller)

    shown = {
        "sqlite": {"plain", "counted", "nested", *DERIVED["sqlite"]},
        "postgresql": {"places"},
    }
    assert seen == {*TABLES_ALONE, *VIEWS, *DERIVED[dialect]} - {excluded} - shown[dialect]


def test_without_roles_every_view_is_served(dialect: str, shop: Shop) -> None:
    found = shop.call("describe_tables", {"detail": "names"}).structured["tables"]
    assert isinstance(found, list)
    assert {each["name"] for each in found} == {*TABLES_ALONE, *VIEWS, *DERIVED[dialect]}


GENERATED = """
    create table people (
        id integer primary key, first text, last text, email text,
        folded text generated always as (lower(email)) stored,
        full_name text generated always as (first || ' ' || last) stored
    );
    insert into people (id, first, last, email) values (1, 'Ann', 'Lee', 'Ann@example.org');
"""


@pytest.mark.parametrize(
    ("grant", "columns"),
    [
        pytest.param(GrantSection(exclude=("email",)), ["id", "first", "last", "full_name"], id="excluded"),
        pytest.param(
            GrantSection(mask={"email": Mask.NULL, "last": Mask.NULL}),
            ["id", "first", "last", "email"],
            id="masked",
        ),
        pytest.param(GrantSection(columns=("id", "folded")), ["id", "folded"], id="named"),
        pytest.param(
            GrantSection(exclude=("email",), mask={"folded": Mask.PARTIAL}),
            ["id", "first", "last", "folded", "full_name"],
            id="masked itself",
        ),
    ],
)
def test_generated_column_shows_no_column_that_is_hidden(
    grant: GrantSection, columns: list[str], dialect: str, serve: Serve
) -> None:
    with serve(dialect, GENERATED) as shop, calling_as(shop, {"people": grant}) as caller:
        found = caller.call("list_people")

    assert found["columns"] == columns


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("alter table hidden_notes inherit notes", id="child"),
        pytest.param(
            "alter table parts attach partition hidden_part for values in ('south')", id="partition"
        ),
        pytest.param("alter table parts_west attach partition hidden_part for values in (2)", id="deeper"),
    ],
)
def test_table_that_is_joined_to_another_is_not_shown_before_that_is_known(change: str, serve: Serve) -> None:
    ddl = """
        create table notes (id integer, body text);
        create table hidden_notes (id integer, body text);
        insert into hidden_notes values (1, 'CANARY');
        create table parts (region text, value integer) partition by list (region);
        create table parts_west partition of parts for values in ('west') partition by list (value);
        create table hidden_part (region text, value integer);
    """
    region = "west" if "west" in change else "south"
    rows = f"insert into hidden_part values ('{region}', 2);"
    with (
        serve("postgresql", ddl + rows, fresh=True) as shop,
        calling_as(shop, {"*": True, "hidden_notes": False, "hidden_part": False}) as caller,
    ):
        assert (caller.rows("list_notes"), caller.rows("list_parts")) == ([], [])
        shop.bare.execute(change)
        found = [str(caller.outcome(calling(f"list_{each}"))) for each in ("notes", "parts")]

    assert not [each for each in found if "CANARY" in each or f"'{region}'" in each]


@pytest.mark.parametrize("name", ["€uro", "nom\u0301", "😀", "＄"])
def test_generated_column_is_computed_from_a_column_of_any_name(name: str, serve: Serve) -> None:
    ddl = f"create table people (id integer primary key, {name} text, shown text as ({name} || 'x'));"
    with serve("sqlite", ddl) as shop, calling_as(shop, {"people": GrantSection(exclude=(name,))}) as caller:
        found = caller.call("list_people")

    assert found["columns"] == ["id"]


NAMESAKE = """
    create schema hr;
    create table hr.salaries (id integer primary key, amount integer);
    insert into hr.salaries values (1, 424242);
"""


@pytest.mark.parametrize("name", ["salaries", "hr.salaries"])
@pytest.mark.parametrize("grant", [False, GrantSection(exclude=("amount",)), GrantSection(where="id > 1")])
def test_new_table_takes_over_no_rule(name: str, grant: bool | GrantSection, serve: Serve) -> None:
    with (
        serve("postgresql", NAMESAKE, fresh=True) as shop,
        calling_as(shop, {"*": True, name: grant}) as caller,
    ):
        shop.bare.execute(f'create table public."{name}" (id integer primary key)')
        shop.portal.call(caller.toolbox.refresh)
        problems, seen = caller.problems(), seen_by(caller)

    assert ["more than one table has this name" in each for each in problems] == [True]
    assert seen == set()
