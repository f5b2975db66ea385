"""The `-- param` lines of a query file: what they declare, and how mistakes are reported."""

from typing import Any

import pytest

from dbtools.findings import Source
from dbtools.queries import QueryParameter
from dbtools.queries.headers import WANTED
from dbtools.values.types import PARAMETERS, quote
from tests.unit.query_files import complaints, read


def _parameter(line: str) -> QueryParameter:
    place = "/*? , :a ?*/" if "[]? " in line else ", :a"
    (query,) = read(f"-- name: q\n-- param {line}\nselect 1 {place}")
    return query.parameters[0]


def _problem(line: str) -> str:
    """Return what is wrong with the parameter *line*: one thing, on the second line."""
    ((number, message),) = complaints(f"-- name: q\n-- param {line}\nselect :a")
    assert number == 2
    return message


@pytest.mark.parametrize(
    ("line", "declared"),
    [
        *((f"a: {name}", {"type": type}) for name, type in PARAMETERS.items()),
        ("a: text?", {"optional": True}),
        ("a: text[]", {"array": True}),
        ("a: text[]?  X", {"array": True, "optional": True, "description": "X"}),
        ("a: text\tX  Y ", {"description": "X  Y"}),
        ("a: text = it''s", {"default": "it''s"}),
        ("a: text ='it''s  so'  Why", {"default": "it's  so", "description": "Why"}),
        ('a: text in (5", 6", What?) = What?', {"choices": ('5"', '6"', "What?"), "default": "What?"}),
        ("a: text = ''", {"default": ""}),
        ("a: text = 'null'", {"default": "null"}),
        (
            "a: text in (x, 'b c' ,'it''s', 'd,)') = 'b c'  Which",
            {"choices": ("x", "b c", "it's", "d,)"), "default": "b c", "description": "Which"},
        ),
        (
            "a: integer max 9 min -3 = 4",
            {"type": PARAMETERS["integer"], "minimum": "-3", "maximum": "9", "default": "4"},
        ),
        (
            "a: timestamp min '2024-01-01 00:00' = 2024-01-01T00:00:00.5",
            {
                "type": PARAMETERS["timestamp"],
                "minimum": "2024-01-01 00:00",
                "default": "2024-01-01T00:00:00.5",
            },
        ),
        (
            "a: text? pattern '^it''s  [A-Z]$'  Text",
            {"optional": True, "pattern": "^it's  [A-Z]$", "description": "Text"},
        ),
        (
            """a: text[] in (a, '"b"', 'c d') = '["a", "c d"]'""",
            {"array": True, "choices": ("a", '"b"', "c d"), "default": '["a", "c d"]'},
        ),
        (
            "a: integer[] min 1 = [1,2]",
            {"type": PARAMETERS["integer"], "array": True, "minimum": "1", "default": "[1,2]"},
        ),
        ("a: text  Of the min 5 things, = in general", {"description": "Of the min 5 things, = in general"}),
    ],
)
def test_parameter_is_read(line: str, declared: dict[str, Any]) -> None:
    place = Source(file="shop.sql", line=2)

    wanted = {"name": "a", "type": PARAMETERS["text"], "source": place, **declared}
    assert vars(_parameter(line)) == vars(QueryParameter(**wanted))


@pytest.mark.parametrize(
    ("line", "required", "may_be_absent"),
    [("a: text", True, False), ("a: text?", False, True), ("a: text = x", False, False)],
)
def test_parameter_states_whether_it_is_needed(line: str, required: bool, may_be_absent: bool) -> None:
    parameter = _parameter(line)

    assert (parameter.required, parameter.may_be_absent) == (required, may_be_absent)
    assert _parameter("a: text? = x").may_be_absent is False


VALUES = {
    "integer": (
        "0 -1 +7 1.0 9223372036854775807 -9223372036854775808",
        "1e3 9223372036854775808 x 0x1 1_0 ٣",
    ),
    "number": ("0 -1.5 .5 1. 1e300", "x 1e999 nan inf 1_0 ٣ 1e"),
    "decimal": ("0 19.90 -1e99", "x nan 1,5 Infinity"),
    "boolean": ("true false TRUE yes 1 t", "maybe 2"),
    "date": (
        "2024-02-29 0001-01-01 20240101 2024-01-01T00:00Z",
        "2023-02-29 20240101x 2024-01-01T10:00 2024-1-1 0000-01-01 2024-W01-1 ٢٠٢٤-01-01",
    ),
    "time": (
        "00:00 23:59:59.999999999 12:30Z 12:30:00+05:30 12:30-08 12:30z",
        "24:01 12 12:60 12:00:60 1:00 12:00+16 12:00+01:60",
    ),
    "timestamp": (
        "2024-01-01 2024-01-01T00:00 2024-01-01t12:30:00.5Z 2024-01-01T12:30:00-08:00",
        "2024-13-01T00:00 2024-01-01T25:00 2024-01-01x12:00 2024-01-01T 12:00",
    ),
    "uuid": (
        "3f2b8c1e-0d4a-4b6e-9c55-1a2b3c4d5e6f 3F2B8C1E-0D4A-4B6E-9C55-1A2B3C4D5E6F "
        "3f2b8c1e0d4a4b6e9c551a2b3c4d5e6f",
        "x",
    ),
    "json": ('{"a":[1,null]} 1 "x" false', "{a:1} nan NaN x [1"),
    "text": ("x 1", ""),
}


@pytest.mark.parametrize(
    ("type", "value"), [(type, value) for type, (good, _) in VALUES.items() for value in good.split()]
)
def test_value_of_the_type_is_taken(type: str, value: str) -> None:
    assert _parameter(f"a: {type} = {value}").default == value


