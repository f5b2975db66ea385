"""Compile permitted queries: a QueryShape in, a Compiled out.

A query that reads is a derived table, so that its rows and cells can be cut. So is a query that writes, where
the database permits that in a WITH.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from dbtools.backends.compile.selects import LIMIT, cells_of, plan_of
from dbtools.backends.compile.sources import Element, Grammar, column_of, compile_pieces
from dbtools.backends.compiled import Compiled, CompiledWrite
from dbtools.backends.query_syntax import (
    AFTER_CHANGE,
    CHANGE,
    NUMBERED,
    ListForms,
    Piece,
    main_of,
    with_lists,
    within_with,
)
from dbtools.schema.sql import Lexis
from dbtools.statements.select import QueryShape, argument
from dbtools.values.types import Family


class QueryRows(FunctionElement[Any]):
    """An operator's query, in parentheses, as a derived table."""

    inherit_cache = False

    def __init__(self, pieces: Iterable[str | Element]) -> None:
        super().__init__()
        self.pieces = tuple(pieces)


compiles(QueryRows)(compile_pieces)


class ChangingQuery(QueryRows):
    """An operator's query that changes rows, as a whole statement."""

    inherit_cache = False


@compiles(ChangingQuery)
def _compile_whole(element: Any, compiler: Any, **options: Any) -> str:
    return compile_pieces(element, compiler, **options).removeprefix("(").removesuffix("\n)")


def compile_query(shape: QueryShape, grammar: Grammar, forms: ListForms) -> Compiled:
    """Return the SQL of *shape* in *grammar*, with lists in the syntax of *forms*."""
    listed = with_lists(shape.pieces, _arrays(shape).__contains__, forms)
    pieces = [grammar.native_sql(each) if isinstance(each, str) else each for each in listed]
    rows = QueryRows(_elements(pieces, shape, grammar)).alias("q")
    read = cells_of([grammar.cell(column_of(rows, each.term.name), each) for each in shape.outputs])
    # A column without an alias is named after its text, which may differ from the operator's.
    shown = read if tuple(pieces) == listed else [sa.literal_column("*")]
    return _plan(shape, sa.select(*shown).select_from(rows).limit(LIMIT), grammar)


def compile_changing_query(
    shape: QueryShape, grammar: Grammar, forms: ListForms, lexis: Lexis | None = None
) -> CompiledWrite:
    """Return the SQL of *shape*, which changes rows; in a WITH if a *lexis* to find its place is given."""
    listed = with_lists(shape.pieces, _arrays(shape).__contains__, forms)
    pieces = [grammar.native_sql(each) if isinstance(each, str) else each for each in listed]
    end: Sequence[str | Any] = ()
    if lexis is not None:
        pieces = [*within_with(pieces, main_of(pieces, lexis))]
        rows = sa.table(CHANGE)
        read = cells_of([grammar.cell(column_of(rows, each.term.name), each) for each in shape.outputs])
        end = (AFTER_CHANGE, sa.select(*read).select_from(rows).limit(LIMIT))
        if not shape.outputs:
            end = (NUMBERED, AFTER_CHANGE, sa.select(sa.func.count()).select_from(rows))
    change = _plan(shape, ChangingQuery([*_elements(pieces, shape, grammar), *end]), grammar)
    return CompiledWrite(shape=shape, before=None, change=change, after=None, checked=None)


def _arrays(shape: QueryShape) -> Collection[str]:
    return {name for name, type in shape.types.items() if type.family is Family.ARRAY}


def _claims(shape: QueryShape) -> Mapping[str, str]:
    """Return the parameters of the claims of *shape*, by claim."""
    return {claim: f"claim{at}" for at, claim in enumerate(dict.fromkeys(shape.claims))}


def _plan(shape: QueryShape, statement: object, grammar: Grammar) -> Compiled:
    arrays = _arrays(shape)
    types = {
        # Its own SQL says how a query compares moments, so they are bound as they are written.
        argument(name): replace(type.element or type if name in arrays else type, lenient=False)
        for name, type in shape.types.items()
    }
    named = {name: claim for claim, name in _claims(shape).items()}
    return plan_of(shape, statement, grammar, types, frozenset(map(argument, arrays)), named)


def _elements(pieces: Sequence[Piece], shape: QueryShape, grammar: Grammar) -> Iterator[str | Element]:
    """Yield *pieces* of SQL, the parameters as elements in *grammar*."""
    claims, arrays = _claims(shape), _arrays(shape)
    for piece in pieces:
        if isinstance(piece, str):
            yield piece
            continue
        name = argument(piece.name) if piece.claim is None else claims[piece.claim]
        write = grammar.array if piece.claim is None and piece.name in arrays else grammar.claim
        # Parentheses allow forms such as (:names)[1].
        yield from ("(", write(name, shape.casts.get(piece.name, "")), ")")
