"""Which limits are read from CHECK constraints, and which are not."""

import pytest
from hypothesis import given, strategies as st

from dbtools.backends.checks import Check, read_checks
from dbtools.backends.postgresql.schema.types import lexis as postgresql
from dbtools.backends.sqlite.schema.syntax import lexis as sqlite

AB = ("a", "b")
LEXES = (sqlite, postgresql)


def _read(expression: str) -> tuple[Check, ...]:
    """Return what is read of *expression* as one database writes it: no other says anything else of it."""
    found = {read_checks(expression, lexis) for lexis in LEXES} - {()}

    assert len(found) <= 1
    return next(iter(found), ())


def _either(expression: str) -> list[Check]:
    return [check for lexis in LEXES for check in read_checks(expression, lexis)]


@pytest.mark.parametrize(
    ("expression", "choices"),
    [
        pytest.param("status in ('a', 'b')", AB, id="in"),
        pytest.param("(status IN('a','b'))", AB, id="in, packed"),
        pytest.param("CHECK (status in ('a', 'b'))", AB, id="with the word"),
        pytest.param("status is null or status in ('a', 'b')", AB, id="or null"),
        pytest.param("status in ('a', 'b') or (status is null)", AB, id="null at the end"),
        pytest.param("'a' = status", ("a",), id="turned round"),
        pytest.param("status in ('it''s', '')", ("it's", ""), id="quotes"),
        pytest.param("status in ('(', 'x or y', '--')", ("(", "x or y", "--"), id="signs in strings"),
        pytest.param("status in ('a', -- first\n 'b' /* last */)", AB, id="comments"),
        pytest.param("status in (1, -2, 0.5)", ("1", "-2", "0.5"), id="numbers"),
        ("((status)::text = ANY ((ARRAY['a'::character varying, 'b'::character varying])::text[]))", AB),
        pytest.param("(status = ANY (ARRAY['a'::text, 'b'::text]))", AB, id="any of text"),
        ("(status = ANY (ARRAY[1, '-2'::integer, (0.5)::numeric]))", ("1", "-2", "0.5")),
        pytest.param("((status)::text = 'a'::text)", ("a",), id="one text"),
        ("((status IS NULL) OR (status = ANY (ARRAY['a'::text, 'b'::text])))", AB),
    ],
)
def test_choices_are_read(expression: str, choices: tuple[str, ...]) -> None:
    assert _read(expression) == (Check("status", "=", choices),)


@pytest.mark.parametrize(
    ("expression", "check"),
    [
        pytest.param("x > 0", Check("x", ">", ("0",)), id="greater"),
        pytest.param("0 < x", Check("x", ">", ("0",)), id="turned round"),
        pytest.param("x <= 1.50", Check("x", "<=", ("1.50",)), id="less or equal"),
        pytest.param("x < -5", Check("x", "<", ("-5",)), id="negative"),
        pytest.param("x is null or x >= 1", Check("x", ">=", ("1",)), id="or null"),
        pytest.param("x>='2020-01-01'", Check("x", ">=", ("2020-01-01",)), id="string"),
        pytest.param("CHECK ((x >= (0)::numeric))", Check("x", ">=", ("0",)), id="numeric"),
        pytest.param("CHECK ((x >= (-5)::numeric))", Check("x", ">=", ("-5",)), id="negative numeric"),
        pytest.param("CHECK ((x >= '-5'::integer))", Check("x", ">=", ("-5",)), id="quoted integer"),
        pytest.param("CHECK ((x <= (0.5)::double precision))", Check("x", "<=", ("0.5",)), id="double"),
        pytest.param("CHECK ((x >= '2020-01-01'::date))", Check("x", ">=", ("2020-01-01",)), id="date"),
        pytest.param(
            "CHECK ((x <= '2030-01-01 00:00:00+00'::timestamp with time zone))",
            Check("x", "<=", ("2030-01-01 00:00:00+00",)),
            id="timestamp",
        ),
        pytest.param("CHECK ((VALUE > 0))", Check("VALUE", ">", ("0",)), id="domain"),
    ],
)
def test_bounds_are_read(expression: str, check: Check) -> None:
    assert _read(expression) == (check,)


@pytest.mark.parametrize(
    ("expression", "column"),
    [
        pytest.param('"or" = 1', "or", id="double quotes"),
        pytest.param('"a ""b""" = 1', 'a "b"', id="doubled quotes"),
        pytest.param("[order by] = 1", "order by", id="brackets"),
        pytest.param("`a``b` = 1", "a`b", id="backticks"),
        pytest.param("Größe = 1", "Größe", id="unicode"),
        pytest.param("a😀b = 1", "a😀b", id="emoji"),
        pytest.param("a\u00a0b = 1", "a\u00a0b", id="no-break space"),
        pytest.param("a$1 = 1", "a$1", id="dollar"),
        pytest.param("((x)) = 1", "x", id="parentheses"),
    ],
)
def test_column_is_read_in_every_notation(expression: str, column: str) -> None:
    assert _read(expression) == (Check(column, "=", ("1",)),)


LEAST, MOST = Check("x", ">=", ("1",)), Check("x", "<=", ("5",))
OF_Y = Check("y", "=", ("a",))


