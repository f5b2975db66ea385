"""Expressions such as `quantity * unit_price * (1 - discount)`: text in, a typed term out.

    sum      = product { ("+" | "-") product }
    product  = factor { ("*" | "/") factor }
    factor   = "-" factor | primary [":" bucket]
    primary  = number | 'text' | "(" sum ")" | function "(" sum { "," sum } ")" | path

A path is a column, or a column at the end of foreign keys. Which operands an operation takes, and the type of
its result, is decided here; what it computes is decided by the databases, which agree.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dbtools import errors
from dbtools.errors import listing, nearest
from dbtools.paths import Names, Referrer, folded, spelled
from dbtools.terms import (
    NUMBER,
    TEXT,
    Bucket,
    Bucketed,
    Calculation,
    Function,
    Literal,
    Measure,
    Operand,
    Operation,
    Related,
    buckets_of,
    functions_of,
    is_moment,
    is_number,
)
from dbtools.types import ColumnType, Family, quoted

MOST_NODES = 64
MOST_CHARACTERS = 4_000
MOST_PLACES = 15  #: decimal places of a rounded number
TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<quoted>"(?:[^"]|"")*")
      | (?P<text>'(?:[^']|'')*')
      | (?P<sign>[-+*/(),.:])
    )""",
    re.VERBOSE | re.ASCII,
)
ALIAS = re.compile(r"(?P<term>.*\S)\s+as\s+(?P<name>[a-z_]\w*)\s*", re.ASCII | re.I | re.DOTALL)
COMPUTED = re.compile(r"[-+*/()':]|^\s*[\d.]")  #: what makes a text an expression, if it is no column
INTEGER = ColumnType(family=Family.INTEGER, name="integer", minimum=-(2**63), maximum=2**63 - 1)
DECIMAL = ColumnType(family=Family.DECIMAL, name="decimal")
NUMBERS: Mapping[Family, ColumnType] = {
    Family.INTEGER: INTEGER,
    Family.DECIMAL: DECIMAL,
    Family.NUMBER: NUMBER,
    Family.ANY: NUMBER,
}
SIGNS = {"+": Operation.ADD, "-": Operation.SUBTRACT, "*": Operation.MULTIPLY, "/": Operation.DIVIDE}
#: Families whose values may stand beside each other in coalesce.
JOINABLE = (
    Family.BOOLEAN,
    Family.TEXT,
    Family.DATE,
    Family.TIME,
    Family.TIMESTAMP,
    Family.TIMESTAMPTZ,
    Family.UUID,
)
MEASURES = ("count", "sum", "avg", "min", "max")  #: of related rows
FUNCTIONS = {
    each.value: each
    for each in (
        *(Operation.COALESCE, Operation.ABS, Operation.ROUND),
        *(Operation.LENGTH, Operation.LOWER, Operation.UPPER),
    )
}


@dataclass(kw_only=True)
class Expressions:
    """The terms of one call: what its texts mean, and the values of the literals in them."""

    names: Names
    values: dict[str, object] = field(default_factory=dict)  #: by the names of parameters
    aliases: dict[str, Operand] = field(default_factory=dict)  #: terms by the names that callers give them
    _literals: dict[tuple[Family, str], str] = field(default_factory=dict)

    def find(self, text: str, argument: str) -> Operand:
        """Return the term that *text* means, a column or path before an expression.

        Raises UnknownColumn, or BadArgument with the position where *text* is no expression.
        """
        if text in self.aliases:
            return self.aliases[text]
        try:
            return self.names.find(text, argument)
        except errors.UnknownColumn:
            if not COMPUTED.search(text):
                raise
        return _Parser(self, text, argument).parse()

    def named(self, text: str, argument: str) -> tuple[str, Operand]:
        """Return the name in results of *text* such as "quantity * price as total", and the term it means."""
        match = ALIAS.fullmatch(text)
        try:
            term = self.find(text, argument)
        except errors.CallError:
            if match is None:
                raise
        else:
            return text.strip(), term
        name = match["name"]
        if name in self.names.table.column_by_name or name in self.aliases:
            raise errors.BadArgument(f"{argument}: {quoted(name)} is the name of another column.")
        self.aliases[name] = self.find(match["term"], argument)
        return name, self.aliases[name]

    def referring(self, relation: str, argument: str) -> "tuple[Referrer, Expressions]":
        """Return the referring rows that *relation* names, and the terms of their table."""
        table, paths = self.names.table, self.names.paths
        known = paths.referrers(table)
        referrer = folded(relation, known)
        if referrer is None:
            raise errors.UnknownColumn(
                f"{argument}: no rows {quoted(relation)} refer to {table.name}.",
                hint=f"{nearest(relation, known)}Relations: {listing(known) or 'none'}.",
            )
        names = Names(table=referrer.table, paths=paths, aggregating=self.names.aggregating)
        return referrer, Expressions(names=names, values=self.values, _literals=self._literals)

    def literal(self, text: str, type: ColumnType, name: str) -> Literal:
        """Return the literal of *type* that *text* is; equal ones share a parameter.

        PostgreSQL groups by a parameter, and not by another one of the same value.
        """
        key = type.family, text
        parameter = self._literals.setdefault(key, f"e{len(self._literals)}")
        self.values[parameter] = type.read(text)
        return Literal(parameter=parameter, type=type, name=name)


