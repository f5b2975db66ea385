"""Lines of the audit log: what they contain of a call, and what they leave out."""

from collections.abc import Mapping
from dataclasses import replace

import orjson
import pytest
from hypothesis import given, strategies as st

from dbtools.records.entries import ARGUMENTS, KNOWN_WORDS
from dbtools.values.cells import json_of
from tests.unit.log_sinks import ENTRY, NAMES

SECRET, NUMBER = "sekret", 48151623


def _redacted(arguments: Mapping[str, object]) -> object:
    return replace(ENTRY, arguments=arguments).content(arguments=False)["arguments"]


def test_entry_has_every_key_in_order() -> None:
    content = ENTRY.content(arguments=False)

    assert list(content.items()) == [
        ("time", "2026-03-01T12:00:00.123Z"),
        ("identity", None),
        ("role", "default"),
        ("tool", "list_customers"),
        ("arguments", {"where": [{"column": "country", "op": "eq", "value": "…"}], "limit": 5}),
        ("rows", 5),
        ("bytes", 300),
        ("truncated", True),
        ("affected", None),
        ("dry_run", None),
        ("changes", None),
        ("confirmed", None),
        ("duration", 0.001235),
        ("outcome", "ok"),
        ("code", None),
        ("protocol", "2025-11-25"),
        ("client", "raw/1"),
    ]


def test_values_are_written_where_the_operator_wants_them() -> None:
    assert ENTRY.content(arguments=True)["arguments"] == ENTRY.arguments


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        pytest.param({"table": "t", "key": {"id": 5}}, {"table": "…", "key": {"id": "…"}}, id="unseen table"),
        ({"table": "customers", "key": {"id": 5}}, {"table": "customers", "key": {"id": "…"}}),
        pytest.param({"key": {"name": "customers"}}, {"key": {"name": "…"}}, id="value that looks as a name"),
        pytest.param({"id": 5}, {"id": "…"}, id="typed key"),
        ({"uri": "dbtools://row/customers/10"}, {"uri": "dbtools://row/customers/…"}),
        pytest.param({"uri": "dbtools://row/elsewhere/10"}, {"uri": "…"}, id="resource of no table"),
        pytest.param({"uri": "file:///customers/10"}, {"uri": "…"}, id="other address"),
        pytest.param({"salary": 1, "id": 2}, {"…": "…", "id": "…"}, id="unknown argument"),
        pytest.param(
            {"rows": [{"id": 1, "country": None, "salary": "id"}], "dry_run": True},
            {"rows": [{"id": "…", "country": "…", "…": "…"}], "dry_run": True},
            id="new rows",
        ),
        pytest.param(
            {"key": {"id": 1}, "set": {"country": "id"}, "expected": {"total": 5}, "dry_run": False},
            {"key": {"id": "…"}, "set": {"country": "…"}, "expected": {"total": "…"}, "dry_run": False},
            id="new and old values",
        ),
        ({"set": "id", "expected": ["id"], "rows": "id"}, {"set": "…", "expected": ["…"], "rows": "…"}),
        ({"dry_run": "true", "set": {"dry_run": True}}, {"dry_run": "…", "set": {"dry_run": "…"}}),
        pytest.param({"search": "total", "cursor": "total"}, {"search": "…", "cursor": "…"}, id="texts"),
        pytest.param(
            {"order_by": ["total desc", "id", "salary desc", "customer.country ASC"]},
            {"order_by": ["total desc", "id", "…", "customer.country ASC"]},
            id="order",
        ),
        pytest.param({"order_by": "total desc"}, {"order_by": "total desc"}, id="item for an array of it"),
        pytest.param(
            {"columns": ["Order Details", '"Order Details".id', "Order Details desc", '"a""b"', "a b"]},
            {"columns": ["Order Details", '"Order Details".id', "Order Details desc", '"a""b"', "…"]},
            id="odd names",
        ),
        pytest.param(
            {"group_by": ["ordered_on:month", "ordered_on:Norway", "customer.Norway"]},
            {"group_by": ["ordered_on:month", "…", "…"]},
            id="groups",
        ),
        pytest.param(
            {"measures": [{"function": "sum", "column": "total", "name": "Ada's"}, {"name": "total"}]},
            {"measures": [{"function": "sum", "column": "total", "name": "…"}, {"name": "total"}]},
            id="measures",
        ),
        pytest.param(
            {"having": {"column": "count_distinct_id", "op": "gt", "value": 7}, "order_by": "sum_total"},
            {"having": {"column": "count_distinct_id", "op": "gt", "value": "…"}, "order_by": "sum_total"},
            id="names of measures",
        ),
        pytest.param(
            {"where": [{"column": "id", "op": "in", "values": [1, None, True, {"id": "x"}]}], "match": "any"},
            {"where": [{"column": "id", "op": "in", "values": ["…", "…", "…", {"id": "…"}]}], "match": "any"},
            id="values",
        ),
        pytest.param({"where": "country = 'Norway'"}, {"where": "…"}, id="SQL"),
        pytest.param(
            {"columns": ["total * id", "total * 42", "coalesce(total, id)", "coalesce(country, 'Norway')"]},
            {"columns": ["total * id", "…", "coalesce(total, id)", "…"]},
            id="expressions",
        ),
        pytest.param(
            {"where": [{"some": "total", "where": [{"any": [{"column": "id", "value_column": "total"}]}]}]},
            {"where": [{"some": "total", "where": [{"any": [{"column": "id", "value_column": "total"}]}]}]},
            id="related rows",
        ),
        pytest.param({"where": [{"limit": 5}]}, {"where": [{"limit": "…"}]}, id="limit elsewhere"),
        pytest.param({"limit": True}, {"limit": "…"}, id="limit that is none"),
        pytest.param({"limit": "5"}, {"limit": "…"}, id="limit as text"),
        pytest.param({"limit": 2**70}, {"limit": "…"}, id="endless limit"),
        pytest.param({"tables": [], "detail": "full"}, {"tables": [], "detail": "full"}, id="words"),
        pytest.param({"columns": ["...", "   "]}, {"columns": ["…", "…"]}, id="nothing but separators"),
        pytest.param({"id": list(range(51))}, {"id": ["…"] * 51}, id="many items"),
    ],
)
def test_redaction_keeps_names_and_replaces_values(
    arguments: dict[str, object], written: dict[str, object]
) -> None:
    assert _redacted(arguments) == written


