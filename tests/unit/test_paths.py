"""Foreign-key paths: how relations are named, which columns a path names, and what a tool lists."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from dbtools.errors import UnknownColumn
from dbtools.schema.catalog import Catalog, Column, ForeignKey, Table
from dbtools.schema.paths import PathColumn, Paths, parts_of, path_part
from dbtools.values.types import Family
from tests.unit.shop import ID, column, names, table

ANY_NAME = st.text(st.characters(codec="utf-8"), max_size=8) | st.text("ab.:\"' \n", max_size=6)


def _reference(*columns: str, to: str, by: Sequence[str] = ("id",), **more: Any) -> ForeignKey:
    return ForeignKey(columns=columns, target_schema="", target=to, target_columns=tuple(by), **more)


def _row(name: str, *columns: str, to: Sequence[ForeignKey] = ()) -> Table:
    """Return a table with an id, and with texts as its other *columns*."""
    return table(ID, *map(column, columns), name=name, foreign_keys=tuple(to))


REGION = _row("region", "name")
COUNTRY = _row("country", "name", "region_id", to=[_reference("region_id", to="region")])
CUSTOMER = _row(
    "customer",
    *("country", "SupportRepId", "home_id", "parent_id"),
    to=[
        _reference("SupportRepId", to="employee"),
        _reference("home_id", to="country"),
        _reference("parent_id", to="customer"),
    ],
)
EMPLOYEE = _row("employee", "last_name", "ReportsTo", to=[_reference("ReportsTo", to="employee")])
ORDER = table(
    ID,
    column("customer_id", Family.INTEGER),
    column("ordered_on", Family.DATE),
    column("total", Family.DECIMAL),
    name="order",
    foreign_keys=(_reference("customer_id", to="customer"),),
)
WORLD = (CUSTOMER, COUNTRY, REGION, EMPLOYEE)
NAMES = names(ORDER, *WORLD)


def _relations(of: Table, *others: Table) -> dict[str, str]:
    """Return the targets of the relations of the table *of* by their names."""
    paths = Paths(Catalog(tables=(of, *others)))
    return {name: relation.target.name for name, relation in paths.relations(of).items()}


@pytest.mark.parametrize(
    ("referring", "name"),
    [
        pytest.param("customer_id", "customer", id="_id"),
        pytest.param("SupportRepId", "SupportRep", id="Id, case kept"),
        pytest.param("ownerID", "owner", id="ID"),
        pytest.param("Customer_ID", "Customer", id="_ID"),
        pytest.param("ReportsTo", "ReportsTo", id="like its own column"),
        pytest.param("paid", "paid", id="id as part of a word"),
        pytest.param("id_customer", "id_customer", id="id in front"),
        pytest.param("_id", "_id", id="nothing but _id"),
        pytest.param("Id", "Id", id="nothing but Id"),
        pytest.param("customer.id", "customer.id", id="dot"),
    ],
)
def test_relation_is_named_after_its_column(referring: str, name: str) -> None:
    order = _row("order", referring, to=[_reference(referring, to="person")])

    assert _relations(order, _row("person")) == {name: "person"}


@pytest.mark.parametrize(
    ("columns", "keys", "relations"),
    [
        ("customer customer_id", ["customer_id"], ["person_by_customer_id"]),
        ("customer_id customerId", ["customer_id", "customerId"], ["customer", "person_by_customerId"]),
        ("buyer_id seller_id", ["buyer_id", "seller_id"], ["buyer", "seller"]),
        ("c_id", ["c_id"] * 3, ["c", "person_by_c_id", "person_by_c_id_2"]),
        ("a b", ["a b"], ["person_by_a_b"]),
        ("a b person_by_a_b", ["a b"], ["person_by_a_b_2"]),
    ],
)
def test_relation_whose_name_is_taken_is_named_after_target_and_columns(
    columns: str, keys: list[str], relations: list[str]
) -> None:
    references = [
        _reference(*each.split(), to="person", by=("id", "name")[: len(each.split())]) for each in keys
    ]
    order = _row("order", *columns.split(), to=references)

    assert _relations(order, _row("person", "name")) == dict.fromkeys(relations, "person")


@pytest.mark.parametrize(
    ("to", "joinable", "relations"),
    [("person", False, {}), ("secret", True, {}), ("order", True, {"parent": "order"})],
)
def test_relation_is_a_key_that_can_be_followed_to_a_table_that_is_seen(
    to: str, joinable: bool, relations: dict[str, str]
) -> None:
    order = _row("order", "parent_id", to=[_reference("parent_id", to=to, joinable=joinable)])

    assert _relations(order, _row("person")) == relations


def test_relation_that_is_no_path_does_not_take_a_name() -> None:
    order = _row(
        "order",
        *("customer_id", "customerId"),
        to=[_reference("customer_id", to="secret"), _reference("customerId", to="person")],
    )

    assert _relations(order, _row("person")) == {"customer": "person"}


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
        pytest.param("total", "", "order.total", id="own column"),
        pytest.param("customer.country", "customer", "customer.country", id="one step"),
        pytest.param("customer.home.region.name", "customer home region", "region.name", id="three steps"),
        pytest.param("customer_id.country", "customer", "customer.country", id="by the column"),
        pytest.param("customer.SupportRepId.last_name", "customer SupportRep", "employee.last_name", id="on"),
        pytest.param("Customer.supportrep.LAST_NAME", "customer SupportRep", "employee.last_name", id="case"),
        pytest.param(" customer.country ", "customer", "customer.country", id="blanks around"),
        pytest.param('"customer"."country"', "customer", "customer.country", id="quoted for nothing"),
        pytest.param("customer.id", "customer", "customer.id", id="the target's key"),
        (*("customer.SupportRep.ReportsTo.last_name", "customer SupportRep ReportsTo"), "employee.last_name"),
        pytest.param(
            "customer.parent.parent.country", "customer parent parent", "customer.country", id="round"
        ),
        pytest.param("order.total", "", "order.total", id="own column by its table"),
    ],
)
def test_path_leads_to_a_column(text: str, steps: str, end: str) -> None:
    table_name, name = end.split(".")
    column = {each.name: each for each in (ORDER, *WORLD)}[table_name].column_by_name[name]

    found = NAMES.find(text, "columns[0]")
    path = found.path if isinstance(found, PathColumn) else ()

    assert [step.name for step in path] == steps.split()
    assert (path[-1].target if path else ORDER).name == table_name
    assert (found.column if isinstance(found, PathColumn) else found) is column
    assert (found.name, found.type) == (".".join([*steps.split(), name]), column.type)


def test_end_of_a_path_may_be_null() -> None:
    assert NAMES.find("customer.id", "columns[0]").nullable
    assert not NAMES.find("id", "columns[0]").nullable


def test_own_column_comes_before_a_path_of_the_same_spelling() -> None:
    order = _row("order", "customer_id", "customer.country", to=[_reference("customer_id", to="customer")])

    found = names(order, *WORLD)

    assert found.find("customer.country", "x") is order.column_by_name["customer.country"]
    assert isinstance(found.find('"customer".country', "x"), PathColumn)


def test_relation_comes_before_the_table_of_the_same_name() -> None:
    node = _row("node", "name", "node_id", to=[_reference("node_id", to="node")])

    assert isinstance(names(node).find("node.name", "x"), PathColumn)


def test_column_in_two_cases_is_found_only_by_its_own_name() -> None:
    twins = names(_row("twin", "Name", "name"))

    assert twins.find("Name", "x").name == "Name"
    with pytest.raises(UnknownColumn):
        twins.find("NAME", "x")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a", ["a"]),
        ("a.b.c", ["a", "b", "c"]),
        ('"a.b".c', ["a.b", "c"]),
        ('"say ""hi"""', ['say "hi"']),
        ('a"b', ['a"b']),
        ("it's", ["it's"]),
        ("Größe.名前", ["Größe", "名前"]),
    ],
)
def test_parts_are_separated_by_dots(text: str, parts: list[str]) -> None:
    assert parts_of(text) == parts


