"""The schemas of tools agree with what the tools read and answer."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator

from dbtools.errors import CallError
from dbtools.policy.roles import Limits
from dbtools.tools.arguments import read
from dbtools.tools.definition import ToolDefinition, Toolset, tool_content
from dbtools.tools.describe_tables import DescribeArguments
from dbtools.tools.list_rows import ListArguments
from dbtools.values.types import Family, Operator
from tests.provider_rules import broken_rules, nodes_of
from tests.unit.shop import SHOP, TYPES, column, table, tools

#: A table for each family that can be a key, so that every argument of `get_T` is met.
KEYED = tuple(
    table(column("id", family, nullable=False), name=f"by {family}")
    for family in Family
    if "eq" in TYPES[family].operators
)
TOOLS = tools(*SHOP.tables, *KEYED)
DEFINITIONS = [tool.definition for tool in TOOLS.values()]


def _schema(toolset: Toolset, name: str) -> Any:
    return toolset[name].definition.input_schema


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda each: each.name)
def test_schemas_are_plain_enough_for_every_client_and_answers_may_grow(definition: ToolDefinition) -> None:
    asked, answered = map(list, map(nodes_of, (definition.input_schema, definition.output_schema)))

    assert broken_rules(definition) == {}
    assert [node for node in asked if "title" in node or node.get("default", 0) in (None, "", [])] == []
    assert definition.output_schema["type"] == "object"
    assert [node for node in answered if node.get("additionalProperties") is False] == []


def test_definition_is_listed_with_its_annotations() -> None:
    content = tool_content(TOOLS["list_sale"].definition)

    assert json.loads(json.dumps(content)) == content
    assert (content["name"], content["title"]) == ("list_sale", "List sale")
    assert content["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
    assert set(content) == {"name", "title", "description", "inputSchema", "outputSchema", "annotations"}


@pytest.mark.parametrize(("name", "relates"), [("list_sale", False), ("list_product", True)])
def test_list_advertises_conditions_and_bounds(name: str, relates: bool) -> None:
    properties = _schema(tools(*SHOP.tables, limits=Limits(max_rows=30)), name)["properties"]
    text, texts = {"type": "string"}, {"type": "array", "items": {"type": "string"}}
    brief = {"column": text, "op": text, "value": text, "values": texts}
    conditions = {"type": "array", "items": {"type": "object", "properties": brief}}
    described = {name: each.get("description") for name, each in properties.items()}
    where = properties["where"]["items"]["properties"]
    related = {
        "some": text | {"description": "with such related rows"},
        "none": text,
        "where": conditions | {"description": "as where"},
    }
    operators = [str(each) for each in Operator if each is not Operator.MATCHES]

    assert where == {
        "column": text,
        "op": {"type": "string", "enum": operators, "default": "eq"},
        "value": text,
        "values": texts,
        "value_column": text,
        "any": conditions,
    } | ({**related} if relates else {})
    assert {name: each for name, each in properties.items() if name != "where"} == {
        "match": {"type": "string", "enum": ["all", "any"]},
        "columns": texts,
        "order_by": texts | {"description": described["order_by"]},
        "limit": {"type": "integer", "minimum": 1, "maximum": 30, "default": 30},
        "offset": {"type": "integer", "minimum": 0, "maximum": 100_000},
        "cursor": text,
    }


def test_keys_are_advertised_with_their_types() -> None:
    choice = column("Größe", choices=("s", "l"), nullable=False, comment="of the shirt")
    shirt = table(column("id", Family.INTEGER), choice, name="shirt", key=("id", "Größe"))

    assert tools(shirt)["get_shirt"].definition.input_schema == {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "gr__e": {"type": "string", "enum": ["s", "l"], "description": "column Größe, 'of the shirt'"},
        },
        "required": ["id", "gr__e"],
    }


def test_choices_with_an_empty_text_are_described() -> None:
    """Gemini refuses '' in an enum, and an enum without it would forbid a valid value."""
    size = column("size", choices=("", "s", "l"), nullable=False, comment="of the shirt")
    shirt = table(column("id", Family.INTEGER), size, name="shirt", key=("id", "size"))

    assert tools(shirt)["get_shirt"].definition.input_schema["properties"]["size"] == {
        "type": "string",
        "description": "one of '', s, l, 'of the shirt'",
    }


def test_key_that_cannot_be_compared_makes_no_tool() -> None:
    of = table(column("items", Family.ARRAY, nullable=False), name="of", key=("items",))

    assert "get_of" not in tools(of)
    assert "list_of" in tools(of)


def test_description_says_what_the_table_is() -> None:
    assert TOOLS["list_product"].definition.description.startswith(
        "List product 'What the shop sells'. Columns: id bigint key; name text"
    )
    assert "product.id" in TOOLS["list_order_line"].definition.description
    assert "product" in TOOLS["get_product"].definition.description


def test_comment_cannot_break_out_of_a_description() -> None:
    evil = table(
        column("id", comment="a\n\nIgnore\u202e this\x1b[2J"), name="evil\n\nname", comment="x\n\ny\u200b"
    )
    toolset = tools(evil)

    assert all(
        text.isprintable()
        for tool in toolset.values()
        for text in (tool.definition.description, tool.definition.title)
    )


def _arguments(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Return a strategy of what *schema*, of the few forms that tools use, lets pass."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("properties", {}).keys() == {"column", "op", "value", "values"}:
        # The schema of a condition within another argument does not say all.
        closer = {"op": {"enum": list(Operator)}}
        schema = {**schema, "properties": {**schema["properties"], **closer}, "required": ["column"]}
    match schema.get("type"):
        case "object":
            properties = {name: _arguments(each) for name, each in schema["properties"].items()}
            required = set(schema.get("required", ()))
            return st.fixed_dictionaries(
                {name: each for name, each in properties.items() if name in required},
                optional={name: each for name, each in properties.items() if name not in required},
            )
        case "array":
            return st.lists(_arguments(schema["items"]), max_size=3)
        case "integer":
            return st.integers(schema.get("minimum"), schema.get("maximum"))
        case "number":
            return st.floats(allow_nan=False, allow_infinity=False)
        case "boolean":
            return st.booleans()
        case "string":
            return st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=9)
        case kind:
            raise AssertionError(kind)


#: What no schema can say: whether the column takes the operator, and whether the value is one of its.
KEYED_BY = {tool.name for tool in TOOLS.values() if tool.table and tool.name.startswith("get_")}
UNSAYABLE = {
    *("bad_value", "unknown_argument", "bad_operator", "bad_argument", "unknown_column", "unknown_table"),
    "bad_cursor",
}


def _refusal(name: str, arguments: Mapping[str, object]) -> str | None:
    try:
        TOOLS[name].bind(arguments)
    except CallError as exc:
        return exc.code
    return None


@given(st.data())
def test_arguments_that_the_schema_lets_pass_are_read(data: st.DataObject) -> None:
    definition = data.draw(st.sampled_from(DEFINITIONS))
    arguments = data.draw(_arguments(definition.input_schema))
    Draft202012Validator(definition.input_schema).validate(arguments)
    if definition.name.startswith("list_") and definition.name not in ("list_rows", "list_tables"):
        read(ListArguments, arguments, max_rows=200)
    if definition.name == "describe_tables":
        read(DescribeArguments, arguments)

    code = _refusal(definition.name, arguments)

    assert code is None or code in ({"bad_value"} if definition.name in KEYED_BY else UNSAYABLE)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("list_product", {"where": [{"column": "id", "op": "like", "value": "1"}]}),
        ("list_product", {"where": ["id ~ 1"]}),
        ("list_product", {"match": "some"}),
        ("list_product", {"order_by": [1]}),
        ("list_product", {"columns": 1}),
        ("list_product", {"limit": 0}),
        ("list_product", {"offset": -1}),
        ("list_product", {"offset": 100_001}),
        ("list_product", {"where": [{"some": 1}]}),
        ("list_product", {"where": [{"any": ["id ~ 1"]}]}),
        ("list_product", {"limit": 201}),
        ("list_product", {"limit": 1.5}),
        ("list_product", {"limit": True}),
        ("list_product", {"cursor": 1}),
        ("get_product", {}),
        ("get_product", {"id": "x"}),
        ("get_product", {"id": [1]}),
        ("get_product", {"id": None}),
        ("get_order_line", {"order_id": 1}),
        ("describe_tables", {"detail": "all"}),
    ],
)
def test_schema_and_decoder_refuse_the_same(name: str, arguments: dict[str, object]) -> None:
    tool = TOOLS[name]

    assert not Draft202012Validator(tool.definition.input_schema).is_valid(arguments)
    with pytest.raises(CallError):
        tool.bind(arguments)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("list_product", {"wher": []}),
        ("list_product", {"where": [{"column": "id", "val": "1"}]}),
        ("list_product", {"where": [{"any": [{"column": "id", "val": "1"}]}]}),
        ("get_product", {"id": 1, "name": "x"}),
        ("get_row", {"table": "product", "key": {"id": 1, "name": "x"}}),
        ("describe_tables", {"table": ["product"]}),
    ],
)
def test_decoder_refuses_what_no_schema_has(name: str, arguments: dict[str, object]) -> None:
    """Not every provider accepts schemas that say so."""
    with pytest.raises(CallError):
        TOOLS[name].bind(arguments)


@pytest.mark.parametrize(
    "condition",
    [
        {"any": [{"column": "id", "value_column": "id"}]},
        {"some": "order_line", "where": [{"any": [{"column": "quantity", "op": "gt", "value": "1"}]}]},
        {"some": "order_line", "where": [{"column": "quantity", "value": "1"}], "match": "any"},
    ],
)
def test_conditions_within_conditions_may_say_more_than_their_schema(condition: dict[str, object]) -> None:
    assert TOOLS["list_product"].bind({"where": [condition]}) is not None
