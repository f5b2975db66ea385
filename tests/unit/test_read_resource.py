"""Resources: rows and cells by URI, under the same policy as the tools."""

import json

import pytest

from dbtools.answers.results import Media
from dbtools.errors import NoRow, UnknownResource
from dbtools.statements.select import Output
from dbtools.tools.resources import LARGE_JSON, LARGEST_CELL, bind_resource
from dbtools.values.cells import Cut
from dbtools.values.types import Family
from tests.calls import answered, statement_of
from tests.unit.shop import ID, ORDER_LINE, column, context, select_of, table


def _read(uri: str, *row: object) -> Media:
    call = bind_resource(context(), uri)
    return answered(call, *([row] if row else []))


def test_cell_is_read_whole_by_the_key_of_its_row() -> None:
    statement = statement_of(bind_resource(context(), "dbtools://cell/order%20line/3,7/quantity"))

    assert statement.shape.outputs == (Output(term=ORDER_LINE.columns[2], cut=LARGEST_CELL),)
    assert dict(statement.values) == {"c0_0": 3, "c1_0": 7}
    assert statement.limit == 1


@pytest.mark.parametrize(
    ("family", "cell", "type", "content"),
    [
        pytest.param(Family.TEXT, "näme", "text/plain", "näme".encode(), id="text"),
        pytest.param(Family.TEXT, "", "text/plain", b"", id="empty text"),
        pytest.param(Family.TEXT, "a\udcffb", "text/plain", b"a\\xffb", id="broken text"),
        pytest.param(Family.TEXT, None, "application/json", b"null", id="null"),
        pytest.param(Family.TEXT, 2**60, "text/plain", b"1152921504606846976", id="large integer"),
        pytest.param(Family.INTEGER, 7, "application/json", b"7", id="integer"),
        pytest.param(Family.JSON, '{"a": [1.50]}', "application/json", b'{"a":[1.5]}', id="json"),
        pytest.param(Family.JSON, '"x"', "application/json", b'"x"', id="text in json"),
        pytest.param(Family.ARRAY, "[1.10]", "application/json", b'["1.10"]', id="array"),
        pytest.param(Family.BYTES, b"GIF89a..", "image/gif", b"GIF89a..", id="picture"),
        pytest.param(Family.BYTES, b"..", "application/octet-stream", b"..", id="bytes"),
        pytest.param(Family.TEXT, b"%PDF-1", "application/pdf", b"%PDF-1", id="bytes among texts"),
    ],
)
def test_cell_is_read_as_what_it_is(family: Family, cell: object, type: str, content: bytes) -> None:
    uri = f"dbtools://cell/anything/1/{family}"

    assert _read(uri, cell) == Media(uri=uri, type=type, content=content)


@pytest.mark.parametrize(
    ("cell", "content"),
    [
        pytest.param('{"a": [1.50]}', '{"a": [1.50]}', id="as it is stored"),
        pytest.param('["a\u200bb"]', '["a\\u200bb"]', id="but for what is invisible"),
    ],
)
def test_large_json_is_not_parsed(cell: str, content: str) -> None:
    uri = f"dbtools://cell/anything/1/{Family.JSON}"
    blanks = " " * LARGE_JSON

    assert _read(uri, cell + blanks) == Media(
        uri=uri, type="application/json", content=(content + blanks).encode()
    )


def test_row_is_read_as_its_tool_answers() -> None:
    uri = "dbtools://row/order%20line/3,7"
    read = _read(uri, 3, 7, None)

    assert (read.uri, read.type) == (uri, "application/json")
    assert json.loads(read.content) == {"row": {"order_id": 3, "product_id": 7, "quantity": None}}


@pytest.mark.parametrize(
    "uri",
    [
        *("", "https://example.com", "dbtools://cell/nothing/1/name", "dbtools://cell/product/1/nothing"),
        *("dbtools://cell/product/x/name", "dbtools://cell/product/1,2/name"),
        *("dbtools://cell/product/99999999999999999999/name", "dbtools://cell/product/%00/name"),
        *("dbtools://cell/order%20line/1/quantity", "dbtools://cell/sale/1/day", "dbtools://row/product/x"),
        *("dbtools://row/nothing/1", "dbtools://row/sale/1", "dbtools://row/product/" + "1" * 5_000),
    ],
)
def test_what_is_not_there_is_unknown(uri: str) -> None:
    with pytest.raises(UnknownResource) as raised:
        bind_resource(context(), uri)

    assert raised.value.code == "unknown_resource"


def test_unknown_resources_all_look_the_same() -> None:
    def said(uri: str) -> str:
        with pytest.raises(UnknownResource) as raised:
            bind_resource(context(), uri)
        return str(raised.value).replace(uri, "URI")

    assert said("dbtools://cell/nothing/1/name") == said("dbtools://cell/product/1/nothing")
    assert said("dbtools://cell/product/x/name") == said("dbtools://row/sale/1")


def test_table_in_several_schemas_is_read_by_its_label() -> None:
    twins = tuple(table(ID, column("a"), schema=schema, name="twin") for schema in ("x", "y"))
    of = context(*twins)

    assert select_of(statement_of(bind_resource(of, "dbtools://cell/y.twin/1/a"))).table is twins[1]
    with pytest.raises(UnknownResource):
        bind_resource(of, "dbtools://cell/twin/1/a")


def test_cell_of_a_row_that_is_gone_is_unknown() -> None:
    with pytest.raises(UnknownResource):
        _read("dbtools://cell/product/1/name")
    with pytest.raises(NoRow):
        _read("dbtools://row/product/1")


def test_cell_that_is_larger_than_any_message_is_refused() -> None:
    with pytest.raises(UnknownResource):
        _read("dbtools://cell/product/1/name", Cut(start="x", length=LARGEST_CELL + 1))
