"""The longest texts that a transport lets through are refused before any other work."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from dbtools.errors import CallError, DbtoolsError
from dbtools.policy.roles import Grant
from dbtools.policy.writes import EVERYTHING
from dbtools.schema.catalog import Catalog
from dbtools.schema.paths import LONGEST_PATH
from dbtools.schema.uris import CELL_TEMPLATE, SCHEME
from dbtools.statements.paging import LONGEST_CURSOR
from dbtools.tools import define
from dbtools.tools.definition import Tool, ToolContext
from dbtools.tools.resources import VARIABLES, bind_completion, bind_resource
from dbtools.values.types import Family
from tests.calls import statement_of
from tests.unit.granted import granted_to
from tests.unit.permitted_queries import permitted_query
from tests.unit.shop import ID, ORDER_LINE, PRODUCT, column, table, tools

LONG = 250_000  #: characters: as many as the body of an HTTP request has by default
MOST_SECONDS = 0.2  #: of the processor; splitting such a text into tokens takes 0.5
#: What a long text repeats: signs and words of names, expressions, orders, patterns, SQL and JSON.
PARTS = ("a", "1+", "(", "a.", "a desc,", '"', "[", "İ")


TOOLS = define(
    ToolContext(
        catalog=granted_to(
            Catalog(tables=(replace(PRODUCT, identity=(ID,)), ORDER_LINE)),
            **{PRODUCT.name: Grant(writes=EVERYTHING), ORDER_LINE.name: Grant()},
        ),
        queries=(permitted_query("a: text", "b: date?", "c: integer[]?"),),
        server="SQLite 3.45",
    )
)
#: One tool of each kind for a table, and every other one.
KINDS = [each for each in TOOLS.values() if each.table is None or each.table.name == "product"]


def _forms(text: str, type: object) -> Iterator[object]:
    """Yield *text* in every place of an argument of the JSON *type* where a text may stand."""
    yield text
    if type == "object":
        yield from ({text: 1}, {"id": text})
    if type == "array":
        yield from ([text], [{text: 1}], [{"id": text}], [{"and": [text]}], [{"any": [{"column": text}]}])
        yield from ([{"column": "id", name: text}] for name in ("op", "value", "value_column", "direction"))
        yield from ([{name: text}] for name in ("column", "some", "none", "function", "sum"))
        yield from ([{"function": "sum", "column": "id", name: text}] for name in ("column", "name"))


def _calls(tool: Tool, part: str) -> Iterator[Mapping[str, object]]:
    """Yield arguments of *tool*, each with one long text that repeats *part*."""
    text = (part * LONG)[:LONG]
    properties = tool.definition.input_schema["properties"]
    needed: dict[str, object] = {"table": "product", "query": "q", "id": 1, "key": {"id": "1"}}
    needed |= {"measures": [{"function": "count"}], "rows": [{"name": "x"}], "set": {"name": "x"}}
    valid = {name: value for name, value in needed.items() if name in properties}
    for name, schema in properties.items():
        yield from ({**valid, name: form} for form in _forms(text, schema.get("type")))
    yield from ({**valid, text: 1}, {**valid, "unknown": text})


def _takes_long(work: Callable[[], object]) -> bool:
    """Return whether *work* takes more than MOST_SECONDS of the processor, in each of three attempts."""

    def seconds() -> float:
        began = time.process_time()
        with suppress(DbtoolsError):
            work()
        return time.process_time() - began

    return all(seconds() > MOST_SECONDS for _ in range(3))


@pytest.mark.parametrize("tool", KINDS, ids=[each.name for each in KINDS])
def test_no_long_text_in_an_argument_takes_long(tool: Tool) -> None:
    # Each form of an argument meets other parts, and each part meets most forms.
    turns = enumerate(zip(*(_calls(tool, part) for part in PARTS), strict=True), KINDS.index(tool))
    calls = [(PARTS[at % len(PARTS)], forms[at % len(PARTS)]) for at, forms in turns]

    assert [(part, [*each]) for part, each in calls if _takes_long(partial(tool.bind, each))] == []


@pytest.mark.parametrize("family", Family)
def test_no_long_value_of_a_column_takes_long(family: Family) -> None:
    wide = table(*(column(f"C{at}") for at in range(2_000)), column("id", family), name="wide")
    tool = tools(wide)["list_wide"]
    wheres = [[{"column": "id", "value": (part * LONG)[:LONG]}] for part in PARTS]

    assert [at for at, each in enumerate(wheres) if _takes_long(partial(tool.bind, {"where": each}))] == []


@pytest.mark.parametrize("part", PARTS)
def test_no_long_text_in_a_uri_or_a_completion_takes_long(part: str) -> None:
    text, own = (part * LONG)[:LONG], TOOLS["list_rows"].context
    completions: list[tuple[str, str, str, Mapping[str, str]]] = [
        *((of, name, text, {}) for of, names in VARIABLES.items() for name in names),
        *((of, name, "", {"table": text}) for of, names in VARIABLES.items() for name in names),
        (text, "key", "1", {}),
        (CELL_TEMPLATE, text, "1", {}),
    ]
    uris = (text, f"{SCHEME}{text}", f"{SCHEME}row/product/{text}")

    assert [each[:2] for each in completions if _takes_long(partial(bind_completion, own, *each))] == []
    assert [each[:20] for each in uris if _takes_long(partial(bind_resource, own, each))] == []


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("list_product", {"columns": ["x" * (LONGEST_PATH + 1)]}),
        ("list_product", {"columns": ["id + " + "1" * LONGEST_PATH]}),
        ("list_product", {"order_by": ["x" * (LONGEST_PATH + 1)]}),
        ("list_product", {"where": [{"column": "x" * (LONGEST_PATH + 1), "value": "1"}]}),
        ("list_product", {"where": [{"column": "id", "value_column": "x" * (LONGEST_PATH + 1)}]}),
        ("list_product", {"where": [{"some": "x" * (LONGEST_PATH + 1)}]}),
        ("list_product", {"cursor": "x" * (LONGEST_CURSOR + 1)}),
        ("list_rows", {"table": "x" * (LONGEST_PATH + 1)}),
        ("get_row", {"table": "product", "key": {"x" * (LONGEST_PATH + 1): "1"}}),
        ("get_product", {"x" * (LONGEST_PATH + 1): "1"}),
        ("describe_tables", {"tables": ["x" * (LONGEST_PATH + 1)]}),
        ("aggregate_rows", {"table": "product", "group_by": ["x" * (LONGEST_PATH + 1)]}),
        ("insert_product", {"rows": [{"x" * (LONGEST_PATH + 1): "1"}]}),
        ("update_product", {"id": 1, "set": {"x" * (LONGEST_PATH + 1): "1"}}),
        ("q", {"x" * (LONGEST_PATH + 1): "1"}),
        ("run_query", {"query": "x" * (LONGEST_PATH + 1)}),
        ("find_queries", {"search": "x" * (LONGEST_PATH + 1)}),
    ],
)
def test_a_text_that_is_no_value_is_bounded_where_arguments_are_read(
    name: str, arguments: Mapping[str, object]
) -> None:
    with pytest.raises(CallError) as raised:
        TOOLS[name].bind(arguments)

    assert raised.value.code == "bad_argument"
    assert "characters" in raised.value.message
    assert len(str(raised.value)) < 500


def test_a_long_value_is_no_long_text() -> None:
    value = "x" * 500_000

    call = TOOLS["list_product"].bind({"where": [{"column": "name", "value": value}]})
    TOOLS["insert_product"].bind({"rows": [{"id": 1, "name": value}]})
    TOOLS["update_product"].bind({"id": 1, "set": {"name": value}})
    TOOLS["q"].bind({"a": value})

    assert value in statement_of(call).values.values()
