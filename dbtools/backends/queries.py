"""A permitted query as a statement: what its operator wrote as a table, of which cells and rows are cut."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from dbtools.backends.plans import ListForms, Piece, Plan, with_lists
from dbtools.backends.selects import Grammar, cells, plan
from dbtools.backends.sources import Element, column_of, compile_pieces
from dbtools.sql import Lexis
from dbtools.statement import QueryShape, argument
from dbtools.types import Family


class Rows(FunctionElement[Any]):
    """A query as an operator wrote it, in parentheses, with parameters between its pieces."""

    inherit_cache = False

    def __init__(self, pieces: Sequence[str | Element]) -> None:
        super().__init__()
        self.pieces = tuple(pieces)


compiles(Rows)(compile_pieces)


def compile_query(shape: QueryShape, grammar: Grammar, lexis: Lexis, forms: ListForms) -> Plan:
    """Return the SQL of *shape* in *grammar*, lists in the *forms* of the database."""
    arrays = {name for name, type in shape.types.items() if type.family is Family.ARRAY}
    listed = with_lists(shape.pieces, arrays.__contains__, lexis, forms)
    pieces = [grammar.written(each) if isinstance(each, str) else each for each in listed]
    claims = {claim: f"claim{at}" for at, claim in enumerate(dict.fromkeys(shape.claims))}
    rows = Rows([part for each in pieces for part in _written(each, shape, grammar, claims)]).alias("q")
    read = cells([grammar.cell(column_of(rows, each.term.name), each) for each in shape.outputs])
    # A column without an alias is called by its text, which may be another here than in its output.
    shown = read if tuple(pieces) == listed else [sa.literal_column("*")]
    types = {
        argument(name): type.element or type if name in arrays else type for name, type in shape.types.items()
    }
    lists = frozenset(map(argument, arrays))
    named = {name: claim for claim, name in claims.items()}
    return plan(shape, sa.select(*shown).select_from(rows), grammar, types, lists, named)


def _written(
    piece: Piece, shape: QueryShape, grammar: Grammar, claims: Mapping[str, str]
) -> Sequence[str | Element]:
    if isinstance(piece, str):
        return (piece,)
    name = argument(piece.name) if piece.claim is None else claims[piece.claim]
    is_list = piece.claim is None and shape.types[piece.name].family is Family.ARRAY
    value = (grammar.array if is_list else grammar.claim)(name, shape.casts.get(piece.name, ""))
    # In parentheses a parameter may stand wherever a value may, as in (:names)[1].
    return ("(", value, ")")
