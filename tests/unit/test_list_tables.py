"""`list_tables`: which tables a search finds, best first, and their pages."""

import json
from collections.abc import Mapping

import pytest
from jsonschema import Draft202012Validator

from dbtools.answers.results import Answer
from dbtools.errors import CallError
from dbtools.policy.roles import Limits
from dbtools.schema.catalog import Catalog, Table
from dbtools.tools import define
from dbtools.tools.definition import ToolContext, Toolset
from dbtools.tools.list_tables import TABLES_SCHEMA
from tests.unit.shop import ID, answer, table


def _tables(*named: str, **commented: str) -> tuple[Table, ...]:
    """Return tables of these names, with their schemas in front, and *commented* ones."""
    return tuple(
        table(ID, schema=schema, name=bare, comment=comment)
        for name, comment in [*((each, "") for each in named), *commented.items()]
        for schema, _, bare in [name.rpartition(".")]
    )


def _tools(*tables: Table, limits: Limits | None = None) -> Toolset:
    return define(ToolContext(catalog=Catalog(tables=tables), limits=limits or Limits()))


def _listed(toolset: Toolset, arguments: Mapping[str, object]) -> Answer:
    listed = answer(toolset, "list_tables", arguments)
    Draft202012Validator(TABLES_SCHEMA).validate(listed.structured)
    assert json.loads(listed.text) == listed.structured
    return listed


def _entries(listed: Answer) -> list[dict[str, object]]:
    entries = listed.structured["tables"]
    assert isinstance(entries, list)
    return entries


def _names(listed: Answer) -> list[object]:
    return [each["name"] for each in _entries(listed)]


def _found(search: str, *tables: Table) -> list[object]:
    return _names(_listed(_tools(*tables), {"search": search}))


def test_schema_of_a_table_is_listed_if_there_are_several() -> None:
    several = _listed(_tools(*_tables("hr.person", "sales.order")), {})
    one = _listed(_tools(*_tables("sales.customer", "sales.order")), {})

    assert _entries(several) == [{"name": "person", "schema": "hr"}, {"name": "order", "schema": "sales"}]
    assert _entries(one) == [{"name": "customer"}, {"name": "order"}]


def test_comments_pages_and_limits_are_bounded() -> None:
    [entry] = _entries(_listed(_tools(*_tables(sale="x" * 500)), {}))
    huge = _listed(_tools(*_tables("x" * 3_000, "y"), limits=Limits(max_tokens=500)), {})
    few = _listed(_tools(*_tables(*map(str, range(30))), limits=Limits(max_rows=20)), {})

    assert len(str(entry["comment"])) == 120
    assert (huge.rows, huge.truncated, few.rows) == (1, True, 20)


@pytest.mark.parametrize(
    ("search", "tables", "found"),
    [
        pytest.param(
            "order",
            _tables("reorders", "ordering", "purchase_order", "orders", "order", notes="of every order"),
            ["order", "orders", "purchase_order", "ordering", "reorders", "notes"],
            id="name, plural, part, beginning, inside, comment",
        ),
        pytest.param("addresses", _tables("address"), ["address"], id="plural in es"),
        ("track", _tables("Soundtrack", "PlaylistTrack"), ["PlaylistTrack", "Soundtrack"]),
        pytest.param("playlist", _tables("HTTPPlaylist"), ["HTTPPlaylist"], id="capitals"),
        pytest.param("2024", _tables("x2024y", "sale2024", "sale"), ["x2024y", "sale2024"], id="digits"),
        pytest.param("größe", _tables("Größe", "x"), ["Größe"], id="letters beyond ASCII"),
        ("invoice", _tables(a="all invoices", b="invoiced to whom"), ["a", "b"]),
        pytest.param("sale", _tables("sale_b", "sale_a"), ["sale_b", "sale_a"], id="equals in their order"),
        ("sale", _tables("sale_long", "sale_a"), ["sale_a", "sale_long"]),
        pytest.param(
            "customer order",
            _tables("order", "customer", "customer_order", "x"),
            ["customer_order", "order", "customer"],
            id="all words before some",
        ),
        ("customer, order;x", _tables("customer_order", "x"), ["customer_order", "x"]),
        ("sales.order", _tables("hr.order", "sales.order"), ["sales.order"]),
        ("sales", _tables("hr.a", "sales.b", "hr.sales"), ["sales", "b"]),
        ("hr sale", _tables("x.sale", "hr.sale", "hr.a"), ["hr.sale", "x.sale", "a"]),
        pytest.param("  ", _tables("a", "b"), ["a", "b"], id="nothing but blanks"),
    ],
)
def test_search_finds_the_best_first(search: str, tables: tuple[Table, ...], found: list[str]) -> None:
    assert _found(search, *tables) == found


