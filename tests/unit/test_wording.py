"""Descriptions: short, on one line, and without what a comment could smuggle in."""

import pytest
from hypothesis import given, strategies as st

from dbtools.schema.catalog import Catalog, ForeignKey
from dbtools.tools.wording import columns_line, quotation, relation_targets, shown_default, tidy, type_name
from dbtools.values.cells import INVISIBLE
from dbtools.values.types import ColumnType, Family
from tests.unit.shop import ID, ORDER_LINE, PRODUCT, SALE, SHOP, column, table


@pytest.mark.parametrize(
    ("comment", "shown"),
    [
        pytest.param("", "", id="none"),
        pytest.param("  what it is ", "what it is", id="spaces around"),
        pytest.param("two\n\tlines\r\nor  three", "two lines or three", id="lines"),
        pytest.param("a\x00b\x1bc", "a b c", id="controls"),
        pytest.param("a\u202eb\u200bc\U000e0041d", "abcd", id="invisible"),
        pytest.param("a\u2028b", "ab", id="line separator"),
        pytest.param("x" * 21, "x" * 19 + "…", id="too long"),
        pytest.param("x" * 20, "x" * 20, id="longest"),
        pytest.param("x" * 18 + " yz", "x" * 18 + "…", id="cut at a space"),
    ],
)
def test_comment_is_cleaned(comment: str, shown: str) -> None:
    assert tidy(comment, 20) == shown


@given(st.text(max_size=60), st.integers(1, 30))
def test_cleaned_comment_is_short_and_visible(comment: str, most: int) -> None:
    shown = tidy(comment, most)

    assert len(shown) <= most
    assert not INVISIBLE.search(shown)
    assert len(shown.splitlines()) <= 1


@pytest.mark.parametrize(
    ("comment", "shown"),
    [("", ""), ("One.", "'One'"), ("it's 'so'", "'it’s ’so’'"), ("two\n\nlines;", "'two lines'")],
)
def test_comment_is_quoted_and_cannot_end_its_quotes(comment: str, shown: str) -> None:
    assert quotation(comment, 80) == shown


@pytest.mark.parametrize(
    ("default", "shown"),
    [
        (None, ""),
        ("0", "0"),
        ("'new'::text", "'new'"),
        ("(-1)::integer", ""),
        ("'-1'::integer", "'-1'"),
        ("datetime('now')", "datetime('now')"),
        ("'hr.secret'::regclass", ""),
        ("'it''s (hr.secret)'", "'it''s (hr.secret)'"),
        ("'new'::hr.secret_mood", "'new'"),
        ("now()", "now()"),
        ("CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP"),
        ("nextval('hr.secret_accounts_id_seq'::regclass)", ""),
        ("hr.secret_function()", ""),
        ('"secret"()', ""),
        ("('a'::text || hr.secret())", ""),
    ],
)
def test_default_names_no_object_of_a_user(default: str | None, shown: str) -> None:
    assert shown_default(default) == shown


@pytest.mark.parametrize(
    ("declared", "shown"),
    [
        (column("a", choices=("red", "green")), "red|green"),
        (column("a", Family.ENUM), "small|large"),
        (column("a", choices=tuple(map(str, range(13)))), "text"),
        (column("a", type=ColumnType(family=Family.TEXT, name="character varying(9)")), "varchar(9)"),
        (
            column("a", type=ColumnType(family=Family.TIMESTAMPTZ, name="timestamp with time zone")),
            "timestamptz",
        ),
        (column("a", type=ColumnType(family=Family.NUMBER, name="double precision[]")), "double[]"),
    ],
)
def test_type_is_named_shortly(declared: object, shown: str) -> None:
    assert type_name(declared) == shown  # type: ignore[arg-type]


def test_columns_are_listed_with_type_key_relation_and_comment() -> None:
    assert columns_line(SHOP, ORDER_LINE, 500) == (
        "order_id bigint key; product_id bigint key → product.id; quantity bigint"
    )
    assert columns_line(SHOP, PRODUCT, 500).startswith(
        "id bigint key; name text 'as printed on the label'; price numeric(10,2); color red|green; size sm"
    )
    assert columns_line(SHOP, SALE, 500) == "day date; total numeric(10,2)"


@given(st.integers(60, 2_000))
def test_list_of_many_columns_is_cut_after_a_column(most: int) -> None:
    wide = table(ID, *(column(f"column_{number}", comment="a comment") for number in range(30)))
    line = columns_line(Catalog(tables=(wide,)), wide, most)
    *shown, last = line.split("; ")

    assert len(line) <= most
    assert [each.split()[0] for each in shown] == [each.name for each in wide.columns[: len(shown)]]
    assert last in (
        *(f"and {31 - len(shown)} more: describe_tables", "column_29 text", "column_29 text 'a comment'"),
    )


def test_first_relation_of_a_column_is_shown() -> None:
    keys = tuple(
        ForeignKey(columns=("a", "b"), target_schema="", target=target, target_columns=("id", "kind"))
        for target in ("first", "second")
    )
    child = table(column("a"), column("b"), key=(), foreign_keys=keys)
    parents = [table(ID, column("kind"), name=name) for name in ("first", "second")]

    assert relation_targets(Catalog(tables=(child, *parents)), child) == {"a": "first.id", "b": "first.kind"}
