"""Which tools are listed, by what their definitions cost: those of each table, or generic ones."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from dbtools.answers.styles import Listing, Surface
from dbtools.errors import CallError
from dbtools.policy.roles import Role
from dbtools.schema.catalog import Catalog, ForeignKey, Table, TableKind
from dbtools.service.serving import open_toolbox
from dbtools.service.snapshot import RoleSnapshot, take_snapshot
from dbtools.settings import settings_of
from dbtools.tools import choose, define, listed_tools, unknown_tool
from dbtools.tools.definition import Tool, ToolContext, ToolDefinition, ToolGroup, tokens_of, tool_content
from dbtools.values.types import Family
from tests.calls import statement_of
from tests.unit.shop import (
    ID,
    PRODUCT,
    SALE,
    TYPES,
    answer,
    column,
    context,
    resolved,
    select_of,
    table,
    tools,
)

ROOT = Path(__file__).parents[2]
GENERIC = ["list_tables", "describe_tables", "aggregate_rows", "list_rows", "get_row"]
TYPED = ["describe_tables", "aggregate_rows", "list_product", "list_sale", "get_product"]
SMALL = Catalog(tables=(PRODUCT, SALE))
SMALL_TOOLS = tools(PRODUCT, SALE)
SCHEMAS, TABLES = 27, 1_500


def _view(
    catalog: Catalog, surface: Surface = Surface.AUTO, *, budget: int = 10_000, pin: Sequence[str] = ()
) -> RoleSnapshot:
    listing = Listing(surface=surface, budget=budget, pin=tuple(pin))
    return take_snapshot(resolved(catalog, (Role(),), listing)).views["default"]


def _listed(view: RoleSnapshot) -> list[str]:
    return [definition.name for definition in view.definitions]


def test_hints_name_only_tools_that_are_listed() -> None:
    refusal = str(unknown_tool("list_row", SMALL_TOOLS, TYPED))

    assert "list_rows" in SMALL_TOOLS
    assert refusal.endswith("Did you mean list_product?")


def _tokens(view: RoleSnapshot) -> int:
    return sum(tokens_of(tool_content(definition)) for definition in view.definitions)


def _one_of_many(number: int) -> Table:
    name = f"table_{number // 2:04}"
    parent = ForeignKey(
        columns=("parent_id",), target_schema="schema_00", target="table_0000", target_columns=("id",)
    )
    return table(
        ID,
        column("parent_id", Family.INTEGER),
        *(column(f"column_{at}", comment=f"the column {at} of {name}") for at in range(12)),
        schema=f"schema_{number % SCHEMAS:02}",
        name=name,
        comment=f"One of many tables, number {number}",
        foreign_keys=(parent,),
        row_estimate=number,
    )


MANY = Catalog(tables=tuple(map(_one_of_many, range(TABLES))), default_schema="schema_00")


@dataclass(frozen=True, kw_only=True, eq=False)
class Counted(Tool):
    """Stands in for a tool of a table: remembers each time that its definition was asked for."""

    surface = Surface.TYPED
    label: str
    asked: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.label

    @property
    def definition(self) -> ToolDefinition:
        self.asked.append(self.name)
        return tools(SALE)["list_sale"].definition


def test_style_chooses_the_surface_whatever_it_costs() -> None:
    assert _listed(_view(SMALL, Surface.TYPED, budget=0)) == TYPED
    assert _listed(_view(SMALL, Surface.GENERIC)) == GENERIC


def test_auto_lists_the_tools_of_each_table_while_they_fit_the_budget() -> None:
    cost = _tokens(_view(SMALL, Surface.TYPED))

    exactly, below = (_view(SMALL, budget=budget) for budget in (cost, cost - 1))

    assert (_listed(exactly), [*exactly.replacement_notes(Listing(budget=cost))]) == (TYPED, [])
    assert (_listed(below), len([*below.replacement_notes(Listing(budget=cost - 1))])) == (GENERIC, 1)


def test_pinned_tools_are_not_among_those_that_are_replaced() -> None:
    listing = Listing(budget=0, pin=("product",))
    some, none = (_view(SMALL, budget=0, pin=pin) for pin in (["product"], ["product", "sale"]))

    (line,) = some.replacement_notes(listing)
    assert line.startswith("list_tables, list_rows, get_row replace list_sale: ")
    assert [*none.replacement_notes(listing)] == []


def test_tokens_are_the_bytes_of_all_that_is_listed() -> None:
    content = tool_content(tools(SALE)["list_sale"].definition)

    assert tokens_of(content) == -(-len(json.dumps(content, separators=(",", ":"))) // 4)
    assert tokens_of("éé") == 2


def test_lists_are_encoded_as_they_are_shown() -> None:
    view = _view(SMALL)
    contents = [tool_content(each) for each in view.definitions]

    assert list(map(json.loads, view.tool_contents)) == contents
    assert list(map(json.loads, view.resource_contents)) == [each.content() for each in view.resources]
    assert view.costs == tuple(map(tokens_of, contents))
    assert view.resources


async def test_tools_of_the_sample_fit_the_default_budget() -> None:
    toolbox, database = open_toolbox(settings_of(str(ROOT / "sample.db")))
    view = await toolbox.view("default")
    await database.close()

    assert ToolGroup.TABLES in view.typed
    # run_sql is listed beside the budget.
    own = tokens_of(tool_content(view.tools["run_sql"].definition))
    assert sum(view.costs) - own <= Listing().budget == 10_000


@pytest.mark.parametrize(
    ("catalog", "surface", "pin", "names"),
    [
        pytest.param(Catalog(), Surface.AUTO, [], TYPED[:2], id="empty database"),
        (SMALL, Surface.GENERIC, ["PRODUCT"], [*GENERIC[:4], "list_product", "get_row", "get_product"]),
        pytest.param(SMALL, Surface.TYPED, ["product"], TYPED, id="pinned and typed"),
        pytest.param(
            SMALL, Surface.GENERIC, ["sale", "gone"], [*GENERIC[:4], "list_sale", "get_row"], id="gone"
        ),
    ],
)
def test_pinned_tables_keep_their_own_tools(
    catalog: Catalog, surface: Surface, pin: list[str], names: list[str]
) -> None:
    assert _listed(_view(catalog, surface, pin=pin)) == names


@pytest.mark.parametrize(
    ("typed", "generic"),
    [
        pytest.param(("list_sale", {"limit": 3}), ("list_rows", {"table": "sale", "limit": 3}), id="list"),
        (("get_product", {"id": 1}), ("get_row", {"table": "product", "key": {"id": "1"}})),
        (("get_product", {"id": 1}), ("get_row", {"table": "product", "key": {"ID": 1}})),
    ],
)
def test_both_surfaces_ask_the_same_of_the_database(
    typed: tuple[str, dict[str, object]], generic: tuple[str, dict[str, object]]
) -> None:
    statements = [statement_of(SMALL_TOOLS[name].bind(arguments)) for name, arguments in (typed, generic)]

    assert statements[0] == statements[1]


def test_cursor_of_one_surface_goes_on_with_the_other() -> None:
    page = answer(SMALL_TOOLS, "list_sale", {}, ("2024-03-05", "1.10"), more=True)
    cursor = page.structured["next_cursor"]

    statement = statement_of(SMALL_TOOLS["list_rows"].bind({"table": "sale", "cursor": cursor}))

    assert select_of(statement).skip


def test_typed_definitions_are_made_no_further_than_the_budget_reaches() -> None:
    asked: list[str] = []
    counted: dict[str, Tool] = {
        str(at): Counted(context=context(), label=str(at), asked=asked) for at in range(100)
    }
    cost = tokens_of(tool_content(tools(SALE)["list_sale"].definition))

    typed = choose(Listing(budget=cost * 5), counted)
    shown = list(listed_tools(Listing(), typed, counted, SMALL))

    assert (ToolGroup.TABLES in typed, shown) == (False, [])
    assert asked == [str(at) for at in range(6)]


@pytest.mark.parametrize("surface", [Surface.TYPED, Surface.GENERIC])
def test_no_definition_is_made_to_choose_what_is_chosen_already(surface: Surface) -> None:
    asked: list[str] = []
    counted: dict[str, Tool] = {"x": Counted(context=context(), label="x", asked=asked)}

    typed = choose(Listing(surface=surface, budget=0), counted)

    assert (ToolGroup.TABLES in typed) is (surface is Surface.TYPED)
    assert asked == []


LAST = _one_of_many(150)
COLUMN, REFERENCE, KEY = LAST.columns[-1], LAST.foreign_keys[0], LAST.keys[0]
FEW = Catalog(tables=(*MANY.tables[:3], LAST), default_schema="schema_00")
ABOVE = Catalog(tables=(*MANY.tables[:101], LAST), default_schema="schema_00")


def _column_changed(**changes: Any) -> dict[str, object]:
    return {"columns": (*LAST.columns[:-1], replace(COLUMN, **changes))}


def _reference_changed(**changes: Any) -> dict[str, object]:
    return {"foreign_keys": (replace(REFERENCE, **changes),)}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"columns": (*LAST.columns, column("more"))}, id="another column"),
        pytest.param({"columns": LAST.columns[:-1]}, id="one column less"),
        pytest.param({"columns": (*LAST.columns[:-2], COLUMN, LAST.columns[-2])}, id="order of columns"),
        pytest.param(_column_changed(name="other"), id="name of a column"),
        pytest.param(_column_changed(type=TYPES[Family.UUID]), id="type"),
        pytest.param(_column_changed(type=replace(COLUMN.type, labels=("a", "b"))), id="labels of an enum"),
        pytest.param(_column_changed(nullable=False), id="nulls"),
        pytest.param(_column_changed(default="now()"), id="default"),
        pytest.param(_column_changed(generated=True), id="generated"),
        pytest.param(_column_changed(comment="else"), id="comment of a column"),
        pytest.param(_column_changed(choices=("a", "b")), id="choices"),
        pytest.param(_column_changed(minimum="5"), id="bounds"),
        pytest.param({"comment": "else"}, id="comment of the table"),
        pytest.param({"kind": TableKind.PARTITIONED}, id="kind"),
        pytest.param({"keys": ()}, id="no key"),
        pytest.param({"keys": (replace(KEY, primary=False),)}, id="key that is not the primary one"),
        pytest.param({"foreign_keys": ()}, id="no foreign key"),
        pytest.param(_reference_changed(target="table_0001"), id="foreign key to another table"),
        pytest.param(_reference_changed(target_columns=("column_1",)), id="foreign key to another column"),
        pytest.param(_reference_changed(joinable=False), id="foreign key that is no path any more"),
    ],
)
@pytest.mark.parametrize("catalog", [FEW, ABOVE], ids=["named", "counted"])
def test_change_of_the_schema_changes_a_definition_on_the_generic_surface(
    catalog: Catalog, changes: dict[str, Any]
) -> None:
    changed = replace(catalog, tables=(*catalog.tables[:-1], replace(LAST, **changes)))
    before, after = (_view(each, Surface.GENERIC).definitions for each in (catalog, changed))

    assert len(before) == len(after)
    assert [each.name for each, other in zip(before, after, strict=True) if each != other] != []


@pytest.mark.parametrize("surface", [Surface.TYPED, Surface.GENERIC])
@pytest.mark.parametrize("catalog", [FEW, ABOVE], ids=["named", "counted"])
def test_number_of_rows_changes_no_definition(catalog: Catalog, surface: Surface) -> None:
    grown = replace(catalog, tables=tuple(replace(each, row_estimate=77) for each in catalog.tables))

    assert _view(catalog, surface).definitions == _view(grown, surface).definitions


def _table_schemas(of: ToolContext) -> list[dict[str, Any]]:
    """Return what each tool for any table says of a table's name."""
    schemas: list[Any] = [define(of)[name].definition.input_schema for name in GENERIC]
    properties = [schema["properties"] for schema in schemas]
    return [each["table"] for each in properties if "table" in each] + [properties[1]["tables"]["items"]]


