"""Names of tools and arguments: accepted by every client, unique, and always the same."""

import re

import pytest
from hypothesis import given, strategies as st

from dbtools.schema.catalog import Catalog
from dbtools.schema.paths import Paths
from dbtools.tools.wording import argument_names
from tests.unit.shop import ID, column, table, tools

TOOL = re.compile(r"[a-z0-9_]{1,40}")
ARGUMENT = re.compile("[A-Za-z_][A-Za-z0-9_]{0,63}")


def _names(*tables: tuple[str, str]) -> list[str]:
    catalog = Catalog(tables=tuple(table(ID, schema=schema, name=name) for schema, name in tables))
    return list(Paths(catalog).table_names.values())


@pytest.mark.parametrize(
    ("tables", "names"),
    [
        pytest.param([("", "customer")], ["customer"], id="as it is"),
        pytest.param([("", "OrderLine")], ["orderline"], id="capitals"),
        pytest.param([("", "order line/2")], ["order_line_2"], id="spaces and slashes"),
        pytest.param([("", "2024_sales")], ["2024_sales"], id="digits first"),
        pytest.param([("", "größe")], ["gr__e"], id="unicode"),
        pytest.param([("public", "a"), ("archive", "a")], ["a", "a_archive"], id="same name in two schemas"),
        pytest.param([("", "x" * 35)], ["x" * 35], id="longest"),
    ],
)
def test_tool_is_named_after_its_table(tables: list[tuple[str, str]], names: list[str]) -> None:
    assert _names(*tables) == names


@pytest.mark.parametrize(
    ("tables", "patterns"),
    [
        pytest.param([("", "a b"), ("", "a_b")], ["a_b", "a_b_[0-9a-f]{6}"], id="collision"),
        pytest.param([("", "A"), ("", "a")], ["a", "a_[0-9a-f]{6}"], id="collision by case"),
        pytest.param([("", "x" * 63)], ["x{28}_[0-9a-f]{6}"], id="63 characters"),
        ([("", "x" * 62 + "1"), ("", "x" * 62 + "2")], ["x{28}_[0-9a-f]{6}"] * 2),
        pytest.param([("", "😀"), ("", "😁")], ["[0-9a-f]{6}"] * 2, id="emoji"),
        pytest.param([("", "___")], ["[0-9a-f]{6}"], id="underscores"),
        ([("s", "a"), ("t", "a"), ("", "a_t")], ["a", "a_t", "a_t_[0-9a-f]{6}"]),
    ],
)
def test_digest_tells_apart_what_would_collide(tables: list[tuple[str, str]], patterns: list[str]) -> None:
    names = _names(*tables)

    assert len(set(names)) == len(tables)
    assert [name for name, each in zip(names, patterns, strict=True) if not re.fullmatch(each, name)] == []


TABLES = st.lists(
    st.tuples(
        st.sampled_from(["public", "a", "größe"]),
        st.text(min_size=1, max_size=63) | st.text("aA_ b", min_size=1, max_size=5),
    ),
    unique=True,
    max_size=15,
)


@given(TABLES)
def test_names_of_tools_suit_every_client_and_are_unique(tables: list[tuple[str, str]]) -> None:
    names = _names(*tables)
    catalog = [table(ID, schema=schema, name=name) for schema, name in tables]
    toolset = tools(*catalog) if catalog else {}

    assert len(set(names)) == len(tables)
    assert [name for name in names if not TOOL.fullmatch(f"list_{name}")] == []
    assert len([tool for tool in toolset.values() if tool.table]) == 2 * len(tables)
    assert all(TOOL.fullmatch(name) and name == tool.definition.name for name, tool in toolset.items())


@given(TABLES)
def test_names_do_not_depend_on_tables_that_come_later(tables: list[tuple[str, str]]) -> None:
    names = _names(*tables)

    assert [_names(*tables[:end]) for end in range(len(tables))] == [
        names[:end] for end in range(len(tables))
    ]


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        pytest.param(["id"], ["id"], id="as it is"),
        pytest.param(["CustomerId", "_x2"], ["CustomerId", "_x2"], id="what providers accept"),
        pytest.param(["a.b-c"], ["a_b_c"], id="signs"),
        pytest.param(["1st"], ["_1st"], id="digit"),
        pytest.param(["order id"], ["order_id"], id="space"),
        pytest.param(["a b", "a_b"], ["a_b_2", "a_b"], id="own name comes first"),
        pytest.param(["a b", "a/b"], ["a_b", "a_b_2"], id="collision"),
        pytest.param(["😀", "😁"], ["_", "__2"], id="emoji"),
        pytest.param(["x y" * 30], [("x_y" * 30)[:58]], id="long"),
    ],
)
def test_argument_is_named_after_its_column(columns: list[str], names: list[str]) -> None:
    arguments = argument_names(map(column, columns))

    assert list(arguments) == names
    assert [each.name for each in arguments.values()] == columns


@given(
    st.lists(
        st.text(min_size=1, max_size=63) | st.text("aA _", min_size=1, max_size=3), unique=True, max_size=9
    )
)
def test_names_of_arguments_suit_every_client_and_are_unique(columns: list[str]) -> None:
    arguments = argument_names(map(column, columns))

    assert [each.name for each in arguments.values()] == columns
    assert [name for name in arguments if not ARGUMENT.fullmatch(name)] == []
    assert [name for name in columns if ARGUMENT.fullmatch(name) and arguments[name].name != name] == []
