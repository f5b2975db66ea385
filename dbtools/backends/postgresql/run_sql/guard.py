"""Check ad-hoc SQL before the server sees it. A caller's SQL and a scope in; what may run, or a refusal, out.

It runs in a process without connections and secrets: see `guarding`.

sqlglot parses the statement, but does not write what runs: it would change the meaning of 8 of 127 constructs
that analysts use. What runs are the spelled lexemes of the caller's own SQL, with these replaced:

- the name of a table, by that of a CTE that dbtools writes before the statement: what the role sees of the
  table, or, if that is all of it, by its qualified name;
- the name of a CTE, so that no row filter can mean it;
- the name of a function, a type or an operator, by the qualified one.

So a table is read as the role sees it, or its name is unknown to the server, even where sqlglot and
PostgreSQL disagree about what a name means. Every node of the tree must be of a known class, every name and
string must occur in it, and every name before a bracket must be a permitted function or an alias.
"""

import base64
import pickle
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from sqlglot import exp

from dbtools.backends.compiled import identifier
from dbtools.backends.postgresql.run_sql.casts import Casts
from dbtools.backends.postgresql.run_sql.guarded import Guarded, Lexeme, LexemeKind, Scope
from dbtools.backends.postgresql.run_sql.parsing import Tree, lexemes_of
from dbtools.backends.postgresql.schema.vocabulary import HABITS, SYSTEM
from dbtools.backends.run_sql import SIMPLER, sql_refusal, unknown_function, unknown_table
from dbtools.errors import SqlRefused, listing
from dbtools.schema.catalog import Table
from dbtools.schema.sql import words
from dbtools.values.types import quote

#: Forms with words between their arguments.
XML_FORMS = words("xmlelement xmlforest xmlparse xmlpi xmlroot xmlserialize xmltable")
SYSTEM_COLUMNS = words("ctid xmin xmax cmin cmax tableoid")
MOST_TABLES = 60  #: references to tables
MOST_SCOPES = 8  #: that a process keeps
PUNCTUATION = words(":: => : . , ( ) [ ]")
#: Operators that would lose their precedence with a schema.
PRECEDING = words("+ - * / % ^ < > = <= >= <>")
#: Keywords that look like functions.
FUNCTION_KEYWORDS = words("coalesce nullif greatest least grouping row any all some exists array values")


#: By the key of a request, the least recently used one first.
SCOPES: OrderedDict[str, Scope] = OrderedDict()


def start() -> None:
    """Parse a statement, so that the first caller need not wait for what sqlglot prepares."""
    Tree(lexemes_of("select 1"))


def answer(request: Mapping[str, Any]) -> Mapping[str, object]:
    """Return the answer to *request*: the statement as it may run, or the refusal."""
    key = request["key"]
    if key not in SCOPES:
        if "spec" not in request:
            return {"needs": "spec"}
        SCOPES[key] = pickle.loads(base64.b64decode(request["spec"]))
        if len(SCOPES) > MOST_SCOPES:
            SCOPES.popitem(last=False)
    SCOPES.move_to_end(key)
    try:
        return guard(request["sql"], SCOPES[key]).answer()
    except SqlRefused as exc:
        return {"error": "refused", "message": exc.message, "hint": exc.hint}


def guard(sql: str, scope: Scope) -> Guarded:
    """Return *sql* rewritten for what *scope* shows, or raise SqlRefused."""
    if scope.vocabulary.obstacles:
        raise sql_refusal(f"run_sql is not available. {scope.vocabulary.obstacles[0]}")
    try:
        return _Guard(lexemes_of(sql), scope).guarded_statement()
    except RecursionError as exc:
        raise sql_refusal("The statement is nested too deeply", SIMPLER) from exc


