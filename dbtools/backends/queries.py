"""Compile permitted queries: a QueryShape in, its Plan out.

A query is a derived table, so that its rows and cells can be cut.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from dbtools.backends.plans import ListForms, Piece, Plan, with_lists
from dbtools.backends.selects import LIMIT, cells_of, plan_of
from dbtools.backends.sources import Element, Grammar, column_of, compile_pieces
from dbtools.statement import QueryShape, argument
from dbtools.types import Family


class Rows(FunctionElement[Any]):
    """An operator's query, in parentheses, as a derived table."""

    inherit_cache = False

    def __init__(self, pieces: Sequence[str | Element]) -> None:
        super().__init__()
        self.pieces = tuple(pieces)


compiles(Rows)(compile_pieces)


def compile_query(shape: QueryShape, grammar: Grammar, forms: ListForms) -> Plan:
    """Return the SQL of *shape* in *grammar*, with lists in the syntax of *forms*."""
    arrays = {name for name, type in shape.types.items() if type.family is Family.ARRAY}
    listed = with_lists(shape.pieces, arrays.__contains__, forms)
    pieces = [grammar.written(each) if isinstance(each, str) else each for each in listed]
    claims = {claim: f"claim{at}" for at, claim in enumerate(dict.fromkeys(shape.claims))}
    rows = Rows([part for each in pieces for part in _query_pieces(each, shape, grammar, claims)]).alias("q")
    read = cells_of([grammar.cell(column_of(rows, each.term.name), each) for each in shape.outputs])
    # A column without an alias is named after its text, which may differ from the operator's.
    shown = read if tuple(pieces) == listed else [sa.literal_column("*")]
    types = {
        argument(name): type.element or type if name in arrays else type for name, type in shape.types.items()
    }
    lists = frozenset(map(argument, arrays))
    named = {name: claim for claim, name in claims.items()}
    found = sa.select(*shown).select_from(rows).limit(LIMIT)
    return plan_of(shape, found, grammar, types, lists, named)


def _query_pieces(
    piece: Piece, shape: QueryShape, grammar: Grammar, claims: Mapping[str, str]
) -> Sequence[str | Element]:
    if isinstance(piece, str):
        return (piece,)
    name = argument(piece.name) if piece.claim is None else claims[piece.claim]
    is_list = piece.claim is None and shape.types[piece.name].family is Family.ARRAY
    value = (grammar.array if is_list else grammar.claim)(name, shape.casts.get(piece.name, ""))
    # Parentheses allow forms such as (:names)[1].
    return ("(", value, ")")
