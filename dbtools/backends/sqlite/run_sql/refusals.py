"""Word the refusals of callers' SQL. What a worker answers in; an error without SQLite's text out."""

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from dbtools import errors
from dbtools.answers.results import too_wide_error
from dbtools.backends.refusals import Cause
from dbtools.backends.run_sql import (
    BYTE_ORDER_MARK,
    DESCRIBED,
    MISSING,
    OUTSIDE,
    SELECT_ONLY,
    SIMPLER,
    UNSHARED,
    sql_refusal,
    statement_of,
    unknown_column,
    unknown_function,
    unknown_table,
)
from dbtools.backends.runs import SqlRun
from dbtools.backends.sqlite.run_sql.lens import permitted_functions, withheld_of
from dbtools.backends.sqlite.schema.syntax import fold, lexis, with_names
from dbtools.schema.sql import Token, TokenKind, code_of, words
from dbtools.values.types import quote

MEDIAN = "Write min(x) where p >= 0.5, from a subquery with cume_dist() over (order by x) as p."
LATER = "Write date(x, '+1 day'), or datetime('now', '-1 day')."
JOINED = "Write group_concat(x, ', ')."
#: What to write for the functions of other databases that analysts use most.
FUNCTION_HINTS: Mapping[str, str] = {
    **dict.fromkeys(
        words("extract date_part datepart year month day hour"),
        "Write strftime('%Y', x); %m is the month, %d the day, %H the hour.",
    ),
    **dict.fromkeys(words("to_char date_format"), "Write strftime('%Y-%m', x)."),
    **dict.fromkeys(
        words("date_trunc datetrunc"),
        "Write strftime('%Y-%m-01', x) for months, '%Y-01-01' for years, date(x) for days.",
    ),
    **dict.fromkeys(
        words("datediff date_diff timestampdiff"), "Write julianday(later) - julianday(earlier)."
    ),
    **dict.fromkeys(words("dateadd date_add date_sub"), LATER),
    **dict.fromkeys(
        words("now getdate curdate today sysdate"), "Write datetime('now'), or date('now', '-1 day')."
    ),
    **dict.fromkeys(words("string_agg listagg"), JOINED),
    **dict.fromkeys(words("concat concat_ws"), "Write a || b."),
    "len": "Write length(x).",
    **dict.fromkeys(words("regexp regexp_like regexp_matches"), "Write like or glob."),
    **dict.fromkeys(words("left right mid"), "Write substr(x, 1, 2), or substr(x, -2)."),
    **dict.fromkeys(words("strpos position charindex locate"), "Write instr(text, part), and substr."),
    **dict.fromkeys(words("nvl isnull"), "Write ifnull(a, b)."),
    **dict.fromkeys(words("if decode"), "Write case when … then … else … end."),
    **dict.fromkeys(words("try_cast safe_cast convert"), "Write cast(x as integer)."),
    "median": MEDIAN,
}
#: What to write for words of other databases that SQLite takes for columns.
COLUMN_HINTS: Mapping[str, str] = {
    **dict.fromkeys(("date", "timestamp"), "Write date('2024-12-31') or datetime('2024-12-31 10:00')."),
    "interval": LATER,
}
#: What to write for words and signs of other databases, which are syntax errors. A quoted word is empty.
PHRASES: Mapping[str, str] = {
    r"\binterval ( |\d)": LATER,
    "::": "Write cast(x as integer), not x::integer; date(x) for a date.",
    r"\bilike\b": "Write like, which ignores the case of ASCII letters.",
    r"~|\brlike\b": "Write like or glob.",
    r"\b(top \(? ?\d|fetch (first|next))": "Write limit 5 at the end.",
    r"^(?!.* limit ).* offset \d": "Write limit 5 offset 10.",
    r"\bsubstring \([^(),]* from\b": "Write substr(x, 1, 2).",
    r"\b(group_concat|string_agg) \([^()]* (order by|separator)\b": JOINED,
    r"\bpivot \(": "Write sum(iif(…, x, 0)) for each column.",
}
COMMON_TABLE = re.compile(r"\b(\w+) \([^()]*\) as (?:(?:not )?materialized )?\(")  #: with columns
#: Tables of SQLite, which are not in the catalog.
SYSTEM_TABLES = words(
    "sqlite_master sqlite_schema sqlite_temp_master sqlite_temp_schema sqlite_sequence "
    "sqlite_stat1 sqlite_stat4"
)
ENDS_OF_TABLES = words("where group order having limit union intersect except select values")
NO_INDEXES = ("INDEXED BY is not supported", "Leave it out.")
UNCLEAR = "A column does not exist, or is in several tables"
QUALIFY = "Write table.column."
UNKNOWN = "The statement reads a table that does not exist"
TOO_MUCH_MEMORY = "The statement needs too much memory"
SMALLER = "Aggregate earlier, or read fewer rows and columns."
#: By the beginning of SQLite's name for the error.
ERROR_KINDS: Mapping[str, Cause] = {
    **dict.fromkeys(("SQLITE_BUSY", "SQLITE_LOCKED"), Cause.BUSY),
    **dict.fromkeys(("SQLITE_CANTOPEN", "SQLITE_NOTADB", "SQLITE_IOERR"), Cause.UNAVAILABLE),
    "SQLITE_CORRUPT": Cause.UNREADABLE,
}
#: A part of what SQLite says, our words, and a hint.
RULES: Sequence[tuple[str, str, str]] = (
    ("incomplete input", "The statement is not complete", "Is a word missing at its end?"),
    ("misuse of aggregate", "An aggregate function is not permitted here", "Use HAVING, or a subquery."),
    ("misuse of aliased aggregate", "An aggregate function is not permitted here", "Use HAVING."),
    ("misuse of", "A window function is not permitted here", OUTSIDE),
    ("recursive", "A recursive WITH query must be SELECT … UNION [ALL] SELECT …", ""),
    ("cannot join using", *UNSHARED),
    ("sub-select returns", "A subquery returns several columns where one is expected", "Select one column."),
    ("integer overflow", "A computed integer exceeds 64 bits", "Multiply by 1.0 first."),
    ("malformed JSON", "A JSON function got a text that is not JSON", "Test it with json_valid first."),
    ("JSON path error", "A JSON path is not valid", "A path begins with $, such as $.name."),
    ("too big", "A text or blob is larger than 16 MiB", SMALLER),
    ("the same number", "Parts have different numbers of columns", "Select equally many in each."),
    ("GROUP BY", "The GROUP BY clause is not valid", "Write columns, or their numbers in the result."),
    ("ORDER BY", "The ORDER BY clause is not valid", "Write columns of the result, or their numbers."),
    ("fts5: syntax error", "The search after MATCH is not valid", 'Write words as "word".'),
    ("unterminated string", "The search after MATCH is not valid", 'Write words as "word".'),
    ("unable to use function", "MATCH, snippet and bm25 need a full-text table seen in full", DESCRIBED),
    ("too ", "The statement is too large or nested too deeply", "Split it, or use WITH."),
    ("out of memory", TOO_MUCH_MEMORY, SMALLER),
)  # fmt: skip


