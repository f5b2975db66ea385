"""Orders: a column and a direction for each step, and which are rejected."""

from dataclasses import replace

import pytest

from dbtools import errors
from dbtools.statements.select import Direction, Order
from dbtools.tools.binding import bind_order
from dbtools.values.types import Family
from tests.unit.shop import ANYTHING, PRODUCT, TYPES, column, names, table, terms

ODD = table(
    column("total"),
    column("total desc"),
    column("first name"),
    column("padded "),
    column("desc"),
    column("Asc"),
    column("größe, cm"),
    name="odd",
    key=(),
)


@pytest.mark.parametrize(
    ("step", "name", "direction"),
    [
        pytest.param("total", "total", Direction.ASC, id="bare"),
        pytest.param("total asc", "total", Direction.ASC, id="asc"),
        pytest.param("first name desc", "first name", Direction.DESC, id="space in the name"),
        pytest.param("first name", "first name", Direction.ASC, id="space in the name, bare"),
        pytest.param("total  DESC ", "total", Direction.DESC, id="spaces and case"),
        pytest.param(" total", "total", Direction.ASC, id="space in front"),
        pytest.param("total desc", "total desc", Direction.ASC, id="name that ends in desc"),
        pytest.param("total desc desc", "total desc", Direction.DESC, id="name that ends in desc, desc"),
        pytest.param("desc", "desc", Direction.ASC, id="named desc"),
        pytest.param("desc desc", "desc", Direction.DESC, id="named desc, desc"),
        pytest.param("Asc asc", "Asc", Direction.ASC, id="named Asc"),
        pytest.param("padded ", "padded ", Direction.ASC, id="space at the end"),
        pytest.param("padded  desc", "padded ", Direction.DESC, id="space at the end, desc"),
        pytest.param("größe, cm desc", "größe, cm", Direction.DESC, id="comma"),
    ],
)
def test_step_of_an_order_is_a_column_and_a_direction(step: str, name: str, direction: Direction) -> None:
    assert bind_order(names(ODD), [step]) == (Order(term=ODD.column_by_name[name], direction=direction),)


@pytest.mark.parametrize(
    "step", ["", " ", "nothing", "total down", "total,desc", "total nulls last", " desc", "-total"]
)
def test_step_that_names_no_column_is_refused(step: str) -> None:
    of = replace(ODD, columns=ODD.columns[:1])

    with pytest.raises(errors.UnknownColumn) as raised:
        bind_order(names(of), ["total", step])
    assert "order_by[1]" in raised.value.message


@pytest.mark.parametrize(
    ("step", "meant"),
    [
        ("total dsc", "total desc"),
        ("total  Des", "total desc"),
        ("total ascend", "total asc"),
        ("first name descc", "first name desc"),
        ("total down", ""),
        ("totl dsc", ""),
        ("dsc", ""),
    ],
)
def test_direction_that_is_spelled_wrong_is_corrected_after_a_known_name(step: str, meant: str) -> None:
    with pytest.raises(errors.UnknownColumn) as raised:
        bind_order(names(ODD), [step])

    assert raised.value.hint.startswith(f'Write "{meant}".') == bool(meant)


def test_column_that_is_named_twice_counts_once() -> None:
    assert bind_order(names(ODD), ["total", "first name", "first name desc"]) == (
        Order(term=ODD.column_by_name["total"]),
        Order(term=ODD.column_by_name["first name"]),
    )


@pytest.mark.parametrize("family", Family)
def test_column_without_an_order_cannot_order(family: Family) -> None:
    unordered = {Family.JSON, Family.OBJECT, Family.ARRAY, Family.BYTES}
    step = Order(term=ANYTHING.column_by_name[family])

    if family in unordered:
        with pytest.raises(errors.BadArgument):
            bind_order(names(ANYTHING), [str(family)])
    else:
        assert bind_order(names(ANYTHING), [str(family)]) == (step,)


def test_type_that_is_not_ordered_cannot_order() -> None:
    point = column("at", Family.OTHER, type=replace(TYPES[Family.OTHER], ordered=False))

    with pytest.raises(errors.BadArgument):
        bind_order(names(table(point, key=())), ["at"])


def test_order_by_a_constant_is_refused() -> None:
    with pytest.raises(errors.BadArgument):
        bind_order(terms(PRODUCT), ["2 desc"])
