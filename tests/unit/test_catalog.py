"""The catalog: how names are resolved, and which tables are selected."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from dbtools.schema.catalog import Catalog, Key, Selection
from tests.unit.shop import ID, ORDER_LINE, PRODUCT, table


def _catalog(*names: tuple[str, str]) -> Catalog:
    return Catalog(
        tables=tuple(table(ID, schema=schema, name=name) for schema, name in names), default_schema="main"
    )


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        pytest.param([("main", "a"), ("main", "b")], ["a", "b"], id="default schema"),
        pytest.param([("other", "a")], ["a"], id="unique name"),
        pytest.param([("main", "a"), ("x", "a"), ("y", "a")], ["a", "x.a", "y.a"], id="same name"),
        pytest.param([("x", "a"), ("y", "a")], ["x.a", "y.a"], id="same name, none in the default schema"),
        pytest.param([("main", "x.a"), ("x", "a"), ("y", "a")], ["x.a", 'x."a"', "y.a"], id="dot in a name"),
        pytest.param([("", "a"), ("", "A")], ["a", "A"], id="no schemas"),
    ],
)
def test_label_is_the_shortest_name_that_means_one_table(
    names: list[tuple[str, str]], labels: list[str]
) -> None:
    catalog = _catalog(*names)

    assert [catalog.label(each) for each in catalog.tables] == labels
    assert [catalog.find_tables(label) for label in labels] == [(each,) for each in catalog.tables]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["main", "a", "a.b", "b"]), st.sampled_from(["a", "b", "a.b", "b.a", '"a"'])
        ),
        unique=True,
        max_size=12,
    )
)
def test_labels_tell_all_tables_apart(names: list[tuple[str, str]]) -> None:
    catalog = _catalog(*names)
    labels = [catalog.label(each) for each in catalog.tables]

    assert len(set(labels)) == len(labels)
    assert [catalog.find_tables(label) for label in labels] == [(each,) for each in catalog.tables]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        pytest.param("a", [("main", "a")], id="label"),
        pytest.param("x.a", [("x", "a")], id="qualified name"),
        pytest.param("main.a", [("main", "a")], id="qualified name in the default schema"),
        pytest.param("B", [("x", "b"), ("y", "B")][1:], id="exact before folded"),
        pytest.param("A", [("main", "a"), ("x", "a")], id="folded name of several"),
        pytest.param("c", [], id="unknown"),
        pytest.param("", [], id="empty"),
    ],
)
def test_name_means_tables(name: str, found: list[tuple[str, str]]) -> None:
    catalog = _catalog(("main", "a"), ("x", "a"), ("x", "b"), ("y", "B"))

    assert [(each.schema, each.name) for each in catalog.find_tables(name)] == found


def test_key_columns_come_in_the_order_of_the_key() -> None:
    swapped = replace(ORDER_LINE, keys=(Key(columns=("product_id", "order_id"), primary=True),))

    assert [column.name for column in swapped.key_columns] == ["product_id", "order_id"]


def test_equality_is_of_the_whole_though_the_hash_is_of_the_name() -> None:
    changed = replace(PRODUCT, comment="something else")

    assert hash(changed) == hash(PRODUCT)
    assert changed != PRODUCT


def test_warnings_do_not_make_a_catalog_another_one() -> None:
    assert Catalog(tables=(PRODUCT,), warnings=("one view was left out",)) == Catalog(tables=(PRODUCT,))


@pytest.mark.parametrize(
    ("selection", "admitted"),
    [
        pytest.param(Selection(), ["main.a", "x.a", "x.log_1"], id="everything"),
        pytest.param(Selection(schemas=("x",)), ["x.a", "x.log_1"], id="schemas"),
        pytest.param(Selection(include=("log_*",)), ["x.log_1"], id="include"),
        pytest.param(Selection(include=("x.*",)), ["x.a", "x.log_1"], id="include with schema"),
        pytest.param(Selection(exclude=("log_?", "main.*")), ["x.a"], id="exclude"),
        pytest.param(Selection(include=("A",)), [], id="case counts"),
        pytest.param(Selection(include=()), [], id="nothing"),
    ],
)
def test_selection_admits_by_pattern(selection: Selection, admitted: list[str]) -> None:
    names = [("main", "a"), ("x", "a"), ("x", "log_1")]

    assert [f"{schema}.{name}" for schema, name in names if selection.admits(schema, name)] == admitted


def test_schemas_do_not_matter_where_there_are_none() -> None:
    assert Selection(schemas=("x",)).admits("", "a")
