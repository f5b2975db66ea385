"""`get_T`: one row by its key, whole as long as it fits, with images attached."""

import json

import pytest
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator

from dbtools.answers.results import LARGEST_MEDIA, Link, Media
from dbtools.answers.styles import Text
from dbtools.errors import CallError
from dbtools.policy.roles import Limits
from dbtools.statements.select import Condition, Output, Select, Statement
from dbtools.tools.definition import ROW_SCHEMA, Toolset
from dbtools.values.cells import Cut, is_media, media_type
from dbtools.values.types import Family, Operator
from tests.calls import statement_of
from tests.unit.shop import ID, ORDER_LINE, SHOP, answer, column, table, tools

PHOTO = table(ID, column("title"), column("content", Family.BYTES), name="photo")
NOTE = table(ID, column("text"), column("more", Family.JSON), name="note")
TOOLS = tools(*SHOP.tables, PHOTO, NOTE)
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


def test_call_asks_for_the_row_with_its_key() -> None:
    order_id, product_id, _ = ORDER_LINE.columns

    line = statement_of(TOOLS["get_order_line"].bind({"product_id": "7", "order_id": 3}))
    photo = statement_of(TOOLS["get_photo"].bind({"id": 1}))

    assert line == Statement(
        shape=Select(
            table=ORDER_LINE,
            outputs=tuple(Output(term=each, cut=60_000) for each in ORDER_LINE.columns),
            conditions=(
                Condition(term=order_id, operator=Operator.EQ, parameters=("c0_0",)),
                Condition(term=product_id, operator=Operator.EQ, parameters=("c1_0",)),
            ),
        ),
        values={"c0_0": 3, "c1_0": 7},
        limit=1,
    )
    assert photo is not None
    assert [output.cut for output in photo.shape.outputs] == [60_000, 60_000, LARGEST_MEDIA]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        pytest.param({}, "bad_argument", ["order_id", "product_id"], id="no key"),
        pytest.param({"order_id": 1}, "bad_argument", ["product_id"], id="half a key"),
        pytest.param({"order_id": 1, "product_id": None}, "bad_argument", ["product_id"], id="null"),
        pytest.param({"order_id": 1, "product_id": ""}, "bad_value", ["product_id", "''"], id="empty text"),
        pytest.param({"order_id": 1, "product_id": "x"}, "bad_value", ["product_id", "'x'"], id="no integer"),
        pytest.param({"order_id": 1, "product_id": True}, "bad_value", ["product_id"], id="boolean"),
        pytest.param({"order_id": 1, "product_id": 2**63}, "bad_value", ["product_id"], id="beyond 64 bits"),
        pytest.param({"order_id": 1, "product_id": [2]}, "bad_argument", ["product_id"], id="array"),
        pytest.param({"order_id": 1, "product_id": {"a": 1}}, "bad_argument", ["product_id"], id="object"),
        pytest.param({"order_id": 1, "product_id": "\0"}, "bad_argument", ["product_id"], id="NUL"),
        ({"order_id": 1, "product": 2}, "unknown_argument", ["'product'", "product_id"]),
    ],
)
def test_key_that_cannot_be_read_is_named(arguments: dict[str, object], code: str, says: list[str]) -> None:
    with pytest.raises(CallError) as raised:
        TOOLS["get_order_line"].bind(arguments)

    assert raised.value.code == code
    assert [said for said in says if said not in str(raised.value)] == []


def test_empty_text_is_a_key_like_any_other() -> None:
    coded = tools(table(column("code"), name="coded", key=("code",)))

    statement = statement_of(coded["get_coded"].bind({"code": ""}))

    assert dict(statement.values) == {"c0_0": ""}


def test_picture_goes_along_and_is_not_repeated_in_base64() -> None:
    got = answer(TOOLS, "get_photo", {"id": 1}, (1, "x", PNG))

    assert got.structured == {
        "row": {"id": 1, "title": "x", "content": "[28 bytes, image/png] dbtools://cell/photo/1/content"}
    }
    assert got.media == (Media(uri="dbtools://cell/photo/1/content", type="image/png", content=PNG),)
    assert got.links == ()


def test_other_bytes_go_along_and_are_shown_but_not_nothing() -> None:
    got = answer(TOOLS, "get_photo", {"id": 1}, (1, "x", b"hello"))

    assert got.structured == {"row": {"id": 1, "title": "x", "content": "aGVsbG8="}}
    assert got.media == (
        Media(uri="dbtools://cell/photo/1/content", type="application/octet-stream", content=b"hello"),
    )
    assert [answer(TOOLS, "get_photo", {"id": 1}, (1, "x", each)).media for each in (None, b"")] == [(), ()]


def test_no_more_media_goes_along_than_a_message_may_carry() -> None:
    columns = [column(name, Family.BYTES) for name in ("a", "b", "c")]
    toolset = tools(table(ID, *columns, name="album"))
    most = PNG + b"\0" * (LARGEST_MEDIA - len(PNG))

    got = answer(toolset, "get_album", {"id": 1}, (1, PNG, most, PNG))

    assert [each.uri.rpartition("/")[2] for each in got.media] == ["a", "c"]


