"""Word the refusals of callers' SQL. What a worker answers in; an error without SQLite's text out."""

import re
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from dbtools import errors
from dbtools.backends.free import (
    DESCRIBED,
    SELECT_ONLY,
    FreeRun,
    refused,
    unknown_column,
    unknown_function,
    unknown_table,
)
from dbtools.backends.sqlite.lens import FUNCTIONS, is_withheld
from dbtools.backends.sqlite.syntax import fold, lexis, with_names
from dbtools.catalog import Catalog
from dbtools.results import too_wide
from dbtools.sql import Kind, SqlError, Token, code_of, words

READS = ("select", "with", "values")
#: What a caller may have meant by the first word of a statement.
INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("insert", "update", "delete", "replace"), "run_sql only reads. "),
    **dict.fromkeys(
        ("create", "alter", "drop", "vacuum", "reindex", "analyze"), "run_sql changes no schema. "
    ),
    **dict.fromkeys(("attach", "detach"), "There is one database. "),
    **dict.fromkeys(
        ("begin", "commit", "rollback", "savepoint", "release", "end"), "Each call is one transaction. "
    ),
    "pragma": f"{DESCRIBED} ",
    "explain": "Plans are not shown. ",
}
FUNCTIONS_INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(
        ("date_trunc", "date_format", "to_char", "extract", "date_part", "year", "month"), "strftime"
    ),
    **dict.fromkeys(("regexp", "regexp_like", "ilike"), "like or glob"),
    **dict.fromkeys(("now", "getdate", "sysdate"), "datetime('now')"),
    "left": "substr",
    "randomblob": "random",
}
#: Tables of SQLite, which are not in the catalog.
RESERVED = words(
    "sqlite_master sqlite_schema sqlite_temp_master sqlite_temp_schema sqlite_sequence "
    "sqlite_stat1 sqlite_stat4"
)
UNKNOWN = "The statement reads what does not exist here"
MEMORY = "The statement needs too much memory"
SMALLER = "Aggregate earlier, or read fewer rows and columns."
#: What SQLite says, the kind of the name in it, and our words.
MISSING = re.compile(
    r"(no such table|no such column|no such function|ambiguous column name): (.*)", re.DOTALL
)
NOT_A_FUNCTION = re.compile(r"'(.*)' is not a function", re.DOTALL)
SYNTAX = re.compile(r"near \"(.*)\": syntax error", re.DOTALL)
CALLED = re.compile(r"wrong number of arguments to function (.*)\(\)", re.DOTALL)
#: Other errors: a part of what SQLite says, our words, and a hint.
FAULTS: Sequence[tuple[str, str, str]] = (
    ("incomplete input", "The statement is not complete", "Close all quotes and parentheses."),
    ("misuse of aggregate", "An aggregate function is where none may be", "Use HAVING, or a subquery."),
    ("misuse of window function", "A window function is where none may be", "Use it in a subquery."),
    ("cannot join using", "A column after USING is not in both tables", "Write ON."),
    ("circular reference", "A WITH query reads itself", "Give it a name that no table has."),
    ("no such index", "The index does not exist", "Leave out INDEXED BY."),
    ("recursive", "A recursive WITH query must be SELECT … UNION [ALL] SELECT …", ""),
    ("integer overflow", "A computed integer exceeds 64 bits", "Multiply by 1.0 first."),
    ("malformed JSON", "A JSON function got a text that is not JSON", "Test it with json_valid first."),
    ("JSON path error", "A JSON path is not valid", "A path begins with $, such as $.name."),
    ("too big", "A text or blob is larger than 16 MiB", SMALLER),
    ("sub-select returns", "A subquery returns several columns where one is expected", "Select one column."),
    ("do not have the same number", "The parts of a UNION, EXCEPT or INTERSECT have different columns", ""),
    ("all VALUES must have the same", "The rows of VALUES have different numbers of columns", ""),
    ("GROUP BY", "The GROUP BY clause is not valid", "Give each expression, or its number."),
    ("ORDER BY", "The ORDER BY clause is not valid", "Order by columns of the result, or their numbers."),
    ("fts5: syntax error", "The search after MATCH is not valid", 'Write words as "word".'),
    ("unterminated string", "The search after MATCH is not valid", 'Write words as "word".'),
    ("unable to use function", "MATCH, snippet and bm25 need a full-text table seen whole", DESCRIBED),
    ("parser stack overflow", "The statement is nested too deeply", "Use WITH."),
    ("Expression tree is too large", "An expression is nested too deeply", "Use IN, or WITH."),
    ("too many", "The statement has too many columns, terms or tables", "Split it."),
    ("String or BLOB", "A text or blob is larger than 16 MiB", SMALLER),
    ("out of memory", MEMORY, SMALLER),
)  # fmt: skip


def readable(sql: str, catalog: Catalog) -> str:
    """Return *sql* with names in backticks, or raise SqlRefused if it is not one statement that reads."""
    try:
        tokens = code_of(sql, lexis)
    except SqlError as exc:
        hint = "run_sql has no parameters: write the value." if "parameter" in exc.problem else ""
        raise refused(exc.problem[:1].upper() + exc.problem[1:], hint, position=exc.offset) from exc
    ends = [token for token in tokens if token.kind is Kind.SEMICOLON]
    statement = [token for token in tokens if not ends or token.offset < ends[0].offset]
    if not statement:
        raise refused("The statement is empty", SELECT_ONLY)
    if len(tokens) > len(statement) + len(ends):
        raise refused("There are several statements", "Make one call for each.", position=ends[0].offset)
    first = statement[0]
    if first.word not in READS:
        hint = f"{INSTEAD.get(first.word, '')}{SELECT_ONLY}"
        raise refused("This is not a statement that reads", hint, position=first.offset)
    for token, after in zip(statement, [*statement[1:], None], strict=True):
        _check(token, after, catalog)
    return with_names(sql[: statement[-1].end])


