"""Word the refusals of callers' SQL. What a worker answers in; an error without SQLite's text out."""

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from dbtools import errors
from dbtools.backends.free import (
    DESCRIBED,
    MISSING,
    SELECT_ONLY,
    FreeRun,
    refused,
    statement_of,
    unknown_column,
    unknown_function,
    unknown_table,
)
from dbtools.backends.sqlite.lens import is_withheld, permitted
from dbtools.backends.sqlite.syntax import fold, lexis, with_names
from dbtools.results import too_wide
from dbtools.sql import Token, TokenKind, code_of, words
from dbtools.types import quoted
from dbtools.vetting import NAMES

#: What to write for words of other databases.
HABITS: Mapping[str, str] = {
    **dict.fromkeys(
        ("date_trunc", "date_part", "extract", "to_char", "year", "month"), "Write strftime('%Y-%m', x)."
    ),
    **dict.fromkeys(("interval", "date_add", "date_sub", "dateadd"), "Write date(x, '+1 day')."),
    **dict.fromkeys(("datediff", "age"), "Write julianday(a) - julianday(b)."),
    **dict.fromkeys(("now", "getdate"), "Write datetime('now')."),
    **dict.fromkeys(("date", "timestamp"), "Write date('2024-12-31') or datetime('2024-12-31 10:00')."),
    **dict.fromkeys(("string_agg", "array_agg", "listagg"), "Write group_concat or json_group_array."),
    **dict.fromkeys(("array", "unnest"), "Write a JSON array and json_each."),
    **dict.fromkeys(("concat", "concat_ws"), "Write a || b."),
    **dict.fromkeys(("ilike", "similar"), "Write like, which ignores the case of ASCII letters."),
    **dict.fromkeys(("regexp", "regexp_like"), "Write like or glob."),
    **dict.fromkeys(("left", "right"), "Write substr(x, 1, 2), or substr(x, -2)."),
    **dict.fromkeys(("split_part", "strpos", "position", "charindex"), "Write instr and substr."),
    **dict.fromkeys(("lpad", "format"), "Write printf, such as printf('%05d', x)."),
    **dict.fromkeys(("greatest", "least"), "Write max or min with several arguments."),
    **dict.fromkeys(
        ("median", "percentile_cont", "within"),
        "Number the rows with row_number() in a subquery, and read the middle one.",
    ),
    **dict.fromkeys(("stddev", "stddev_pop"), "Write sqrt(avg(x * x) - avg(x) * avg(x))."),
    **dict.fromkeys(("rollup", "cube"), "Write union all of one select for each grouping."),
    **dict.fromkeys(("top", "fetch"), "Write limit 5 at the end."),
    "lateral": "Write a correlated subquery, or row_number() in a subquery.",
    "on": "For distinct on, write row_number() in a subquery.",
    "qualify": "Write the window function in a subquery, and its condition outside.",
    "generate_series": "Write with recursive n(i) as (select 1 union all select i + 1 from n where i < 9).",
}
#: Types before a text, which SQLite takes for columns.
TYPES = ("date", "timestamp", "interval")
#: Tables of SQLite, which are not in the catalog.
RESERVED = words(
    "sqlite_master sqlite_schema sqlite_temp_master sqlite_temp_schema sqlite_sequence "
    "sqlite_stat1 sqlite_stat4"
)
OUTSIDE = "Use it in a subquery, and its condition outside."
UNCLEAR = "A column does not exist, or is in several tables"
QUALIFY = "Write table.column."
UNKNOWN = "The statement reads what does not exist here"
TOO_MUCH_MEMORY = "The statement needs too much memory"
SMALLER = "Aggregate earlier, or read fewer rows and columns."
#: By the beginning of SQLite's name for the error.
STATES: Mapping[str, Callable[[], errors.CallError]] = {
    **dict.fromkeys(("SQLITE_BUSY", "SQLITE_LOCKED"), errors.Busy),
    **dict.fromkeys(("SQLITE_CANTOPEN", "SQLITE_NOTADB", "SQLITE_IOERR"), errors.DatabaseUnavailable),
    "SQLITE_CORRUPT": errors.Unreadable,
}
#: A part of what SQLite says, our words, and a hint.
RULES: Sequence[tuple[str, str, str]] = (
    ("incomplete input", "The statement is not complete", "End its last part."),
    ("misuse of aggregate", "An aggregate function is where none may be", "Use HAVING, or a subquery."),
    ("misuse of aliased aggregate", "An aggregate function is where none may be", "Use HAVING."),
    ("misuse of", "A window function is where none may be", OUTSIDE),
    ("unrecognized token", "A sign cannot be read", "Write cast(x as type), not x::type."),
    ("recursive", "A recursive WITH query must be SELECT … UNION [ALL] SELECT …", ""),
    ("cannot join using", "A column after USING is not in both tables", "Write ON."),
    ("sub-select returns", "A subquery returns several columns where one is expected", "Select one column."),
    ("integer overflow", "A computed integer exceeds 64 bits", "Multiply by 1.0 first."),
    ("malformed JSON", "A JSON function got a text that is not JSON", "Test it with json_valid first."),
    ("JSON path error", "A JSON path is not valid", "A path begins with $, such as $.name."),
    ("too big", "A text or blob is larger than 16 MiB", SMALLER),
    ("the same number", "Parts of the statement have different columns", "Give each equally many."),
    ("GROUP BY", "The GROUP BY clause is not valid", "Give each expression, or its number."),
    ("ORDER BY", "The ORDER BY clause is not valid", "Order by columns of the result, or their numbers."),
    ("fts5: syntax error", "The search after MATCH is not valid", 'Write words as "word".'),
    ("unterminated string", "The search after MATCH is not valid", 'Write words as "word".'),
    ("unable to use function", "MATCH, snippet and bm25 need a full-text table seen whole", DESCRIBED),
    ("too ", "The statement is too large or nested too deeply", "Split it, or use WITH."),
    ("out of memory", TOO_MUCH_MEMORY, SMALLER),
)  # fmt: skip