def test_bytes_that_were_cut_are_linked() -> None:
    got = answer(TOOLS, "get_photo", {"id": 1}, (1, "x", Cut(start=PNG, length=5_000_000)))
    uri = "dbtools://cell/photo/1/content"

    assert got.structured["row"] == {"id": 1, "title": "x", "content": f"[5,000,000 bytes, image/png] {uri}"}
    assert got.media == ()
    assert got.links == (Link(uri=uri, name="content", type="application/octet-stream"),)


LIMITS = Limits(max_tokens=500)
SMALL = tools(PHOTO, NOTE, limits=LIMITS)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        pytest.param("x" * 5_000, "5,000", id="ascii"),
        pytest.param("\x01" * 5_000, "5,000", id="controls"),
        pytest.param("é" * 5_000, "5,000", id="two bytes"),
        pytest.param("x" * 1_000 + "\u202e" * 3_000, "4,000", id="invisible at the end"),
        pytest.param("\ud800" * 2_000, "2,000", id="no text"),
        pytest.param(Cut(start="x" * 1_500, length=1_000_000), "1,000,000", id="cut before"),
    ],
)
def test_long_text_is_cut_with_its_full_length_and_a_link(text: object, length: str) -> None:
    got = answer(SMALL, "get_note", {"id": 1}, (1, text, "[1]"))
    row = got.structured["row"]
    assert isinstance(row, dict)

    assert row["text"].removesuffix(" dbtools://cell/note/1/text").endswith(f"… [{length} characters]")
    assert len(row["text"]) > 100
    assert row["more"] == [1]
    assert LIMITS.max_bytes - 400 < len(got.text.encode()) <= LIMITS.max_bytes
    assert got.links == (Link(uri="dbtools://cell/note/1/text", name="text", type="text/plain"),)
    assert "text" in str(got.structured["note"])


def test_long_json_is_cut_as_json() -> None:
    cell = json.dumps({"words": ["x", None] * 1_000}, separators=(",", ":"))

    got = answer(SMALL, "get_note", {"id": 1}, (1, "short", cell))
    row = got.structured["row"]
    assert isinstance(row, dict)

    assert row["text"] == "short"
    assert row["more"].startswith('{"words":["x",null,"x",')
    assert row["more"].endswith(f"… [{len(cell):,} characters]")


def test_long_bytes_are_named_where_they_do_not_fit() -> None:
    got = answer(SMALL, "get_photo", {"id": 1}, (1, "x", b"." * 5_000))

    assert got.structured["row"] == {
        "id": 1,
        "title": "x",
        "content": "[5,000 bytes, application/octet-stream] dbtools://cell/photo/1/content",
    }
    assert got.media == ()
    assert [link.name for link in got.links] == ["content"]


@pytest.mark.parametrize(
    ("toolset", "content", "goes"),
    [
        pytest.param(SMALL, PNG, True, id="small picture, few tokens"),
        pytest.param(SMALL, PNG + b"\0" * 2_000, False, id="picture, few tokens"),
        pytest.param(TOOLS, PNG + b"\0" * 900_000, True, id="large picture"),
        pytest.param(SMALL, b"." * 300, True, id="few bytes, few tokens"),
        pytest.param(SMALL, b"." * 600, False, id="bytes, few tokens"),
        pytest.param(TOOLS, b"." * 20_000, True, id="bytes"),
        pytest.param(TOOLS, b"." * 44_000, False, id="many bytes"),
    ],
)
def test_bytes_that_go_along_count(toolset: Toolset, content: bytes, goes: bool) -> None:
    got = answer(toolset, "get_photo", {"id": 1}, (1, "x", content))

    assert [each.content for each in got.media] == [content] * goes
    if is_media(media_type(content)):
        assert [link.name for link in got.links] == ["content"] * (not goes)


def test_pictures_count_as_what_a_model_takes_for_them() -> None:
    columns = [column(f"p{at:02}", Family.BYTES) for at in range(20)]
    toolset = tools(table(ID, *columns, name="album"))
    content = PNG + b"\0" * 40_000

    got = answer(toolset, "get_album", {"id": 1}, (1, *[content] * 20))

    assert len(got.media) == 9
    assert [each.uri.rpartition("/")[2] for each in got.media] == [f"p{at:02}" for at in range(9)]
    assert [link.name for link in got.links] == [f"p{at:02}" for at in range(9, 19)]


CELLS = st.none() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()), max_size=40)


@given(text=CELLS, more=CELLS | st.binary(), times=st.integers(1, 400), csv=st.booleans())
def test_any_row_is_valid_and_below_the_cap(text: object, more: object, times: int, csv: bool) -> None:
    toolset = tools(NOTE, limits=LIMITS, text=Text.CSV if csv else Text.JSON)
    cell = text * times if isinstance(text, str) else text

    got = answer(toolset, "get_note", {"id": 1}, (1, cell, more))
    Draft202012Validator(ROW_SCHEMA).validate(got.structured)

    assert json.loads(got.text) == got.structured
    assert len(got.text.encode()) <= LIMITS.max_bytes
    assert {link.name for link in got.links} == {
        name for name in ("text", "more") if name in str(got.structured.get("note", ""))
    }
