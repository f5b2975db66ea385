"""Find calls that are written like columns. Pieces and sqlglot's nodes in, numbers of pieces out.

To PostgreSQL, `x.f` and `(x).f` are the function f, or a cast to the type f, of the value x, unless x is a
row that has a column f. So they may call a function that is not permitted, although no parenthesis
follows its name.
"""

from collections.abc import Callable, Iterator, Sequence

from sqlglot import exp

from dbtools.backends.postgresql.spelling import Kind, Piece
from dbtools.backends.postgresql.vocabulary import Vocabulary
from dbtools.catalog import Table

Node = exp.Expr


def calls_like_columns(
    pieces: Sequence[Piece],
    nodes: Sequence[Node],
    vocabulary: Vocabulary,
    table_of: Callable[[Node], Table | None],
) -> Iterator[int]:
    """Yield which *pieces* may be calls that are not permitted; *table_of*: a table that a node names."""
    owners: dict[str, list[Node]] = {}
    for node in nodes:
        if isinstance(node, exp.Table | exp.Subquery | exp.CTE | exp.Lateral | exp.Unnest):
            owners.setdefault(node.alias_or_name, []).append(node)
    for at, piece in enumerate(pieces):
        is_named = piece.kind is Kind.NAME and piece.value in vocabulary.attributes
        follows = pieces[at + 1].word if at + 1 < len(pieces) else ""
        if not is_named or at < 2 or pieces[at - 1].word != "." or follows == "(":
            continue
        owner = pieces[at - 2]
        is_table = owner.kind is Kind.NAME and follows == "." and (at < 3 or pieces[at - 3].word != ".")
        if is_table:  # in schema.table.column
            continue
        known = owners.get(owner.value, []) if owner.kind is Kind.NAME else []
        if not known or not all(map(_is_row, known)):
            yield at
        elif piece.value in vocabulary.attributes_of_rows:
            tables = map(table_of, known)
            if not all(table is not None and piece.value in table.column_by_name for table in tables):
                yield at


def _is_row(node: Node) -> bool:
    """Return whether the alias of *node* means rows, and not the values of a function."""
    if isinstance(node, exp.Table | exp.Lateral):
        return isinstance(node.this, exp.Identifier | exp.Subquery)
    return isinstance(node, exp.Subquery | exp.CTE)
