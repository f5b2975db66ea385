"""A view is served if its role sees everything that the view reads, or if its rule accepts the rest."""

from collections.abc import Mapping

import pytest

from dbtools.settings.sections import GrantSection
from dbtools.types import Mask
from tests.database.conftest import Serve
from tests.database.role_callers import NORTH, Caller, Grants, calling, calling_as
from tests.database.shop import Shop
from tests.database.viewed_tables import OWN, SAFE, TABLES, VIEWS, shops as shops

#: Relations that show customers, beside the views.
ALSO: Mapping[str, tuple[str, ...]] = {
    "sqlite": ("found", "found_words", "found_older", "found_short", "found_quoted"),
    "postgresql": ("copied",),
}
ALSO_SAFE: Mapping[str, tuple[str, ...]] = {
    "sqlite": ("notes", "using"),
    "postgresql": ("copied_totals", "of_a_partition"),
}
FILTERED = GrantSection(where="region = :claims.region")
MASKED = GrantSection(mask={"email": Mask.PARTIAL})
EXCLUDED = GrantSection(exclude=("email",))


def seen_by(caller: Caller) -> set[str]:
    """Return the names of all that *caller* sees."""
    found = caller.call("describe_tables", detail="names")["tables"]
    assert isinstance(found, list)
    return {each["name"] for each in found}


def _revealing(dialect: str) -> set[str]:
    return {*VIEWS, *OWN[dialect], *ALSO[dialect]}


#: What no column beneath is needed for: they show rows, or other columns.
WITHOUT_EMAIL = {
    *(
        "counted",
        "joined",
        "joined_using",
        "within",
        "existing",
        "nested",
        "nested_deeply",
        "united",
        "common",
    ),
    *("by_rowid", "by_system_column", "copied", "found_older", "found_short"),
    "found_quoted",
}


@pytest.mark.parametrize(
    ("grant", "spared"),
    [
        pytest.param(FILTERED, set(), id="filtered"),
        pytest.param(False, set(), id="denied"),
        pytest.param(MASKED, WITHOUT_EMAIL - {"nested", "nested_deeply"}, id="masked"),
        pytest.param(EXCLUDED, WITHOUT_EMAIL - {"nested", "nested_deeply"}, id="excluded"),
    ],
)
def test_view_is_withheld_unless_all_that_it_reads_is_seen(
    grant: bool | GrantSection, spared: set[str], dialect: str, shop: Shop
) -> None:
    with calling_as(shop, {"*": True, "customers": grant}, NORTH) as caller:
        seen, problems = seen_by(caller), caller.problems()

    # SQLite does not tell which columns a natural join compares.
    spared = spared | {"joined_naturally"} if spared and dialect == "postgresql" else spared
    withheld = _revealing(dialect) - spared
    assert seen & withheld == set()
    assert seen >= {"orders", "regions", *SAFE, *ALSO_SAFE[dialect], *(_revealing(dialect) & spared)}
    told = {each.split(": ")[2].split(" is withheld")[0] for each in problems if " is withheld" in each}
    assert told == withheld


def test_view_aggregates_no_table_that_the_role_may_not_aggregate(dialect: str, shop: Shop) -> None:
    with calling_as(shop, {"*": True, "customers": GrantSection(aggregate=False)}) as caller:
        seen = seen_by(caller)

    assert "customers" in seen
    assert seen & _revealing(dialect) == set()


def test_withheld_view_is_as_one_that_is_not_there(dialect: str, shop: Shop) -> None:
    with calling_as(shop, {"*": True, "customers": FILTERED}, NORTH) as caller:
        answers = {
            name: caller.outcome(calling("list_rows", table=name))[0]
            for name in [*_revealing(dialect), "none"]
        }
        tools = caller.tools()

    assert set(answers.values()) == {answers["none"]}
    assert not {f"{verb}_{name}" for name in _revealing(dialect) for verb in ("list", "get")} & set(tools)


def test_view_whose_rule_accepts_its_reads_is_served(shop: Shop) -> None:
    grants: Grants = {
        "*": False,
        "plain": GrantSection(accept_reads=True, where="id > 1"),
        "counted": True,
        "orders": True,
    }
    with calling_as(shop, grants, NORTH) as caller:
        seen, rows, problems = seen_by(caller), caller.rows("list_plain"), caller.problems()

    assert (seen, rows) == ({"plain", "orders"}, [[2, "Bob", "bob@example.org"]])
    assert problems == (
        "error: role reader, tables.counted: counted is withheld, since it reads customers, which the role "
        "does not see. If that is intended: tables.counted = { accept_reads = true }.",
    )


