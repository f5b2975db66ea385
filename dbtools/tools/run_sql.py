"""The tool `run_sql`: one SELECT of the caller, over the tables, columns and rows that its role sees."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Annotated

from pydantic import Field

from dbtools.answers.results import Answer, Reserve, ResultSet
from dbtools.errors import listing
from dbtools.schema.catalog import Table
from dbtools.schema.sql import words
from dbtools.statements.select import SqlStatement
from dbtools.tools.arguments import DEFAULT_LIMIT, Arguments, Count
from dbtools.tools.calls import SqlCall
from dbtools.tools.definition import ROWS, Tool, ToolContext, ToolDefinition, content_schema
from dbtools.values.types import Family

LONGEST_SQL = 20_000  #: characters
SQL_DESCRIPTION = (
    "Run one SELECT of {} on the tables of describe_tables, for what other tools cannot do: joins "
    "without declared keys, conditional counts, ratios, windows, top rows per group, percentiles, "
    "recursion, unions."
)
#: A comparison with a text, which may be misspelt if nothing is found; a date is not.
COMPARISON = re.compile(r"""(?:[^<>!]=|\bin\s*\()\s*'[^\d']""", re.IGNORECASE)
MISSPELT = "Is a text spelled as it is stored? select distinct lists the values of a column."
AS_SHOWN = "conditions and functions use what is shown, not what is stored."
TRUNCATED = "/ of two integers drops the fraction: write 1.0 * a / b."
SQL_NAME = re.compile(r"""\w+|"[^"]*"|`[^`]*`""")
QUOTE = "'"  #: stands for any text among the parts of a statement
#: Texts, comments, names with what qualifies them, numbers, or one other character.
PART = re.compile(
    rf"""(?P<text>e'(?:\\.|''|[^'\\])*'|'[^']*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)|(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))
    |(?:{SQL_NAME.pattern})(?:\.(?:{SQL_NAME.pattern}))*(?:\.\*)?|\S""",
    re.DOTALL | re.VERBOSE,
)
OPERATING = words("all distinct not isnull notnull")  #: words that make a column more than a name
#: Words of statements that compare all columns of their lists.
WHOLE_ROW_WORDS = words("distinct union intersect except rollup cube sets")
#: The clause that begins with a word.
CLAUSES: Mapping[str, str] = {
    **{each: each for each in words("select on using where group order having limit offset window")},
    **dict.fromkeys(words("from join"), "from"),
    **dict.fromkeys(words("union intersect except values"), ""),
}
FROM = words("from join , ( only lateral")  #: what may come before the name of a table
#: Words that, after the name of a table, are not an alias.
JOINING = frozenset(CLAUSES) | words(
    "as natural left right full inner cross outer tablesample indexed not fetch for"
)
#: Numbers, functions and types that make a quotient one with a fraction.
FRACTIONAL = re.compile(r"\d+\.\d+|avg|real|float\d?|double|numeric|decimal|julianday")


class SqlArguments(Arguments):
    """Arguments of `run_sql`."""

    example = '{"sql": "select count(*) from orders"}'
    sql: Annotated[str, Field(max_length=LONGEST_SQL)]
    limit: Count = Field(default=DEFAULT_LIMIT, ge=1)