def test_tables_are_named_while_they_are_few_and_counted_above() -> None:
    names = [f"t{number}" for number in range(101)]
    few, many = (context(*(table(ID, name=name) for name in names[:count])) for count in (100, 101))

    assert _table_schemas(few) == [{"type": "string", "enum": names[:100]}] * 4
    for schema in _table_schemas(many):
        assert "enum" not in schema
        assert [
            said for said in ("101", many.digest, "list_tables") if said not in schema["description"]
        ] == []


def test_database_of_many_tables_costs_little() -> None:
    view = _view(MANY)

    assert len(MANY.tables) == TABLES
    assert len({each.schema for each in MANY.tables}) == SCHEMAS
    assert _listed(view) == GENERIC
    assert _tokens(view) < 2_500


def test_unknown_name_of_many_is_answered_with_the_nearest() -> None:
    toolset = define(ToolContext(catalog=MANY))

    with pytest.raises(CallError) as raised:
        toolset["get_row"].bind({"table": "tabel_0000", "key": {"id": 1}})

    assert [
        said
        for said in ("Did you mean", "table_0000", "1,500", "list_tables")
        if said not in str(raised.value)
    ] == []
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize("name", ["tables", "rows", "row"])
def test_table_named_like_a_tool_for_any_does_not_take_its_name(name: str) -> None:
    toolset = tools(table(ID, name=name))

    assert [toolset[each].table for each in GENERIC] == [None] * 5
    assert len(toolset) == 7
