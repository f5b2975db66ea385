"""The SQL of a query with its optional clauses `/*? … ?*/`. Text in, a Body out, which writes its variants.

A clause is there while all of its parameters that may be absent are present. To the database, and to whoever
runs the file by hand, it is a comment, so the marks may be taken for a blank.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, groupby

from dbtools.sql import (
    BLANKS,
    Fragment,
    Group,
    Kind,
    Lexis,
    Parameter,
    SqlError,
    Token,
    grouped,
    pieces_of,
    scan,
    tokenize,
    words,
)

OPENING, CLOSING = "/*?", "?*/"
MOST_CLAUSES = 8
Pieces = tuple[str | Parameter, ...]

#: The lists of terms that end in BY, and what each does with a term that is the same in all rows.
IDLE = {
    "order": "sorts no row",
    "group": "groups no row by a column",
    "partition": "puts all rows into one partition",
}
#: What a term of such a list may be followed by.
ENDS = words(
    ") ; , asc desc nulls using limit offset fetch for union intersect except having window order rows range "
    "groups"
)
#: What a comma before may belong to instead.
CLAUSES = words("select from where having limit offset values on window distinct")


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """SQL that every variant has or, as an optional clause, only some."""

    pieces: Pieces
    needs: tuple[str, ...] = ()  #: that may be absent, and without which a clause is left out
    line: int = field(default=0, compare=False)  #: on which it begins, counted from that of the SQL


@dataclass(frozen=True, kw_only=True)
class Body:
    """One statement in parts, some of which are optional."""

    parts: tuple[Stretch, ...]

    @property
    def clauses(self) -> tuple[Stretch, ...]:
        """The optional parts."""
        return tuple(part for part in self.parts if part.needs)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters and claims, those of clauses too, each once, in the order of their first places."""
        pieces = (piece for part in self.parts for piece in part.pieces)
        return tuple(dict.fromkeys(piece for piece in pieces if isinstance(piece, Parameter)))

    def written(self, present: Collection[str]) -> Fragment:
        """Return the variant for the parameters *present*; equal variants are equal, and can be hashed."""
        return Fragment(pieces=_merged(piece for part in self._kept(present) for piece in part.pieces))

    def line_of(self, present: Collection[str], offset: int) -> int:
        """Return on which line, counted from that of the SQL, *offset* of the variant for *present* is."""
        line = 0
        for part in self._kept(present):
            text = "".join(map(str, part.pieces))
            line = part.line + text.count("\n", 0, offset)
            if offset < len(text):
                break
            offset -= len(text)
        return line

    def _kept(self, present: Collection[str]) -> Iterator[Stretch]:
        return (part for part in self.parts if set(part.needs).issubset(present))

    def variants(self) -> tuple[frozenset[str], ...]:
        """Return the sets of parameters to check: none, those of all clauses, and those of each alone."""
        none, *alone = [frozenset[str](), *(frozenset(clause.needs) for clause in self.clauses)]
        return tuple(dict.fromkeys((none, none.union(*alone), *alone)))


def _merged(pieces: Iterable[str | Parameter]) -> Pieces:
    """Return *pieces* with texts that follow each other as one."""
    runs = groupby(pieces, key=lambda piece: isinstance(piece, str))
    return tuple(chain.from_iterable(("".join(map(str, run)),) if text else run for text, run in runs))


def read_body(sql: str, lexis: Lexis, always: Collection[str]) -> Body:
    """Return the statement in *sql*, in which the parameters *always* are never absent, or raise SqlError."""
    tokens = _statement(sql, lexis)
    clauses = [token for token in tokens if is_clause(token)]
    if len(clauses) > MOST_CLAUSES:
        problem = f"there are {len(clauses)} optional clauses, and {MOST_CLAUSES} may be"
        raise SqlError(problem, sql=sql, offset=clauses[MOST_CLAUSES].offset)
    body = Body(parts=tuple(part for part in _parts(tokens, sql, lexis, always) if part.pieces))
    grouped(tokens, sql)
    if all(token.kind is Kind.COMMENT for token in tokens):
        problem = "there is no SQL without the optional clauses" if clauses else "there is no SQL"
        raise SqlError(problem, sql=sql, offset=tokens[0].offset if tokens else 0)
    for present in body.variants():
        variant = body.written(present)
        with suppress(SqlError):
            if scan(variant.text, lexis) == variant:
                continue
        problem = "the SQL before and after the clause does not hold together"
        raise SqlError(problem, sql=sql, offset=clauses[0].offset if clauses else 0)
    return body


