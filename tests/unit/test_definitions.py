"""The schemas of tools agree with what the tools read and answer."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator

from dbtools.errors import CallError
from dbtools.policy import Limits
from dbtools.tools.arguments import read
from dbtools.tools.definition import ToolDefinition, Toolset, tool_content
from dbtools.tools.describe_tables import DescribeArguments
from dbtools.tools.list_rows import ListArguments
from dbtools.types import Family, Operator
from tests.unit.shop import SHOP, TYPES, column, table, tools

#: A table for each family that can be a key, so that every argument of `get_T` is met.
KEYED = tuple(
    table(column("id", family, nullable=False), name=f"by {family}")
    for family in Family
    if "eq" in TYPES[family].operators
)
TOOLS = tools(*SHOP.tables, *KEYED)
DEFINITIONS = [tool.definition for tool in TOOLS.values()]
STRING = {"type": "string"}
FORBIDDEN = {"$ref", "$defs", "anyOf", "oneOf", "allOf"}


def _schema(toolset: Toolset, name: str) -> Any:
    return toolset[name].definition.input_schema


def _nodes(schema: object) -> Iterator[Mapping[str, Any]]:
    """Yield every schema within *schema*; names of properties are no keywords."""
    if isinstance(schema, Mapping):
        yield schema
        for name, each in schema.items():
            yield from (
                (node for part in each.values() for node in _nodes(part))
                if name == "properties"
                else _nodes(each)
            )
    if isinstance(schema, list):
        for each in schema:
            yield from _nodes(each)


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda each: each.name)
def test_schemas_are_plain_enough_for_every_client(definition: ToolDefinition) -> None:
    schema = definition.input_schema
    nodes = list(_nodes(schema))
    # Conditions within conditions are advertised as objects, and no more.
    objects = [node for node in nodes if node.get("type") == "object" and node != {"type": "object"}]
    Draft202012Validator.check_schema(schema)
    Draft202012Validator.check_schema(definition.output_schema)

    assert schema["type"] == "object"
    assert [node for node in objects if node.get("additionalProperties", True) is True] == []
    assert [node for node in nodes if FORBIDDEN & set(node)] == []
    assert [node for node in nodes if node.get("type") == "null" or isinstance(node.get("type"), list)] == []
    assert [node for node in nodes if "title" in node or node.get("default", 0) in (None, "", [])] == []


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda each: each.name)
def test_answers_may_grow_without_breaking_the_schema(definition: ToolDefinition) -> None:
    nodes = list(_nodes(definition.output_schema))

    assert definition.output_schema["type"] == "object"
    assert [node for node in nodes if node.get("additionalProperties") is False] == []


def test_definition_is_listed_with_its_annotations() -> None:
    content = tool_content(TOOLS["list_sale"].definition)

    assert json.loads(json.dumps(content)) == content
    assert (content["name"], content["title"]) == ("list_sale", "List sale")
    assert content["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
    assert set(content) == {"name", "title", "description", "inputSchema", "outputSchema", "annotations"}


def test_list_advertises_conditions_and_bounds() -> None:
    properties = _schema(tools(*SHOP.tables, limits=Limits(max_rows=30)), "list_sale")["properties"]
    conditions = {"type": "array", "items": {"type": "object"}}
    text, texts = {"type": "string"}, {"type": "array", "items": {"type": "string"}}
    described = {name: each.get("description") for name, each in properties.items()}
    where = properties["where"]["items"]["properties"]
    operators = [str(each) for each in Operator if each is not Operator.MATCHES]

    assert where == {
        "column": text,
        "op": {"type": "string", "enum": operators, "default": "eq"},
        "value": text,
        "values": texts,
        "value_column": text,
        "any": conditions,
        "some": text | {"description": where["some"]["description"]},
        "none": text,
        "where": conditions | {"description": where["where"]["description"]},
        "match": {"type": "string", "enum": ["all", "any"]},
    }
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
            "gr__e": {"type": "string", "enum": ["s", "l"], "description": "Column Größe. 'of the shirt'"},
        },
        "required": ["id", "gr__e"],
        "additionalProperties": False,
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
    match schema.get("type"):
        case "object":
            if schema == {"type": "object"}:
                return st.fixed_dictionaries({"column": _arguments(STRING), "value": _arguments(STRING)})
            if "properties" not in schema:
                return st.dictionaries(st.text("abc", max_size=3), _arguments(schema["additionalProperties"]))
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
    "bad_value",
    "unknown_argument",
    "bad_operator",
    "bad_argument",
    "unknown_column",
    "unknown_table",
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
        ("list_product", {"wher": []}),
        ("list_product", {"where": [{"column": "id", "val": "1"}]}),
        ("list_product", {"where": [{"column": "id", "op": "like", "value": "1"}]}),
        ("list_product", {"where": ["id = 1"]}),
        ("list_product", {"match": "some"}),
        ("list_product", {"order_by": [1]}),
        ("list_product", {"columns": 1}),
        ("list_product", {"limit": 0}),
        ("list_product", {"offset": -1}),
        ("list_product", {"offset": 100_001}),
        ("list_product", {"where": [{"some": 1}]}),
        ("list_product", {"where": [{"any": ["id = 1"]}]}),
        ("list_product", {"limit": 201}),
        ("list_product", {"limit": 1.5}),
        ("list_product", {"limit": True}),
        ("list_product", {"cursor": 1}),
        ("get_product", {}),
        ("get_product", {"id": "x"}),
        ("get_product", {"id": [1]}),
        ("get_product", {"id": None}),
        ("get_product", {"id": 1, "name": "x"}),
        ("get_order_line", {"order_id": 1}),
        ("describe_tables", {"detail": "all"}),
        ("describe_tables", {"table": ["product"]}),
    ],
)
def test_schema_and_decoder_refuse_the_same(name: str, arguments: dict[str, object]) -> None:
    tool = TOOLS[name]

    assert not Draft202012Validator(tool.definition.input_schema).is_valid(arguments)
    with pytest.raises(CallError):
        tool.bind(arguments)