def checked_sql(sql: str) -> str:
    """Return *sql* with names in backticks, or raise SqlRefused if it is not one statement that reads."""
    tokens = statement_of(sql, lexis)
    tables = {token.offset for token in _texts_as_tables(tokens)}
    for token, after in zip(tokens, [*tokens[1:], tokens[-1]], strict=True):
        # Before a word, SQLite takes a byte order mark for white space.
        name = fold(token.value).lstrip(BYTE_ORDER_MARK)
        calls = after.text == "(" and token.kind is TokenKind.WORD
        reserved = name.startswith("pragma_") or (name.startswith("sqlite_") and not calls)
        is_name = token.kind is not TokenKind.TEXT or token.offset in tables
        if is_name and (name in SYSTEM_TABLES or reserved):
            raise sql_refusal(f"There is no table {quote(name)}", DESCRIBED, position=token.offset)
        if token.word.lstrip(BYTE_ORDER_MARK) == "indexed" and after.word == "by":
            raise sql_refusal(*NO_INDEXES, position=token.offset)
    return with_names(_without_main(sql[: tokens[-1].end], tokens))


def _texts_as_tables(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield the texts among *tokens* in places where SQLite takes a text for the name of a table."""
    lists = [False]  # for each open bracket, and outside of all: whether a list of tables has begun
    last = before = ""
    for token in tokens:
        word = token.word.lstrip(BYTE_ORDER_MARK)
        if token.text == BYTE_ORDER_MARK:
            continue
        is_table = before in ("join", "in", ".") or (before == "from" and last != "distinct")
        is_listed = lists[-1] and before in (",", "(")
        if token.kind is TokenKind.TEXT and (is_table or is_listed):
            yield token
        if token.kind is TokenKind.OPENING:
            lists.append(is_listed or (is_table and before != "in"))
        elif token.kind is TokenKind.CLOSING:
            lists.pop()
        elif word == "from" or word in ENDS_OF_TABLES:
            lists[-1] = word == "from" and before != "distinct"
        last, before = before, word


def _without_main(sql: str, tokens: Sequence[Token]) -> str:
    """Return *sql* without `main.` before the names of tables: the file is attached under another name."""
    names = [fold(each.value) if each.is_name else each.text for each in tokens]
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


def error_of_answer(answer: Mapping[str, Any], run: SqlRun) -> errors.CallError:
    """Return the error of *answer* in dbtools' words; only names that the caller wrote are in it."""
    name = str(answer.get("name", ""))
    for state, cause in ERROR_KINDS.items():
        if name.startswith(state):
            return cause.error()
    match answer["error"]:
        case "lost" | "memory":
            return sql_refusal(TOO_MUCH_MEMORY, SMALLER)
        case "wide":
            return too_wide_error()
        case "changed":
            return errors.SchemaChanged()
        case "open":
            return errors.Unreadable()
        case "audit":
            return sql_refusal(UNKNOWN, DESCRIBED)
        case "denied":
            return _Words(run).of_event(*answer["event"])
        case _:
            return _Words(run).of_message(str(answer["text"]))


class _Words:
    """Words the refusals of one statement."""

    def __init__(self, run: SqlRun) -> None:
        self._run, self._catalog = run, run.catalog
        self._tokens = code_of(run.sql, lexis)
        self._names = {fold(token.value) for token in self._tokens}
        self._text = f" {' '.join(token.word for token in self._tokens)} "
        called = [fold(name.value) for name, after in pairwise(self._tokens) if after.text == "("]
        defined = set(COMMON_TABLE.findall(self._text))
        self._called = [name for name in called if name not in defined]

    def of_event(self, action: int, first: str | None, second: str | None) -> errors.SqlRefused:
        """Return the refusal of what the authorizer denied."""
        if action == sqlite3.SQLITE_FUNCTION:
            return self._of_function(str(second))
        if action == sqlite3.SQLITE_READ:
            return self._of_table(str(first))
        return sql_refusal("The statement does more than read", SELECT_ONLY)

    def of_message(self, text: str) -> errors.SqlRefused:
        """Return the refusal that stands for what SQLite says."""
        known = permitted_functions(self._run.functions)
        if foreign := [name for name in self._called if name in FUNCTION_HINTS and name not in known]:
            return self._of_function(foreign[0])
        for pattern, word in MESSAGES.items():
            if found := re.fullmatch(pattern, text, re.DOTALL):
                return word(self, found[1])
        for part, rule, hint in RULES:
            if part in text:
                return sql_refusal(rule, hint)
        return sql_refusal("The database cannot run this statement", SIMPLER)

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
            return sql_refusal(UNKNOWN, DESCRIBED)
        if name in withheld_of(self._run):
            return sql_refusal(f"run_sql cannot read {quote(name)}", "Use the tools that list its rows.")
        place = self._position(name)
        if name in self._called:
            return sql_refusal(f"There is no table function {quote(name)}", DESCRIBED, position=place)
        return unknown_table(name, self._catalog, position=place)

    def _of_function(self, name: str) -> errors.SqlRefused:
        known = fold(name) if self._is_written(name) else ""
        # It may be one of another version of SQLite.
        others = [each for each in permitted_functions(self._run.functions) if each != known]
        hint, place = FUNCTION_HINTS.get(known, ""), self._position(known)
        return unknown_function(known, others, hint=hint, position=place)

    def _of_syntax(self, near: str) -> errors.SqlRefused:
        rule = f"Syntax error near {quote(near)}" if self._is_written(near) else "Syntax error"
        hint = next((hint for phrase, hint in PHRASES.items() if re.search(phrase, self._text)), MISSING)
        return sql_refusal(rule, hint, position=self._position(near))

    def _of_arguments(self, name: str) -> errors.SqlRefused:
        shown = f"the function {quote(fold(name))}" if self._is_written(name) else "a function"
        return sql_refusal(f"Wrong number of arguments for {shown}")

    def _of_column(self, name: str) -> errors.SqlRefused:
        # Before the name of a column, SQLite may write that of the file, which is a secret.
        qualifier, _, column = name.rpartition(".")
        place = self._position(column)
        if not self._is_written(column):
            return sql_refusal(UNCLEAR, QUALIFY)
        if hint := COLUMN_HINTS.get(fold(column)):
            return sql_refusal(f"There is no column {quote(column)}", hint, position=place)
        shown = f"{qualifier}.{column}" if qualifier and self._is_written(qualifier) else column
        return unknown_column(shown, self._run.sql, self._catalog, tables=self._names, position=place)

    def _of_ambiguous(self, name: str) -> errors.SqlRefused:
        column = name.rpartition(".")[2]
        known = self._is_written(column)
        return sql_refusal(f"The column {quote(column)} is in several tables" if known else UNCLEAR, QUALIFY)


#: What SQLite says, with the name in it.
MESSAGES: Mapping[str, Callable[[_Words, str], errors.SqlRefused]] = {
    "no such table: (.*)": _Words._of_table,
    "no such column: (.*)": _Words._of_column,
    "no such function: (.*)": _Words._of_function,
    "ambiguous column name: (.*)": _Words._of_ambiguous,
    "'(.*)' is not a function": _Words._of_table,
    r"wrong number of arguments to function (.*)\(\)": _Words._of_arguments,
    'near "(.*)": syntax error': _Words._of_syntax,
    'unrecognized token: "(.*)"': _Words._of_syntax,
}