class _Token(NamedTuple):
    kind: str  #: a group of TOKEN, or "end"
    text: str
    at: int


class _Parser:
    """Reads one expression, from left to right."""

    def __init__(self, scope: Expressions, text: str, argument: str) -> None:
        self._scope = self._outer = scope
        self._relation: str | None = None  #: in whose rows names are looked for
        self._text = text
        self._argument = argument
        self._tokens = self._split()
        self._next = 0
        self._nodes = 0

    def parse(self) -> Operand:
        """Return the term of the whole text."""
        if len(self._text) > MOST_CHARACTERS:
            message = f"{self._argument}: an expression has at most {MOST_CHARACTERS:,} characters."
            raise errors.BadArgument(message)
        term = self._sum()
        if self._token.kind != "end":
            raise self._expected("an operator or the end")
        return replace(term, name=self._text.strip()) if isinstance(term, Calculation | Related) else term

    def _split(self) -> "list[_Token]":
        tokens: list[_Token] = []
        at, end = 0, len(self._text.rstrip())
        while at < end:
            match = TOKEN.match(self._text, at)
            if match is None:
                at += len(self._text[at:]) - len(self._text[at:].lstrip())
                raise self._refusal(at, f"{quoted(self._text[at])} is not part of an expression")
            kind = str(match.lastgroup)
            tokens.append(_Token(kind, match[kind], match.start(kind)))
            at = match.end()
        return [*tokens, _Token("end", "", end)]

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *signs: str) -> _Token | None:
        """Return the next token, and step behind it, if it is one of *signs*."""
        token = self._token
        if token.kind != "sign" or token.text not in signs:
            return None
        self._next += 1
        return token

    def _sum(self) -> Operand:
        left = self._product()
        while sign := self._take("+", "-"):
            left = self._operation(sign, left, self._product())
        return left

    def _product(self) -> Operand:
        left = self._factor()
        while sign := self._take("*", "/"):
            left = self._operation(sign, left, self._factor())
        return left

    def _factor(self) -> Operand:
        self._count()
        if sign := self._take("-"):
            operand = self._factor()
            self._check(is_number(operand.type), sign, f"{operand.name} is no number")
            return _calculation(Operation.NEGATE, NUMBERS[operand.type.family], operand)
        term = self._primary()
        while colon := self._take(":"):
            term = self._bucket(term, colon)
        return term

    def _primary(self) -> Operand:
        token = self._token
        self._next += 1
        match token.kind:
            case "number":
                type = INTEGER if token.text.isdigit() else DECIMAL
                return self._literal(token, token.text, type)
            case "text":
                return self._literal(token, token.text[1:-1].replace("''", "'"), TEXT)
            case "name" if self._tokens[self._next].text == "(":
                return self._function(token)
            case "name" | "quoted":
                return self._path(token)
            case "sign" if token.text == "(":
                term = self._sum()
                self._close()
                return term
        self._next -= 1
        raise self._expected("a column, a number, a 'text', a function or (")

    def _literal(self, token: _Token, text: str, type: ColumnType) -> Literal:
        try:
            return self._scope.literal(text, type, token.text)
        except ValueError as exc:
            raise self._refusal(token.at, str(exc)) from exc

    def _path(self, first: _Token) -> Operand:
        parts = [_unquoted(first)]
        while self._take("."):
            if self._token.kind not in ("name", "quoted"):
                raise self._expected("a column")
            parts.append(_unquoted(self._token))
            self._next += 1
        if self._relation is not None:
            inside = parts[0].lower() == self._relation and len(parts) > 1
            self._check(inside, first, f"names here begin with {self._relation}, as in {self._relation}.id")
            parts = parts[1:]
        found = self._scope.names.find(".".join(map(spelled, parts)), self._argument)
        if found.type.mask is not None:
            message = f"{self._argument}: {found.name} is masked: it can be shown, and nothing else."
            raise errors.BadOperator(message)
        return found

    def _bucket(self, term: Operand, colon: _Token) -> Bucketed:
        token, offered = self._token, buckets_of(term.type)
        if token.text.lower() not in offered:
            why = f"It takes: {listing(offered)}." if offered else "Buckets are for dates and timestamps."
            raise self._refusal(
                colon.at,
                f"{term.name} ({term.type.name}) has no bucket {quoted(token.text)}",
                hint=f"{nearest(token.text, offered)}{why}",
            )
        self._next += 1
        return Bucketed(place=term, bucket=Bucket(token.text.lower()))

    def _function(self, name: _Token) -> Operand:
        if name.text.lower() in MEASURES:
            return self._related(name)
        operation = FUNCTIONS.get(name.text.lower())
        if operation is None:
            known = [*FUNCTIONS, *MEASURES]
            hint = f"{nearest(name.text, known)}Functions: {listing(known)}."
            raise self._refusal(name.at, f"{quoted(name.text)} is not a function", hint=hint)
        self._take("(")
        operands = [self._sum()]
        while self._take(","):
            operands.append(self._sum())
        self._close()
        return RULES[operation](self, name, operation, operands)

    def _related(self, name: _Token) -> Related:
        """Return a measure of the rows that refer to a row: its argument names the relation first."""
        self._take("(")
        relation = self._token
        self._check(self._scope is self._outer, relation, "a measure of related rows stands in no other one")
        if relation.kind not in ("name", "quoted"):
            raise self._expected("a relation")
        referrer, self._scope = self._outer.referring(_unquoted(relation), self._argument)
        if not referrer.table.aggregated:
            message = f"{self._argument}: rows of {referrer.name} may not be aggregated."
            raise errors.Denied(message, hint="some and none in where ask for such rows.")
        self._relation = referrer.name
        place: Operand | None = None
        if self._tokens[self._next + 1].text == ")":
            self._next += 1
        else:
            place = self._sum()
        self._scope, self._relation = self._outer, None
        self._close()
        function = Function(name.text.lower())
        offered = [Function.COUNT] if place is None else list(functions_of(place.type))
        what = referrer.name if place is None else _described(place)
        self._check(function in offered, name, f"there is no {function} of {what}")
        text = f"{function}({referrer.name if place is None else place.name})"
        return Related(referrer=referrer, measure=Measure(function=function, place=place), name=text)

    def _close(self) -> None:
        if not self._take(")"):
            raise self._expected(") or an operator")

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise self._refusal(self._token.at, f"more than {MOST_NODES} columns, numbers and operators")

    def _operation(self, sign: _Token, left: Operand, right: Operand) -> Operand:
        """Return what *sign* makes of two operands: arithmetic, days between moments, or a moment moved."""
        operation = SIGNS[sign.text]
        left, right = self._as_moment(left, right), self._as_moment(right, left)
        if is_number(left.type) and is_number(right.type):
            return _calculation(operation, _result(operation, left, right), left, right)
        if operation is Operation.SUBTRACT and is_moment(left.type) and is_moment(right.type):
            return _calculation(Operation.DAYS, NUMBER, left, right)
        if operation is Operation.ADD and is_number(left.type):
            left, right = right, left
        if (
            operation in (Operation.ADD, Operation.SUBTRACT)
            and is_moment(left.type)
            and is_number(right.type)
        ):
            return _moved(left, right, backwards=operation is Operation.SUBTRACT)
        raise self._refusal(
            sign.at,
            f"{_described(left)} {sign.text} {_described(right)} has no meaning",
            hint="Numbers take + - * /; date - date is days; date + days is a date.",
        )

    def _as_moment(self, term: Operand, beside: Operand) -> Operand:
        """Return *term*, or the moment that it is where it is a text in quotes beside a moment."""
        if not (isinstance(term, Literal) and term.type is TEXT and is_moment(beside.type)):
            return term
        type = DATED if beside.type.dated else beside.type
        if isinstance(beside, Literal):
            return term
        value = self._scope.values[term.parameter]
        try:
            return self._scope.literal(str(value), type, term.name)
        except ValueError as exc:
            raise errors.BadArgument(f"{self._argument}: {exc}.") from exc

    def number(self, name: _Token, operation: Operation, operands: Sequence[Operand]) -> Operand:
        """Return abs or round of a number."""
        takes = 2 if operation is Operation.ROUND else 1
        self._check(len(operands) <= takes, name, f"{operation} takes {takes} argument{'s'[takes == 1 :]}")
        first, *places = operands
        self._check(is_number(first.type), name, f"{operation} takes a number, not {_described(first)}")
        for each in places:
            known = self._scope.values[each.parameter] if isinstance(each, Literal) else None
            whole = isinstance(known, int) and 0 <= known <= MOST_PLACES
            self._check(whole, name, f"round takes 0 to {MOST_PLACES} decimal places, as a number")
        if operation is Operation.ROUND and not places:
            operands = (first, self._scope.literal("0", INTEGER, "0"))
        return _calculation(operation, NUMBERS[first.type.family], *operands)

    def text(self, name: _Token, operation: Operation, operands: Sequence[Operand]) -> Operand:
        """Return the length of a text, or the text in other letters."""
        self._check(len(operands) == 1, name, f"{operation} takes 1 argument")
        of = operands[0].type.family
        fits = of in (Family.TEXT, Family.ENUM, Family.ANY)
        self._check(fits, name, f"{operation} takes a text, not {_described(operands[0])}")
        return _calculation(operation, INTEGER if operation is Operation.LENGTH else TEXT, *operands)

    def first(self, name: _Token, operation: Operation, operands: Sequence[Operand]) -> Operand:
        """Return the first of several values of one family."""
        leading = next((each for each in operands if not isinstance(each, Literal)), operands[0])
        dated = leading.type.family is not Family.TEXT
        fitted = [self._as_moment(each, leading) for each in operands] if dated else operands
        if all(is_number(each.type) for each in fitted):
            type = _widest(fitted)
        else:
            families = {
                Family.TEXT if each.type.family is Family.ENUM else each.type.family for each in fitted
            }
            several = ", ".join(map(_described, fitted))
            self._check(len(families) == 1, name, f"coalesce takes values of one kind, not {several}")
            (family,) = families
            self._check(family in JOINABLE, name, f"coalesce does not take {_described(leading)}")
            type = replace(leading.type, labels=(), family=family, large=any(e.type.large for e in fitted))
        return _calculation(operation, type, *fitted)

    def _check(self, holds: bool, token: _Token, what: str) -> None:
        if not holds:
            raise self._refusal(token.at, what)

    def _expected(self, what: str) -> errors.BadArgument:
        token = self._token
        found = "it ends" if token.kind == "end" else f"{quoted(token.text)} stands"
        return self._refusal(token.at, f"{found} where {what} is expected")

    def _refusal(self, at: int, what: str, hint: str = "") -> errors.BadArgument:
        message = f"{self._argument}: {quoted(self._text)}, position {at + 1}: {what}."
        return errors.BadArgument(
            message, hint=hint or "A name of other characters is written in double quotes."
        )