@pytest.mark.parametrize(
    ("expression", "checks"),
    [
        pytest.param("x between 1 and 5", (LEAST, MOST), id="between"),
        pytest.param("x >= 1 and x <= 5", (LEAST, MOST), id="two bounds"),
        pytest.param("CHECK (((x >= 1) AND (x <= 5)))", (LEAST, MOST), id="in parentheses"),
        pytest.param("x >= 1 and (x <= 5 and y = 'a')", (LEAST, MOST, OF_Y), id="nested"),
        pytest.param("x >= 1 and length(z) = 2 and y = 'a'", (LEAST, OF_Y), id="beside the unknown"),
        pytest.param("z not between 1 and 2 and y = 'a'", (OF_Y,), id="beside an unknown range"),
        pytest.param("x is null or (x >= 1 and y = 'a')", (LEAST,), id="of another column, unless null"),
    ],
)
def test_conjunction_is_several_checks(expression: str, checks: tuple[Check, ...]) -> None:
    assert _read(expression) == checks


@pytest.mark.parametrize(
    "expression",
    [
        *("", "CHECK", "x", "x is not null", "not x > 0", "not (x > 0)", "x <> 0", "x != 0"),
        *("x not in (1, 2)", "x not between 1 and 5", "x in ()", "x in (1, null)", "x in (1, y)"),
        *("x in (select 1)", 'x in ("a", "b")', 'x = "a"', "'x' in ('a', 'b')", "(x, y) in ((1, 2))"),
        *("x = 1 = 1", "1 < x < 5", "x > y", "x > 0 + 1", "x > 1e3", "x > 0x10", "x > .5", "x > 1_000"),
        *("x = 007", "x = 1.50", "x = -0", "x = x'41'", "x = N'a'", "x = U&'a'", "x = $$a$$"),
        *("x = 'a' || 'b'", "x = 'a' collate nocase", "x collate nocase = 'a'", "lower(x) = 'a'"),
        *("length(x) > 1", "t.x > 0", "-x > 0", "x + 1 > 0", "x > 0 or y > 0", "x > 10 or x < 5"),
        *("x = 'a' or x = 'b'", "x is null or x = 'a' or x = 'b'", "x = 'a' or y = 'a'"),
        *("x = 'a' or x > 'b'", "x = 'a' or foo(x)", "x = E'a'", "x is null or y > 0"),
        *("x is null or y is null", "x is null or y is null or x = 1", "x is null", "(x > 0) is not true"),
        *("(x > 0) = 1", "case when y then x > 0 else x > 5 end", "case when y and x > 0 and y then z end"),
        *("case x when 1 then 2 end = 2 or x > 0", "true in (1, 2)", "null = 1"),
        *("current_date > '2020-01-01'", "x between 1 and y", "x between symmetric 1 and 5"),
        *("x > 'unterminated", "x > 0)", "((x > 0)", "x > 0; drop table t", "CHECK ((x > 0)) NOT VALID"),
        *("CHECK ((x > 0)) NO INHERIT", "CHECK ((x > 0)) NOT ENFORCED", "((x)::integer > 0)"),
        *("((x)::text > '5'::text)", "((x)::numeric > 0.5)", "(x = 'a'::citext)", "(x = 'a'::mood)"),
        *("(x = ('ab'::character varying(1)))", "(x > (5.7)::integer)", "(x > ('5'::text)::integer)"),
        *("((x)::text ~~ 'a%'::text)", "((x ->> 'a'::text) = 'b'::text)", "(x[1] > 0)"),
        *("(x <> ALL (ARRAY[1, 2]))", "(x < ANY (ARRAY[1, 2]))", "(x = ANY ('{a,b}'::text[]))"),
        *("(x = ANY (y))", "(1 = ANY (x))", "(x = ANY ((ARRAY['a'::text])::mood[]))", "(x >> 5)", "(x @> 5)"),
        "(x OPERATOR(pg_catalog.>) 5)",
    ],
)
def test_nothing_is_said_of_what_is_not_certain(expression: str) -> None:
    assert _read(expression) == ()


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("(" * 5_000 + "x > 0" + ")" * 5_000, id="deep"),
        pytest.param(" and ".join(["x > 0"] * 50_000), id="long"),
        pytest.param("x in (" + "1," * 9_000 + "2", id="open"),
        pytest.param("x" * 19_000 + "'", id="one long word"),
        pytest.param("9" * 19_000 + "a", id="one long number"),
        pytest.param("case " * 3_000 + "end " * 3_000, id="cases"),
    ],
)
def test_excess_is_not_read(expression: str) -> None:
    assert _read(expression) == ()


MARKS = (
    *("(", ")", "[", "]", ",", "::", "=", "==", "<", ">", "<=", ">=", "<>", "-", "--", "/*", "*/", ".", ";"),
    "$",
)
LITERALS = ("'", "''", "'a'", "E'a'", "E'\\", "0", "1", "1.5", "null", '"', "`", "\\", "\0", "\ud800", "😀")
WORDS = ("in", "and", "or", "not", "is", "between", "any", "array[", "any(array[", "case", "end", "check")
NAMES = ("x", "y", '"x"', "é", "text", "::text", "::text[]", "::integer", "::character varying")
FRAGMENTS = st.sampled_from(MARKS + LITERALS + WORDS + NAMES)


@given(st.lists(FRAGMENTS, max_size=30), st.sampled_from(["", " "]))
def test_any_fragments_are_read_without_an_error(fragments: list[str], separator: str) -> None:
    assert all(isinstance(check, Check) for check in _either(separator.join(fragments)))


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    assert all(isinstance(check, Check) for check in _either(text))
