"""Check and rewrite free SQL before the server sees it. Pieces, a catalog and a vocabulary in, SQL out.

sqlglot says what each name is: a table, a function, a column. It does not write what runs: that consists of
the caller's own pieces, in which the tables are replaced by what the role sees of them. So a construct that
sqlglot would write in another way keeps its meaning. Every node of the tree must be of a known class, every
name and string must occur in it, and every name before a bracket must be a permitted function, or something
else that may have brackets.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.parsers.postgres import PostgresParser

from dbtools.backends.free import SELECT_ONLY, no_parameters, not_reading, refused
from dbtools.backends.plans import identifier
from dbtools.backends.postgresql.casts import Casts
from dbtools.backends.postgresql.habits import OPERATORS, function_refusal, syntax_hint, table_refusal
from dbtools.backends.postgresql.spelling import Kind, Piece, spelled
from dbtools.backends.postgresql.vocabulary import SYSTEM, Vocabulary
from dbtools.catalog import Catalog, Table
from dbtools.errors import SqlRefused
from dbtools.sql import words
from dbtools.types import quoted

Node = exp.Expr
SYSTEM_COLUMNS = words("ctid xmin xmax cmin cmax tableoid")
MOST_TABLES = 60  #: references to tables
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
#: The signs that sqlglot reads as they are; instead of others it reads ||, or - before their only operand.
READ = words("+ - * / = < > <= >= <> || :: => : . , ( ) [ ]")
SIGNS = words(":: => := : . , ( ) [ ]")  #: those that are no operators
OPERANDS = words("null true false end current_date current_time current_timestamp localtime localtimestamp")
#: Functions that can be called with and without special syntax, whose names are keywords.
SPECIAL = words("substring overlay")
#: Keywords that only look like functions.
FORMS = words("coalesce nullif greatest least grouping row any all some exists array values")
#: Keywords that begin a call unless they follow a value, or another one of these words.
CALLABLE = words(
    "collate cross full ilike inner is isnull join left like natural not notnull outer overlaps right "
    "similar tablesample"
)
#: sqlglot would log callers' SQL.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)


class _Dialect(Postgres):
    """PostgreSQL without what sqlglot knows about functions: it would change some calls."""

    class Parser(PostgresParser):
        """The parser."""

        FUNCTIONS: ClassVar[Any] = {}
        FUNCTION_PARSERS: ClassVar[Any] = {
            name: parser
            for name, parser in PostgresParser.FUNCTION_PARSERS.items()
            if name in ("CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM")
        }


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """A statement that the guard permits."""

    sql: str
    tables: tuple[Table, ...]  #: that it reads, each once
    claims: tuple[str, ...]  #: of the caller, in the order of their parameters
    pieces: Sequence[Piece]
    starts: Sequence[int]  #: where the pieces begin in the SQL
    named: bool  #: whether it calls a function that is not a part of the system

    def piece_at(self, position: int) -> int | None:
        """Return the number of the piece at *position* of the SQL, from 0."""
        before = [at for at, start in enumerate(self.starts) if start <= position]
        return before[-1] if before else None


#: Returns what the role sees of a table, as texts that each a claim may follow; None if it is all of it.
Lens = Callable[[Table], Sequence[tuple[str, str]] | None]


def guard(sql: str, catalog: Catalog, vocabulary: Vocabulary, lens: Lens, mark: str) -> Guarded:
    """Return *sql* rewritten for what *catalog* shows through *lens*, or raise SqlRefused.

    *mark*: begins new names, and occurs nowhere else.
    """
    if vocabulary.obstacles:
        raise refused(f"run_sql is not available. {vocabulary.obstacles[0]}")
    try:
        return _Guard(spelled(sql), catalog, vocabulary, lens, mark).guarded()
    except RecursionError as exc:
        raise refused("The statement is nested too deeply", SIMPLER) from exc


class _Guard:
    def __init__(
        self, pieces: list[Piece], catalog: Catalog, vocabulary: Vocabulary, lens: Lens, mark: str
    ) -> None:
        self._pieces, self._catalog, self._vocabulary = pieces, catalog, vocabulary
        self._lens, self._mark = lens, mark
        self._casts = Casts(pieces, catalog, vocabulary)
        self._word = self._casts.word
        self._places: dict[int, int] = {}  #: the numbers of pieces by where they begin in what sqlglot reads
        self._tables: dict[Table, None] = {}
        self._named = False

    def guarded(self) -> Guarded:
        """Return the statement, or raise SqlRefused."""
        self._casts.check()
        self._check_words()
        tree = self._parsed()
        nodes = list(tree.walk())
        for node in nodes:
            if type(node).__name__ not in NODES and not isinstance(node, exp.Binary | exp.Unary):
                construct = f"The construct {type(node).__name__.lower()} is not permitted"
                raise refused(construct, SIMPLER, position=self._near(node))
        self._check_calls(nodes)
        self._check_accounted(nodes)
        self._hide_attributes(nodes)
        self._rename_ctes(nodes)
        self._rewrite_tables(nodes)
        self._shorten_columns(nodes)
        return self._joined()

    def _check_words(self) -> None:
        """Check the beginning, the operators and the system columns."""
        if self._word(0) not in ("select", "with", "values", "("):
            first = self._pieces[0]
            raise not_reading((first.value or first.text).lower(), position=first.offset)
        for at, piece in enumerate(self._pieces):
            if piece.kind is Kind.NAME and piece.value in SYSTEM_COLUMNS:
                rule = f"The system column {piece.value} is not permitted"
                raise refused(rule, "Use the key of the table.", position=piece.offset)
            is_operator = piece.kind is Kind.SIGN and piece.text not in SIGNS
            if is_operator and piece.text not in self._vocabulary.operators:
                rule = f"The operator {piece.text} is not permitted"
                raise refused(rule, OPERATORS.get(piece.text, ""), position=piece.offset)
            if piece.text in SPECIAL and piece.kind is Kind.KEYWORD:
                self._write_special(at)

    def _write_special(self, at: int) -> None:
        """Write the schema of the function at *at*, unless it is called with special syntax.

        Special syntax always means the function of the system.
        """
        depth = 0
        for end in range(at + 1, len(self._pieces)):
            word = self._word(end)
            depth += (word == "(") - (word == ")")
            if depth == 0 or (depth == 1 and word in ("from", "for", "placing")):
                break
        if depth == 0:
            name = self._pieces[at].text
            self._pieces[at].write(f"{identifier(SYSTEM)}.{identifier(name)}")

    def _parsed(self) -> Node:
        """Return sqlglot's tree of the statement."""
        texts, at = [], 0
        for index in range(len(self._pieces)):
            self._places[at] = index
            texts.append(self._stand_in(index))
            at += len(texts[-1]) + 1
        try:
            trees = _Dialect().parse(" ".join(texts))
        except sqlglot.errors.SqlglotError as exc:
            raise self._unreadable(exc) from exc
        if len(trees) != 1 or not isinstance(trees[0], exp.Query | exp.Values):
            raise refused("This is not a SELECT", SELECT_ONLY)
        return trees[0]

    def _stand_in(self, at: int) -> str:
        """Return the text of piece number *at* for sqlglot."""
        piece, before = self._pieces[at], self._pieces[at - 1] if at else None
        if piece.kind is not Kind.SIGN or piece.text in READ:
            return piece.text
        if piece.text == ":=":
            return "=>"
        if before is None or before.kind is Kind.SIGN:
            return "||" if before is not None and before.text in (")", "]") else "-"
        return "-" if before.kind is Kind.KEYWORD and before.text not in OPERANDS else "||"

    def _unreadable(self, error: Exception) -> SqlRefused:
        """Return the refusal of what sqlglot cannot parse."""
        column = (getattr(error, "errors", None) or [{}])[0].get("col") or 0
        before = [index for start, index in self._places.items() if start < column]
        piece = self._pieces[before[-1]] if before else None
        near = f" near {quoted(piece.value or piece.text, 40)}" if piece else ""
        position = piece.offset if piece else None
        if piece is not None and piece.text == "?":
            return no_parameters(position=position)
        hint = "Is a word missing, or a column named like a keyword? Write it in double quotes."
        if piece is not None:
            two = [each.value or each.text for each in self._pieces[max(0, before[-1] - 1) : before[-1] + 1]]
            hint = syntax_hint(two[0], two[-1], hint)
        return refused(f"The statement cannot be read{near}", hint, position=position)

    def _index(self, node: object) -> int | None:
        """Return the number of the piece that *node*, a name or a value, is."""
        start = node.meta.get("start") if isinstance(node, Node) else None
        return None if start is None else self._places.get(start)

    def _near(self, node: Node) -> int | None:
        """Return the offset of the first piece of *node* that is known."""
        found = [at for each in node.walk() if (at := self._index(each)) is not None]
        return self._pieces[min(found)].offset if found else None

    def _check_calls(self, nodes: Sequence[Node]) -> None:
        """Check every name before a bracket: the tree must say that it is a function, or what else it is."""
        called = {self._index(node) for node in nodes if isinstance(node, exp.Anonymous)} - {None}
        aliases = {self._index(node.this) for node in nodes if isinstance(node, exp.TableAlias)}
        for node in nodes:
            if isinstance(node, exp.ColumnDef):
                self._casts.check_type((self._index(node.this) or 0) + 1)
        for at, piece in enumerate(self._pieces):
            is_call = at in called and piece.text not in FORMS
            if piece.kind is Kind.KEYWORD and (is_call or self._calls(at)):
                raise function_refusal(piece.text, (), position=piece.offset)
            if piece.kind is not Kind.NAME or piece.known:
                continue
            if (self._word(at + 1) == "(") != (at in called) and at not in aliases:
                raise function_refusal(piece.value, self._vocabulary.names, position=piece.offset)
            if at in called:
                self._check_function(at)

    def _calls(self, at: int) -> bool:
        """Return whether PostgreSQL would call a function named like the keyword at *at*."""
        before = self._word(at - 1)
        follows = before in ('"', "'", "0", ")", "]") or before in OPERANDS or before in CALLABLE
        return self._word(at) in CALLABLE - {"not"} and self._word(at + 1) == "(" and not follows

    def _check_function(self, at: int) -> None:
        """Check the function at *at*, and write its schema if it has namesakes that are not permitted."""
        piece, schema = self._pieces[at], ""
        if self._word(at - 1) == ".":
            schema = self._pieces[at - 2].value
            if self._word(at - 2) != '"' or self._word(at - 3) == ".":
                raise function_refusal(piece.value, (), position=piece.offset)
        found = self._vocabulary.schema_of(piece.value, schema)
        if found is None:
            raise function_refusal(piece.value, self._vocabulary.names, position=piece.offset)
        self._named |= found != SYSTEM and {*self._vocabulary.functions[piece.value]} != {SYSTEM}
        if found and not schema:
            piece.write(f"{identifier(found)}.{piece.text}")

    def _check_accounted(self, nodes: Sequence[Node]) -> None:
        """Check that the tree has every name and every string."""
        kinds = exp.Identifier | exp.Literal | exp.Anonymous
        seen = {self._index(node) for node in nodes if isinstance(node, kinds)}
        for at, piece in enumerate(self._pieces):
            if piece.kind in (Kind.NAME, Kind.STRING) and not piece.known and at not in seen:
                rule = f"{quoted(piece.value, 40)} cannot be read here"
                raise refused(rule, SIMPLER, position=piece.offset)

    def _hide_attributes(self, nodes: Sequence[Node]) -> None:
        """Rename what could be a call: `t.f` is `f(t)` if t has no column f, and nothing is f afterwards."""
        owners: dict[str, list[Table | None]] = {}
        for node in nodes:
            if isinstance(node, exp.Table | exp.Subquery | exp.CTE | exp.Lateral | exp.Unnest):
                owners.setdefault(node.alias_or_name, []).append(self._table_of(node))
        for at, piece in enumerate(self._pieces):
            if piece.kind is not Kind.NAME or piece.value not in self._vocabulary.attributes:
                continue
            before = self._pieces[at - 2].value if at > 1 and self._word(at - 2) == '"' else ""
            known = owners.get(before, [None])
            is_column = all(owner is not None and piece.value in owner.column_by_name for owner in known)
            if self._word(at - 1) == "." and self._word(at + 1) != "(" and not is_column:
                piece.write(identifier(f"{self._mark}f"))

    def _table_of(self, node: Node) -> Table | None:
        """Return the table that *node* names; None for anything else."""
        is_name = isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier)
        if not is_name or not isinstance(node, exp.Table) or node.catalog or _cte_of(node) is not None:
            return None
        if node.db:
            return self._catalog.table(node.db, node.name)
        for schema in self._catalog.search_path:
            if (found := self._catalog.table(schema, node.name)) is not None:
                return found
        known = [table for table in self._catalog.tables if table.name == node.name]
        return known[0] if len(known) == 1 else None

    def _rename_ctes(self, nodes: Sequence[Node]) -> None:
        """Rename the CTEs, so that no row filter can mean one of them."""
        for number, cte in enumerate(node for node in nodes if isinstance(node, exp.CTE)):
            at = self._index(cte.args["alias"].this)
            if at is None:
                raise refused("This with is not permitted", SIMPLER)
            self._pieces[at].write(identifier(f"{self._mark}{number}"))

    def _rewrite_tables(self, nodes: Sequence[Node]) -> None:
        tables = [
            each for each in nodes if isinstance(each, exp.Table) and isinstance(each.this, exp.Identifier)
        ]
        if len(tables) > MOST_TABLES:
            raise refused(f"The statement names more than {MOST_TABLES} tables", SIMPLER)
        for node in tables:
            at = self._index(node.this)
            if at is None or self._pieces[at].known:
                raise refused("A table cannot be read here", SIMPLER, position=self._near(node))
            cte = _cte_of(node)
            if cte is None:
                texts = self._source(node, self._pieces[at], self._word(at - (3 if node.db else 1)))
            else:
                definition = self._pieces[self._index(cte.args["alias"].this) or 0]
                texts = definition.written or ()
            # An alias keeps the name by which columns are qualified.
            alias = [] if node.alias else [(f" as {identifier(node.name)}", "")]
            self._pieces[at].written = [*texts, *alias]
            for each in self._pieces[at - 2 : at] if node.db else ():
                each.write()

    def _source(self, node: exp.Table, piece: Piece, before: str) -> Sequence[tuple[str, str]]:
        """Return what the role sees of the table that *node* names; *before*: the word before its name."""
        table = self._table_of(node)
        if table is None:
            parts, cte = (node.catalog, node.db, node.name), node.find_ancestor(exp.CTE)
            recursive = cte is not None and cte.alias == node.name and not node.db
            raise table_refusal(parts, self._catalog, recursive=recursive, position=piece.offset)
        label = quoted(self._catalog.label(table), 60)
        if not table.aggregated:
            rule = f"The rows of {label} may not be aggregated, so run_sql does not read them"
            raise refused(rule, "Use the tools that list it.", position=piece.offset)
        self._tables[table] = None
        if before == "lateral":
            raise refused("A table cannot be lateral", "Write lateral (select …).", position=piece.offset)
        seen = self._lens(table)
        if seen is None:
            return [(f"{identifier(table.schema)}.{identifier(table.name)}", "")]
        if before == "only" or node.args.get("only") or node.args.get("sample"):
            rule = f"Only and tablesample are not permitted for {label}"
            raise refused(rule, "Write order by random() limit 10.", position=piece.offset)
        return [("(", ""), *seen, (")", "")]

    def _shorten_columns(self, nodes: Sequence[Node]) -> None:
        """Write schema.table.column as table.column, since tables have aliases."""
        for column in nodes:
            if isinstance(column, exp.Column) and column.args.get("db"):
                at = self._index(column.args["db"])
                if at is None or column.args.get("catalog"):
                    hint = "Write table.column."
                    raise refused("A name has too many parts", hint, position=self._near(column))
                for each in self._pieces[at : at + 2]:
                    each.write()

    def _joined(self) -> Guarded:
        claims: dict[str, int] = {}
        texts: list[str] = []
        starts, length = [], 0
        for piece in self._pieces:
            starts.append(length)
            for text, claim in ((piece.text, ""),) if piece.written is None else piece.written:
                number = f"${claims.setdefault(claim, len(claims) + 1)}" if claim else ""
                texts.append(text + number)
                length += len(texts[-1])
            texts.append(" ")
            length += 1
        return Guarded(
            sql="".join(texts),
            tables=tuple(self._tables),
            claims=tuple(claims),
            pieces=self._pieces,
            starts=starts,
            named=self._named,
        )


def _cte_of(table: exp.Table) -> exp.CTE | None:
    """Return the CTE that *table* names, by PostgreSQL's rules of scope."""
    node: Node = table
    while not table.db and (parent := node.parent) is not None:
        known: Sequence[exp.CTE] = ()
        if isinstance(parent, exp.With):
            # Without RECURSIVE, a CTE sees those before it.
            all_of = parent.expressions
            known = (
                all_of if parent.recursive else all_of[: next(i for i, e in enumerate(all_of) if e is node)]
            )
        elif isinstance(with_ := parent.args.get("with_"), exp.With) and with_ is not node:
            known = with_.expressions
        for cte in known:
            if cte.alias == table.name:
                return cte
        node = parent
    return None
