"""URIs of rows and cells: written and read back."""

import base64

import pytest
from hypothesis import given, strategies as st

from dbtools.schema.uris import MOST_CHARACTERS, Address, address_of, cell_uri, row_uri

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30)


@given(table=TEXTS, key=st.lists(TEXTS, min_size=1, max_size=3), column=TEXTS)
def test_address_is_read_as_it_was_written(table: str, key: list[str], column: str) -> None:
    row, cell = row_uri(table, key), cell_uri(table, key, column)
    assert row is not None
    assert cell is not None

    assert row.isascii()
    assert address_of(row) == Address(table=table, key=tuple(key))
    assert address_of(cell) == Address(table=table, key=tuple(key), column=column)


@pytest.mark.parametrize(
    ("key", "uri"),
    [
        pytest.param([1], "dbtools://row/t/1", id="integer"),
        pytest.param([2**62], f"dbtools://row/t/{2**62}", id="large integer"),
        pytest.param([1, "a,b/c d"], "dbtools://row/t/1,a%2Cb%2Fc%20d", id="composite"),
        pytest.param([True], "dbtools://row/t/true", id="boolean"),
        pytest.param([1.5], "dbtools://row/t/1.5", id="float"),
        ([b"hi"], f"dbtools://row/t/{base64.b64encode(b'hi').decode().replace('=', '%3D')}"),
        pytest.param([], None, id="no key"),
        pytest.param([None], None, id="null"),
        pytest.param([""], None, id="empty text"),
        pytest.param([b""], None, id="no bytes"),
        pytest.param(["\ud800"], None, id="half a surrogate pair"),
        pytest.param(["a\0"], None, id="NUL"),
        pytest.param([["a"]], None, id="list"),
        pytest.param(["x" * MOST_CHARACTERS], None, id="long"),
    ],
)
def test_row_has_an_address_where_its_key_can_be_written(key: list[object], uri: str | None) -> None:
    assert row_uri("t", key) == uri
    assert cell_uri("t", key, "row") == (uri and uri.replace("//row/", "//cell/") + "/row")


def test_table_named_like_a_part_of_the_address_is_no_problem() -> None:
    assert cell_uri("row", ["row"], "row") == "dbtools://cell/row/row/row"


@pytest.mark.parametrize(
    "uri",
    [
        *("", "dbtools:", "dbtools://", "dbtools://row", "dbtools://row/t", "dbtools://row/t/"),
        *("dbtools://row//1", "dbtools://row/t/1/c", "dbtools://cell/t/1", "dbtools://cell/t/1/"),
        *("dbtools://cell/t/1/c/d", "dbtools://table/t/1", "https://row/t/1", "DBTOOLS://row/t/1"),
        *("dbtools://row/t/%00", "dbtools://row/t/\ud800", "dbtools://row/t/" + "1" * MOST_CHARACTERS),
    ],
)
def test_what_is_no_address_names_nothing(uri: str) -> None:
    assert address_of(uri) is None


@given(st.text(st.characters(exclude_categories=()), max_size=40))
def test_any_text_is_an_address_or_none(text: str) -> None:
    found = address_of(f"dbtools://row/{text}")

    assert found is None or (found.table and found.key and "\0" not in "".join(found.key))
