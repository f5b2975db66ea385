"""Read free SQL with sqlglot. Lexemes in; a tree out, in which each node has its lexeme.

sqlglot only says what each name is: a table, a function, a column. It reads `||` or `-` instead of operators
that it does not know, since all operators mean the same to it.
"""

import logging
from collections.abc import Sequence
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.parsers.postgres import PostgresParser

from dbtools.backends.free import SELECT_ONLY, refused
from dbtools.backends.postgresql.spelling import Lexeme, LexemeKind
from dbtools.backends.postgresql.vocabulary import HABITS
from dbtools.sql import words
from dbtools.types import quoted

Node = exp.Expr
SIMPLER = "Write it more simply."
#: The classes of nodes whose meaning depends on nothing but their parts and the names in them, besides
#: operators with one or two operands.
NODES = words(
    "Alias Aliases All Anonymous Any Array AtTimeZone Between Boolean Bracket CTE Case Cast Coalesce "
    "Collate Column ColumnDef Cube CurrentDate CurrentTime CurrentTimestamp DataType DataTypeParam "
    "Distinct Except Exists Extract Fetch Filter From Group GroupingSets Having Identifier If In "
    "Intersect Join Lateral Limit LimitOptions Literal Localtime Localtimestamp Null ObjectIdentifier "
    "Offset Order Ordered Overlay Paren Rollup Select Slice Star StrPosition Subquery Substring Table "
    "TableAlias TableSample Trim Tuple Union Unnest Values Var Variadic Where Window WindowSpec With "
    "WithinGroup"
)
#: The signs that sqlglot reads as they are.
READ = words("+ - * / = < > <= >= <> || :: => : . , ( ) [ ]")
VALUES = words("null true false end current_date current_time current_timestamp localtime localtimestamp")
#: The functions that have words between their arguments.
FORMS = words("CAST EXTRACT OVERLAY POSITION SUBSTRING TRIM")
#: sqlglot would log callers' SQL.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)


class _Dialect(Postgres):
    """PostgreSQL without what sqlglot knows about functions: it would change some calls."""

    class Parser(PostgresParser):
        """The parser."""

        FUNCTIONS: ClassVar[Any] = {}
        FUNCTION_PARSERS: ClassVar[Any] = {
            name: parser for name, parser in PostgresParser.FUNCTION_PARSERS.items() if name in FORMS
        }


class Tree:
    """A statement as sqlglot reads it."""

    root: Node
    nodes: Sequence[Node]

    def __init__(self, lexemes: Sequence[Lexeme]) -> None:
        """Parse *lexemes*, or raise SqlRefused."""
        self._lexemes = lexemes
        self._places: dict[int, int] = {}  #: the numbers of lexemes by where they begin
        sql = ""
        for at in range(len(lexemes)):
            self._places[len(sql)] = at
            sql += _read_as(*lexemes[at : at + 2], before=lexemes[at - 1] if at else None) + " "
        try:
            trees = _Dialect().parse(sql)
        except sqlglot.errors.SqlglotError as exc:
            raise self._unreadable(exc) from exc
        if len(trees) != 1 or not isinstance(trees[0], exp.Query | exp.Values):
            raise refused("This is not a SELECT", SELECT_ONLY)
        self.root = trees[0]
        self.nodes = list(self.root.walk())
        for node in self.nodes:
            if type(node).__name__ not in NODES and not isinstance(node, exp.Binary | exp.Unary):
                construct = f"The construct {type(node).__name__.lower()} is not permitted"
                raise refused(construct, SIMPLER, position=self.offset_of(node))

    def lexeme_of(self, node: object) -> int | None:
        """Return the number of the lexeme that *node*, a name, a call or a value, is."""
        start = node.meta.get("start") if isinstance(node, Node) else None
        return None if start is None else self._places.get(start)

    def offset_of(self, node: Node) -> int | None:
        """Return the offset of the first lexeme of *node* that is known."""
        found = [at for each in node.walk() if (at := self.lexeme_of(each)) is not None]
        return self._lexemes[min(found)].offset if found else None

    def _unreadable(self, error: Exception) -> Exception:
        """Return the refusal of what sqlglot cannot parse."""
        column = (getattr(error, "errors", None) or [{}])[0].get("col") or 0
        last = max((at for start, at in self._places.items() if start < column), default=0)
        lexeme = self._lexemes[last]
        rule = f"The statement cannot be read near {quoted(lexeme.value or lexeme.text, 40)}"
        hint = "Is a word missing, or a column named like a keyword? Write it in double quotes."
        return refused(rule, habit(self._lexemes, last) or hint, position=lexeme.offset)


def habit(lexemes: Sequence[Lexeme], at: int) -> str:
    """Return what to write instead of lexeme number *at*, or the one before it, if that is known."""
    names = [lexeme.value or lexeme.text for lexeme in lexemes[max(0, at - 1) : at + 1]]
    return next((HABITS[name] for name in reversed(names) if name in HABITS), "")


def _read_as(lexeme: Lexeme, after: Lexeme | None = None, *, before: Lexeme | None) -> str:
    """Return the text of *lexeme* for sqlglot."""
    if lexeme.kind is LexemeKind.NAME and lexeme.value.upper() in FORMS and after and after.text == "(":
        # sqlglot does not tell such a name from the keyword.
        return '"f"'
    if lexeme.kind is not LexemeKind.SIGN or lexeme.text in READ:
        return lexeme.text
    if before is None or (before.kind is LexemeKind.SIGN and before.text not in (")", "]")):
        return "-"
    return "-" if before.kind is LexemeKind.KEYWORD and before.text not in VALUES else "||"
