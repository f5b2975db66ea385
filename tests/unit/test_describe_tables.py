"""`describe_tables`: which tables it describes, and in how much detail."""

import json
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dbtools.answers.results import Answer
from dbtools.policy.roles import Limits
from dbtools.schema.catalog import ForeignKey, Key, Table
from dbtools.tools.definition import Toolset
from dbtools.tools.describe_tables import DESCRIPTION_SCHEMA
from dbtools.values.types import Family
from tests.unit.shop import ID, ORDER_LINE, PRODUCT, SALE, answer, column, table, tools

PRICED = table(
    ID,
    column("price", Family.DECIMAL, minimum="> 0", maximum="100", default="19.90", comment="in\neuros"),
    column("total", Family.DECIMAL, generated=True, nullable=False),
    column("color", choices=("red", "green")),
    column("code", nullable=False),
    name="priced",
    keys=(Key(columns=("id",), primary=True), Key(columns=("code", "total"))),
    comment="What is\tsold",
    row_estimate=0,
)
TOOLS = tools(PRODUCT, ORDER_LINE, SALE, PRICED)


def _described(arguments: dict[str, object]) -> Answer:
    described = answer(TOOLS, "describe_tables", arguments)
    Draft202012Validator(DESCRIPTION_SCHEMA).validate(described.structured)
    return described


def test_full_description_says_everything() -> None:
    assert _described({"tables": ["priced"], "detail": "full"}).structured["tables"] == [
        {
            "name": "priced",
            "kind": "table",
            "comment": "What is sold",
            "row_estimate": 0,
            "columns": [
                {"name": "id", "type": "bigint", "nullable": False},
                {
                    "name": "price",
                    "type": "numeric(10,2)",
                    "nullable": True,
                    "minimum": "> 0",
                    "maximum": "100",
                    "default": "19.90",
                    "comment": "in euros",
                },
                {"name": "total", "type": "numeric(10,2)", "nullable": False, "generated": True},
                {"name": "color", "type": "text", "nullable": True, "values": ["red", "green"]},
                {"name": "code", "type": "text", "nullable": False},
            ],
            "key": ["id"],
            "unique": [["code", "total"]],
        }
    ]


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        pytest.param([], ["product", "order line", "sale", "priced"], id="all"),
        pytest.param(["sale", "product"], ["sale", "product"], id="in the order asked for"),
        pytest.param(["sale", "sale"], ["sale"], id="twice"),
        pytest.param(["SALE"], ["sale"], id="case"),
    ],
)
def test_tables_are_those_that_are_named(asked: list[str], names: list[str]) -> None:
    described = _described({"tables": asked, "detail": "names"})

    assert described.structured["tables"] == [{"name": name} for name in names]


@pytest.mark.parametrize("detail", ["names", "summary", "full"])
def test_schema_is_told_where_there_are_several(detail: str) -> None:
    def schemas(*names: str) -> list[object]:
        toolset = tools(
            *(table(ID, schema=schema, name=name) for name, schema in zip("ab", names, strict=True))
        )
        told = answer(toolset, "describe_tables", {"detail": detail}).structured["tables"]
        assert isinstance(told, list)
        return [each.get("schema") for each in told]

    assert schemas("hr", "sales") == ["hr", "sales"]
    assert schemas("hr", "hr") == [None, None]


def test_schema_is_told_of_a_table_whose_columns_do_not_fit() -> None:
    columns = [column(f"column_{number}") for number in range(500)]
    wide = [table(ID, *columns, schema=schema, name="wide") for schema in ("hr", "sales")]
    toolset = tools(*wide, limits=Limits(max_tokens=500))

    told = answer(toolset, "describe_tables", {"tables": ["sales.wide"]}).structured["tables"]
    assert isinstance(told, list)
    assert [(each["schema"], "column_count" in each) for each in told] == [("sales", True)]


