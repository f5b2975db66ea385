"""A permitted query as a statement: what its operator wrote as a table, of which cells and rows are cut."""

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from dbtools.backends.plans import ListForms, Plan, with_lists
from dbtools.backends.selects import CLAIM, Grammar
from dbtools.backends.sources import Element, column_named, unveiled, veiled
from dbtools.sql import Lexis, Parameter
from dbtools.statement import QueryShape, argument
from dbtools.types import ColumnType, Family


class Rows(FunctionElement[Any]):
    """A query as an operator wrote it, in parentheses, with parameters between its pieces."""

    inherit_cache = False

    def __init__(self, pieces: Sequence[str | Element]) -> None:
        super().__init__()
        self.pieces = tuple(pieces)


@compiles(Rows)
def _compile_rows(element: Rows, compiler: Any, **options: Any) -> str:
    written = (
        # In parentheses a parameter may stand wherever a value may, as in (:names)[1].
        veiled(piece) if isinstance(piece, str) else f"({compiler.process(piece, **options)})"
        for piece in element.pieces
    )
    # The parenthesis stands on a line of its own, where no comment swallows it.
    return f"({''.join(written)}\n)"


def compile_query(shape: QueryShape, grammar: Grammar, lexis: Lexis, forms: ListForms) -> Plan:
    """Return the SQL of *shape* in *grammar*, lists in the *forms* of the database."""
    arrays = {name for name, type in shape.types.items() if type.family is Family.ARRAY}
    listed = with_lists(shape.pieces, arrays.__contains__, lexis, forms)
    pieces = [grammar.written(each) if isinstance(each, str) else each for each in listed]
    claims = {f"claim{at}": each for at, each in enumerate(_claims(pieces))}
    names = {f":{parameter}": name for name, parameter in claims.items()}
    rows = Rows([_written(each, shape, grammar, names) for each in pieces]).alias("q")
    cells = [grammar.cell(column_named(rows, output.term.name), output) for output in shape.outputs]
    # Values first, so that a row is a slice of what is read; behind them what is told of the values.
    read = [value for value, *_ in cells] + [told for _, *rest in cells for told in rest]
    shown: Sequence[Element] = [cell.label(f"c{at}") for at, cell in enumerate(read)]
    if tuple(pieces) != listed:
        # A column without an alias is called by its text, which is another here than in its output.
        shown = [sa.literal_column("*")]
    select = sa.select(*shown).select_from(rows)
    compiled = select.limit(sa.bindparam("limit", type_=sa.BigInteger)).compile(dialect=grammar.dialect)
    constants = {name: value for name, value in compiled.params.items() if value is not None}
    types = {argument(name): _item(type) for name, type in shape.types.items()}
    return Plan(
        shape=shape,
        sql=unveiled(str(compiled)),
        parameters=tuple(compiled.positiontup or ()),
        types=types | dict.fromkeys(claims, CLAIM),
        lists=frozenset(argument(name) for name in arrays),
        constants=constants,
        claims={name: str(Parameter(parameter).claim) for name, parameter in claims.items()},
        one=grammar.bound,
        many=grammar.bound_list,
    )


def _claims(pieces: Sequence[str | Parameter]) -> Iterator[str]:
    names = (piece.name for piece in pieces if isinstance(piece, Parameter) and piece.claim is not None)
    return iter(dict.fromkeys(names))


def _written(
    piece: str | Parameter, shape: QueryShape, grammar: Grammar, claims: dict[str, str]
) -> str | Element:
    if isinstance(piece, str):
        return piece
    cast = shape.casts.get(piece.name, "")
    if piece.claim is not None:
        return grammar.claim(claims[str(piece)], cast)
    if shape.types[piece.name].family is Family.ARRAY:
        return grammar.array(argument(piece.name), cast)
    return grammar.claim(argument(piece.name), cast)


def _item(type: ColumnType) -> ColumnType:
    return type.element or type if type.family is Family.ARRAY else type
