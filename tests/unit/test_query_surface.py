"""Which tools of queries are listed, how queries are found, and the answers."""

import json
from collections.abc import Mapping

import jsonschema
import pytest

from dbtools.answers.results import Answer
from dbtools.answers.styles import Listing, Surface
from dbtools.backends.sqlite.schema import syntax as sqlite
from dbtools.policy.roles import Limits
from dbtools.queries import Permitted, read_queries
from dbtools.schema.catalog import Catalog
from dbtools.statements.select import QueryShape
from dbtools.tools import choose, define, listed_tools
from dbtools.tools.definition import ToolContext, ToolGroup, tokens_of, tool_content
from dbtools.values.types import Family
from tests.calls import answered
from tests.unit.permitted_queries import EXACT, permitted_query, statement_of, tool_of
from tests.unit.shop import column, context


def test_variants_of_a_tool_are_made_once_and_end_with_it() -> None:
    (query,), _ = read_queries(
        "-- param a: integer?\n-- param b: integer?\n"
        "select 1 where true /*? and :a = 1 ?*/ /*? and :b = :a ?*/",
        "q.sql",
        sqlite.lexis,
    )
    permitted = Permitted(query=query, columns=(), types=dict.fromkeys(("a", "b"), EXACT["integer"]))
    tool = tool_of(permitted)
    shapes = [statement_of(tool, each).shape for each in ({"a": 1}, {"a": 2}, {"b": 1}, {}, {"a": 1, "b": 2})]

    assert shapes[0] is shapes[1]
    assert shapes[2] is shapes[3]
    assert len(set(map(id, shapes))) == 3
    assert len({each.pieces for each in shapes if isinstance(each, QueryShape)}) == 3


def _context(*permitted: Permitted, limits: Limits | None = None) -> ToolContext:
    return ToolContext(catalog=context().catalog, limits=limits or Limits(), queries=permitted)


def _listed(chosen_from: ToolContext, listing: Listing) -> list[str]:
    tools = define(chosen_from)
    return [each.name for each in listed_tools(listing, choose(listing, tools), tools, chosen_from.catalog)]


MANY = tuple(permitted_query("a: text?  Some text.", name=f"query_{at:03}") for at in range(100))


def test_queries_are_tools_of_their_own_while_the_budget_allows() -> None:
    some = _context(*MANY[:3])
    cost = sum(tokens_of(tool_content(define(some)[each.name].definition)) for each in MANY[:3])
    typed, generic = (
        Listing(surface=Surface.GENERIC, budget=cost),
        Listing(surface=Surface.GENERIC, budget=cost - 1),
    )

    assert _listed(some, typed)[:3] == ["query_000", "query_001", "query_002"]
    assert not {"find_queries", "run_query"} & set(_listed(some, typed))
    assert _listed(some, generic)[:2] == ["find_queries", "run_query"]
    assert not [each for each in _listed(some, generic) if each.startswith("query_")]


def test_queries_and_tables_share_the_budget() -> None:
    def cost(group: ToolGroup) -> int:
        typed = (
            each for each in shown.values() if each.group is group and each.surface is not Surface.GENERIC
        )
        return sum(tokens_of(tool_content(each.definition)) for each in typed)

    shown = define(_context(*MANY[:3]))
    both = cost(ToolGroup.QUERIES) + cost(ToolGroup.TABLES)

    assert choose(Listing(budget=both), shown) == set(ToolGroup)
    # A group without tools costs nothing.
    assert choose(Listing(budget=both - 1), shown) == {ToolGroup.QUERIES, ToolGroup.WRITES}
    assert choose(Listing(budget=cost(ToolGroup.QUERIES) - 1), shown) == {ToolGroup.WRITES}


def test_tables_keep_their_surface_if_the_queries_are_not_listed() -> None:
    listing = Listing(budget=6_000)
    alone = _listed(_context(), listing)
    beside = _listed(_context(*MANY), listing)

    assert "list_product" in alone
    assert [each for each in beside if each not in ("find_queries", "run_query")] == alone
    assert ToolGroup.QUERIES not in choose(listing, define(_context(*MANY)))


def test_role_of_queries_alone_has_no_tools_for_tables() -> None:
    nothing = ToolContext(catalog=Catalog(tables=()), queries=MANY[:1])

    assert list(define(nothing)) == ["find_queries", "run_query", "query_000"]
    assert _listed(nothing, Listing()) == ["query_000"]
    assert "describe_tables" in define(ToolContext(catalog=Catalog(tables=())))


def test_schema_of_many_rows_has_what_answers_have() -> None:
    of = _context(permitted_query(header="-- max_rows: 1\n"))
    schema = define(of)["q"].definition.output_schema
    cut = answered(define(of)["q"].bind({}), (1,), more=True)

    assert list(schema["properties"]) == ["row_count", "truncated", "columns", "rows", "note"]  # type: ignore[call-overload]
    assert list(cut.structured) == list(schema["properties"])  # type: ignore[call-overload]


def _answer(tool: str, arguments: Mapping[str, object], *rows: tuple[object, ...], of: ToolContext) -> Answer:
    return answered(define(of)[tool].bind(arguments), *rows)


def test_queries_over_the_budget_are_mentioned() -> None:
    answer = _answer("find_queries", {}, of=_context(*MANY, limits=Limits(max_tokens=500)))
    shown = answer.structured["queries"]

    assert isinstance(shown, list)
    assert (answer.structured["query_count"], answer.truncated) == (100, True)
    assert 3 < len(shown) < 20
    assert len(answer.text.encode()) <= 1_500
    assert answer.structured["note"] == "More queries: search for words."


def test_queries_are_found_by_words_the_best_first() -> None:
    described = [
        permitted_query(name=name, header=f"-- description: {text}\n")
        for name, text in (
            ("orders_of_day", "What was bought."),
            ("late", "Orders that are late."),
            ("revenue", "By country."),
            ("late_orders", "Which are late."),
        )
    ]
    names = [
        each["query"]
        for each in json.loads(
            _answer("find_queries", {"search": "late orders"}, of=_context(*described)).text
        )["queries"]
    ]

    assert names == ["late_orders", "late", "orders_of_day"]


def test_result_conforms_to_the_schema_also_where_it_is_cut() -> None:
    columns = (
        column("id", Family.INTEGER, nullable=False),
        column("tags", Family.ARRAY),
        column("home", Family.OBJECT),
        column("share", Family.NUMBER),
    )
    permitted = permitted_query(columns=columns)
    of = _context(permitted, limits=Limits(max_tokens=500))
    long = json.dumps(["x" * 9] * 500)
    answers = [
        _answer("q", {}, (2**60, "[1, 2]", '{"street": "x"}', 0.5), (1, None, None, None), of=of),
        _answer("q", {}, (1, long, json.dumps({"street": "y" * 5_000}), float("nan")), of=of),
    ]
    schema = define(of)["q"].definition.output_schema

    for answer in answers:
        jsonschema.Draft202012Validator(schema).validate(answer.structured)
    assert "characters]" in answers[1].text
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**answers[0].structured, "rows": [[1, 5, None, None]]}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**answers[0].structured, "rows": [[None, None, None, None]]}, schema)