@pytest.mark.parametrize(
    "text", ["", ".", "a.", ".a", "a..b", ":", ":month", "a.b:month", "a:", '"a', '"a"b', '"a".', '""a""']
)
def test_text_that_is_no_path_has_no_parts(text: str) -> None:
    assert parts_of(text) is None


@given(ANY_NAME.filter(bool))
def test_any_name_is_read_back_as_it_was_spelled(name: str) -> None:
    assert parts_of(f"{path_part(name)}.{path_part(name)}") == [name, name]


@given(ANY_NAME)
def test_column_of_any_name_is_found_as_it_is_spelled(name: str) -> None:
    of = names(table(Column(name=name, type=ID.type), name="odd", key=()))

    assert of.find(path_part(name), "x") is of.table.columns[0]


@given(ANY_NAME.filter(bool), ANY_NAME.filter(bool))
@example("0_", "0")
def test_path_of_any_names_is_found_as_it_is_named(step: str, end: str) -> None:
    target = table(Column(name=end, type=ID.type), name="target", key=())
    referring = (Column(name=step, type=ID.type),)
    key = _reference(step, to="target", by=("the key",))
    order = table(*referring, name="order", key=(), foreign_keys=(key,))
    of = names(order, target)

    found = of.find(f"{path_part(step)}.{path_part(end)}", "x")

    # A relation may have a shorter name than its key.
    assert isinstance(found, PathColumn)
    assert found.column is target.columns[0]
    assert of.find(found.name, "x") == found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("totl", ["'totl'", "order has no column", "Did you mean total?", "_on, total.", "customer.…"]),
        ("customer.hme.name", ["customer has no path 'hme'", "Did you mean home?", "home.…"]),
        pytest.param("total.x", ["order has no path 'total'"], id="column that leads nowhere"),
        ("country", ["order has no column 'country'", "customer.country"]),
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
