"""Expressions: the meaning and the type of a text, and the messages for mistakes."""

import pytest

from dbtools import errors
from dbtools.expressions.parser import Expressions
from dbtools.expressions.terms import Bucketed, Calculation, Literal, Operand
from dbtools.schema.catalog import Catalog, Column, Table
from dbtools.schema.paths import Names, Paths
from dbtools.values.types import ColumnType, Family, Mask


def column(name: str, family: Family, **more: object) -> Column:
    return Column(name=name, type=ColumnType(family=family, name=str(family), **more))  # type: ignore[arg-type]


ORDERS = Table(
    name="orders",
    columns=(
        column("id", Family.INTEGER),
        column("quantity", Family.INTEGER),
        column("unit_price", Family.DECIMAL),
        column("unit-price", Family.DECIMAL),
        column("First Name", Family.TEXT),
        column("discount", Family.NUMBER),
        column("ordered_on", Family.DATE),
        column("shipped_at", Family.TIMESTAMPTZ),
        column("stamp", Family.TEXT, dated=True, lenient=True),
        column("note", Family.TEXT),
        column("paid", Family.BOOLEAN),
        column("raw", Family.BYTES),
        column("secret", Family.DECIMAL, mask=Mask.REDACT),
    ),
)


def expressions() -> Expressions:
    return Expressions(names=Names(table=ORDERS, paths=Paths(Catalog(tables=(ORDERS,)))))


def drawn(term: Operand) -> str:
    """Return *term* as operations in parentheses, each before its operands."""
    match term:
        case Calculation():
            return f"({term.operation} {' '.join(map(drawn, term.operands))})"
        case Bucketed():
            return f"({term.bucket} {drawn(term.place)})"
        case Literal():
            return f"{term.parameter}:{term.type.family}"
        case _:
            return term.name


@pytest.mark.parametrize(
    ("text", "meaning", "family"),
    [
        ("quantity", "quantity", Family.INTEGER),
        ("unit-price", "unit-price", Family.DECIMAL),
        ("First Name", "First Name", Family.TEXT),
        ("quantity * unit_price", "(* quantity unit_price)", Family.DECIMAL),
        ("quantity+id*2", "(+ quantity (* id e0:integer))", Family.INTEGER),
        ("(quantity+id)*2", "(* (+ quantity id) e0:integer)", Family.INTEGER),
        ("id - quantity - 1", "(- (- id quantity) e0:integer)", Family.INTEGER),
        ("id / quantity", "(/ id quantity)", Family.NUMBER),
        ("unit_price / 3", "(/ unit_price e0:integer)", Family.DECIMAL),
        ("quantity * 1.5", "(* quantity e0:decimal)", Family.DECIMAL),
        ("discount * 1.5", "(* discount e0:decimal)", Family.NUMBER),
        ("discount * unit_price", "(* discount unit_price)", Family.DECIMAL),
        ("1 - discount", "(- e0:integer discount)", Family.NUMBER),
        ("-quantity", "(negate quantity)", Family.INTEGER),
        ("- -quantity", "(negate (negate quantity))", Family.INTEGER),
        ("quantity * 2 + id * 2", "(+ (* quantity e0:integer) (* id e0:integer))", Family.INTEGER),
        ('"unit-price" * 2', "(* unit-price e0:integer)", Family.DECIMAL),
        ("orders.quantity * 2", "(* quantity e0:integer)", Family.INTEGER),
        ("abs(id - quantity)", "(abs (- id quantity))", Family.INTEGER),
        ("ROUND(unit_price)", "(round unit_price e0:integer)", Family.DECIMAL),
        ("round(discount, 2)", "(round discount e0:integer)", Family.NUMBER),
        ("coalesce(unit_price, 0)", "(coalesce unit_price e0:integer)", Family.DECIMAL),
        ("coalesce(note, 'it''s')", "(coalesce note e0:text)", Family.TEXT),
        ('length("First Name")', "(length First Name)", Family.INTEGER),
        ("upper(note)", "(upper note)", Family.TEXT),
        ("shipped_at - ordered_on", "(days shipped_at ordered_on)", Family.NUMBER),
        ("ordered_on - '2024-01-01'", "(days ordered_on e1:date)", Family.NUMBER),
        ("ordered_on + 7", "(shift ordered_on e0:integer)", Family.DATE),
        ("7 + ordered_on", "(shift ordered_on e0:integer)", Family.DATE),
        ("ordered_on - quantity", "(shift ordered_on (negate quantity))", Family.DATE),
        ("ordered_on + 0.5", "(shift ordered_on e0:decimal)", Family.TIMESTAMP),
        ("ordered_on + 1 + quantity", "(shift ordered_on (+ e0:integer quantity))", Family.DATE),
        ("shipped_at + 1", "(shift shipped_at e0:integer)", Family.TIMESTAMPTZ),
        ("stamp - '2024-01-01'", "(days stamp e1:timestamp)", Family.NUMBER),
        ("stamp + 1", "(shift stamp e0:integer)", Family.TIMESTAMP),
        ("(ordered_on + 7):month", "(month (shift ordered_on e0:integer))", Family.TEXT),
        ("ordered_on:Year", "(year ordered_on)", Family.TEXT),
    ],
)
def test_expression_has_a_meaning_and_a_type(text: str, meaning: str, family: Family) -> None:
    term = expressions().find(text, "columns[0]")

    assert (drawn(term), term.type.family) == (meaning, family)


