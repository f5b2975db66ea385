"""Word the refusals of callers' SQL. What a worker answers in; an error without SQLite's text out."""

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dbtools import errors
from dbtools.backends.free import (
    DESCRIBED,
    MISSING as SOMETHING_MISSING,
    SELECT_ONLY,
    FreeRun,
    no_parameters,
    not_reading,
    refused,
    unknown_column,
    unknown_function,
    unknown_table,
)
from dbtools.backends.sqlite.lens import is_withheld, permitted
from dbtools.backends.sqlite.syntax import fold, lexis, with_names
from dbtools.results import too_wide
from dbtools.sql import Kind, SqlError, Token, code_of, words
from dbtools.types import quoted
from dbtools.vetting import NAMES

READS = ("select", "with", "values")
#: What to use for a function of other databases, or of another version.
FUNCTIONS_INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(
        ("date_trunc", "date_format", "date_part", "year", "month", "day", "hour"),
        "strftime, such as strftime('%Y-%m', x)",
    ),
    "to_char": "strftime for dates, or printf for numbers",
    **dict.fromkeys(("regexp", "regexp_like", "similar"), "like or glob"),
    "regexp_replace": "replace",
    **dict.fromkeys(("now", "getdate", "sysdate"), "datetime('now')"),
    **dict.fromkeys(("datediff", "age"), "julianday(a) - julianday(b) for a number of days"),
    **dict.fromkeys(("date_add", "dateadd", "date_sub"), "date(x, '+1 day')"),
    **dict.fromkeys(("string_agg", "array_agg", "listagg"), "group_concat, or json_group_array"),
    **dict.fromkeys(("concat", "concat_ws"), "the operator ||"),
    **dict.fromkeys(("nvl",), "coalesce"),
    **dict.fromkeys(("greatest", "least"), "max or min with several arguments"),
    **dict.fromkeys(("lpad", "to_hex"), "printf, such as printf('%05d', x)"),
    **dict.fromkeys(("split_part", "strpos", "position", "charindex"), "instr and substr"),
    **dict.fromkeys(
        ("median", "percentile", "percentile_cont"),
        "row_number() over (order by x) and count(*) over () in a subquery, and read the middle row",
    ),
    **dict.fromkeys(("stddev", "stdev", "stddev_pop"), "sqrt(avg(x * x) - avg(x) * avg(x))"),
    **dict.fromkeys(("variance", "var_pop"), "avg(x * x) - avg(x) * avg(x)"),
    **dict.fromkeys(("unnest", "json_array_elements", "string_to_array"), "from json_each(x)"),
    **dict.fromkeys(("rollup", "cube"), "union all of one select for each grouping"),
    "if": "iif",
    "len": "length",
    "left": "substr",
    "randomblob": "random",
}
#: What to write for syntax of other databases, by a word of the statement.
SYNTAX_INSTEAD: Mapping[str, str] = {
    "ilike": "Write like, which ignores the case of ASCII letters.",
    "extract (": "Write strftime('%Y', x).",
    "interval": "Write date(x, '+1 day').",
    "top": "Write limit 5 at the end.",
    "fetch first": "Write limit 5 at the end.",
    "left (": "Write substr(x, 1, 2) for left(x, 2).",
    "right (": "Write substr(x, -2) for right(x, 2).",
    "isnull (": "Write ifnull(x, y), or x is null.",
    "within group": "Number the rows in a subquery, and read the middle one.",
    "lateral": "Write a correlated subquery, or row_number() in a subquery.",
    "distinct on": "For distinct on, write row_number() in a subquery.",
    "qualify": "Write the window function in a subquery, and its condition outside.",
    "rollup": "Write union all of one select for each grouping.",
    "array": "Write a JSON array and json_each.",
}
#: What to write for types before a text, which SQLite takes for columns.
TYPES_INSTEAD: Mapping[str, str] = {
    "interval": "Write date(x, '+1 day').",
    "date": "Write date('2024-12-31').",
    "timestamp": "Write datetime('2024-12-31 10:00').",
}
#: What to write for tables of other databases.
TABLES_INSTEAD: Mapping[str, str] = {
    "generate_series": "Write with recursive n(i) as (select 1 union all select i + 1 from n where i < 9).",
    "dual": "Leave out FROM.",
}
#: Tables of SQLite, which are not in the catalog.
RESERVED = words(
    "sqlite_master sqlite_schema sqlite_temp_master sqlite_temp_schema sqlite_sequence "
    "sqlite_stat1 sqlite_stat4"
)
OUTSIDE = "Use it in a subquery, and its condition outside."
UNCLEAR = "A column does not exist, or is in several tables"
QUALIFY = "Write table.column."
UNKNOWN = "The statement reads what does not exist here"
MEMORY = "The statement needs too much memory"
EQUAL = "Give each equally many columns."
SMALLER = "Aggregate earlier, or read fewer rows and columns."
#: By the beginning of SQLite's name for the error.
STATES: Mapping[str, Callable[[], errors.CallError]] = {
    **dict.fromkeys(("SQLITE_BUSY", "SQLITE_LOCKED"), errors.Busy),
    **dict.fromkeys(("SQLITE_CANTOPEN", "SQLITE_NOTADB", "SQLITE_IOERR"), errors.DatabaseUnavailable),
    "SQLITE_CORRUPT": errors.Unreadable,
}
#: A part of what SQLite says, our words, and a hint.
FAULTS: Sequence[tuple[str, str, str]] = (
    ("incomplete input", "The statement is not complete", "Close all parentheses, and end the last part."),
    ("misuse of aggregate", "An aggregate function is where none may be", "Use HAVING, or a subquery."),
    ("misuse of aliased window", "A window function is where none may be", OUTSIDE),
    ("misuse of window function", "A window function is where none may be", OUTSIDE),
    ("misuse of aliased aggregate", "An aggregate function is where none may be", "Use HAVING."),
    ("unrecognized token", "A sign cannot be read", "Write cast(x as type), not x::type."),
    ("cannot join using", "A column after USING is not in both tables", "Write ON."),
    ("circular reference", "A WITH query reads itself", "Give it a name that no table has."),
    ("no such index", "The index does not exist", "Leave out INDEXED BY."),
    ("recursive", "A recursive WITH query must be SELECT … UNION [ALL] SELECT …", ""),
    ("integer overflow", "A computed integer exceeds 64 bits", "Multiply by 1.0 first."),
    ("malformed JSON", "A JSON function got a text that is not JSON", "Test it with json_valid first."),
    ("JSON path error", "A JSON path is not valid", "A path begins with $, such as $.name."),
    ("too big", "A text or blob is larger than 16 MiB", SMALLER),
    ("sub-select returns", "A subquery returns several columns where one is expected", "Select one column."),
    ("do not have the same number", "Parts of a UNION, EXCEPT or INTERSECT have different columns", EQUAL),
    ("all VALUES must have the same", "The rows of VALUES have different numbers of columns", EQUAL),
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


def readable(sql: str) -> str:
    """Return *sql* with names in backticks, or raise SqlRefused if it is not one statement that reads."""
    try:
        tokens = code_of(sql, lexis)
    except SqlError as exc:
        if "parameter" in exc.problem:
            raise no_parameters(position=exc.offset) from exc
        raise refused(exc.problem[:1].upper() + exc.problem[1:], position=exc.offset) from exc
    ends = [token for token in tokens if token.kind is Kind.SEMICOLON]
    statement = [token for token in tokens if not ends or token.offset < ends[0].offset]
    if not statement:
        raise refused("The statement is empty", SELECT_ONLY)
    if len(tokens) > len(statement) + len(ends):
        raise refused("There are several statements", "Make one call for each.", position=ends[0].offset)
    first = statement[0]
    if first.word not in READS:
        raise not_reading(first.word, position=first.offset)
    for token, after in zip(statement, [*statement[1:], None], strict=True):
        _check(token, after)
    return with_names(_unqualified(sql[: statement[-1].end], statement))


def _unqualified(sql: str, statement: Sequence[Token]) -> str:
    """Return *sql* without `main.` before the names of tables: the file is attached under another name."""
    names = [fold(each.value) if each.kind in NAMES else each.text for each in statement]
    schemas = [at for at, name in enumerate(names) if name == "main" and names[at - 1 : at] != ["."]]
    tables = {name for at in schemas for name in names[at + 2 : at + 3]}
    defined = {names[at - 1] for at in range(1, len(names)) if names[at : at + 2] == ["as", "("]}
    # It may be a column or an alias, and the table must not become a common table expression.
    if tables & defined or any(names[at + 1 : at + 2] != ["."] for at in schemas):
        return sql
    for at in schemas:
        start, end = statement[at].offset, statement[at + 1].end
        sql = sql[:start] + " " * (end - start) + sql[end:]
    return sql


def _check(token: Token, after: Token | None) -> None:
    """Raise SqlRefused if *token* is a parameter, or a table of SQLite's own."""
    if token.kind is Kind.PARAMETER:
        raise no_parameters(position=token.offset)
    # Before a word, SQLite takes a byte order mark for white space.
    name = token.value.lower().lstrip("\ufeff")
    calls = after is not None and after.text == "(" and token.kind is Kind.WORD
    reserved = name.startswith("pragma_") or (name.startswith("sqlite_") and not calls)
    if name in RESERVED or (reserved and token.kind is not Kind.TEXT):
        raise refused(f"There is no table {quoted(name)}", DESCRIBED, position=token.offset)


def worded(answer: Mapping[str, Any], run: FreeRun) -> errors.CallError:
    """Return the error of *answer* in dbtools' words; only names that the caller wrote are in it."""
    name = str(answer.get("name", ""))
    for state, error in STATES.items():
        if name.startswith(state):
            return error()
    match answer["error"]:
        case "lost" | "memory":
            return refused(MEMORY, SMALLER)
        case "wide":
            return too_wide()
        case "changed":
            return errors.SchemaChanged()
        case "open":
            return errors.Unreadable()
        case "audit":
            return refused(UNKNOWN, DESCRIBED)
        case "denied":
            return Words(run).of_event(*answer["event"])
        case _:
            return Words(run).of_message(str(answer["text"]))


class Words:
    """Words the refusals of one statement."""

    def __init__(self, run: FreeRun) -> None:
        self._written, self._catalog = run.sql, run.catalog
        self._withheld = {fold(table.name) for table in run.catalog.tables if is_withheld(table)}
        self._functions = permitted(run.functions)
        self._tokens = code_of(run.sql, lexis)
        self._names = {fold(token.value) for token in self._tokens}
        self._sql = fold(run.sql)

    def _position(self, name: str) -> int | None:
        """Return where *name* is, if it is in one place only."""
        last = fold(name.rpartition(".")[2])
        places = [token.offset for token in self._tokens if fold(token.value) == last]
        return places[0] if len(places) == 1 else None

    def _of_table(self, name: str) -> errors.SqlRefused:
        name = fold(name.removeprefix("main.").removeprefix("temp."))
        if name.startswith("information_schema."):
            return refused(f"There is no table {quoted(name)}", DESCRIBED, position=self._position(name))
        if name in TABLES_INSTEAD:
            rule = f"There is no table or table function {quoted(name)}"
            return refused(rule, TABLES_INSTEAD[name], position=self._position(name))
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
            return self._of_table(str(first))
        return refused("The statement does more than read", SELECT_ONLY)

    def _of_function(self, name: str) -> errors.SqlRefused:
        name = name if fold(name) in self._sql else ""
        known, place = fold(name), self._position(name)
        instead = FUNCTIONS_INSTEAD.get(known, "")
        # It may be one of another version of SQLite.
        others = [each for each in self._functions if each != known]
        return unknown_function(known, others, instead=instead, position=place)

    def of_message(self, text: str) -> errors.SqlRefused:
        """Return the refusal that stands for what SQLite says."""
        for pattern, word in MESSAGES.items():
            if found := re.fullmatch(pattern, text, re.DOTALL):
                return word(self, found[1])
        for part, rule, hint in FAULTS:
            if part in text:
                return refused(rule, hint)
        return refused("The database cannot compute this statement", "Try a simpler one.")

    def _of_syntax(self, near: str) -> errors.SqlRefused:
        shown = near if fold(near) in self._sql else ""
        rule = f"Syntax error near {shown}" if shown else "Syntax error"
        return refused(rule, self._habit() or SOMETHING_MISSING, position=self._position(shown))

    def _habit(self) -> str:
        """Return what to write for syntax of another database."""
        spoken = f" {' '.join(token.word for token in self._tokens)} "
        return next((hint for part, hint in SYNTAX_INSTEAD.items() if f" {part} " in spoken), "")

    def _of_arguments(self, name: str) -> errors.SqlRefused:
        shown = f"The function {fold(name)}" if fold(name) in self._names else "A function"
        return refused(f"{shown} takes another number of arguments")

    def _of_called(self, name: str) -> errors.SqlRefused:
        if any(fold(table.name) == fold(name) for table in self._catalog.tables):
            return refused(f"{name} is a table, not a function", position=self._position(name))
        return self._of_table(name)

    def _of_column(self, name: str) -> errors.SqlRefused:
        # Before the name of a column, SQLite may write that of the file, which is a secret.
        qualifier, _, column = name.rpartition(".")
        position = self._position(column)
        if fold(column) not in self._names:
            return refused(UNCLEAR, QUALIFY)
        if fold(column) in TYPES_INSTEAD:
            rule = f"There is no column {quoted(column)}"
            return refused(rule, TYPES_INSTEAD[fold(column)], position=position)
        shown = f"{qualifier}.{column}" if qualifier and fold(qualifier) in self._names else column
        return unknown_column(shown, self._written, self._catalog, tables=self._names, position=position)

    def _of_ambiguous(self, name: str) -> errors.SqlRefused:
        column = name.rpartition(".")[2]
        known = fold(column) in self._names
        return refused(f"The column {column} is in several tables" if known else UNCLEAR, QUALIFY)


#: What SQLite says, with the name in it.
MESSAGES: Mapping[str, Callable[[Words, str], errors.SqlRefused]] = {
    "no such table: (.*)": Words._of_table,
    "no such column: (.*)": Words._of_column,
    "no such function: (.*)": Words._of_function,
    "ambiguous column name: (.*)": Words._of_ambiguous,
    "'(.*)' is not a function": Words._of_called,
    r"wrong number of arguments to function (.*)\(\)": Words._of_arguments,
    'near "(.*)": syntax error': Words._of_syntax,
}