class RunSql(Tool):
    """`run_sql`, for a role that may run SQL."""

    name = "run_sql"
    group = None

    @classmethod
    def define(cls, context: ToolContext) -> Iterator[Tool]:
        """Yield the tool, if callers may run SQL."""
        if context.server:
            yield cls(context=context)

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        return self.definition_of(
            SQL_DESCRIPTION.format(self.context.server), SqlArguments, content_schema(ROWS), title="Run SQL"
        )

    def bind(self, arguments: Mapping[str, object]) -> SqlCall:
        """Return the call that runs the SQL in *arguments*."""
        asked, limits = self.context.read(SqlArguments, arguments), self.context.limits
        statement = SqlStatement(
            sql=asked.sql, limit=asked.limit, longest=limits.max_cell, most_bytes=limits.max_bytes
        )
        return SqlCall(statement=statement, answer=partial(self._answer, asked))

    def _answer(self, asked: SqlArguments, found: ResultSet) -> Answer:
        """Render the rows *found*, as many as fit."""
        budget = self.context.budgets[Reserve.QUERY]
        page = budget.page(found, unique_names([output.term.name for output in found.outputs]))
        notes = ["Long cells are cut: read a part with substr."] if page.found.is_cut else []
        is_empty = len(found.rows) < 2 and not any(chain(*found.rows))  # or a row of 0 and null
        if masked := masked_in(asked.sql, self.context.catalog.tables):
            are = "is" if len(masked) == 1 else "are"
            notes.append(f"{listing(masked)} {are} masked: {AS_SHOWN}")
        if _only_integers(found) and divides_integers(asked.sql):
            notes.append(TRUNCATED)
        if is_empty and not masked and COMPARISON.search(asked.sql):
            notes.append(MISSPELT)
        if page.capped:
            notes.append("Cut at max_tokens: select fewer columns, or aggregate.")
        elif page.truncated:
            is_most = asked.limit >= self.context.limits.max_rows
            more = f"add offset {asked.limit} to the SQL" if is_most else "raise limit"
            notes.append(f"More rows: {more}, add conditions, or aggregate.")
        return budget.rows_answer(page, note=" ".join(notes))


def _only_integers(found: ResultSet) -> bool:
    """Return whether *found* has numbers, all of types without a fraction."""
    kinds = {type(cell) for row in found.rows for cell in row}
    families = {output.term.type.family for output in found.outputs}
    return int in kinds and float not in kinds and Family.DECIMAL not in families


def divides_integers(sql: str) -> bool:
    """Return whether a column of *sql* may be a quotient, and nothing in it makes a quotient fractional."""
    shown, divides = [False], False  # for each open bracket: whether it is part of a column
    for part in _parts(sql):
        if FRACTIONAL.fullmatch(part):
            return False
        divides = divides or (part == "/" and shown[-1])
        if part in ("select", "from"):
            shown[-1] = part == "select"
        elif part == "(":
            shown.append(shown[-1])
        elif part == ")":
            shown = shown[:-1] or [False]
    return divides


def masked_in(sql: str, tables: Sequence[Table]) -> Sequence[str]:
    """Return the masked columns of *tables* that *sql* uses, or may use, for more than to show them."""
    parts = _parts(sql)
    named = {_unquote(name) for name in SQL_NAME.findall(sql.lower())}
    read = {table.name.lower(): table for table in tables if table.name.lower() in named}
    masked = {
        each.name.lower(): each.name for table in read.values() for each in table.columns if each.type.mask
    }
    if not masked:
        return []
    columns, others = _outermost_columns(parts)
    shown = [column for column in columns if _is_plain(column)]
    used = [others, *(column for column in columns if not _is_plain(column))]
    used += columns if WHOLE_ROW_WORDS & {*parts} else _by_position(parts, columns)
    if any(map(_has_rows, used)) or "natural" in parts or _uses_rows(parts, read):
        return [*masked.values()]
    aliases = {_last_name(column[-1]): _last_name(column[0]) for column in shown}
    # Whether a name means a column or an alias depends on its clause.
    names = chain.from_iterable(
        (_last_name(part), aliases.get(_last_name(part))) for part in chain.from_iterable(used)
    )
    return list(dict.fromkeys(masked[name] for name in names if name in masked))


def _parts(sql: str) -> list[str]:
    """Return the parts of *sql* in lower case, without comments, and with QUOTE for each text."""
    found = PART.finditer(sql.lower())
    return [QUOTE if part["text"] else part[0] for part in found if not part["comment"]]