@pytest.mark.parametrize(
    ("type", "value"), [(type, value) for type, (_, bad) in VALUES.items() for value in bad.split()]
)
def test_value_of_another_type_is_refused(type: str, value: str) -> None:
    message = _problem(f"a: {type} = {value}")

    assert message.startswith(f"param a: default: '{value}' is not ")


@pytest.mark.parametrize(
    "line",
    [
        *("a", "a text", "a : text", "a:", "a: text ?", "a: text in (G, PG)?", "a: date max '2024-12-31'?"),
        *("a: text = x ?  T", "a: text?[]", "a: text The text", "a: text foo 1", "a: integer min"),
        *("a: integer max  5", "a: text in a, b", "a: text in ()", "a: text in (a,)", "a: text in (a b)"),
        *(
            *("a: text in (a", "a: text pattern x", "a: text = 'x", "a: text = 'x'y", "a: text = "),
            "a: text = x y",
        ),
        *("a: integer[] = [1, 2]  Ids.", "a: integer[] = (1, 2)", 'a: json = {"a": 1}', "a: text = null"),
        *('a: text in (Rock, "R&B/Soul")', 'a: text = "x y"  T', 'a: date min "2024-01-01"'),
        *('a: text pattern "x"', "a: integer = 5 min 1", "a: integer min 1 min 2", "a: integer  min 1"),
        *("a: text  = x", "a: text  in (a, b)", "a: text  pattern 'x'"),
    ],
)
def test_declaration_that_cannot_be_read_gets_the_right_form(line: str) -> None:
    ((number, message),) = complaints(f"-- name: q\n-- param {line}\nselect :a")

    assert (number, message) == (2, f"param {quote(line.strip())} cannot be read. {WANTED}.")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("a: txt", "param a: 'txt' is not a type. Did you mean text? Types: integer,"),
        ("a: Text", "param a: 'Text' is not a type. Did you mean text? Types:"),
        ("a: jsonb[]", "param a: 'jsonb' is not a type. Did you mean json? Types:"),
        ('a: text = "x"', 'param a: "x" is in double quotes. Write --'),
        ("a: date max 2024-12-31?", "param a: max: '2024-12-31?' is not a date"),
        ("a: text min 1", "param a: a parameter of type text has no min or max."),
        ("a: uuid max 1", "param a: a parameter of type uuid has no min or max."),
        ("a: integer min x", "param a: min: 'x' is not an integer such as 42"),
        ("a: date max x", "param a: max: 'x' is not a date such as 2024-03-05."),
        ("a: integer min 10 max 9", "param a: min 10 is above max 9."),
        ("a: integer min 10 = 9", "param a: default 9 is below min 10."),
        ("a: decimal max 1.0 = 1.01", "param a: default 1.01 is above max 1.0."),
        ("a: timestamp max 2024-01-01T00:00Z = 2024-01-01T00:30+00:15", "param a: default 202"),
        ("a: timestamp max 2024-01-01T00:00Z = 2023-12-31T16:30-08:00", "param a: default 202"),
        ("a: time min 10:00 max 12:00Z", "param a: min 10:00 and max 12:00Z: one has a zone, and the other"),
        ("a: integer in (1, x)", "param a: in: 'x' is not an integer"),
        ("a: number in (1, 1.0)", "param a: in lists a value twice."),
        ("a: json in (1)", "param a: a parameter of type json has no in."),
        ("a: integer in (1, 5) max 4", "param a: in 5 is above max 4."),
        ("a: text in (a, b) = c", "param a: default: 'c' is not among a, b."),
        ("a: integer pattern 'x'", "param a: a parameter of type integer has no pattern."),
        ("a: text pattern '('", "param a: pattern: '(' cannot be used: unclosed group"),
        ("a: text pattern '[[a]'", "param a: pattern: '[[a]' cannot be used: unclosed"),
        ("a: text pattern 'a{9999999999999}'", "param a: pattern: 'a{99"),
        ("a: text pattern '(?=a)b'", "param a: pattern: '(?=a)b' cannot be used: look-around, including"),
        (r"a: text pattern '(a)\1'", "param a: pattern: "),
        ("a: text pattern '^b' = ab", "param a: default: 'ab' does not match the"),
        ("a: integer[] = 5", "param a: default: '5' is not a JSON array such as"),
        ("a: integer[] = [1", "param a: default: '[1' is not a JSON array such"),
        ("a: integer[] = [1.5]", "param a: default: '1.5' is not an integer"),
        ("a: integer[] = [true]", "param a: default: 'true' is not an integer"),
        ("a: text[] = [null]", "param a: default: '[null]' is not a JSON array"),
        ('a: text[] = ["\\u0000"]', "param a: default: '\\u0000' is not a text"),
        ("a: integer[] max 1 = [1,2]", "param a: default 2 is above max 1."),
        ("claims: text", "param claims: this name is reserved for the caller's claims"),
        ("é: text", "param 'é: text' cannot be read. Write -- param NAME"),
    ],
)
def test_mistake_in_a_parameter_is_named_on_its_line(line: str, problem: str) -> None:
    (first, *more) = complaints(f"-- name: q\n-- param {line}\nselect :a")

    assert first[0] == 2
    assert first[1].startswith(problem)
    assert [each[0] for each in more] == ([3] if line.startswith(("claims", "é")) else [])


def test_moments_are_compared_across_zones_and_deep_json_is_no_value() -> None:
    line = "a: timestamp max 2024-01-01T00:00Z = 2024-01-01T00:10+00:15"

    assert _parameter(line).default == "2024-01-01T00:10+00:15"
    assert _problem(f"a: json = {'[' * 200_000}").startswith("param a: default: '[[[[")