#: A moment in a text, where the database has no type for dates.
DATED = ColumnType(family=Family.TIMESTAMP, name="timestamp", lenient=True)
Rule = Callable[[_Parser, _Token, Operation, Sequence[Operand]], Operand]
RULES: Mapping[Operation, Rule] = {
    Operation.ABS: _Parser.number,
    Operation.ROUND: _Parser.number,
    Operation.COALESCE: _Parser.first,
    Operation.LENGTH: _Parser.text,
    Operation.LOWER: _Parser.text,
    Operation.UPPER: _Parser.text,
}


def _unquoted(token: _Token) -> str:
    return token.text[1:-1].replace('""', '"') if token.kind == "quoted" else token.text


def _described(term: Operand) -> str:
    return f"{term.name} ({term.type.name})"


def _calculation(operation: Operation, type: ColumnType, *operands: Operand) -> Calculation:
    name = f"{operation}({', '.join(each.name for each in operands)})"
    return Calculation(operation=operation, operands=operands, type=type, name=name)


def _result(operation: Operation, left: Operand, right: Operand) -> ColumnType:
    """Return the type of arithmetic: division never truncates."""
    type = _widest((left, right))
    return NUMBER if operation is Operation.DIVIDE and type is INTEGER else type


def _widest(terms: Sequence[Operand]) -> ColumnType:
    """Return the type of numbers that holds all *terms*; a literal follows what stands beside it."""
    families = {each.type.family for each in terms}
    stored = {each.type.family for each in terms if not isinstance(each, Literal)}
    if Family.DECIMAL in stored or (Family.DECIMAL in families and not stored & {Family.NUMBER, Family.ANY}):
        return DECIMAL
    return INTEGER if families == {Family.INTEGER} else NUMBER


def _moved(moment: Operand, days: Operand, *, backwards: bool) -> Calculation:
    """Return *moment* moved by *days*: a date by whole days stays a date.

    A moment that has been moved before is moved once, by all the days: SQL would name it several times.
    """
    if backwards:
        days = _calculation(Operation.NEGATE, NUMBERS[days.type.family], days)
    if isinstance(moment, Calculation) and moment.operation is Operation.SHIFT:
        moment, before = moment.operands
        days = _calculation(Operation.ADD, _widest((before, days)), before, days)
    type = moment.type
    if type.family is Family.DATE and days.type.family is not Family.INTEGER:
        type = replace(DATED, lenient=type.lenient)
    elif type.dated:
        type = DATED
    return _calculation(Operation.SHIFT, replace(type, cast="", infinite=False), moment, days)
