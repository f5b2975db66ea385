"""Expressions such as `quantity * unit_price * (1 - discount)`: text in, a typed term out.

    sum      = product { ("+" | "-") product }
    product  = factor { ("*" | "/") factor }
    factor   = "-" factor | primary [":" bucket]
    primary  = number | 'text' | "(" sum ")" | function "(" sum { "," sum } ")" | path

A path is a column, or a column at the end of foreign keys. Which operands an operation takes, and the type of
its result, is decided by `operations`; what it computes is decided by the databases, which agree.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dbtools import errors, habits
from dbtools.errors import listing, nearest
from dbtools.operations import DECIMAL, INTEGER, RULES, Literals, applied, combined, described, negated
from dbtools.paths import Names, Referrer, folded, spelled
from dbtools.terms import (
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
)
from dbtools.types import ColumnType, quoted

MOST_NODES = 64
DEEPEST = 12  #: parentheses: databases have parsers with small stacks
MOST_IN_CALL = 500  #: nodes: more take too long to compile
MOST_CHARACTERS = 4_000
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
COMPUTED = re.compile(r"[-+*/()']|^\s*[\d.]")  #: what makes a text an expression, if it is no column
MEANINGS = "Numbers take + - * /; date - date is days; date + days is a date."
SIGNS = {"+": Operation.ADD, "-": Operation.SUBTRACT, "*": Operation.MULTIPLY, "/": Operation.DIVIDE}
MEASURES = ("count", "sum", "avg", "min", "max")  #: of related rows
FUNCTIONS = {str(each): each for each in RULES}


@dataclass(kw_only=True)
class Expressions:
    """The terms of one call: what its texts mean, and the values of the literals in them."""

    names: Names
    literals: Literals = field(default_factory=Literals)
    aliases: dict[str, Operand] = field(default_factory=dict)  #: terms by the names that callers give them

    @property
    def values(self) -> Mapping[str, object]:
        """The values of the literals, by the names of their parameters."""
        return self.literals.values

    def find(self, text: str, argument: str) -> Operand:
        """Return the term that *text* means, a column or path before an expression.

        Raises UnknownColumn, or BadArgument with the position where *text* is no expression.
        """
        try:
            return self._found(text, argument)
        except errors.CallError as exc:
            exc.hint = habits.hint(text) or exc.hint
            raise

    def _found(self, text: str, argument: str) -> Operand:
        if text in self.aliases:
            return self.aliases[text]
        try:
            return self.names.find(text, argument)
        except errors.UnknownColumn:
            bucketed = self._bucketed(text, argument)
            if bucketed is not None:
                return bucketed
            if not COMPUTED.search(text):
                raise
        return _Parser(self, text, argument).parse()

    def _bucketed(self, text: str, argument: str) -> Bucketed | None:
        """Return the part of a date that *text* such as "ordered_on:month" names, if it names one."""
        name, colon, bucket = text.rpartition(":")
        try:
            place = self.names.find(name, argument) if colon else None
        except errors.UnknownColumn:
            if bucket.strip().lower() in tuple(Bucket) and not COMPUTED.search(text):
                raise
            return None
        return None if place is None else bucketed(place, bucket.strip(), argument)

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
                hint=f"{nearest(relation, known)}Relations: {listing(known) or 'none'}. {habits.MEASURES}",
            )
        names = Names(table=referrer.table, paths=paths, aggregating=self.names.aggregating)
        return referrer, Expressions(names=names, literals=self.literals)


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
        self._depth = 0

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
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._refusal(self._token.at, f"more than {DEEPEST} parentheses within one another")
        left = self._product()
        while sign := self._take("+", "-"):
            left = self._operation(sign, left, self._product())
        self._depth -= 1
        return left

    def _product(self) -> Operand:
        left = self._factor()
        while sign := self._take("*", "/"):
            left = self._operation(sign, left, self._factor())
        return left

    def _factor(self) -> Operand:
        self._count()
        if sign := self._take("-"):
            try:
                return negated(self._factor())
            except ValueError as exc:
                raise self._refusal(sign.at, str(exc)) from exc
        term = self._primary()
        while self._take(":"):
            term = self._bucket(term)
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
            return self._scope.literals.bound(text, type, token.text)
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
            message = f"{self._argument}: {found.name} is masked and can only be shown."
            raise errors.BadOperator(message)
        return found

    def _bucket(self, term: Operand) -> Bucketed:
        token = self._token
        found = bucketed(term, token.text, self._argument)
        self._next += 1
        return found

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
        try:
            return applied(operation, operands, self._scope.literals)
        except ValueError as exc:
            raise self._refusal(name.at, str(exc)) from exc

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
        self._scope.names = replace(self._scope.names, aggregating=True)
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
        what = referrer.name if place is None else described(place)
        self._check(function in offered, name, f"there is no {function} of {what}")
        text = f"{function}({referrer.name if place is None else place.name})"
        return Related(referrer=referrer, measure=Measure(function=function, place=place), name=text)

    def _close(self) -> None:
        if not self._take(")"):
            raise self._expected(") or an operator")

    def _count(self) -> None:
        self._nodes += 1
        self._scope.literals.nodes += 1
        if self._nodes > MOST_NODES:
            raise self._refusal(self._token.at, f"more than {MOST_NODES} columns, numbers and operators")
        if self._scope.literals.nodes > MOST_IN_CALL:
            raise self._refusal(self._token.at, f"more than {MOST_IN_CALL} of them in one call")

    def _operation(self, sign: _Token, left: Operand, right: Operand) -> Operand:
        try:
            return combined(SIGNS[sign.text], left, right, self._scope.literals)
        except ValueError as exc:
            raise self._refusal(sign.at, str(exc), hint=MEANINGS) from exc

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


def bucketed(term: Operand, name: str, argument: str) -> Bucketed:
    """Return the part of the date *term* that *name* names, or raise BadArgument."""
    offered = buckets_of(term.type)
    if name.lower() not in offered:
        why = f"Buckets: {listing(offered)}." if offered else "Buckets are for dates and timestamps."
        raise errors.BadArgument(
            f"{argument}: {term.name} ({term.type.name}) has no bucket {quoted(name)}.",
            hint=f"{nearest(name, offered)}{why}",
        )
    return Bucketed(place=term, bucket=Bucket(name.lower()))


def _unquoted(token: _Token) -> str:
    return token.text[1:-1].replace('""', '"') if token.kind == "quoted" else token.text
