"""The SQL of a query with its optional clauses `/*? … ?*/`. Text in, a Body out, which writes its variants.

A clause is part of the SQL when all its optional parameters are present. To the database, and to a person who
runs the file, it is a comment.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, groupby

from dbtools.schema.sql import Fragment, Lexis, Parameter, SqlError, Token, code_of, pieces_of, scan, tokenize

MOST_CLAUSES = 8
CLAUSE = re.compile(r"/\*\?(?P<sql>(?:(?!/\*\?).)+)\?\*/", re.DOTALL)
LIKE_CLAUSE = re.compile(r"/\*\s*\?|/\*.*\?\*/", re.DOTALL)
OPTIONAL_MARKS = "/*? … ?*/"
Pieces = tuple[str | Parameter, ...]


@dataclass(frozen=True, kw_only=True)
class SqlPart:
    """A part of the SQL: a fixed one, or an optional clause."""

    pieces: Pieces
    needs: tuple[str, ...] = ()  #: the optional parameters of a clause, which is left out without them

    @property
    def absent(self) -> Pieces:
        """The part when it is left out: all variants have the same lines."""
        return tuple("\n" for piece in self.pieces for _ in range(str(piece).count("\n")))


@dataclass(frozen=True, kw_only=True)
class Body:
    """One statement in parts, some of which are optional."""

    parts: tuple[SqlPart, ...]

    @property
    def clauses(self) -> tuple[SqlPart, ...]:
        """The optional parts."""
        return tuple(part for part in self.parts if part.needs)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters and claims, including those of clauses, each once, in order of appearance."""
        pieces = (piece for part in self.parts for piece in part.pieces)
        return tuple(dict.fromkeys(piece for piece in pieces if isinstance(piece, Parameter)))

    def variant(self, present: Collection[str]) -> Fragment:
        """Return the variant for the parameters *present*; equal variants are equal values."""
        parts = (each.pieces if set(each.needs).issubset(present) else each.absent for each in self.parts)
        return Fragment(pieces=_merge_texts(chain.from_iterable(parts)))

    def places(self) -> Iterator[tuple[SqlPart, Parameter, int]]:
        """Yield each occurrence of a parameter with its part and its line, counted from the start."""
        line = 0
        for part in self.parts:
            for piece in part.pieces:
                if isinstance(piece, Parameter):
                    yield part, piece, line
                else:
                    line += piece.count("\n")

    def variants(self) -> tuple[frozenset[str], ...]:
        """Return the sets of parameters to check: none, all, and those of each clause alone."""
        none, *alone = [frozenset[str](), *(frozenset(clause.needs) for clause in self.clauses)]
        return tuple(dict.fromkeys((none, none.union(*alone), *alone)))


def _merge_texts(pieces: Iterable[str | Parameter]) -> Pieces:
    """Return *pieces* with adjacent texts joined."""
    runs = groupby(pieces, key=lambda piece: isinstance(piece, str))
    return tuple(chain.from_iterable(("".join(map(str, run)),) if text else run for text, run in runs))


def read_body(sql: str, lexis: Lexis, always: Collection[str]) -> Body:
    """Return the statement in *sql*, or raise SqlError; the parameters *always* are never absent."""
    clauses = [
        token for token in tokenize(sql, lexis) if token.text.startswith("/*") and _is_clause(token, sql)
    ]
    whole = scan(sql, lexis)  # clauses are comments here
    if whole.empty:
        raise SqlError("there is no SQL outside of comments", sql=sql, offset=0)
    statement = sql.removesuffix(whole.ending).rstrip()
    if clauses and clauses[-1].end > len(statement):
        problem = "the clause is after the end of the statement"
        raise SqlError(problem, sql=sql, offset=clauses[-1].offset)
    if len(clauses) > MOST_CLAUSES:
        problem = f"there are {len(clauses)} optional clauses; at most {MOST_CLAUSES} are allowed"
        raise SqlError(problem, sql=sql, offset=clauses[MOST_CLAUSES].offset)
    body = Body(parts=tuple(_parts(statement, clauses, lexis, always)))
    for present in body.variants():
        variant = body.variant(present)
        with suppress(SqlError):
            if scan(variant.text, lexis) == variant:
                continue
        problem = "a quote, comment or bracket crosses the edge of the clause"
        raise SqlError(problem, sql=sql, offset=clauses[0].offset if clauses else 0)
    return body


def _is_clause(comment: Token, sql: str) -> bool:
    """Return whether *comment* is an optional clause; raise SqlError if its marks are nearly right."""
    if CLAUSE.fullmatch(comment.text):
        return True
    if LIKE_CLAUSE.match(comment.text):
        problem = f"an optional clause is written {OPTIONAL_MARKS} and must not contain a clause or comment"
        raise SqlError(problem, sql=sql, offset=comment.offset)
    return False


def _parts(sql: str, clauses: Iterable[Token], lexis: Lexis, always: Collection[str]) -> Iterator[SqlPart]:
    start = 0
    for clause in clauses:
        yield _fixed_part(sql, start, clause.offset, lexis)
        yield _clause(clause, sql, lexis, always)
        start = clause.end
    yield _fixed_part(sql, start, len(sql), lexis)


def _fixed_part(sql: str, start: int, end: int, lexis: Lexis) -> SqlPart:
    text = sql[start:end]
    # The clause may be the only thing that separates two words.
    text += " " if end < len(sql) and text[-1:].strip() else ""
    return SqlPart(pieces=tuple(pieces_of(text, tokenize(text, lexis))))


def _clause(clause: Token, sql: str, lexis: Lexis, always: Collection[str]) -> SqlPart:
    start = clause.offset + len("/*?")
    text = clause.text.removeprefix("/*?").removesuffix("?*/")
    try:
        fragment = scan(text, lexis)
    except SqlError as exc:
        raise SqlError(exc.problem, sql=sql, offset=start + exc.offset) from exc
    needs = tuple(each.name for each in fragment.parameters if each.name not in always)
    claims = [str(each) for each in fragment.parameters if each.claim is not None]
    problem = ""
    if fragment.ending:
        problem = "the clause contains a semicolon"
    elif claims:
        problem = f"{claims[0]} is in an optional clause: a claim must not decide which SQL runs"
    elif not needs:
        problem = "the clause is always used: it needs a parameter with ? and without a default"
    if problem:
        raise SqlError(problem, sql=sql, offset=clause.offset)
    # Its last word must not run into what follows, nor may a comment after it hide that.
    code = text[: code_of(text, lexis)[-1].end]
    pieces = pieces_of(code, tokenize(code, lexis))
    return SqlPart(pieces=(*pieces, "\n" * text.count("\n", len(code)) or " "), needs=needs)