def is_clause(token: Token) -> bool:
    """Return whether *token* is an optional clause."""
    return token.kind is Kind.COMMENT and token.text.startswith(OPENING)


def _statement(sql: str, lexis: Lexis) -> Sequence[Token]:
    """Return the tokens of *sql* without the semicolon, and comments at its end."""
    tokens = list(_marked(sql, lexis))
    kinds = [token.kind for token in tokens]
    end = kinds.index(Kind.SEMICOLON) if Kind.SEMICOLON in kinds else len(tokens)
    for token in tokens[end:]:
        if is_clause(token):
            raise SqlError("the clause stands after the end of the statement", sql=sql, offset=token.offset)
        if token.kind not in (Kind.SEMICOLON, Kind.COMMENT):
            raise SqlError("there is a second statement", sql=sql, offset=token.offset)
    while end and tokens[end - 1].kind is Kind.COMMENT and not is_clause(tokens[end - 1]):
        end -= 1
    return tokens[:end]


def _marked(sql: str, lexis: Lexis) -> Iterator[Token]:
    """Yield the tokens of *sql*, or raise SqlError, also where the marks of a clause are wrong."""
    try:
        for token in tokenize(sql, lexis):
            if token.kind is Kind.COMMENT and (problem := _mark_problem(token, lexis)):
                raise SqlError(problem, sql=sql, offset=token.offset)
            yield token
    except SqlError as exc:
        if exc.problem == "/* is not closed" and sql.startswith(OPENING, exc.offset):
            problem = f"{OPENING} is not closed: an optional clause ends with {CLOSING}"
            raise SqlError(problem, sql=sql, offset=exc.offset) from exc
        raise


def _mark_problem(token: Token, lexis: Lexis) -> str:
    """Return what is wrong with the marks of a comment; nothing if it is a whole clause, or none at all."""
    comment = token.text
    if comment.startswith("--"):
        return ""
    if comment.startswith(OPENING):
        if not comment.endswith(CLOSING) or len(comment) < len(OPENING) + len(CLOSING):
            return f"an optional clause ends with {CLOSING}, and this one with */"
        sql, _ = inside(token)
        tokens, error = readable(sql, lexis)
        nested = any(map(is_clause, tokens)) or (error is not None and sql.startswith(OPENING, error))
        return "a clause stands in another" if nested else ""
    if comment.endswith(CLOSING) or comment[2:].lstrip().startswith("?"):
        return f"an optional clause is written {OPENING} … {CLOSING}, without a blank in the marks"
    return ""


def readable(sql: str, lexis: Lexis) -> tuple[Sequence[Token], int | None]:
    """Return the tokens of *sql* up to the first that cannot be read, and where that is."""
    tokens: list[Token] = []
    try:
        for token in tokenize(sql, lexis):
            tokens.append(token)
    except SqlError as exc:
        return tokens, exc.offset
    return tokens, None


def _parts(tokens: Sequence[Token], sql: str, lexis: Lexis, always: Collection[str]) -> Iterator[Stretch]:
    start = 0
    for clause in filter(is_clause, tokens):
        # A blank for the mark, where it alone keeps two words apart.
        apart = "" if clause.offset == start or sql[clause.offset - 1] in BLANKS else " "
        yield _fixed(sql[: clause.offset] + apart, tokens, start)
        yield _clause(clause, sql, lexis, always)
        start = clause.end
    yield _fixed(sql[: tokens[-1].end] if tokens else "", tokens, start)


def _fixed(sql: str, tokens: Sequence[Token], start: int) -> Stretch:
    """Return the end of *sql*, from *start* on."""
    between = (token for token in tokens if start <= token.offset < len(sql))
    return Stretch(pieces=tuple(pieces_of(sql, between, start)), line=sql.count("\n", 0, start))


