"""How relations, columns and paths of any name are written, read and listed."""

import pytest
from hypothesis import given, strategies as st

from dbtools.catalog import Column, Table
from dbtools.paths import Distant, parts_of, spelled
from tests.unit.joined_tables import SIDES, reference, relations_of, row
from tests.unit.shop import ID, names, table

ANY_NAME = st.text(st.characters(codec="utf-8"), max_size=8) | st.text("ab.:\"' \n", max_size=6)


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
    order = row("order", referring, to=[reference(referring, to="person")])

    assert relations_of(order, row("person")) == {name: "person"}


@pytest.mark.parametrize(
    ("order", "relations"),
    [
        pytest.param(
            row("order", "customer", "customer_id", to=[reference("customer_id", to="person")]),
            {"person_by_customer_id": "person"},
            id="name of another column",
        ),
        pytest.param(
            row(
                "order",
                *("customer_id", "customerId"),
                to=[reference("customer_id", to="person"), reference("customerId", to="person")],
            ),
            {"customer": "person", "person_by_customerId": "person"},
            id="name of another relation",
        ),
        pytest.param(
            row(
                "order", "buyer_id", "seller_id", to=[reference(f"{each}_id", to="person") for each in SIDES]
            ),
            {"buyer": "person", "seller": "person"},
            id="two to one table",
        ),
        pytest.param(
            row("order", "customer_id", to=[reference("customer_id", to="person")] * 3),
            {"customer": "person", "person_by_customer_id": "person", "person_by_customer_id_2": "person"},
            id="the same three times",
        ),
        pytest.param(
            row("order", "a", "b", to=[reference("a", "b", to="person", by=("id", "name"))]),
            {"person_by_a_b": "person"},
            id="composite",
        ),
        pytest.param(
            row("order", "a", "b", "person_by_a_b", to=[reference("a", "b", to="person", by=("x", "y"))]),
            {"person_by_a_b_2": "person"},
            id="composite, its name a column's",
        ),
        pytest.param(
            row("order", "customer_id", to=[reference("customer_id", to="person", joinable=False)]),
            {},
            id="not joinable",
        ),
        pytest.param(
            row("order", "customer_id", to=[reference("customer_id", to="secret")]),
            {},
            id="target not visible",
        ),
        pytest.param(
            row("order", "parent_id", to=[reference("parent_id", to="order")]),
            {"parent": "order"},
            id="to itself",
        ),
    ],
)
def test_relation_whose_name_is_taken_is_named_after_target_and_columns(
    order: Table, relations: dict[str, str]
) -> None:
    assert relations_of(order, row("person", "name")) == relations


@pytest.mark.parametrize(
    ("text", "parts", "rest"),
    [
        ("a", ["a"], None),
        ("a.b.c", ["a", "b", "c"], None),
        ("a.b:month", ["a", "b"], "month"),
        ('"a.b".c', ["a.b", "c"], None),
        ("a:", ["a"], ""),
        ('"a:b":year', ["a:b"], "year"),
        ('"say ""hi"""', ['say "hi"'], None),
        ('a"b', ['a"b'], None),
        ("it's", ["it's"], None),
        ("Größe.名前", ["Größe", "名前"], None),
    ],
)
def test_parts_are_separated_by_dots(text: str, parts: list[str], rest: str | None) -> None:
    assert parts_of(text) == (parts, rest)


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", ":", ":month", '"a', '"a"b', '"a".', '""a""'])
def test_text_that_is_no_path_has_no_parts(text: str) -> None:
    assert parts_of(text) is None


@given(ANY_NAME.filter(bool))
def test_any_name_is_read_back_as_it_was_spelled(name: str) -> None:
    assert parts_of(spelled(name)) == ([name], None)
    assert parts_of(f"{spelled(name)}.{spelled(name)}:month") == ([name, name], "month")


@given(ANY_NAME)
def test_column_of_any_name_is_found_as_it_is_spelled(name: str) -> None:
    of = names(table(Column(name=name, type=ID.type), name="odd", key=()))

    assert of.find(spelled(name), "x") is of.table.columns[0]
    assert list(of.listed) == [spelled(name)]


@given(ANY_NAME.filter(bool), ANY_NAME.filter(bool))
def test_path_of_any_names_is_found_as_it_is_named(step: str, end: str) -> None:
    target = table(Column(name=end, type=ID.type), name="target", key=())
    referring = (Column(name=step, type=ID.type),)
    key = reference(step, to="target", by=("the key",))
    order = table(*referring, name="order", key=(), foreign_keys=(key,))
    of = names(order, target)
    (path,) = (each for each in of.listed.values() if isinstance(each, Distant))

    assert of.find(path.name, "x") == path


def test_names_are_listed_as_they_are_to_be_written() -> None:
    target = row("target", "a:b")
    order = row("order", "x.y", "key.id", to=[reference("key.id", to="target")])

    assert list(names(order, target).listed) == ["id", '"x.y"', '"key.id"', '"key.id"."a:b"']