def readable(sql: str) -> str:
    """Return *sql* with names in backticks, or raise SqlRefused if it is not one statement that reads."""
    tokens = statement_of(sql, lexis)
    for token, after in zip(tokens, [*tokens[1:], tokens[-1]], strict=True):
        # Before a word, SQLite takes a byte order mark for white space.
        name = token.value.lower().lstrip("\ufeff")
        calls = after.text == "(" and token.kind is TokenKind.WORD
        reserved = name.startswith("pragma_") or (name.startswith("sqlite_") and not calls)
        if name in RESERVED or (reserved and token.kind is not TokenKind.TEXT):
            raise refused(f"There is no table {quoted(name)}", DESCRIBED, position=token.offset)
    return with_names(_unqualified(sql[: tokens[-1].end], tokens))


def _unqualified(sql: str, tokens: Sequence[Token]) -> str:
    """Return *sql* without `main.` before the names of tables: the file is attached under another name."""
    names = [fold(each.value) if each.kind in NAMES else each.text for each in tokens]
    schemas = [at for at, name in enumerate(names) if name == "main" and names[at - 1 : at] != ["."]]
    tables = {name for at in schemas for name in names[at + 2 : at + 3]}
    defined = {names[at - 1] for at in range(1, len(names)) if names[at : at + 2] == ["as", "("]}
    # It may be a column or an alias, and the table must not become a common table expression.
    if tables & defined or any(names[at + 1 : at + 2] != ["."] for at in schemas):
        return sql
    for at in schemas:
        start, end = tokens[at].offset, tokens[at + 1].end
        sql = sql[:start] + " " * (end - start) + sql[end:]
    return sql


def worded(answer: Mapping[str, Any], run: FreeRun) -> errors.CallError:
    """Return the error of *answer* in dbtools' words; only names that the caller wrote are in it."""
    name = str(answer.get("name", ""))
    for state, error in STATES.items():
        if name.startswith(state):
            return error()
    match answer["error"]:
        case "lost" | "memory":
            return refused(TOO_MUCH_MEMORY, SMALLER)
        case "wide":
            return too_wide()
        case "changed":
            return errors.SchemaChanged()
        case "open":
            return errors.Unreadable()
        case "audit":
            return refused(UNKNOWN, DESCRIBED)
        case "denied":
            return _Words(run).of_event(*answer["event"])
        case _:
            return _Words(run).of_message(str(answer["text"]))