def _clause(token: Token, sql: str, lexis: Lexis, always: Collection[str]) -> Stretch:
    text, start = inside(token)
    try:
        fragment = scan(text, lexis)
    except SqlError as exc:
        raise SqlError(exc.problem, sql=sql, offset=start + exc.offset) from exc
    if problem := _clause_problem(text, fragment, lexis, always):
        raise SqlError(problem, sql=sql, offset=token.offset)
    touches = text[-1] not in BLANKS and token.end < len(sql) and sql[token.end] not in BLANKS
    return Stretch(
        pieces=_merged([*fragment.pieces, *([" "] if touches else [])]),
        needs=tuple(each.name for each in fragment.parameters if each.name not in always),
        line=sql.count("\n", 0, start),
    )


def inside(clause: Token) -> tuple[str, int]:
    """Return the SQL in *clause*, and where it begins."""
    return clause.text[len(OPENING) : -len(CLOSING)], clause.offset + len(OPENING)


def _clause_problem(text: str, fragment: Fragment, lexis: Lexis, always: Collection[str]) -> str:
    """Return what is wrong with a clause of *text*, nothing if all is well."""
    claims = [parameter for parameter in fragment.parameters if parameter.claim is not None]
    if fragment.ending:
        return "a semicolon stands in the clause"
    if claims:
        return f"{claims[0]} stands in a clause: a claim may not make one come and go"
    if not fragment.parameters:
        return "the clause has no parameter with which it would come and go"
    if all(parameter.name in always for parameter in fragment.parameters):
        names = " and ".join(map(str, fragment.parameters))
        return f"the clause is never left out: {names} would want ? after the type, and no default"
    *_, last = tokenize(text, lexis)
    if last.text.startswith("--") and last.end == len(text):
        return f"the clause ends in a comment that goes on after it: put {CLOSING} on the next line"
    return ""


def opened(tokens: Iterable[Token], lexis: Lexis) -> Iterator[Token]:
    """Yield *tokens*, and instead of a clause those in it."""
    for token in tokens:
        if not is_clause(token):
            yield token
            continue
        text, start = inside(token)
        for kind, part, offset, end in tokenize(text, lexis):
            yield Token(kind, part, start + offset, start + end)


def idle_terms(tokens: Iterable[Token], sql: str) -> Iterator[tuple[int, str]]:
    """Yield where in *sql* a parameter is a whole term that rows would be sorted or grouped by.

    A parameter is a value and never the name of a column, so that all rows have the same there.
    """
    for group, place, token in grouped(tokens, sql).parameters():
        if word := _idle(group, place):
            case = f"{word} by case {token.text} when 'name' then name when … end"
            problem = f"{word} by {token.text} {IDLE[word]}: it is a value, not the name of a column"
            yield token.offset, f"{problem}. Write {case}"


def _idle(group: Group, place: int) -> str:
    """Return the word before BY of the list of which the parameter at *place* is a whole term, or nothing."""
    group, first, last = _whole(group, place)
    words = group.words
    if _word(words, last + 1) not in ENDS or _word(words, first - 1) not in ("by", ","):
        return ""
    for at in range(first - 1, 0, -1):
        if words[at] in CLAUSES:
            return ""
        if words[at] == "by":
            return words[at - 1] if words[at - 1] in IDLE else ""
    return ""


def _whole(group: Group, place: int) -> tuple[Group, int, int]:
    """Return where the parameter begins and ends, with brackets, casts and collations around it."""
    first = last = place
    while True:
        after = _word(group.words, last + 1)
        outer, before = group.outer, group.outer.before(group.place) if group.outer else ""
        if after in ("::", "collate"):
            last += 2
        elif after in ("(", "[") and (first < last or isinstance(group.parts[first], Group)):
            last += 1  # of the type of a cast
        elif outer is None or group.word != "(" or first > 0:
            return group, first, last
        elif after == ")" and before in ("by", ",", "("):
            group, first, last = outer, group.place, group.place
        elif after == "as" and before == "cast":
            group, first, last = outer, group.place - 1, group.place
        else:
            return group, first, last


def _word(words: Sequence[str], at: int) -> str:
    return words[at] if 0 <= at < len(words) else ")"