class _Guard:
    def __init__(self, lexemes: list[Lexeme], scope: Scope) -> None:
        self._lexemes, self._catalog, self._vocabulary = lexemes, scope.catalog, scope.vocabulary
        self._whole = scope.whole
        self._check_words()
        self._casts = Casts(lexemes, self._catalog, self._vocabulary)
        self._casts.check()
        self._word = self._casts.word
        self._tree = Tree(lexemes)
        self._sources: dict[Table, str] = {}
        self._calls_others = False

    def guarded_statement(self) -> Guarded:
        """Return the statement, or raise SqlRefused."""
        self._check_nodes()
        self._check_names()
        return Guarded(
            sql="".join(lexeme.written for lexeme in self._lexemes),
            sources=self._sources,
            lexemes=self._lexemes,
            calls_others=self._calls_others,
        )

    def _check_words(self) -> None:
        """Check the operators and the system columns, and write the schemas of operators."""
        signs = self._vocabulary.operators
        for lexeme, after in zip_longest(self._lexemes, self._lexemes[1:]):
            if lexeme.kind is LexemeKind.NAME and lexeme.value in SYSTEM_COLUMNS:
                rule = f"The system column {lexeme.value} is not permitted"
                raise sql_refusal(rule, "Use the key of the table.", position=lexeme.offset)
            is_call = lexeme.kind is LexemeKind.NAME and after is not None and after.text == "("
            if is_call and lexeme.value in XML_FORMS:
                rule = f"{lexeme.value} is not supported"
                raise sql_refusal(rule, "Select the values, without XML.", position=lexeme.offset)
            if lexeme.kind is not LexemeKind.SIGN or lexeme.text in PUNCTUATION:
                continue
            if lexeme.text not in signs:
                rule = f"The operator {lexeme.text} is not permitted"
                raise sql_refusal(rule, HABITS.get(lexeme.text, ""), position=lexeme.offset)
            schema = signs[lexeme.text]
            if schema and lexeme.text not in PRECEDING:
                lexeme.replacement = f"operator({identifier(schema)}.{lexeme.text})"

    def _check_nodes(self) -> None:
        """Check and rename tables and CTEs, and the types of columns."""
        tables = 0
        for node in self._tree.nodes:
            match node:
                case exp.Table(this=exp.Identifier()):
                    tables += 1
                    self._write_table(node)
                case exp.CTE():
                    at = self._name_in(node)
                    self._lexemes[at].replacement = _name_of_cte(at)
                case exp.ColumnDef():
                    self._casts.check_type(self._lexeme_of(node.this) + 1)
                case exp.Column() if node.args.get("db"):
                    self._shorten_column(node)
        if tables > MOST_TABLES:
            raise sql_refusal(f"The statement names more than {MOST_TABLES} tables", SIMPLER)

    def _lexeme_of(self, node: exp.Expr) -> int:
        """Return the number of the lexeme that *node*, a name, is."""
        at = self._tree.lexeme_of(node)
        if at is None or self._lexemes[at].kind is not LexemeKind.NAME:
            raise sql_refusal("A name is not permitted here", SIMPLER, position=self._tree.offset_of(node))
        return at

    def _name_in(self, cte: exp.CTE) -> int:
        """Return the number of the lexeme that names *cte*."""
        return self._lexeme_of(cte.args["alias"].this)

    def _write_table(self, node: exp.Table) -> None:
        """Replace the name of a table or CTE, and keep it as the alias by which columns are qualified."""
        at = self._lexeme_of(node.this)
        cte = _cte_of(node)
        name = self._source(node, at) if cte is None else _name_of_cte(self._name_in(cte))
        self._lexemes[at].replacement = name if node.alias else f"{name} as {identifier(node.name)}"
        if node.db:
            self._drop(at - 2)

    def _shorten_column(self, node: exp.Column) -> None:
        """Write schema.table.column as table.column, since tables have aliases."""
        if node.args.get("catalog"):
            position = self._tree.offset_of(node)
            raise sql_refusal("A name has too many parts", "Write table.column.", position=position)
        self._drop(self._lexeme_of(node.args["db"]))

    def _drop(self, at: int) -> None:
        """Drop the schema at *at* and its dot."""
        for lexeme in self._lexemes[at : at + 2]:
            lexeme.replacement = ""

    def _source(self, node: exp.Table, at: int) -> str:
        """Return what to read instead of the table that *node* names."""
        offset = self._lexemes[at].offset
        table = self._table_of(node)
        if table is None:
            raise self._unknown_table(node, offset)
        label = quote(self._catalog.label(table), 60)
        if not table.aggregated:
            rule = f"run_sql cannot read {label}, whose rows may not be aggregated"
            raise sql_refusal(rule, "Use the tools that list its rows.", position=offset)
        if (function := self._vocabulary.checked.get(table.location)) is not None:
            rule = f"run_sql cannot read {label}: the CHECK of a domain in it calls {function}"
            raise sql_refusal(rule, "[functions] does not permit this function.", position=offset)
        if table.location in self._whole:
            return self._sources.setdefault(table, f"{identifier(table.schema)}.{identifier(table.name)}")
        # PostgreSQL would ignore the word before the name of a CTE.
        if node.args.get("only") or self._word(at - (3 if node.db else 1)) == "only":
            raise sql_refusal(f"ONLY is not permitted for {label}", "Leave it out.", position=offset)
        if node.args.get("sample"):
            rule = f"TABLESAMPLE is not permitted for {label}, of which you see a part"
            raise sql_refusal(rule, "Write where random() < 0.1.", position=offset)
        return self._sources.setdefault(table, identifier(f"dbtools table {at}"))

    def _table_of(self, node: exp.Table) -> Table | None:
        """Return the table that *node* names; None if it is unknown."""
        if node.db or node.catalog:
            return None if node.catalog else self._catalog.table(node.db, node.name)
        for schema in self._catalog.search_path:
            if (found := self._catalog.table(schema, node.name)) is not None:
                return found
        known = self._namesakes(node)
        return known[0] if len(known) == 1 else None

    def _namesakes(self, node: exp.Table) -> Sequence[Table]:
        return [table for table in self._catalog.tables if table.name == node.name]

    def _unknown_table(self, node: exp.Table, offset: int) -> SqlRefused:
        if len(known := self._namesakes(node)) > 1 and not node.db:
            names = listing(self._catalog.full_name(each) for each in known)
            return sql_refusal(f"{quote(node.name, 60)} is ambiguous", f"Write {names}.", position=offset)
        name = ".".join(each for each in (node.catalog, node.db, node.name) if each)
        return unknown_table(name, self._catalog, position=offset)

    def _check_names(self) -> None:
        """Check that the tree has every name and string, and that only functions are called."""
        nodes, lexeme_of = self._tree.nodes, self._tree.lexeme_of
        read = {lexeme_of(node) for node in nodes if isinstance(node, exp.Identifier | exp.Literal)}
        called = {lexeme_of(node) for node in nodes if isinstance(node, exp.Anonymous)}
        aliases = {lexeme_of(node.this) for node in nodes if isinstance(node, exp.TableAlias)}
        like_columns = {*self._calls_like_columns()}
        for at, lexeme in enumerate(self._lexemes):
            if lexeme.kind in (LexemeKind.NAME, LexemeKind.STRING) and at not in read | called:
                raise sql_refusal(
                    f"{quote(lexeme.value, 40)} is not permitted here", SIMPLER, position=lexeme.offset
                )
            if lexeme.kind is LexemeKind.KEYWORD and at in called and lexeme.text not in FUNCTION_KEYWORDS:
                raise self._unknown_function(lexeme.text, lexeme.offset)
            if lexeme.kind is not LexemeKind.NAME or at in aliases:
                continue
            if at in called or self._word(at + 1) == "(":
                self._check_function(at, is_called=at in called)
            elif at in like_columns and lexeme.replacement is None:
                # No column and no function has this name.
                lexeme.replacement = identifier("dbtools nothing")

    def _check_function(self, at: int, *, is_called: bool) -> None:
        """Check the function at *at*, and write its schema if it has namesakes that are not permitted."""
        lexeme, schema = self._lexemes[at], ""
        if self._word(at - 1) == ".":
            schema = self._lexemes[at - 2].value
            is_called = is_called and self._word(at - 2) == '"' and self._word(at - 3) != "."
        found = self._vocabulary.schema_of(lexeme.value, schema) if is_called else None
        if found is None or self._word(at + 1) != "(":
            raise self._unknown_function(lexeme.value, lexeme.offset)
        self._calls_others |= found != SYSTEM and {*self._vocabulary.functions[lexeme.value]} != {SYSTEM}
        if found and not schema:
            lexeme.replacement = f"{identifier(found)}.{lexeme.text}"

    def _unknown_function(self, name: str, offset: int) -> SqlRefused:
        known = self._vocabulary.names
        return unknown_function(name, known, hint=HABITS.get(name, ""), position=offset)

    def _calls_like_columns(self) -> Iterator[int]:
        """Yield the lexemes that may be calls of what is not permitted, although no bracket follows.

        To PostgreSQL, `x.f` and `(x).f` are the function f, or a cast to the type f, of the value x, unless x
        is a row that has a column f.
        """
        owners: dict[str, list[exp.Expr]] = {}
        for node in self._tree.nodes:
            if isinstance(node, exp.Table | exp.Subquery | exp.CTE | exp.Lateral | exp.Unnest):
                owners.setdefault(node.alias_or_name, []).append(node)
        for at, lexeme in enumerate(self._lexemes):
            is_named = lexeme.kind is LexemeKind.NAME and lexeme.value in self._vocabulary.attributes
            if not is_named or self._word(at - 1) != "." or self._word(at + 1) == "(":
                continue
            owner = self._lexemes[at - 2]
            if owner.kind is LexemeKind.NAME and self._word(at + 1) == "." and self._word(at - 3) != ".":
                continue  # the table in schema.table.column
            known = owners.get(owner.value, []) if owner.kind is LexemeKind.NAME else []
            if not known or not all(self._has_column(each, lexeme.value) for each in known):
                yield at

    def _has_column(self, owner: exp.Expr, name: str) -> bool:
        """Return whether the alias of *owner* means rows, of which *name* can only be a column."""
        takes_rows = name in self._vocabulary.attributes_of_rows
        match owner:
            case exp.Table(this=exp.Identifier()) if _cte_of(owner) is None:
                table = self._table_of(owner)
                return not takes_rows or (table is not None and name in table.column_by_name)
            case exp.Table(this=exp.Identifier() | exp.Subquery()) | exp.Lateral(this=exp.Subquery()):
                return not takes_rows
            case exp.Subquery() | exp.CTE():
                return not takes_rows
            case _:
                return False


def _name_of_cte(at: int) -> str:
    """Return the new name of the caller's CTE at *at*."""
    return identifier(f"dbtools cte {at}")


def _cte_of(table: exp.Table) -> exp.CTE | None:
    """Return the CTE that *table* names, by PostgreSQL's rules of scope."""
    node: exp.Expr = table
    while not table.db and (parent := node.parent) is not None:
        known: Sequence[exp.CTE] = ()
        if isinstance(parent, exp.With):
            # Without RECURSIVE, a CTE sees those before it.
            known = parent.expressions
            known = known if parent.recursive else known[: [*map(id, known)].index(id(node))]
        elif isinstance(with_ := parent.args.get("with_"), exp.With) and with_ is not node:
            known = with_.expressions
        for cte in known:
            if cte.alias == table.name:
                return cte
        node = parent
    return None
