"""Tools of queries: how arguments are advertised, read and rejected."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal

import jsonschema
import pytest
from hypothesis import example, given, settings, strategies as st

from dbtools import errors
from dbtools.backends.sqlite.schema.types import column_type
from dbtools.queries import Permitted
from dbtools.statements.select import argument
from dbtools.values.types import UNSENDABLE, ColumnType, Family
from tests.unit.permitted_queries import EXACT, FAMILIES, permitted_query, statement_of, tool_of
from tests.unit.shop import TYPES

EXAMPLES = 8  #: of each type, exact and lenient
LENIENT = {name: column_type("real" if name == "number" else name, strict=False) for name in FAMILIES}
either = pytest.mark.parametrize(
    "types", [pytest.param(EXACT, id="exact"), pytest.param(LENIENT, id="lenient")]
)


def _bound(permitted: Permitted, **arguments: object) -> Mapping[str, object]:
    """Return the values that are bound for *arguments*, by the names of their parameters."""
    values = statement_of(permitted, arguments).values
    return {name.removeprefix("argument_"): value for name, value in values.items()}


def _refusal(permitted: Permitted, **arguments: object) -> str:
    with pytest.raises(errors.CallError) as caught:
        tool_of(permitted).bind(arguments)
    return f"{caught.value.code}: {caught.value}"


TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
#: What the schema admits and the type is, each with what it means.
VALID: Mapping[str, st.SearchStrategy[object]] = {
    "integer": st.integers(-(2**63), 2**63 - 1),
    "number": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60),
    "decimal": st.decimals(allow_nan=False, allow_infinity=False, places=4).map(
        lambda each: format(each, "f")
    ),
    "text": TEXTS,
    "boolean": st.booleans(),
    "date": st.dates().map(date.isoformat),
    "time": st.times().map(time.isoformat),
    "timestamp": st.datetimes().map(datetime.isoformat),
    "uuid": st.uuids().map(str),
    "json": DOCUMENTS.map(json.dumps),
}


def _meant(type: str, value: object) -> object:
    """Return what *value* of *type* means, so that equal values are equal."""
    match type:
        case "number":
            return float(str(value))
        case "decimal":
            return Decimal(str(value))
        case "json":
            return json.loads(value) if isinstance(value, str) else value
        case "timestamp":
            return datetime.fromisoformat(str(value))
        case _:
            return value


@either
@pytest.mark.parametrize("type", FAMILIES)
@settings(max_examples=EXAMPLES)
@given(st.data())
def test_what_the_schema_admits_is_read_as_what_it_means(
    types: Mapping[str, ColumnType], type: str, data: st.DataObject
) -> None:
    permitted = permitted_query(f"value: {type}", f"items: {type}[]", types=types)
    value, items = data.draw(VALID[type]), data.draw(st.lists(VALID[type], max_size=3))
    schema = tool_of(permitted).definition.input_schema
    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(
        {"value": value, "items": items}
    )

    for given_items in (items, json.dumps(items)):
        bound = _bound(permitted, value=value, items=given_items)
        assert _meant(type, bound["value"]) == _meant(type, value)
        assert isinstance(bound["items"], list)
        assert [_meant(type, each) for each in bound["items"]] == [_meant(type, each) for each in items]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**400), 10**400) | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
#: Of which everything that the schema admits is read, where the integers are of 64 bits.
WHOLLY_ADVERTISED = ("integer", "number", "text", "boolean")


@either
@pytest.mark.parametrize("type", FAMILIES)
@settings(max_examples=EXAMPLES)
@given(value=ANYTHING, array=st.booleans())
@example(value=10**399, array=False)
@example(value="[" * 100_000, array=True)
@example(value="9" * 10_000, array=False)
@example(value="[1e400]", array=True)
@example(value='["\\ud800"]', array=True)
def test_anything_is_read_or_refused_by_the_name_of_the_argument(
    types: Mapping[str, ColumnType], type: str, value: object, array: bool
) -> None:
    permitted = permitted_query(f"value: {type}{'[]' if array else ''}", types=types)
    schema = tool_of(permitted).definition.input_schema
    refused: errors.CallError | None = None
    try:
        _bound(permitted, value=value)
    except errors.CallError as exc:
        refused = exc
    admitted = jsonschema.Draft202012Validator(schema).is_valid({"value": value})
    beyond = isinstance(value, int | float) and not -(2**63) <= value < 2**63
    unsendable = isinstance(value, str) and UNSENDABLE.search(value)

    if refused is not None:
        assert refused.message.startswith("value")
        assert len(str(refused)) < 400
        assert not admitted or array or type not in WHOLLY_ADVERTISED or beyond or unsendable


@pytest.mark.parametrize(
    ("parameter", "value", "refusal"),
    [
        ("a: integer", "seven", "bad_value: a: 'seven' is not an integer such as 42."),
        ("a: integer", 2**63, f"bad_value: a: '{2**63}' is not an integer from {-(2**63)} to {2**63 - 1}."),
        ("a: integer", 1.5, "bad_value: a: '1.5' is not an integer such as 42."),
        ("a: integer", True, "bad_value: a: 'true' is not an integer such as 42."),
        ("a: boolean", 2, "bad_value: a: '2' is not true or false."),
        ("a: json", "{", "bad_value: a: '{' is not JSON."),
        ("a: integer[]", [1, [2]], "bad_argument: a[1] must be one integer, not an array."),
        ("a: integer[]", "1,2", "bad_value: a[0]: '1,2' is not an integer such as 42."),
        ("a: text", "\0", "bad_argument: a must be valid Unicode text without NUL."),
        (
            "a: integer min 1 max 3  How many.",
            4,
            "bad_value: a cannot be '4'. Expected: integer, at least 1, at most 3. How many.",
        ),
        (
            "a: text in (red, green)",
            "gren",
            "bad_value: a cannot be 'gren'. Did you mean green? Expected: text, one of red, green.",
        ),
        (
            "a: timestamp min 2024-01-01T00:00:00Z",
            "2024-02-01T00:00:00",
            "bad_value: a cannot be '2024-02-01T00:00:00'. "
            "Expected: timestamp, at least 2024-01-01T00:00:00Z.",
        ),
    ],
)
def test_refusal_names_the_argument_the_value_and_what_is_wanted(
    parameter: str, value: object, refusal: str
) -> None:
    assert _refusal(permitted_query(parameter), a=value) == refusal


def test_long_name_of_an_argument_is_not_echoed_whole() -> None:
    refusal = _refusal(permitted_query("a: text?"), **{"x\u202e" * 10_000: 1})

    assert len(refusal) < 300
    assert "\u202e" not in refusal


@pytest.mark.parametrize(
    ("declared", "default", "bound"),
    [
        ("integer = 7", 7, 7),
        ("number = 0.5", 0.5, 0.5),
        ("decimal = 1.50", "1.50", "1.50"),
        ("text = 'a b'", "a b", "a b"),
        ("boolean = true", True, True),
        ("date = 2024-01-01", "2024-01-01", "2024-01-01"),
        ("""json = '{"a": 1}'""", '{"a": 1}', '{"a": 1}'),
        ("""json = '"a"'""", '"a"', '"a"'),
        ("""text[] = '["a", "b"]'""", ["a", "b"], ["a", "b"]),
        ("decimal[] = '[\"1.50\"]'", ["1.50"], ["1.50"]),
        ("integer[] = '[]'", [], []),
        ("""json[] = '[{"a": 1}, 2.5]'""", ['{"a": 1}', "2.5"], ['{"a": 1}', "2.5"]),
    ],
)
def test_default_is_advertised_and_bound(declared: str, default: object, bound: object) -> None:
    permitted = permitted_query(f"a: {declared}")
    schema = tool_of(permitted).definition.input_schema

    assert schema["properties"]["a"]["default"] == default
    assert _bound(permitted) == {"a": bound}
    assert _bound(permitted, a=default) == {"a": bound}


def test_schema_is_plain_and_says_everything() -> None:
    permitted = permitted_query(
        "level: integer min 1 max 3  How many.",
        "share: number? min 0.5",
        "size: text in (small, 'very large') = small",
        "code: text? pattern '^[A-Z]+$'",
        "since: date? min 2024-01-01",
        "price: decimal? max 10",
        "cost: decimal? min 0.5  Price in USD.",
        "fee: decimal? min 0.5 max 9  Price in USD",
        "at: time?  When?",
        "note: text?  Anything",
        "ids: integer[]? in (1, 2)",
        "size_of: text?",
        types={**EXACT, "text": ColumnType(family=Family.TEXT, name="text")},
    )
    sized = replace(permitted, types={**permitted.types, "size_of": TYPES[Family.ENUM]})

    assert tool_of(sized).definition.input_schema == {
        "type": "object",
        "properties": {
            "level": {"type": "integer", "minimum": 1, "maximum": 3, "description": "How many."},
            "share": {"type": "number", "minimum": 0.5},
            "size": {"type": "string", "enum": ["small", "very large"], "default": "small"},
            "code": {"type": "string", "pattern": "^[A-Z]+$"},
            "since": {"type": "string", "description": "YYYY-MM-DD; minimum 2024-01-01"},
            "price": {"type": "string", "description": "decimal number; maximum 10"},
            "cost": {"type": "string", "description": "Price in USD. Decimal number; minimum 0.5."},
            "fee": {"type": "string", "description": "Price in USD. Decimal number; minimum 0.5; maximum 9."},
            "at": {"type": "string", "description": "When? Time such as 14:30."},
            "note": {"type": "string", "description": "Anything"},
            "ids": {"type": "array", "items": {"type": "integer"}, "description": "one of 1, 2"},
            "size_of": {"type": "string", "enum": ["small", "large"]},
        },
        "required": ["level"],
    }


def test_large_decimal_in_a_text_of_a_list_keeps_its_digits() -> None:
    bound = _bound(permitted_query("a: decimal[]"), a="[0.12345678901234567890123]")

    assert bound == {"a": ["0.12345678901234567890123"]}


def test_no_name_of_an_argument_is_one_of_ours() -> None:
    permitted = permitted_query("limit: integer", "skip: integer", "claim0: text")

    assert {argument(each) for each in ("limit", "skip", "claim0")} == set(
        statement_of(permitted, {"limit": 1, "skip": 2, "claim0": "x"}).values
    )
