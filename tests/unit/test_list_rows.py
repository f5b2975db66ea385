"""`list_T`: the statement that a call makes, and the page that it makes of the rows."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator

from dbtools.answers.results import Link
from dbtools.answers.styles import Text
from dbtools.errors import BadArgument, CallError
from dbtools.policy.roles import Limits
from dbtools.schema.catalog import Table
from dbtools.statements.paging import LONGEST_KEY
from dbtools.statements.select import Condition, Direction, Match, Order, Output, Select, Statement
from dbtools.tools.definition import ROWS_SCHEMA
from dbtools.values.cells import Cut
from dbtools.values.types import Family, Operator
from tests.calls import statement_of
from tests.unit.shop import ID, ORDER_LINE, PRODUCT, answer, column, select_of, table, tools

TOOLS = tools()
NOTE = table(ID, column("title", nullable=False), column("text"), name="note")
CELL = st.none() | st.integers() | st.floats() | st.text(max_size=40) | st.binary(max_size=20)


def _statement(name: str, arguments: dict[str, object]) -> Statement:
    return statement_of(TOOLS[name].bind(arguments))


def _columns(of: Table, *names: str) -> list[Any]:
    return [of.column_by_name[name] for name in names]


def test_call_without_arguments_reads_every_column_by_the_key() -> None:
    order_id, product_id, _ = ORDER_LINE.columns

    assert _statement("list_order_line", {}) == Statement(
        shape=Select(
            table=ORDER_LINE,
            outputs=tuple(Output(term=each, cut=2_000) for each in ORDER_LINE.columns),
            order=(Order(term=order_id), Order(term=product_id)),
        ),
        values={},
        limit=50,
    )


def test_call_asks_for_what_its_arguments_say() -> None:
    id, name, price = _columns(PRODUCT, "id", "name", "price")

    assert _statement(
        "list_product",
        {
            "where": [
                {"column": "price", "op": "gt", "value": 5},
                {"column": "name", "op": "is_null", "value": False},
            ],
            "match": "any",
            "columns": ["name"],
            "order_by": ["price desc"],
            "limit": 7,
        },
    ) == Statement(
        shape=Select(
            table=PRODUCT,
            outputs=(
                Output(term=name, cut=2_000),
                Output(term=price, cut=LONGEST_KEY),
                Output(term=id, cut=LONGEST_KEY),
            ),
            conditions=(
                Condition(term=price, operator=Operator.GT, parameters=("c0_0",)),
                Condition(term=name, operator=Operator.IS_NULL, wanted=False),
            ),
            match=Match.ANY,
            order=(Order(term=price, direction=Direction.DESC), Order(term=id, direction=Direction.DESC)),
        ),
        values={"c0_0": "5"},
        limit=7,
    )


def test_shape_does_not_depend_on_values() -> None:
    def shape(value: object) -> Select:
        return select_of(_statement("list_product", {"where": [{"column": "name", "value": value}]}))

    assert shape("a") == shape("b")
    assert hash(shape("a")) == hash(shape("b"))


def test_bytes_are_read_whole_only_where_they_are_named() -> None:
    def cut(arguments: dict[str, object]) -> int | None:
        outputs = _statement("list_product", arguments).shape.outputs
        return next(output.cut for output in outputs if output.term.name == "photo")

    assert cut({}) == 64
    assert cut({"columns": ["photo"]}) == 2_000


def test_limit_is_never_above_what_the_role_may_have() -> None:
    few = tools(limits=Limits(max_rows=20))

    statement = statement_of(few["list_sale"].bind({}))
    assert statement.limit == 20
    with pytest.raises(BadArgument):
        few["list_sale"].bind({"limit": 21})


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        pytest.param({"columns": ["id", "ID"]}, "bad_argument", ["columns", "id"], id="twice in two cases"),
        ({"order_by": ["details"]}, "bad_argument", ["order_by[0]", "details"]),
    ],
)
def test_refusal_names_the_argument(arguments: dict[str, object], code: str, says: list[str]) -> None:
    with pytest.raises(CallError) as raised:
        TOOLS["list_product"].bind(arguments)

    assert raised.value.code == code
    assert [said for said in says if said not in str(raised.value)] == []


def test_cursor_goes_on_after_the_last_row() -> None:
    arguments: dict[str, object] = {"columns": ["name"], "order_by": ["price desc"], "limit": 2}
    page = answer(TOOLS, "list_product", arguments, ("a", "9.90", 1), ("b", None, 2), more=True)

    following = _statement(
        "list_product", {**arguments, "cursor": page.structured["next_cursor"], "limit": 9}
    )

    assert page.structured["rows"] == [["a"], ["b"]]
    assert select_of(following).after == (None, "k1")
    assert following.values == {"k1": 2}
    assert following.limit == 9
    assert not select_of(following).skip


@pytest.mark.parametrize(
    "changed",
    [
        {"where": [{"column": "id", "op": "gt", "value": "6"}]},
        {"where": []},
        {"match": "any"},
        {"order_by": ["name"]},
        {"order_by": ["price"]},
    ],
    ids=str,
)
def test_cursor_of_another_call_is_refused(changed: dict[str, object]) -> None:
    arguments: dict[str, object] = {
        "where": [{"column": "id", "op": "gt", "value": "5"}],
        "order_by": ["price desc"],
        "columns": ["id"],
    }
    page = answer(TOOLS, "list_product", arguments, (1, "9.90"), more=True)
    cursor = page.structured["next_cursor"]

    assert select_of(_statement("list_product", {**arguments, "cursor": cursor})).after
    with pytest.raises(CallError) as raised:
        TOOLS["list_product"].bind({**arguments, **changed, "cursor": cursor})
    assert raised.value.code == "bad_cursor"


def test_rows_beyond_the_cap_are_left_for_the_next_page() -> None:
    toolset = tools(NOTE, limits=Limits(max_tokens=1_000))
    rows = [(number, "t", "x" * 300) for number in range(20)]

    page = answer(toolset, "list_note", {}, *rows)
    following = statement_of(toolset["list_note"].bind({"cursor": page.structured["next_cursor"]}))
    assert following is not None

    assert 1 < page.rows < 20
    assert page.structured["row_count"] == page.rows
    assert page.truncated
    assert dict(following.values) == {"k0": page.rows - 1}


def test_single_huge_row_is_narrowed_with_its_cells_cut() -> None:
    toolset = tools(NOTE, limits=Limits(max_tokens=500))

    page = answer(toolset, "list_note", {}, (7, "short", "x" * 2_000), (8, "next", ""))
    ((id, title, text),) = _rows_of(page.structured)
    assert isinstance(text, str)

    assert (id, title) == (7, "short")
    assert text.endswith("x… [2,000 characters]")
    assert len(page.text) <= 1_500
    assert page.truncated
    assert page.links == (Link(uri="dbtools://cell/note/7/text", name="text", type="text/plain"),)


def test_cut_cells_are_linked_to_the_whole() -> None:
    toolset = tools(PRODUCT)

    page = answer(
        toolset,
        "list_product",
        {"columns": ["name", "details", "photo"]},
        (Cut(start="ab", length=5_000), None, b"x", 1),
        ("b", Cut(start='{"a', length=9_000), Cut(start=b"GIF89a", length=70), 2),
    )

    assert page.structured["rows"] == [
        ["ab… [5,000 characters]", None, "eA=="],
        ["b", '{"a… [9,000 characters]', "[70 bytes, image/gif]"],
    ]
    assert "dbtools://cell/" in str(page.structured["note"])
    assert not page.truncated
    assert page.links == (
        Link(uri="dbtools://cell/product/1/name", name="name", type="text/plain"),
        Link(uri="dbtools://cell/product/2/details", name="details", type="application/json"),
        Link(uri="dbtools://cell/product/2/photo", name="photo", type="application/octet-stream"),
    )


def test_cut_cells_without_a_key_have_no_link() -> None:
    log = table(column("text"), name="log", key=())

    page = answer(tools(log), "list_log", {}, (Cut(start="ab", length=5_000),))

    assert page.links == ()
    assert "note" not in page.structured


def _rows_of(structured: Any) -> list[list[object]]:
    rows: list[list[object]] = structured["rows"]
    return rows


@given(
    form=st.sampled_from(Text),
    rows=st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1),
            st.text(st.characters(exclude_categories=()), max_size=LONGEST_KEY),
            CELL | st.builds(Cut, start=st.text(max_size=40), length=st.integers(41, 10**9)),
        ),
        max_size=12,
    ),
    more=st.booleans(),
    long=st.integers(1, 60),
)
def test_any_page_is_valid_and_below_the_cap(
    form: Text, rows: Sequence[tuple[object, ...]], more: bool, long: int
) -> None:
    limits = Limits(max_tokens=500)
    toolset = tools(NOTE, limits=limits, text=form)
    wide = [(id, title, text * long if isinstance(text, str) else text) for id, title, text in rows]
    more = more and bool(rows)

    page = answer(toolset, "list_note", {"order_by": ["title"]}, *wide, more=more)
    structured = page.structured
    Draft202012Validator(ROWS_SCHEMA).validate(structured)

    assert structured["truncated"] is ("next_cursor" in structured) is page.truncated
    assert page.truncated is (more or page.rows < len(rows))
    assert structured["row_count"] == len(_rows_of(structured)) == page.rows
    assert page.rows > 0 or not rows
    assert len(page.text.encode()) <= limits.max_bytes
    if form is Text.JSON:
        assert json.loads(page.text) == structured
    if page.truncated:
        following = toolset["list_note"].bind({"order_by": ["title"], "cursor": structured["next_cursor"]})
        assert statement_of(following).limit > 0


def test_limits_of_a_list_are_kept_by_every_family() -> None:
    anything = tools(table(*(column(str(family), family) for family in Family), name="anything", key=()))
    row = tuple("x" * 3_000 for _ in Family)

    page = answer(anything, "list_anything", {}, *[row] * 50)

    assert len(page.text.encode()) <= Limits().max_bytes
    assert page.truncated