def _outermost_columns(parts: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """Return the parts of each column in the outermost list of the first SELECT, and all others."""
    columns: list[list[str]] = []
    others: list[str] = []
    depth, is_listed = 0, False
    for part in parts:
        depth += (part == "(") - (part == ")")
        if depth == 0 and part == "select" and not columns:
            columns, is_listed = [[]], True
        elif depth == 0 and part == "from":
            is_listed = False
        elif depth == 0 and part == "," and is_listed:
            columns.append([])
        else:
            (columns[-1] if is_listed else others).append(part)
    return columns, others


def _is_plain(column: Sequence[str]) -> bool:
    """Return whether the parts of *column* are a name, with or without an alias, or a star."""
    match column:
        case [name] if _is_star("select", name):
            return True
        case [name] | [name, _] | [name, "as", _]:
            return OPERATING.isdisjoint(column) and all(map(SQL_NAME.match, (name, column[-1])))
        case _:
            return False


def _has_rows(parts: Sequence[str]) -> bool:
    """Return whether *parts* have a star that stands for columns."""
    return any(map(_is_star, ["select", *parts], parts))


def _is_star(before: str, part: str) -> bool:
    """Return whether *part*, after *before*, stands for columns: other stars are products, or of `count`."""
    return part.endswith(".*") or (part == "*" and before in ("select", ",", *OPERATING))


def _by_position(parts: Sequence[str], columns: list[list[str]]) -> list[list[str]]:
    """Return those *columns* by whose positions the statement sorts or groups; all if that is not sure."""
    found: set[int] = set()
    has_star = any(map(_has_rows, columns))
    before = last = ""  # before: the last part that is neither a bracket nor a sign
    for part, clause, depth in _parts_with_clauses(parts):
        if (
            part.isdecimal()
            and clause in ("group", "order")
            and (before == "by" or (before, depth) == (",", 0))
        ):
            if last != before or has_star or len(part) > len(str(len(columns))):
                return columns
            found.add(int(part) - 1)
        last, before = part, before if part in ("(", "+", "-") else part
    return [column for at, column in enumerate(columns) if at in found]


def _parts_with_clauses(parts: Sequence[str]) -> Iterator[tuple[str, str, int]]:
    """Yield each part with its clause, and the number of brackets around it."""
    clauses = [""]
    for part in parts:
        if part == ")":
            clauses = clauses[:-1] or [""]
        if part in CLAUSES:
            clauses[-1] = CLAUSES[part]
        elif part == "," and clauses[-1] in ("on", "using"):
            clauses[-1] = "from"
        yield part, clauses[-1], len(clauses) - 1
        if part == "(":
            clauses.append(clauses[-1])


def _uses_rows(parts: Sequence[str], tables: Collection[str]) -> bool:
    """Return whether *parts* use rows of *tables* as values, or give their columns other names."""
    declared: dict[int, str] = {}
    placed = [*_parts_with_clauses(parts), ("", "", 0), ("", "", 0), ("", "", 0)]
    for at, (part, clause, _) in enumerate(placed):
        if clause != "from" or _last_name(part) not in tables or parts[at - 1] not in FROM:
            continue
        alias = at + (2 if placed[at + 1][0] == "as" else 1)
        declared[at] = _last_name(part)
        if SQL_NAME.match(placed[alias][0]) and placed[alias][0] not in JOINING:
            declared[alias] = _last_name(placed[alias][0])
            if placed[alias + 1][0] == "(":
                return True
    rows = {*declared.values(), *tables}
    return any(at not in declared and _unquote(part) in rows for at, part in enumerate(parts))


def _last_name(part: str) -> str:
    """Return the last of the names in *part*, unquoted; empty if there is none."""
    return _unquote(SQL_NAME.findall(part)[-1]) if SQL_NAME.match(part) else ""


def _unquote(name: str) -> str:
    return name.strip('"`')


def unique_names(names: Sequence[str]) -> Sequence[str]:
    """Return *names*, each with a number after it if another one is the same."""
    given, numbers = set(names), Counter[str]()
    unique: dict[str, None] = {}
    for name in names:
        shown = name
        while shown in unique or (shown != name and shown in given):
            numbers[name] += 1
            shown = f"{name}_{numbers[name] + 1}"
        unique[shown] = None
    return list(unique)