def test_expressions_and_literals_are_the_same_however_they_are_written() -> None:
    known = expressions()

    assert known.find(" quantity  * unit_price ", "columns[0]").name == "quantity  * unit_price"
    assert known.find("quantity*2", "columns[0]") == known.find("( Quantity ) * 2", "order_by[0]")
    known.find("round(unit_price * 2, 2) + 2.0", "columns[0]")
    known.find("coalesce(note, '2')", "columns[1]")
    assert known.values == {"e0": 2, "e1": "2.0", "e2": "2"}


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("quantity *", "bad_argument", "position 11: expected a column, number, "),
        ("quantity * * 2", "bad_argument", "or (, found '*'."),
        ("(quantity", "bad_argument", "position 10: expected ) or an operator, found the end"),
        ("quantity 2 *", "bad_argument", "position 10: expected an operator or the end, found '2'"),
        ("quantity % 2 * 1", "bad_argument", "position 10: '%' is not part of an expression"),
        ("quantity * 'a", "bad_argument", "position 12: ''' is not part of an expression"),
        ("sqrt(quantity)", "bad_argument", "position 1: 'sqrt' is not a function"),
        ("abs(quantity, 1)", "bad_argument", "position 1: abs takes 1 argument."),
        ("abs(note)", "bad_argument", "position 1: abs takes a number, not note (text)"),
        ("round(unit_price, 16)", "bad_argument", "round takes 0 to 15 decimal places"),
        ("round(unit_price, id)", "bad_argument", "round takes 0 to 15 decimal places"),
        ("length(quantity)", "bad_argument", "length takes a text, not quantity (integer)"),
        ("coalesce(note, 0)", "bad_argument", "coalesce takes values of one kind, not note (text), 0"),
        ("coalesce(note)", "bad_argument", "position 1: coalesce takes at least 2 arguments"),
        ("discount * 1e400", "bad_argument", "position 12: 1e400 is too large or too close to 0"),
        ("discount * 1e-400", "bad_argument", "position 12: 1e-400 is too large or too close to 0"),
        ("coalesce(raw, raw)", "bad_argument", "coalesce does not take raw (bytes)"),
        ("note * 2", "bad_argument", "position 6: note (text) * 2 (integer) cannot be computed"),
        ("-note", "bad_argument", "position 1: - takes a number, not note (text)"),
        ("paid + 1", "bad_argument", "paid (boolean) + 1 (integer) cannot be computed"),
        ("1 - ordered_on", "bad_argument", "1 (integer) - ordered_on (date) cannot be computed"),
        ("ordered_on + shipped_at", "bad_argument", "cannot be computed"),
        ("ordered_on - '2024-02-31'", "bad_argument", "'2024-02-31' is not a date"),
        ("quantity:month", "bad_argument", "quantity (integer) has no bucket 'month'"),
        ("(ordered_on + 1):hour", "bad_argument", "has no bucket 'hour'"),
        ("quantity * prise", "unknown_column", "orders has no column 'prise'"),
        ("quantity * secret", "bad_operator", "secret is masked"),
        ("99999999999999999999 + id", "bad_argument", "position 1: '99999999999999999999' is not an integer"),
        (" + ".join(["id"] * 65), "bad_argument", "more than 64 columns, numbers and operators"),
        ("(" * 70 + "id" + ")" * 70, "bad_argument", "more than 8 nested parentheses"),
    ],
)
def test_what_is_no_expression_is_refused_with_its_position(text: str, code: str, message: str) -> None:
    with pytest.raises(errors.CallError) as caught:
        expressions().find(text, "columns[0]")

    assert caught.value.code == code
    assert message in caught.value.message


def test_call_has_a_bounded_number_of_expressions() -> None:
    known, sixty = expressions(), " + ".join(["id"] * 60)
    for at in range(8):
        known.find(sixty, f"columns[{at}]")

    with pytest.raises(errors.BadArgument) as caught:
        known.find(sixty, "columns[8]")

    assert "more than 500 columns, numbers and operators in one call" in caught.value.message