def test_view_is_accepted_by_a_rule_of_its_own_alone(shop: Shop) -> None:
    """A pattern would also accept views that do not exist yet."""
    grants: Grants = {"*": GrantSection(accept_reads=True), "customers": False}
    with calling_as(shop, grants) as caller:
        seen, problems = seen_by(caller), caller.problems()

    assert "plain" not in seen
    assert "orders" in seen
    assert problems[0] == (
        "warning: role reader, tables.*: accept_reads has an effect only in a rule that names one view."
    )


def test_role_that_sees_all_sees_all_views_whose_reads_are_known(dialect: str, shop: Shop) -> None:
    unknown = {
        "sqlite": {"of_the_schema", "of_a_pragma"},
        "postgresql": {
            *("of_any_sql", "by_a_function", "by_an_operator", "by_a_domain", "of_the_catalog"),
            *("of_a_size", "of_statistics", "of_a_name", "of_a_constant", "of_an_array"),
            *("of_a_populated_row", "of_statements"),
        },
    }
    with calling_as(shop, {"*": True}) as caller:
        seen = seen_by(caller)

    assert seen >= _revealing(dialect) - unknown[dialect]
    assert seen & unknown[dialect] == set()


def test_without_roles_every_view_is_served(dialect: str, shop: Shop) -> None:
    found = shop.call("describe_tables", {"detail": "names"}).structured["tables"]
    assert isinstance(found, list)
    assert {each["name"] for each in found} >= {*_revealing(dialect), *SAFE, *ALSO_SAFE[dialect]}


INHERITING = """
    create table notes (id integer primary key, body text, region text);
    create table northern (place text) inherits (notes);
    create table southern (place text) inherits (notes);
    insert into notes values (1, 'general', 'west');
    insert into northern values (2, 'cold', 'north', 'a');
    insert into southern values (3, 'warm', 'south', 'b');
    create view all_notes as select id from notes;
"""


@pytest.mark.parametrize(
    ("grants", "seen"),
    [
        pytest.param({"*": True}, {"notes", "northern", "southern", "all_notes"}, id="all"),
        pytest.param({"*": True, "notes": FILTERED}, {"notes"}, id="filtered parent"),
        pytest.param({"*": True, "notes": False}, set(), id="denied parent"),
        pytest.param({"*": True, "northern": False}, {"southern"}, id="denied child"),
        pytest.param({"*": True, "northern": FILTERED}, {"northern", "southern"}, id="filtered child"),
        pytest.param(
            {"*": True, "northern": GrantSection(exclude=("place",))},
            {"notes", "northern", "southern", "all_notes"},
            id="column that only the child has",
        ),
    ],
)
def test_rows_that_tables_inherit_are_read_under_no_other_name(
    grants: Grants, seen: set[str], serve: Serve
) -> None:
    with serve("postgresql", INHERITING) as shop, calling_as(shop, grants, NORTH) as caller:
        assert seen_by(caller) == seen


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
            GrantSection(exclude=("email",), accept_reads=True),
            ["id", "first", "last", "folded", "full_name"],
            id="accepted",
        ),
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


def test_view_that_is_replaced_shows_nothing_before_its_new_reads_are_known(
    dialect: str, serve: Serve
) -> None:
    """The server polls for changes, but even between two polls no call follows the old rules."""
    old = """
        create table titles (id integer, title text);
        insert into titles values (1, 'one');
        create view shown as select id, title as name from titles;
        create view over_it as select name from shown;
    """
    replaced = {
        "sqlite": "drop view shown; create view shown as select id, name from customers",
        "postgresql": "create or replace view shown as select id, name from customers",
    }
    with (
        serve(dialect, TABLES + old) as shop,
        calling_as(shop, {"*": True, "customers": FILTERED}, NORTH) as caller,
    ):
        before = caller.rows("list_over_it"), caller.rows("list_shown")
        shop.bare.execute(replaced[dialect])
        after = [caller.outcome(calling(f"list_{each}")) for each in ("over_it", "shown")]

    assert before == ([["one"]], [[1, "one"]])
    assert ["Bob" in str(each) or "Ann" in str(each) for each in after] == [False, False]


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
        serve("postgresql", ddl + rows) as shop,
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
    with serve("postgresql", NAMESAKE) as shop, calling_as(shop, {"*": True, name: grant}) as caller:
        shop.bare.execute(f'create table public."{name}" (id integer primary key)')
        shop.portal.call(caller.toolbox.refresh)
        problems, seen = caller.problems(), seen_by(caller)

    assert ["more than one table has this name" in each for each in problems] == [True]
    assert seen == set()
