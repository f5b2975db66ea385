"""Parse expressions such as `quantity * unit_price * (1 - discount)`. Text in, a typed term out.

    sum      = product { ("+" | "-") product }
    product  = factor { ("*" | "/") factor }
    factor   = "-" factor | primary [":" bucket]
    primary  = number | 'text' | "(" sum ")" | function "(" sum { "," sum } ")" | path

A path is a column, or a column at the end of foreign keys. `operations` decides which operands an operation
takes, and the type of its result. The database computes it; all databases give equal results.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from dbtools import errors
from dbtools.errors import did_you_mean, listing
from dbtools.expressions import hints as habits
from dbtools.expressions.operations import (
    DECIMAL,
    INTEGER,
    OPERATION_RULES,
    Literals,
    combine,
    name_and_type,
    negate,
)
from dbtools.expressions.terms import (
    TEXT,
    Bucket,
    Bucketed,
    Calculation,
    Function,
    Measure,
    Operand,
    Operation,
    Related,
    Term,
    buckets_of,
    functions_of,
)
from dbtools.schema.paths import Names, PathColumn, Relation, find_caseless, path_part, term_part
from dbtools.values.types import quote

MOST_NODES = 64
NAMES = ("name", "quoted")  #: kinds of tokens
NODES = "columns, numbers and operators"
DEEPEST_PARENTHESES = 8  #: nested parentheses, since the stack of a database's parser is small
MOST_IN_CALL = 500  #: nodes; more would take too long to compile
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
EXPRESSION_SIGN = re.compile(r"[-+*/()']|^\s*[\d.]")  #: what only expressions contain
QUOTES = "Write names with other characters in double quotes."
MEANINGS = "Numbers take + - * /; date - date is days; date + days is a date. Text cannot be concatenated."
SIGN_OPERATIONS = {
    "+": Operation.ADD,
    "-": Operation.SUBTRACT,
    "*": Operation.MULTIPLY,
    "/": Operation.DIVIDE,
}
MEASURES = ("count", "sum", "avg", "min", "max")  #: of related rows


@dataclass(kw_only=True)
class Expressions:
    """Resolves the texts of one call to terms, and collects the values of their literals."""

    names: Names
    aggregating: bool = False  #: whether rows are counted or summed, which a grant may forbid
    literals: Literals = field(default_factory=Literals)
    aliases: dict[str, Operand] = field(default_factory=dict)  #: terms by the names that callers give them

    @property
    def values(self) -> Mapping[str, object]:
        """The values of the literals, by the names of their parameters."""
        return self.literals.values

    def get(self, text: str) -> Operand | None:
        """Return the term with the name *text*, a column or a path, if there is one."""
        return self.aliases.get(text) or self.names.get(text)

    def find(self, text: str, argument: str) -> Operand:
        """Return the term that *text* means: a name, a bucket such as "ordered_on:month", or an expression.

        Raise UnknownColumn, or BadArgument with the position at which *text* cannot be parsed.
        """
        try:
            return self._find_term(text, argument)
        except errors.CallError as exc:
            raise exc.with_hint(habits.hint(text) or self._spelling(text) or exc.hint) from exc

    def _spelling(self, text: str) -> str:
        """Return the right form of a name or a bucket in *text* that has another form."""
        name, _, bucket = text.rpartition(".")
        if bucket.lower() in tuple(Bucket) and self.get(name) is not None:
            return f"Write the bucket as {name}:{bucket}."
        names = self.names.table.column_by_name if EXPRESSION_SIGN.search(text) else ()
        odd = (each for each in names if term_part(each) != each)
        found = (
            term_part(each) for each in odd if each.lower() in text.lower() and term_part(each) not in text
        )
        return next((f"In an expression write {each}, in double quotes." for each in found), "")

    def _find_term(self, text: str, argument: str) -> Operand:
        named = self.get(text)
        if named is not None:
            return self._allowed_term(named, argument)
        name, colon, bucket = text.rpartition(":")
        place = self.names.get(name) if colon else None
        if place is not None:
            return bucket_of(self._allowed_term(place, argument), bucket.strip(), argument)
        if EXPRESSION_SIGN.search(text):
            return _Parser(self, text, argument).parse()
        is_bucket = colon and bucket.strip().lower() in tuple(Bucket)
        raise self.names.unknown_path(name if is_bucket else text, argument)

    def operand(self, text: str, argument: str) -> Operand:
        """Return the column or the path that *text* names, as an operand of an expression."""
        place = self._allowed_term(self.names.find(text, argument), argument)
        refuse_masked(place, argument)
        return place

    def _allowed_term(self, term: Operand, argument: str) -> Operand:
        """Return *term*, or raise an error if it would aggregate rows that the role may only list."""
        path = term.path if self.aggregating and isinstance(term, PathColumn) else ()
        if not all(step.target.aggregated for step in path):
            raise errors.Denied(f"{argument}: {term.name} may be listed, but not aggregated.")
        return term

    def named_term(self, text: str, argument: str) -> tuple[str, Operand]:
        """Return the name in results for *text* such as "quantity * price as total", and its term."""
        match = ALIAS.fullmatch(text)
        if match is None or self.get(text) is not None:
            return text.strip(), self.find(text, argument)
        name = match["name"]
        if name in self.names.table.column_by_name or name in self.aliases:
            raise errors.BadArgument(
                f"{argument}: {quote(name)} is the name of another column.", hint="Choose another name."
            )
        self.aliases[name] = self.find(match["term"], argument)
        return name, self.aliases[name]

    def related_terms(
        self, name: str, argument: str, *, aggregating: bool = False
    ) -> "tuple[Relation, Expressions]":
        """Return the relation *name* to rows that refer to a row, and the terms of their table."""
        table, paths = self.names.table, self.names.paths
        known = paths.referrers(table)
        relation = find_caseless(name, known)
        if relation is None:
            meant = f"{habits.MEASURES} " if self.names.get(name) is not None else did_you_mean(name, known)
            raise errors.UnknownColumn(
                f"{argument}: {table.name} has no related rows {quote(name)}.",
                hint=f"{meant}Related rows: {listing(known) or 'none'}.",
            )
        names = Names(table=relation.target, paths=paths, nested=True)
        aggregating = aggregating or self.aggregating
        return relation, Expressions(names=names, aggregating=aggregating, literals=self.literals)


def refuse_masked(term: Term, argument: str) -> None:
    """Raise BadOperator if *term* is masked."""
    if term.type.mask is not None:
        raise errors.BadOperator(f"{argument}: {term.name} is masked and can only be shown.")


class _Token(NamedTuple):
    kind: str  #: a group of TOKEN, or "end"
    text: str
    at: int


class _Parser:
    """A recursive-descent parser of one expression."""

    def __init__(self, terms: Expressions, text: str, argument: str) -> None:
        self._terms = self._outer = terms
        self._relation: str | None = None  #: that names begin with: those of related rows
        self._text = text
        self._argument = argument
        self._tokens = self._split()
        self._next = 0
        self._at = 0  #: the position of the current operation
        self._nodes = 0
        self._depth = -1  #: number of open parentheses

    def parse(self) -> Operand:
        """Return the term of the whole text."""
        try:
            term = self._sum()
        except ValueError as exc:
            raise self._refusal(self._at, str(exc), hint=MEANINGS) from exc
        if self._token.kind != "end":
            raise self._expected_error("an operator or the end")
        return replace(term, name=self._text.strip()) if isinstance(term, Calculation | Related) else term

    def _split(self) -> "list[_Token]":
        tokens: list[_Token] = []
        at, end = 0, len(self._text.rstrip())
        while at < end:
            match = TOKEN.match(self._text, at)
            if match is None:
                at += len(self._text[at:]) - len(self._text[at:].lstrip())
                what = f"{quote(self._text[at])} is not part of an expression"
                raise self._refusal(at, what, hint=QUOTES)
            kind = str(match.lastgroup)
            tokens.append(_Token(kind, match[kind], match.start(kind)))
            at = match.end()
        return [*tokens, _Token("end", "", end)]

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *signs: str) -> _Token | None:
        """Consume and return the next token if it is one of *signs*."""
        token = self._token
        if token.kind != "sign" or token.text not in signs:
            return None
        self._next += 1
        return token

    def _sum(self) -> Operand:
        self._depth += 1
        if self._depth > DEEPEST_PARENTHESES:
            raise self._refusal(self._token.at, f"more than {DEEPEST_PARENTHESES} nested parentheses")
        left = self._product()
        while sign := self._take("+", "-"):
            left = self._combine(sign, left, self._product())
        self._depth -= 1
        return left

    def _product(self) -> Operand:
        left = self._factor()
        while sign := self._take("*", "/"):
            left = self._combine(sign, left, self._factor())
        return left

    def _combine(self, sign: _Token, left: Operand, right: Operand) -> Operand:
        self._at = sign.at
        return combine(SIGN_OPERATIONS[sign.text], left, right, self._terms.literals)

    def _factor(self) -> Operand:
        self._count()
        if sign := self._take("-"):
            operand = self._factor()
            self._at = sign.at
            return negate(operand)
        term = self._primary()
        while self._take(":"):
            term = bucket_of(term, self._token.text, self._argument)
            self._next += 1
        return term

    def _primary(self) -> Operand:
        token = self._token
        self._next += 1
        self._at = token.at
        match token.kind:
            case "number":
                type = INTEGER if token.text.isdigit() else DECIMAL
                return self._terms.literals.literal_of(token.text, type, token.text)
            case "text":
                text = token.text[1:-1].replace("''", "'")
                return self._terms.literals.literal_of(text, TEXT, token.text)
            case "name" if self._tokens[self._next].text == "(":
                return self._function(token)
            case "name" | "quoted":
                return self._path(token)
            case "sign" if token.text == "(":
                term = self._sum()
                self._close()
                return term
        self._next -= 1
        raise self._expected_error("a column, number, 'text', function or (")

    def _path(self, first: _Token) -> Operand:
        parts = [_unquote(first)]
        while self._take("."):
            if self._token.kind not in NAMES:
                raise self._expected_error("a column")
            parts.append(_unquote(self._token))
            self._next += 1
        if self._relation is not None:
            if parts[0].lower() != self._relation or len(parts) == 1:
                name = ".".join(map(term_part, parts))
                what = f"names in this measure begin with {self._relation}, not {quote(name)}"
                raise self._refusal(first.at, what, hint="Others go outside the parentheses.")
            parts = parts[1:]
        return self._terms.operand(".".join(map(path_part, parts)), self._argument)

    def _function(self, name: _Token) -> Operand:
        word = name.text.lower()
        if word in MEASURES:
            return self._related_measure(name)
        if word not in OPERATION_RULES:
            known = [*OPERATION_RULES, *MEASURES]
            hint = f"{did_you_mean(word, known)}Functions: {listing(known)}."
            raise self._refusal(name.at, f"{quote(name.text)} is not a function", hint=hint)
        self._take("(")
        operands = [self._sum()]
        while self._take(","):
            operands.append(self._sum())
        self._close()
        self._at = name.at
        operation = Operation(word)
        return OPERATION_RULES[operation](operation, operands, self._terms.literals)

    def _related_measure(self, name: _Token) -> Related:
        """Return a measure of the rows that refer to a row; the first name in it is the relation."""
        self._take("(")
        self._check(self._relation is None, name, "a measure of related rows cannot contain another one")
        following = pairwise(self._tokens[self._next :])
        first = next((each for each, after in following if each.kind in NAMES and after.text != "("), None)
        if first is None:
            raise self._expected_error("related rows")
        relation, self._terms = self._outer.related_terms(_unquote(first), self._argument, aggregating=True)
        if not relation.target.aggregated:
            message = f"{self._argument}: rows of {relation.name} may not be aggregated."
            raise errors.Denied(message, hint="some and none in where ask for such rows.")
        self._relation = relation.name
        place: Operand | None = None
        if self._token is first and self._tokens[self._next + 1].text == ")":
            self._next += 1
        else:
            place = self._sum()
        self._terms, self._relation = self._outer, None
        self._close()
        function = Function(name.text.lower())
        offered = [Function.COUNT] if place is None else list(functions_of(place.type))
        what = relation.name if place is None else name_and_type(place)
        self._check(function in offered, name, f"{function} cannot take {what}")
        text = f"{function}({relation.name if place is None else place.name})"
        return Related(relation=relation, measure=Measure(function=function, place=place), name=text)

    def _close(self) -> None:
        if not self._take(")"):
            raise self._expected_error(") or an operator")

    def _count(self) -> None:
        self._nodes += 1
        self._terms.literals.nodes += 1
        self._check(self._nodes <= MOST_NODES, self._token, f"more than {MOST_NODES} {NODES}")
        most = f"more than {MOST_IN_CALL} {NODES} in one call"
        self._check(self._terms.literals.nodes <= MOST_IN_CALL, self._token, most)

    def _check(self, holds: bool, token: _Token, what: str) -> None:
        if not holds:
            raise self._refusal(token.at, what)

    def _expected_error(self, what: str) -> errors.BadArgument:
        token = self._token
        if token.kind == "end":
            return self._refusal(token.at, f"expected {what}, found the end")
        return self._refusal(token.at, f"expected {what}, found {quote(token.text)}", hint=QUOTES)

    def _refusal(self, at: int, what: str, hint: str = "") -> errors.BadArgument:
        return errors.BadArgument(
            f"{self._argument}: {quote(self._text)}, position {at + 1}: {what}.", hint=hint
        )


def bucket_of(term: Operand, name: str, argument: str) -> Bucketed:
    """Return the part of the date *term* that *name* names, or raise BadArgument."""
    offered = buckets_of(term.type)
    if name.lower() not in offered:
        why = f"Buckets: {listing(offered)}." if offered else "Buckets are for dates and timestamps."
        raise errors.BadArgument(
            f"{argument}: {term.name} ({term.type.name}) has no bucket {quote(name)}.",
            hint=f"{did_you_mean(name, offered)}{why}",
        )
    return Bucketed(place=term, bucket=Bucket(name.lower()))


def _unquote(token: _Token) -> str:
    return token.text[1:-1].replace('""', '"') if token.kind == "quoted" else token.text
