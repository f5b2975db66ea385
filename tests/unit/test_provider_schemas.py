"""Every definition of a tool is one that Anthropic, OpenAI, Gemini and Vertex accept as a function."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dbtools.answers.styles import Listing, Surface
from dbtools.errors import CallError
from dbtools.policy.writes import EVERYTHING, WriteGrant, writes_of
from dbtools.queries import Permitted
from dbtools.schema.catalog import Catalog, Column, ForeignKey, Key, Table, TextIndex, identity_columns
from dbtools.tools import choose, define, listed_tools
from dbtools.tools.definition import ToolContext, Toolset
from dbtools.values.types import Family
from tests.provider_rules import MOST_TOOLS, REQUIREMENTS, broken_rules
from tests.unit.permitted_queries import permitted_query
from tests.unit.shop import ID, SHOP, TYPES, column, table

ODD = (
    *("First Name", "unit-price", "größe", "1st", "$top", "a.b", "a b", "a_b", "A_B", "set", "key"),
    "dry run",
)
NAMES = st.sampled_from(ODD) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=80
)
TEXTS = st.sampled_from(["", "x", "a;b, c" * 400]) | st.text(max_size=30)
LABELS = st.lists(TEXTS, max_size=4).map(tuple)


def _writable(of: Table, grant: WriteGrant = EVERYTHING) -> Table:
    """Return the table *of*, which the role may change by *grant*."""
    identified = replace(of, identity=identity_columns([ID]))
    return replace(identified, writes=writes_of(identified, identified, grant)[0])


def _toolset(*tables: Table, queries: Sequence[Permitted] = ()) -> Toolset:
    catalog = Catalog(tables=tuple(tables))
    return define(ToolContext(catalog=catalog, queries=tuple(queries), server="SQLite 3.45"))


def _broken(toolset: Toolset) -> dict[str, object]:
    return {name: how for tool in toolset.values() for name, how in broken_rules(tool.definition).items()}


@st.composite
def _columns(draw: st.DrawFn) -> Column:
    family = draw(st.sampled_from(Family))
    type, choices = TYPES[family], draw(LABELS)
    if family is Family.ENUM:
        type = replace(type, labels=choices or ("a",))
    if family is Family.ARRAY:
        type = replace(type, element=replace(TYPES[Family.ENUM], labels=choices))
    return Column(
        name=draw(NAMES),
        type=type,
        nullable=draw(st.booleans()),
        comment=draw(TEXTS),
        default=draw(st.none() | st.sampled_from(["0", "'x'"])),
        choices=draw(st.just(()) | st.just(choices)),
        minimum=draw(st.none() | st.just("1")),
        text_index=draw(st.none() | st.just(TextIndex(reads=frozenset({"a b"}), document="x"))),
    )


@st.composite
def _tables(draw: st.DrawFn) -> Table:
    columns = draw(st.lists(_columns(), min_size=1, max_size=4, unique_by=lambda each: each.name))
    key = draw(st.lists(st.sampled_from(columns), max_size=2, unique_by=lambda each: each.name))
    keys = (Key(columns=tuple(each.name for each in key), primary=True),) if key else ()
    return Table(name=draw(NAMES), columns=tuple(columns), keys=keys, comment=draw(TEXTS))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(_tables())
def test_no_table_leads_to_a_schema_that_a_provider_refuses(of: Table) -> None:
    toolset = _toolset(_writable(of))

    assert _broken({name: tool for name, tool in toolset.items() if tool.table}) == {}


WIDE = table(
    ID,
    *(
        column(f"quarterly_revenue_of_region_{number:03}", Family.NUMBER, comment="EUR")
        for number in range(300)
    ),
    name="wide",
)
CHOSEN = table(
    ID,
    *(column(f"c{number}", choices=tuple(f"choice {each}" for each in range(90))) for number in range(40)),
    name="chosen",
)
HUGE = table(ID, *(column(f"{'x' * 55}{number:05}") for number in range(2_000)), name="huge")
CHILDREN = [
    table(
        ID,
        column("parent_id", Family.INTEGER),
        name=f"children of a long name {number}",
        foreign_keys=(
            ForeignKey(columns=("parent_id",), target_schema="", target="parent", target_columns=("id",)),
        ),
    )
    for number in range(149)
]
ALIKE = {each.name for each in CHILDREN[1:]}  #: whose own tools differ by their names alone
QUERIES = [
    permitted_query(),
    permitted_query(
        "n: integer in (1, 2)",
        "b: decimal in (1.5)",
        "t: text in ('', 'a')",
        "p: text pattern '^(?i)a\\p{L}'",
        "w: text pattern '^[A-Z]{2}$'",
        *(f"{kind}s: {kind}[]" for kind in ("json", "date", "uuid", "timestamp", "boolean")),
        "j: json",
        "d: date  " + "very long " * 200,
        header="-- description: " + "a long story " * 200 + "\n",
        name="odd",
    ),
]


@pytest.mark.parametrize(
    "tables",
    [
        pytest.param(SHOP.tables, id="every family"),
        pytest.param([WIDE], id="300 columns"),
        pytest.param([HUGE], id="2,000 columns"),
        pytest.param([CHOSEN], id="3,600 choices"),
        pytest.param([table(ID, name="parent"), *CHILDREN], id="150 tables"),
        pytest.param([], id="no table"),
        pytest.param([table(column("x"), name="", key=())], id="no name"),
    ],
)
def test_no_large_schema_is_refused(tables: Sequence[Table]) -> None:
    toolset = _toolset(*map(_writable, tables), queries=QUERIES)
    alike = {name for name, tool in toolset.items() if tool.table and tool.table.name in ALIKE}

    assert _broken({name: tool for name, tool in toolset.items() if name not in alike}) == {}


def test_table_without_columns_to_give_takes_no_rows() -> None:
    toolset = _toolset(_writable(table(ID, name="counters"), WriteGrant(insert=(), preset={"id": 1})))

    assert _broken(toolset) == {}
    assert "rows" not in toolset["insert_counters"].definition.input_schema["properties"]
    assert toolset["insert_counters"].bind({}) is not None


def test_rules_find_what_breaks_them() -> None:
    """A tool that breaks every rule about arguments; each rule is about one place."""
    bad: dict[str, Any] = {
        "": {"type": "object"},
        "a": {"type": ["string", "null"], "enum": [], "const": 1},
        "b": {"type": "array", "format": "date", "required": ["x"], "enum": [1, ""]},
        "c": {"type": "string", "pattern": "(?=a)", "description": "x" * 1_025, "minLength": -1},
        "d": {"type": "object", "properties": {}, "additionalProperties": False, "required": ["y"]},
        "e": {"type": "object", "additionalProperties": False},
        **{f"{'n' * 59}{number:05}": {"type": "string"} for number in range(5_001)},
        "f": {"type": "string", "enum": [f"{'v' * 59}{number}" for number in range(1_001)]},
    }
    deep: dict[str, object] = {"type": "string"}
    for _ in range(6):
        deep = {"type": "object", "properties": {"in": {"type": "array", "items": deep}}}
    definition = replace(
        _toolset(*SHOP.tables)["list_product"].definition,
        name="1 tool",
        description="",
        input_schema={"type": "object", "properties": bad | {"deep": deep}},
        output_schema={"type": "object", "properties": {"a": {"type": "array"}, "o": {"type": "object"}}},
    )
    found = {name.removeprefix("1 tool: ") for name in broken_rules(definition)}

    assert {rule.name for rule in REQUIREMENTS} - found == set()


def test_as_many_tools_are_listed_as_every_provider_takes() -> None:
    queries = [permitted_query(name=f"q{number}") for number in range(150)]
    toolset = _toolset(ID_ONLY, queries=queries)
    listing = Listing(surface=Surface.AUTO, budget=1_000_000)
    shown = list(listed_tools(listing, choose(listing, toolset), toolset, Catalog(tables=(ID_ONLY,))))

    assert len(toolset) > MOST_TOOLS >= len(shown)
    assert {"find_queries", "run_query"} <= {tool.name for tool in shown}


ID_ONLY = table(ID, name="only")


def test_odd_columns_are_written_by_either_name() -> None:
    odd = _writable(
        table(
            column("Größe", choices=("s", "l"), nullable=False),
            column("First Name"),
            name="shirt",
            key=("Größe",),
        )
    )
    toolset = _toolset(odd)
    set_schema: Any = toolset["update_shirt"].definition.input_schema["properties"]["set"]

    assert set_schema["properties"]["first_name"] == {"type": "string", "description": "column First Name"}
    for arguments in (
        {"gr__e": "s", "set": {"first_name": "Ann"}, "expected": {"first_name": None}},
        {"Größe": "s", "set": {"First Name": "Ann"}, "expected": {"First Name": None}},
    ):
        (shape, _), *_ = toolset["update_shirt"].bind(arguments).transaction.writes  # type: ignore[attr-defined]
        assert [each.name for each in shape.columns] == ["First Name"]
    with pytest.raises(CallError):
        toolset["update_shirt"].bind({"gr__e": "s", "set": {"first_name": "Ann", "First Name": "Bob"}})