MARKED = st.one_of(
    st.text(max_size=5).map(lambda text: text + SECRET),
    st.sampled_from(sorted(NAMES)).map(lambda name: f"{name}.{SECRET}"),
    st.sampled_from(sorted(NAMES)).map(lambda name: f'"{name}" {SECRET}'),
    st.sampled_from(sorted(KNOWN_WORDS)).map(lambda word: f"{SECRET} {word}"),
    st.just(NUMBER),
    st.just(float(NUMBER)),
)
KEYS = st.sampled_from(sorted({*ARGUMENTS, *NAMES} - {"limit", "dry_run"})) | st.text(max_size=3).map(
    SECRET.__add__
)
MARKED_JSON = st.recursive(
    MARKED, lambda part: st.lists(part, max_size=3) | st.dictionaries(KEYS, part, max_size=3), max_leaves=8
)


@given(st.dictionaries(KEYS, MARKED_JSON, max_size=5))
def test_no_value_of_the_caller_is_written(arguments: dict[str, object]) -> None:
    text = json_of(replace(ENTRY, arguments=arguments).content(arguments=False))

    assert SECRET not in text
    assert str(NUMBER) not in text


TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
NAMED = TEXT | st.sampled_from(sorted(ARGUMENTS))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(NAMED, part, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(NAMED, JSON, max_size=5), TEXT, st.booleans())
def test_any_call_has_a_line(arguments: dict[str, object], text: str, values: bool) -> None:
    entry = replace(ENTRY, arguments=arguments, tool=text, client=text, identity=text)
    line = json_of(entry.content(arguments=values))

    assert line.splitlines() == [line]
    assert list(orjson.loads(line)) == list(ENTRY.content(arguments=False))


def _nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = {"value": [value]}
    return value


@pytest.mark.parametrize(
    "argument",
    [
        pytest.param("x" * 2**26, id="64 MB"),
        pytest.param(["x" * 1_000] * 100_000, id="100,000 items"),
        pytest.param({f"{number}" * 300: number for number in range(1_000)}, id="long keys"),
        pytest.param(_nested(400), id="deep"),
        pytest.param([[[["x" * 600] * 60] * 60] * 60] * 60, id="wide and deep"),
        pytest.param(10**5_000, id="digits"),
    ],
)
@pytest.mark.parametrize("name", ["columns", "value"])
@pytest.mark.parametrize("values", [False, True])
def test_line_is_bounded(argument: object, name: str, values: bool) -> None:
    entry = replace(ENTRY, arguments={name: argument}, tool="x" * 2**20)
    line = json_of(entry.content(arguments=values))

    assert len(line) < 1_000_000


def test_values_are_cut() -> None:
    entry = replace(ENTRY, arguments={"value": "x" * 501, "search": "y" * 500, "values": [1] * 51})
    content = entry.content(arguments=True)["arguments"]

    assert content == {"value": "x" * 500 + "…", "search": "y" * 500, "values": [*[1] * 50, "…"]}