class _Words:
    """Words the refusals of one statement."""

    def __init__(self, run: FreeRun) -> None:
        self._run, self._catalog = run, run.catalog
        self._tokens = code_of(run.sql, lexis)
        self._names = {fold(token.value) for token in self._tokens}
        self._called = {fold(name.value) for name, after in pairwise(self._tokens) if after.text == "("}

    def of_event(self, action: int, first: str | None, second: str | None) -> errors.SqlRefused:
        """Return the refusal of what the authorizer denied."""
        if action == sqlite3.SQLITE_FUNCTION:
            return self._of_function(str(second))
        if action == sqlite3.SQLITE_READ:
            return self._of_table(str(first))
        return refused("The statement does more than read", SELECT_ONLY)

    def of_message(self, text: str) -> errors.SqlRefused:
        """Return the refusal that stands for what SQLite says."""
        for pattern, word in MESSAGES.items():
            if found := re.fullmatch(pattern, text, re.DOTALL):
                return word(self, found[1])
        for part, rule, hint in RULES:
            if part in text:
                return refused(rule, hint)
        return refused("The database cannot compute this statement", "Try a simpler one.")

    def _is_written(self, name: str) -> bool:
        """Return whether the caller wrote *name*, or each part of it."""
        return fold(name) in self._names or self._names.issuperset(fold(name).split("."))

    def _position(self, name: str) -> int | None:
        """Return where *name* is, if it is in one place only."""
        last = fold(name.rpartition(".")[2])
        places = [token.offset for token in self._tokens if fold(token.value) == last]
        return places[0] if len(places) == 1 else None

    def _of_table(self, name: str) -> errors.SqlRefused:
        name = fold(name).removeprefix("temp.")
        if not self._is_written(name):
            return refused(UNKNOWN, DESCRIBED)
        if any(fold(table.name) == name for table in self._catalog.tables if is_withheld(table)):
            return refused(f"run_sql does not read {name}", "List its rows instead.")
        place = self._position(name)
        if name in self._called:
            rule = f"There is no table function {quoted(name)}"
            return refused(rule, HABITS.get(name, DESCRIBED), position=place)
        return unknown_table(name, self._catalog, position=place)

    def _of_function(self, name: str) -> errors.SqlRefused:
        known = fold(name) if self._is_written(name) else ""
        # It may be one of another version of SQLite.
        others = [each for each in permitted(self._run.functions) if each != known]
        hint, place = HABITS.get(known, ""), self._position(known)
        return unknown_function(known, others, hint=hint, position=place)

    def _of_syntax(self, near: str) -> errors.SqlRefused:
        rule = f"Syntax error near {near}" if self._is_written(near) else "Syntax error"
        place = self._position(near)
        before = next((word.word for word, after in pairwise(self._tokens) if after.offset == place), "")
        # Of "on", only "distinct on" is a habit.
        words = [each for each in (fold(near), before) if each != "on" or "distinct" in self._names]
        hint = next((HABITS[each] for each in words if each in HABITS), MISSING)
        return refused(rule, hint, position=place)

    def _of_arguments(self, name: str) -> errors.SqlRefused:
        shown = f"The function {fold(name)}" if self._is_written(name) else "A function"
        return refused(f"{shown} takes another number of arguments")

    def _of_column(self, name: str) -> errors.SqlRefused:
        # Before the name of a column, SQLite may write that of the file, which is a secret.
        qualifier, _, column = name.rpartition(".")
        place = self._position(column)
        if not self._is_written(column):
            return refused(UNCLEAR, QUALIFY)
        if fold(column) in TYPES:
            return refused(f"There is no column {quoted(column)}", HABITS[fold(column)], position=place)
        shown = f"{qualifier}.{column}" if qualifier and self._is_written(qualifier) else column
        return unknown_column(shown, self._run.sql, self._catalog, tables=self._names, position=place)

    def _of_ambiguous(self, name: str) -> errors.SqlRefused:
        column = name.rpartition(".")[2]
        known = self._is_written(column)
        return refused(f"The column {column} is in several tables" if known else UNCLEAR, QUALIFY)


#: What SQLite says, with the name in it.
MESSAGES: Mapping[str, Callable[[_Words, str], errors.SqlRefused]] = {
    "no such table: (.*)": _Words._of_table,
    "no such column: (.*)": _Words._of_column,
    "no such function: (.*)": _Words._of_function,
    "ambiguous column name: (.*)": _Words._of_ambiguous,
    "'(.*)' is not a function": _Words._of_table,
    r"wrong number of arguments to function (.*)\(\)": _Words._of_arguments,
    'near "(.*)": syntax error': _Words._of_syntax,
}
