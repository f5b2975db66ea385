"""Paths lead to columns along foreign keys."""

from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st

from dbtools.catalog import Catalog, ForeignKey
from dbtools.errors import UnknownColumn
from dbtools.paths import MOST_LISTED, Distant, Paths
from dbtools.types import Family
from tests.unit.joined_tables import SIDES, reference, relations_of, row
from tests.unit.shop import ID, column, names, table, tools

REGION = row("region", "name")
COUNTRY = row("country", "name", "region_id", to=[reference("region_id", to="region")])
CUSTOMER = row(
    "customer",
    *("country", "SupportRepId", "home_id", "parent_id"),
    to=[
        reference("SupportRepId", to="employee"),
        reference("home_id", to="country"),
        reference("parent_id", to="customer"),
    ],
)
EMPLOYEE = row("employee", "last_name", "ReportsTo", to=[reference("ReportsTo", to="employee")])
ORDER = table(
    ID,
    column("customer_id", Family.INTEGER),
    column("ordered_on", Family.DATE),
    column("total", Family.DECIMAL),
    name="order",
    foreign_keys=(reference("customer_id", to="customer"),),
)
WORLD = (CUSTOMER, COUNTRY, REGION, EMPLOYEE)
NAMES = names(ORDER, *WORLD)


def test_relation_that_is_no_path_does_not_take_a_name() -> None:
    order = row(
        "order",
        *("customer_id", "customerId"),
        to=[reference("customer_id", to="secret"), reference("customerId", to="person")],
    )

    assert relations_of(order, row("person")) == {"customer": "person"}


def test_target_is_that_of_its_schema() -> None:
    people = [table(ID, schema=schema, name="person") for schema in ("x", "y")]
    reference = ForeignKey(columns=("person_id",), target_schema="y", target="person", target_columns=("id",))
    order = table(ID, column("person_id"), schema="x", name="order", foreign_keys=(reference,))

    relation = Paths(Catalog(tables=(order, *people))).relations(order)["person"]

    assert relation.target is people[1]
    assert relation.foreign_key is reference


@pytest.mark.parametrize(
    ("text", "steps", "end"),
    [
        pytest.param("total", [], ("order", "total"), id="own column"),
        pytest.param("customer.country", ["customer"], ("customer", "country"), id="one step"),
        pytest.param(
            "customer.home.region.name", ["customer", "home", "region"], ("region", "name"), id="three steps"
        ),
        pytest.param("customer_id.country", ["customer"], ("customer", "country"), id="by the column"),
        pytest.param(
            "customer.SupportRepId.last_name",
            ["customer", "SupportRep"],
            ("employee", "last_name"),
            id="by a column further on",
        ),
        pytest.param(
            "Customer.supportrep.LAST_NAME",
            ["customer", "SupportRep"],
            ("employee", "last_name"),
            id="another case",
        ),
        pytest.param(" customer.country ", ["customer"], ("customer", "country"), id="blanks around"),
        pytest.param('"customer"."country"', ["customer"], ("customer", "country"), id="quoted for nothing"),
        pytest.param("customer.id", ["customer"], ("customer", "id"), id="the target's key"),
        pytest.param(
            "customer.SupportRep.ReportsTo.last_name",
            ["customer", "SupportRep", "ReportsTo"],
            ("employee", "last_name"),
            id="a table twice",
        ),
        pytest.param(
            "customer.parent.parent.country",
            ["customer", "parent", "parent"],
            ("customer", "country"),
            id="circle",
        ),
        pytest.param("order.total", [], ("order", "total"), id="own column by its table"),
    ],
)
def test_path_leads_to_a_column(text: str, steps: list[str], end: tuple[str, str]) -> None:
    tables = {each.name: each for each in (ORDER, *WORLD)}

    found = NAMES.find(text, "columns[0]")
    path = found.path if isinstance(found, Distant) else ()
    last = path[-1].target if path else ORDER
    wanted = tables[end[0]].column_by_name[end[1]]

    assert ([step.name for step in path], last.name) == (steps, end[0])
    assert (found.column if isinstance(found, Distant) else found) is wanted
    assert found.name == ".".join([*steps, end[1]])
    assert found.type is wanted.type


def test_end_of_a_path_may_be_null() -> None:
    assert NAMES.find("customer.id", "columns[0]").nullable
    assert not NAMES.find("id", "columns[0]").nullable


def test_own_column_comes_before_a_path_of_the_same_spelling() -> None:
    order = row("order", "customer_id", "customer.country", to=[reference("customer_id", to="customer")])

    found = names(order, *WORLD)

    assert found.find("customer.country", "x") is order.column_by_name["customer.country"]
    assert isinstance(found.find('"customer".country', "x"), Distant)


def test_relation_comes_before_the_table_of_the_same_name() -> None:
    node = row("node", "name", "node_id", to=[reference("node_id", to="node")])

    assert isinstance(names(node).find("node.name", "x"), Distant)