def _check(token: Token, after: Token | None, catalog: Catalog) -> None:
    """Raise SqlRefused if *token* is a parameter, or a table of SQLite's own."""
    if token.kind is Kind.PARAMETER:
        raise refused("run_sql has no parameters", "Write the value.", position=token.offset)
    # Before a word, SQLite takes a byte order mark for white space.
    name = token.value.lower().lstrip("\ufeff")
    calls = after is not None and after.text == "(" and token.kind is Kind.WORD
    reserved = name.startswith("pragma_") or (name.startswith("sqlite_") and not calls)
    if name in RESERVED or (reserved and token.kind is not Kind.TEXT):
        raise unknown_table(name, catalog, position=token.offset)


def worded(answer: Mapping[str, Any], run: FreeRun) -> errors.CallError:
    """Return the error of *answer* in dbtools' words; only names that the caller wrote are in it."""
    kind, text = answer["error"], str(answer.get("text", ""))
    name = str(answer.get("name", ""))
    if kind in ("lost", "memory"):
        return refused(MEMORY, SMALLER)
    if kind == "wide":
        return too_wide()
    if kind == "changed":
        return errors.SchemaChanged()
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return errors.Busy()
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_NOTADB", "SQLITE_IOERR")):
        return errors.DatabaseUnavailable()
    if kind == "open" or name.startswith("SQLITE_CORRUPT"):
        return errors.Unreadable()
    words = Words(run)
    if kind == "audit":
        return refused(UNKNOWN, DESCRIBED)
    if kind == "denied":
        return words.of_event(*answer["event"])
    return words.of_message(text)


class Words:
    """Words the refusals of one statement."""

    def __init__(self, run: FreeRun) -> None:
        self._catalog = run.catalog
        self._withheld = {fold(table.name) for table in run.catalog.tables if is_withheld(table)}
        self._tokens = code_of(run.sql, lexis)
        self._names = {fold(token.value) for token in self._tokens}
        self._sql = fold(run.sql)

    def _position(self, name: str) -> int | None:
        """Return where *name* is, if it is in one place only."""
        last = fold(name.rpartition(".")[2])
        places = [token.offset for token in self._tokens if fold(token.value) == last]
        return places[0] if len(places) == 1 else None

    def of_table(self, name: str) -> errors.SqlRefused:
        """Return the refusal of the table *name*, which may be one that the caller has not written."""
        name = fold(name.removeprefix("main.").removeprefix("temp."))
        if name in self._withheld:
            return refused(f"run_sql does not read {name}", "Use list_rows.")
        if name not in self._names and name not in self._sql:
            return refused(UNKNOWN, DESCRIBED)
        return unknown_table(name, self._catalog, position=self._position(name))

    def of_event(self, action: int, first: str | None, second: str | None) -> errors.SqlRefused:
        """Return the refusal of what the authorizer denied."""
        if action == sqlite3.SQLITE_FUNCTION:
            return self._of_function(str(second))
        if action == sqlite3.SQLITE_READ:
            return self.of_table(str(first))
        return refused("The statement does more than read", SELECT_ONLY)

    def _of_function(self, name: str) -> errors.SqlRefused:
        name = name if fold(name) in self._sql else ""
        error = unknown_function(fold(name), FUNCTIONS, position=self._position(name))
        instead = FUNCTIONS_INSTEAD.get(fold(name))
        return refused(error.message, f"Use {instead}. {error.hint}") if instead else error

    def of_message(self, text: str) -> errors.SqlRefused:
        """Return the refusal that stands for what SQLite says."""
        if found := NOT_A_FUNCTION.fullmatch(text):
            return self._of_called(found[1])
        if found := SYNTAX.fullmatch(text):
            shown = found[1] if fold(found[1]) in self._sql else ""
            where = self._position(shown)
            return refused(
                f"Syntax error near {shown}" if shown else "Syntax error", SELECT_ONLY, position=where
            )
        if (found := CALLED.fullmatch(text)) and fold(found[1]) in self._names:
            return refused(f"The function {fold(found[1])} takes another number of arguments")
        if found := MISSING.fullmatch(text):
            return self._of_missing(found[1], found[2])
        for part, rule, hint in FAULTS:
            if part in text:
                return refused(rule, hint)
        return refused("The database cannot compute this statement", "Try a simpler one.")

    def _of_called(self, name: str) -> errors.SqlRefused:
        if any(fold(table.name) == fold(name) for table in self._catalog.tables):
            return refused(f"{name} is a table, not a function", position=self._position(name))
        return self.of_table(name)

    def _of_missing(self, what: str, name: str) -> errors.SqlRefused:
        if what == "no such function":
            return self._of_function(name)
        if what == "no such table":
            return self.of_table(name)
        # Before the name of a column, SQLite may write that of the file, which is a secret.
        column = name.rpartition(".")[2]
        if fold(column) not in self._names:
            return refused("A column does not exist, or is in several tables", "Write table.column.")
        if what == "ambiguous column name":
            return refused(f"The column {column} is in several tables", "Write table.column.")
        return unknown_column(column, self._catalog, tables=self._names, position=self._position(column))