def test_names_are_those_that_mean_one_table() -> None:
    assert _found("sale", *_tables("x.sale", "y.sale", "y.sale_2")) == ["x.sale", "y.sale", "sale_2"]


@pytest.mark.parametrize("search", ["", "table"])
def test_pages_hold_every_table_once(search: str) -> None:
    names = [f"table_{number:03}" for number in range(45)]
    toolset = _tools(*_tables(*names))
    arguments: dict[str, object] = {"search": search, "limit": 10}

    pages = [_listed(toolset, arguments)]
    while pages[-1].truncated:
        pages.append(_listed(toolset, {**arguments, "cursor": pages[-1].structured["next_cursor"]}))

    assert [each for page in pages for each in _names(page)] == names
    assert [page.rows for page in pages] == [10, 10, 10, 10, 5]
    assert {page.structured["table_count"] for page in pages} == {45}
    assert "next_cursor" not in pages[-1].structured


@pytest.mark.parametrize(("tables", "search"), [("ab ac b", ""), ("ab ac b", "b"), ("ab ad b", "a")])
def test_cursor_of_another_search_or_of_other_tables_is_refused(tables: str, search: str) -> None:
    toolset = _tools(*_tables("ab", "ac", "b"))
    cursor = _listed(toolset, {"search": "a", "limit": 1}).structured["next_cursor"]

    assert _names(_listed(toolset, {"search": "a", "cursor": cursor})) == ["ac"]
    with pytest.raises(CallError) as raised:
        _tools(*_tables(*tables.split()))["list_tables"].bind({"search": search, "cursor": cursor})
    assert raised.value.code == "bad_cursor"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        pytest.param({"cursor": "x"}, "bad_cursor", "cursor", id="forged cursor"),
        pytest.param({"limit": 0}, "bad_argument", "limit", id="no tables"),
        pytest.param({"limit": 201}, "bad_argument", "200", id="too many tables"),
        pytest.param({"serch": "x"}, "unknown_argument", "'serch'. Did you mean search?", id="argument"),
        pytest.param({"search": ["x"]}, "bad_argument", "search", id="array"),
        pytest.param({"search": "x" * 201}, "bad_argument", "at most 200 characters", id="long search"),
    ],
)
def test_refusal_names_the_argument(arguments: dict[str, object], code: str, says: str) -> None:
    with pytest.raises(CallError) as raised:
        _tools(*_tables("a"))["list_tables"].bind(arguments)

    assert raised.value.code == code
    assert says in str(raised.value)


def test_words_of_a_search_are_few() -> None:
    assert _found("no " * 9 + "aab", *_tables("aaa", "aab")) == ["aab"]
    assert _found("no " * 10 + "aab", *_tables("aaa", "aab")) == []


def test_tables_beyond_the_cap_are_left_for_the_next_page() -> None:
    limits = Limits(max_tokens=500)
    names = [f"{number} {'x' * 60}" for number in range(50)]
    toolset = _tools(*_tables(*names), limits=limits)

    pages = [_listed(toolset, {})]
    while pages[-1].truncated:
        pages.append(_listed(toolset, {"cursor": pages[-1].structured["next_cursor"]}))

    assert 1 < pages[0].rows < 50
    assert max(len(page.text.encode()) for page in pages) <= limits.max_bytes
    assert [each for page in pages for each in _names(page)] == names
