"""Random expressions over random rows: each database computes the same as Python with fractions."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from typing import Any

from hypothesis import HealthCheck, given, settings, strategies as st

from tests.database.python_aggregates import insert
from tests.database.shop import Shop, rows_of

DDL = """
create table parcels (
    id integer not null primary key, a integer, b bigint, p decimal(12,2), q decimal(8,2), x double precision,
    d date, e date
);
"""
Row = Mapping[str, Any]
Value = Fraction | date | None
EARLIEST, LATEST = date(1900, 1, 1), date(2100, 12, 31)

whole = st.none() | st.integers(-100, 100)
money = st.none() | st.decimals(-100, 100, places=2, allow_nan=False)
#: Such as binary numbers hold exactly.
binary = st.none() | st.integers(-800, 800).map(lambda eighths: eighths / 8)
day = st.none() | st.dates(EARLIEST, LATEST)
rows = st.lists(
    st.fixed_dictionaries({"a": whole, "b": whole, "p": money, "q": money, "x": binary, "d": day, "e": day}),
    min_size=1,
    max_size=4,
)


@dataclass(frozen=True, kw_only=True)
class Expression:
    """An expression, and what it is of a row."""

    text: str
    of: Callable[[Row], Value]


def _leaf(name: str) -> Expression:
    return Expression(text=name, of=lambda row: _fraction(row[name]))


def _fraction(cell: Any) -> Fraction | None:
    return None if cell is None else Fraction(cell)


def _date(name: str) -> Expression:
    return Expression(text=name, of=lambda row: row[name])


def _literal(text: str) -> Expression:
    return Expression(text=text, of=lambda row: Fraction(text))


def _both(sign: str, left: Expression, right: Expression) -> Expression:
    def of(row: Row) -> Value:
        one, other = left.of(row), right.of(row)
        if not isinstance(one, Fraction) or not isinstance(other, Fraction):
            return None
        match sign:
            case "+":
                return one + other
            case "-":
                return one - other
            case "*":
                return one * other
            case _:
                return one / other if other else None

    return Expression(text=f"({left.text} {sign} {right.text})", of=of)


def _rounded(of: Expression, places: int) -> Expression:
    def value(row: Row) -> Value:
        found = of.of(row)
        if not isinstance(found, Fraction):
            return None
        exact = Decimal(found.numerator) / Decimal(found.denominator)
        return Fraction(exact.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))

    return Expression(text=f"round({of.text}, {places})", of=value)


def _alone(name: str, of: Expression) -> Expression:
    def value(row: Row) -> Value:
        found = of.of(row)
        return None if not isinstance(found, Fraction) else abs(found) if name == "abs" else -found

    return Expression(text=f"abs({of.text})" if name == "abs" else f"-{of.text}", of=value)


def _first(left: Expression, right: Expression) -> Expression:
    return Expression(
        text=f"coalesce({left.text}, {right.text})",
        of=lambda row: right.of(row) if left.of(row) is None else left.of(row),
    )


def _days(left: Expression, right: Expression) -> Expression:
    def of(row: Row) -> Value:
        one, other = left.of(row), right.of(row)
        return Fraction((one - other).days) if isinstance(one, date) and isinstance(other, date) else None

    return Expression(text=f"({left.text} - {right.text})", of=of)


def _moved(moment: Expression, days: Expression) -> Expression:
    def of(row: Row) -> Value:
        one, other = moment.of(row), days.of(row)
        if not isinstance(one, date) or not isinstance(other, Fraction):
            return None
        return one + timedelta(days=int(other))

    return Expression(text=f"({moment.text} + {days.text})", of=of)


exact = st.sampled_from([*map(_leaf, "abpqx"), *map(_literal, ("0", "1", "2", "7", "2.5", "100"))])
dates = st.sampled_from([*map(_date, "de")])
moved = st.builds(_moved, dates, st.sampled_from([_leaf("a"), _literal("30"), _literal("7")]))
moments = dates | moved
numbers = st.recursive(
    exact
    | st.builds(_rounded, st.sampled_from([*map(_leaf, "pqx")]), st.integers(0, 3))
    | st.builds(_days, moments, moments),
    lambda inner: st.one_of(
        st.builds(_both, st.sampled_from("+-*/"), inner, inner),
        st.builds(_alone, st.sampled_from(["abs", "-"]), inner),
        st.builds(_first, inner, inner),
    ),
    max_leaves=6,
)


def _listed(shop: Shop, stored: list[dict[str, Any]], **asked: object) -> list[list[Any]]:
    shop.bare.execute("delete from parcels")
    insert(shop, "parcels", [{"id": at, **row} for at, row in enumerate(stored)])
    return rows_of(shop.call("list_rows", {"table": "parcels", "columns": ["id"], **asked}).structured)


def _is_no_literal(expression: Expression) -> bool:
    return any(map(str.isalpha, expression.text))


def _is(cell: Any, value: Value) -> bool:
    if value is None or cell is None:
        return cell is value is None
    if isinstance(value, date):
        return str(cell) == value.isoformat()
    return math.isclose(float(cell), float(value), rel_tol=1e-9, abs_tol=1e-6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stored=rows, asked=st.lists(numbers | moments, min_size=1, max_size=3, unique_by=lambda each: each.text)
)
def test_expression_is_what_python_computes(
    shop: Shop, stored: list[dict[str, Any]], asked: list[Expression]
) -> None:
    names = [f"{each.text} as v{at}" for at, each in enumerate(asked)]
    found = _listed(shop, stored, columns=["id", *names])

    for row, cells in zip(stored, found, strict=True):
        for each, cell in zip(asked, cells[1:], strict=True):
            assert _is(cell, each.of(row)), (each.text, row, cell, each.of(row))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stored=rows, left=numbers.filter(_is_no_literal), right=numbers, sign=st.sampled_from(["lt", "gt"]))
def test_expressions_are_compared_as_python_compares_them(
    shop: Shop, stored: list[dict[str, Any]], left: Expression, right: Expression, sign: str
) -> None:
    condition = {"column": f"({left.text})", "op": sign, "value_column": f"({right.text})"}
    found = [row[0] for row in _listed(shop, stored, where=[condition])]
    pairs = [(left.of(row), right.of(row)) for row in stored]

    for at, (one, other) in enumerate(pairs):
        if isinstance(one, Fraction) and isinstance(other, Fraction):
            near = math.isclose(float(one), float(other), rel_tol=1e-9, abs_tol=1e-6)
            assert near or (at in found) is (one < other if sign == "lt" else one > other), (at, one, other)
        else:
            assert at not in found
