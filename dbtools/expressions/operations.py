"""Apply operations to terms. Operands in; a typed term out, or a ValueError with the reason."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from dbtools.expressions.terms import (
    NUMBER,
    TEXT,
    Calculation,
    Literal,
    Operand,
    Operation,
    is_moment,
    is_number,
)
from dbtools.values.types import ColumnType, Family

MOST_PLACES = 15  #: decimal places of a rounded number
INTEGER = ColumnType(family=Family.INTEGER, name="integer", minimum=-(2**63), maximum=2**63 - 1)
DECIMAL = ColumnType(family=Family.DECIMAL, name="decimal")
#: The type of a date in a text, if the database has no types for dates.
DATED = ColumnType(family=Family.TIMESTAMP, name="timestamp", lenient=True)
NUMBER_TYPES: Mapping[Family, ColumnType] = {
    Family.INTEGER: INTEGER,
    Family.DECIMAL: DECIMAL,
    Family.NUMBER: NUMBER,
    Family.ANY: NUMBER,
}
TEXT_FAMILIES = (Family.TEXT, Family.ENUM, Family.ANY)
#: The families that coalesce takes, besides numbers.
JOINABLE = (
    *(Family.BOOLEAN, Family.TEXT, Family.UUID),
    *(Family.DATE, Family.TIME, Family.TIMESTAMP, Family.TIMESTAMPTZ),
)


@dataclass(kw_only=True)
class Literals:
    """The values of the literals of one call."""

    values: dict[str, object] = field(default_factory=dict)  #: by the names of parameters
    nodes: int = 0  #: columns, numbers and operators in all expressions of the call
    _parameters: dict[tuple[Family, str], str] = field(default_factory=dict)

    def literal_of(self, text: str, type: ColumnType, name: str) -> Literal:
        """Return *text* as a literal of *type*.

        Equal literals share a parameter, since a database may treat two parameters as different groups.
        """
        size = float(text) if type == DECIMAL else 1.0
        if math.isinf(size) or (size == 0 and Decimal(text) != 0):
            raise ValueError(f"{text} is too large or too close to 0")
        key = type.family, text
        parameter = self._parameters.get(key, f"e{len(self._parameters)}")
        self.values[parameter] = type.read(text)
        self._parameters[key] = parameter
        return Literal(parameter=parameter, type=type, name=name)

    def fit_operand(self, term: Operand, beside: Operand) -> Operand:
        """Return *term*; read it as a date if it is a text in quotes and *beside* is a date."""
        quoted = isinstance(term, Literal) and term.type == TEXT
        if not quoted or isinstance(beside, Literal) or not is_moment(beside.type):
            return term
        assert isinstance(term, Literal)
        type = DATED if beside.type.dated else beside.type
        return self.literal_of(str(self.values[term.parameter]), type, term.name)


def combine(operation: Operation, left: Operand, right: Operand, literals: Literals) -> Calculation:
    """Return arithmetic with two operands, the days between two dates, or a date moved by days."""
    left, right = literals.fit_operand(left, right), literals.fit_operand(right, left)
    if is_number(left.type) and is_number(right.type):
        type = _widest_type((left, right))
        # Division never truncates.
        type = NUMBER if operation is Operation.DIVIDE and type == INTEGER else type
        return calculation(operation, type, left, right)
    if operation is Operation.SUBTRACT and is_moment(left.type) and is_moment(right.type):
        return calculation(Operation.DAYS, NUMBER, left, right)
    moves = operation in (Operation.ADD, Operation.SUBTRACT)
    if operation is Operation.ADD and is_number(left.type):
        left, right = right, left
    if not (moves and is_moment(left.type) and is_number(right.type)):
        raise ValueError(f"{name_and_type(left)} {operation} {name_and_type(right)} cannot be computed")
    if operation is Operation.SUBTRACT:
        right = calculation(Operation.NEGATE, NUMBER_TYPES[right.type.family], right)
    return _moved_moment(left, right)


def negate(operand: Operand) -> Calculation:
    """Return the negative of a number."""
    if not is_number(operand.type):
        raise ValueError(f"- takes a number, not {name_and_type(operand)}")
    return calculation(Operation.NEGATE, NUMBER_TYPES[operand.type.family], operand)


def _number(operation: Operation, operands: Sequence[Operand], literals: Literals) -> Calculation:
    takes = 2 if operation is Operation.ROUND else 1
    first, *places = operands
    if len(operands) > takes:
        raise ValueError(f"{operation} takes {takes} argument{'s' * (takes > 1)}")
    if not is_number(first.type):
        raise ValueError(f"{operation} takes a number, not {name_and_type(first)}")
    for each in places:
        known = literals.values[each.parameter] if isinstance(each, Literal) else None
        if not isinstance(known, int) or not 0 <= known <= MOST_PLACES:
            raise ValueError(f"round takes 0 to {MOST_PLACES} decimal places, as a number")
    if operation is Operation.ROUND and not places:
        operands = (first, literals.literal_of("0", INTEGER, "0"))
    return calculation(operation, NUMBER_TYPES[first.type.family], *operands)


def _text(operation: Operation, operands: Sequence[Operand], literals: Literals) -> Calculation:
    if len(operands) > 1:
        raise ValueError(f"{operation} takes 1 argument")
    (text,) = operands
    if text.type.family not in TEXT_FAMILIES:
        raise ValueError(f"{operation} takes a text, not {name_and_type(text)}")
    type = (
        INTEGER
        if operation is Operation.LENGTH
        else replace(TEXT, large=text.type.large, folding=text.type.folding)
    )
    return calculation(operation, type, text)


def _coalesce(operation: Operation, operands: Sequence[Operand], literals: Literals) -> Calculation:
    """Return the operation for the first of *operands* that is not null; all must be of one family."""
    if len(operands) < 2:
        raise ValueError("coalesce takes at least 2 arguments")
    leading = next((each for each in operands if not isinstance(each, Literal)), operands[0])
    if leading.type.family is not Family.TEXT:
        operands = [literals.fit_operand(each, leading) for each in operands]
    if all(is_number(each.type) for each in operands):
        return calculation(operation, _widest_type(operands), *operands)
    families = {Family.TEXT if each.type.family is Family.ENUM else each.type.family for each in operands}
    if len(families) > 1:
        raise ValueError(f"coalesce takes values of one kind, not {', '.join(map(name_and_type, operands))}")
    (family,) = families
    if family not in JOINABLE:
        raise ValueError(f"coalesce does not take {name_and_type(leading)}")
    large = any(each.type.large for each in operands)
    type = replace(TEXT, folding=leading.type.folding) if family is Family.TEXT else leading.type
    return calculation(operation, replace(type, labels=(), large=large), *operands)


OperandRule = Callable[[Operation, Sequence[Operand], Literals], Calculation]
OPERATION_RULES: Mapping[Operation, OperandRule] = {
    Operation.COALESCE: _coalesce,
    Operation.ABS: _number,
    Operation.ROUND: _number,
    Operation.LENGTH: _text,
    Operation.LOWER: _text,
    Operation.UPPER: _text,
}


def name_and_type(term: Operand) -> str:
    """Return the name and the type of *term*, for a message."""
    return f"{term.name} ({term.type.name})"


def calculation(operation: Operation, type: ColumnType, *operands: Operand) -> Calculation:
    """Return *operation* on *operands*, whose result has *type*."""
    name = f"{operation}({', '.join(each.name for each in operands)})"
    return Calculation(operation=operation, operands=operands, type=type, name=name)


def _widest_type(terms: Sequence[Operand]) -> ColumnType:
    """Return the type of numbers that holds all *terms*; a literal adapts to columns."""
    families = {each.type.family for each in terms}
    stored = {each.type.family for each in terms if not isinstance(each, Literal)}
    if Family.DECIMAL in stored or (Family.DECIMAL in families and not stored & {Family.NUMBER, Family.ANY}):
        return DECIMAL
    return INTEGER if families == {Family.INTEGER} else NUMBER


def _moved_moment(moment: Operand, days: Operand) -> Calculation:
    """Return *moment* moved by *days*; a date that is moved by whole days stays a date.

    If *moment* has been moved already, add up the days, since the SQL of a move repeats the moment.
    """
    if isinstance(moment, Calculation) and moment.operation is Operation.SHIFT:
        moment, before = moment.operands
        days = calculation(Operation.ADD, _widest_type((before, days)), before, days)
    type = moment.type
    if type.dated or (type.family is Family.DATE and days.type.family is not Family.INTEGER):
        type = replace(DATED, lenient=type.lenient)
    return calculation(Operation.SHIFT, replace(type, cast="", infinite=False), moment, days)