def test_descriptions_beyond_the_cap_are_left_out() -> None:
    limits = Limits(max_tokens=500)
    toolset = tools(
        *(table(ID, name=f"table {number}", comment="x" * 90) for number in range(50)), limits=limits
    )

    described = answer(toolset, "describe_tables", {})
    structured = described.structured
    Draft202012Validator(DESCRIPTION_SCHEMA).validate(structured)

    assert 1 < described.rows < 50
    assert structured["table_count"] == 50
    assert structured["truncated"] is described.truncated is True
    assert "note" in structured
    assert len(described.text) <= limits.max_bytes
    assert json.loads(described.text) == structured


def _person(*references: tuple[str, str], name: str = "person", schema: str = "", **more: Any) -> Table:
    """Return a table with a foreign key for each of *references*: a column, and the table it refers to."""
    foreign_keys = tuple(
        ForeignKey(columns=(each,), target_schema=schema, target=target, target_columns=("id",), **more)
        for each, target in references
    )
    columns = (ID, *(column(each, Family.INTEGER) for each, _ in references))
    return table(*columns, name=name, schema=schema, foreign_keys=foreign_keys)


def _one(toolset: Toolset, name: str, detail: str = "summary") -> dict[str, object]:
    structured = answer(toolset, "describe_tables", {"tables": [name], "detail": detail}).structured
    tables = structured["tables"]
    assert isinstance(tables, list)
    [described] = tables
    assert isinstance(described, dict)
    return described


@pytest.mark.parametrize("detail", ["summary", "full"])
def test_relations_are_the_steps_of_paths(detail: str) -> None:
    pair = ForeignKey(columns=("a", "b"), target_schema="", target="pair", target_columns=("a", "b"))
    person = _person(("boss_id", "person"), ("key.id", "pair"))
    person = replace(
        person, columns=(*person.columns, column("a"), column("b")), foreign_keys=(*person.foreign_keys, pair)
    )

    described = _one(tools(person, table(ID, name="pair")), "person", detail)

    assert described["relations"] == {"boss": "person", '"key.id"': "pair", "pair_by_a_b": "pair"}


def test_foreign_key_that_is_no_path_is_no_relation() -> None:
    toolset = tools(_person(("boss_id", "person"), joinable=False), _person(("x_id", "gone"), name="other"))

    assert "relations" not in _one(toolset, "person")
    assert "relations" not in _one(toolset, "other")
    assert _one(toolset, "person", "full")["references"] == {"boss_id": "person.id"}


def test_full_description_says_what_refers_to_a_table() -> None:
    toolset = tools(PRODUCT, ORDER_LINE, _person(("product_id", "product"), ("boss_id", "person")))

    assert _one(toolset, "product", "full")["referenced_by"] == {
        "order_line": "order line.product_id",
        "person": "person.product_id",
    }
    assert _one(toolset, "person", "full")["referenced_by"] == {"person": "person.boss_id"}
    assert "referenced_by" not in _one(toolset, "order line", "full")
    assert _one(toolset, "product")["referenced_by"] == ["order_line", "person"]


MANY = tools(*(table(ID, name=f"t{number:03}", comment="one") for number in range(120)))


@pytest.mark.parametrize("arguments", [{}, {"tables": []}, {"detail": None}, {"detail": ""}], ids=str)
def test_of_very_many_tables_the_names_of_the_first_are_enough(arguments: dict[str, object]) -> None:
    described = answer(MANY, "describe_tables", arguments)

    assert described.structured == {
        "table_count": 120,
        "truncated": True,
        "tables": [{"name": f"t{number:03}"} for number in range(100)],
        "note": described.structured["note"],
    }
    assert "list_tables" in str(described.structured["note"])
    assert described.truncated


def test_of_a_hundred_tables_or_if_asked_all_are_described() -> None:
    hundred = answer(tools(*(table(ID, name=f"t{at:03}") for at in range(100))), "describe_tables", {})
    summary = answer(MANY, "describe_tables", {"detail": "summary"})
    names = answer(MANY, "describe_tables", {"detail": "names"})

    assert [(each.rows, each.truncated) for each in (hundred, summary, names)] == [
        (100, False),
        (120, False),
        (120, False),
    ]
    assert "columns" in str(hundred.structured["tables"])
    assert _one(MANY, "t119")["columns"] == ["id bigint key"]