def test_column_in_two_cases_is_found_only_by_its_own_name() -> None:
    twins = names(row("twin", "Name", "name"))

    assert twins.find("Name", "x").name == "Name"
    with pytest.raises(UnknownColumn):
        twins.find("NAME", "x")


def test_own_columns_are_listed_before_the_paths_of_one_step() -> None:
    assert list(NAMES.listed) == ["id", "customer_id", "ordered_on", "total", "customer.country"]
    assert list(names(CUSTOMER, *WORLD[1:]).listed) == [
        *("id", "country", "SupportRepId", "home_id", "parent_id"),
        *("SupportRep.last_name", "home.name", "parent.country"),
    ]


@pytest.mark.parametrize(
    ("own", "sides"),
    [
        pytest.param(MOST_LISTED - 4, SIDES, id="both relations"),
        pytest.param(MOST_LISTED - 3, SIDES[:1], id="the second would not fit whole"),
        pytest.param(MOST_LISTED - 2, SIDES[:1], id="the first to the last entry"),
        pytest.param(MOST_LISTED - 1, (), id="the first would not fit whole"),
        pytest.param(MOST_LISTED + 20, (), id="more columns than entries"),
    ],
)
def test_paths_are_listed_relation_by_relation_while_there_are_few(own: int, sides: Sequence[str]) -> None:
    target = row("target", "name", "city")
    more = [f"column_{number}" for number in range(own - 3)]
    references = [reference(f"{side}_id", to="target") for side in SIDES]
    order = row("order", "buyer_id", "seller_id", *more, to=references)

    listed = list(names(order, target).listed)

    assert listed[:own] == [each.name for each in order.columns]
    assert listed[own:] == [f"{side}.{each}" for side in sides for each in ("name", "city")]


def test_tools_of_both_surfaces_take_every_path() -> None:
    toolset = tools(ORDER, *WORLD)
    arguments: dict[str, object] = {"columns": ["customer.SupportRep.last_name"]}

    calls = [
        toolset["list_rows"].bind({"table": "order", **arguments}),
        toolset["list_order"].bind(arguments),
    ]

    assert calls[0].statement == calls[1].statement


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("totl", ["'totl'", "order has no column", "Did you mean total?"], id="column"),
        pytest.param("totl", ["Columns: id, customer_id, ordered_on, total.", "Paths: customer.…"], id="all"),
        pytest.param(
            "custmer.country", ["no path 'custmer'", "'custmer.country'", "Did you mean customer?"], id="step"
        ),
        pytest.param(
            "custmer.country", ["Columns: id, customer_id", "Paths: customer.…"], id="what there is instead"
        ),
        pytest.param(
            "customer.contry",
            ["customer has no column 'contry'", "'customer.contry'", "Did you mean country?", "SupportRep.…"],
            id="column further on",
        ),
        pytest.param(
            "customer.hme.name",
            ["customer has no path 'hme'", "Did you mean home?", "home.…"],
            id="step further",
        ),
        pytest.param(
            "customer", ["path to customer", "Name one of its columns, such as customer.id"], id="no column"
        ),
        pytest.param("total.x", ["order has no path 'total'"], id="column that leads nowhere"),
        pytest.param("customer.parent.parent.parent.id", ["3 steps"], id="too deep"),
        pytest.param(
            "country", ["order has no column 'country'", "customer.country"], id="nearest is a path"
        ),
        pytest.param("customer..country", ["'customer..country'"], id="empty step"),
        pytest.param("", ["''", "Columns: id"], id="nothing"),
        pytest.param("total:", ["'total:'", "total"], id="colon"),
        pytest.param("total:month", ["'total:month'", "total"], id="bucket where none may be"),
    ],
)
def test_complaint_names_what_there_is_and_the_nearest(text: str, says: list[str]) -> None:
    with pytest.raises(UnknownColumn) as raised:
        NAMES.find(text, "where[2].column")

    assert raised.value.code == "unknown_column"
    assert [said for said in ("where[2].column", *says) if said not in str(raised.value)] == []


def test_complaint_lists_names_as_they_are_to_be_written() -> None:
    with pytest.raises(UnknownColumn) as raised:
        names(row("odd", "a.b")).find("x", "columns[0]")

    assert '"a.b"' in str(raised.value)


@given(st.text(st.characters(codec="utf-8"), max_size=30) | st.text('customer.country:"', max_size=30))
def test_any_text_is_a_place_or_unknown(text: str) -> None:
    try:
        found = NAMES.find(text, "columns[0]")
    except UnknownColumn:
        return

    assert NAMES.find(found.name, "columns[0]") == found


def test_relations_of_a_table_are_made_once() -> None:
    paths = Paths(Catalog(tables=(ORDER, *WORLD)))

    assert paths.relations(ORDER) is paths.relations(ORDER)


def test_two_spellings_of_a_path_are_one_place() -> None:
    first, second = (NAMES.find(text, "x") for text in ("customer.country", "CUSTOMER_ID.country"))

    assert first == second
    assert hash(first) == hash(second)
