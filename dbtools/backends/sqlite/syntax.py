"""How SQLite reads SQL, and what only the text of CREATE statements tells: comments, checks, collations.

Whose a comment is:
- The table's: outside the body, on the line of its opening parenthesis, or at the top of the body with an
  empty line after it. A view's: before its SELECT.
- A column's: on lines of its own before the definition, within it, or after it on its last line, be it after
  the comma. Where a line holds several definitions, a comment at its end is nobody's.
- A comment right below another one, and in line with it, goes on with that one.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise, takewhile

from dbtools.backends.plans import identifier
from dbtools.sql import (
    PHRASE,
    QUOTED,
    WORD,
    Group,
    Kind,
    Lexis,
    Parameter,
    SqlError,
    Token,
    code_of,
    grouped,
    tokenize,
    words,
)

lexis = Lexis(
    name_quotes='"`[',
    nested_comments=False,
    dollar_quotes=False,
    escape_strings=False,
    line_ends="\n",
    native_marks="?@$#:",
    lenient=True,
    total_functions=words(
        "cast coalesce count date datetime ifnull iif instr julianday length likelihood likely lower ltrim "
        "max min nullif round rtrim sign strftime substr substring time trim typeof unicode unixepoch "
        "unlikely upper"
    ),
    total_operators=words("= == <> != < <= > >= + - * / % & | << >> ~"),
)
ASCII_LOWER = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
#: Tables that are joined so are read without a word to the authorizer (3.40).
SILENT_JOINS = frozenset({"using", "natural"})
Piece = str | Parameter
SIGNS = ("--", "/*", "check", "collate")  #: of anything that is read here
STEPS = {"(": 1, ",": 0, ")": -1}  #: into parentheses and out
CONSTRAINTS = ("constraint", "primary", "unique", "check", "foreign")
BINARY = "binary"  #: the collation of a column that names none
VIEW = "create view "  #: what the statement of a view begins with: SQLite itself writes so
CHECK = re.compile(r"(?<!\S)check$", re.IGNORECASE)  #: at the end of a phrase
BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
DECORATION = re.compile(r"[-=*#_~+/\s]*")  #: of which frames and rules are made
TABLE = -1  #: the table, where the definitions of its columns are counted from 0
NOBODY = -2


def fold(name: str) -> str:
    """Return *name* in lower case as SQLite compares names: only the letters of ASCII."""
    return name.lower() if name.isascii() else name.translate(ASCII_LOWER)


def readable(sql: str, word: str = WORD) -> list[Token]:
    """Return the tokens of *sql* up to where it cannot be read: SQLite keeps a comment that is not closed."""
    tokens: list[Token] = []
    with suppress(SqlError):
        tokens.extend(tokenize(sql, lexis, word))
    return tokens


def in_groups(sql: str) -> Group:
    """Return *sql* as groups, up to where it cannot be read; as none where brackets do not pair.

    SQLite itself refuses such SQL.
    """
    try:
        return grouped(readable(sql), sql)
    except SqlError:
        return Group("", 0)


def words_in(sql: str) -> frozenset[str]:
    """Return the words and signs of *sql* outside of quotes, folded."""
    return frozenset(fold(token.word) for token in code_of(sql, lexis))


def names_in(sql: str) -> frozenset[str]:
    """Return the words of *sql* and whatever is in quotes, all folded."""
    return frozenset(fold(token.value) for token in code_of(sql, lexis))


def with_names(sql: str) -> str:
    """Return *sql*, a piece of what an operator wrote, with backticks for double quotes.

    SQLite takes a name in double quotes that means nothing for a text (sqlite.org/quirks.html, 8), so that a
    condition on a column that is gone would be true of every row. In backticks it is a name or an error.
    """
    written, end = "", 0
    for token in tokenize(sql, lexis):
        text = f"`{token.value.replace('`', '``')}`" if _is_double_quoted(token) else token.text
        # Two names without a blank between them would be one.
        joint = " " if written.endswith("`") and text.startswith("`") else ""
        written += (sql[end : token.offset] or joint) + text
        end = token.end
    return written + sql[end:]


def explained(message: str, sql: str) -> str:
    """Return what SQLite says of an operator's *sql*, and what to write where a text was meant."""
    name = message.removeprefix("no such column: ")
    if identifier(name) not in sql:
        return f"{message}."
    text = name.replace("'", "''")
    return f"{message}. A name stands in double quotes; text stands in single quotes: '{text}'."


def _is_double_quoted(token: Token) -> bool:
    return token.kind is Kind.NAME and token.text.startswith('"')


@dataclass(frozen=True, kw_only=True)
class Definition:
    """What a CREATE statement tells beside the catalog; names of columns are folded."""

    comment: str = ""
    comments: Mapping[str, str] = field(default_factory=dict)  #: of columns
    checks: tuple[str, ...] = ()  #: the expressions of CHECK constraints
    collations: Mapping[str, str] = field(default_factory=dict)  #: of columns that name one, folded


@dataclass(frozen=True, kw_only=True)
class _Statement:
    """A CREATE statement; that of a view up to its query."""

    sql: str
    code: Sequence[Token]  #: words that only blanks are between may be one
    comments: Sequence[tuple[int, Token]]  #: each with the place in the code that it is before
    marks: Sequence[int]  #: which tokens of the code open, separate and close the definitions of the body
    checks: Sequence[str]  #: what is in parentheses after the word

    def text(self, number: int) -> str:
        """Return the definition *number*, of a column or a constraint."""
        begin, end = self.code[self.marks[number]], self.code[self.marks[number + 1]]
        return self.sql[begin.end : end.offset]

    def name(self, number: int) -> str | None:
        """Return the folded name of the column that the definition *number* is of; None of a constraint."""
        first = self.code[self.marks[number] + 1]
        if first.kind in QUOTED:
            return fold(first.value)
        name = fold(first.text.split(None, 1)[0]) if first.kind is Kind.WORD else ""
        return name if name and name not in CONSTRAINTS else None

    def columns(self) -> Iterator[tuple[str, str]]:
        """Yield the folded name of each column, and its definition."""
        for number in range(len(self.marks) - 1):
            if (name := self.name(number)) is not None:
                yield name, self.text(number)

    def is_broken(self, begin: Token, end: Token) -> bool:
        """Return whether the line ends between the tokens *begin* and *end*."""
        return "\n" in self.sql[begin.end : end.offset]


@lru_cache(maxsize=10_000)  # a refresh parses what has changed, and no other table
def read_definition(sql: str) -> Definition:
    """Return what the CREATE statement *sql* of a table or a view tells of it."""
    folded = sql.lower()
    if not any(sign in folded for sign in SIGNS):
        return Definition()
    statement = _statement(sql, _before_query(sql) if folded.startswith(VIEW) else readable(sql, PHRASE))
    comments: dict[str | None, list[Token]] = {None: []}
    for owner, comment in _owned(statement):
        name = statement.name(owner) if owner >= 0 else None
        if name is not None or owner == TABLE:
            comments.setdefault(name, []).append(comment)
    return Definition(
        comment=_cleaned(comments.pop(None)),
        comments={name: _cleaned(found) for name, found in comments.items() if name is not None},
        checks=tuple(statement.checks),
        collations=dict(_collations(statement)) if "collate" in folded else {},
    )


def generation(sql: str) -> Mapping[str, frozenset[str]]:
    """Return the words in the definition of each column of the CREATE TABLE statement *sql*, all folded.

    What a generated column is computed from is among its words.
    """
    return {name: names_in(text) for name, text in _statement(sql, readable(sql, PHRASE)).columns()}


def module_of(sql: str) -> str:
    """Return the folded name of the module that the CREATE VIRTUAL TABLE statement *sql* uses."""
    code = (token for token in readable(sql) if token.kind is not Kind.COMMENT)
    return next((fold(name.value) for using, name in pairwise(code) if using.word == "using"), "")


def _before_query(sql: str) -> Iterator[Token]:
    """Yield the tokens of the CREATE VIEW statement *sql* up to its AS, and the comments behind that."""
    tokens = iter(readable(sql))
    yield from takewhile(lambda token: token.word != "as", tokens)
    yield from takewhile(lambda token: token.kind is Kind.COMMENT, tokens)


def _statement(sql: str, tokens: Iterable[Token]) -> _Statement:
    code: list[Token] = []
    comments: list[tuple[int, Token]] = []
    marks: list[int] = []
    checks: list[str] = []
    depth, opening = 0, code
    for token in tokens:
        at, text = len(code), token.text
        if token.kind is Kind.COMMENT:
            comments.append((at, token))
            continue
        code.append(token)
        if text in STEPS:
            level, depth = depth, depth + STEPS[text]
            # From 0 to 1 and back the body opens and closes; at 1 a comma is between its definitions.
            if level + depth in (1, 2):
                marks.append(at)
            elif level + depth == 3 and text == "(":
                opening = code[-2:]
            # A constant such as (1) belongs to the phrase before it, and says nothing of a column.
            elif level + depth == 3 and opening[0].kind is Kind.WORD and CHECK.search(opening[0].text):
                checks.append(sql[opening[1].offset : token.end])
    return _Statement(sql=sql, code=code, comments=comments, marks=marks, checks=checks)


def _owned(statement: _Statement) -> Iterator[tuple[int, Token]]:
    """Yield each comment with the number of the definition that it belongs to, or TABLE, or NOBODY."""
    owner, above = NOBODY, None
    for at, comment in statement.comments:
        number = bisect_left(statement.marks, at) - 1
        if not 0 <= number < len(statement.marks) - 1:
            owner = TABLE
        elif above is None or not _goes_on(statement.sql, above, comment):
            owner = _owner(statement, number, at, comment)
        above = comment
        yield owner, comment


def _goes_on(sql: str, above: Token, comment: Token) -> bool:
    """Return whether *comment* stands in the line below the comment *above*, and in its column."""
    columns = {token.offset - sql.rfind("\n", 0, token.offset) for token in (above, comment)}
    return len(columns) == 1 and sql[above.end : comment.offset].strip(" \t\r") == "\n"


def _owner(statement: _Statement, number: int, at: int, comment: Token) -> int:
    """Return whose the *comment* before *at* is, within or behind the definition *number* or its mark."""
    code, marks = statement.code, statement.marks
    is_first, ends_line = at - 1 == marks[number], statement.is_broken(comment, code[at])
    if statement.is_broken(code[at - 1], comment):
        if is_first and BLANK_LINE.search(statement.sql, comment.end, code[at].offset):
            return NOBODY if number else TABLE
        if is_first or at < marks[number + 1]:
            return number
        return number + 1 if code[at].text == "," else NOBODY
    owner = number - 1 if is_first and ends_line else number
    # A column that was added later may have come between a comment and its own column.
    is_shared = owner > 0 and ends_line and not statement.is_broken(code[marks[owner] - 1], comment)
    return NOBODY if is_shared else owner


def _collations(statement: _Statement) -> Iterator[tuple[str, str]]:
    """Yield the folded names of columns with their collations: of several the last counts."""
    for name, text in statement.columns():
        for word, collation in pairwise(in_groups(text).parts) if "collate" in text.lower() else ():
            if word.word == "collate" and isinstance(collation, Token):
                yield name, fold(collation.value)


def _cleaned(comments: Iterable[Token]) -> str:
    """Return the text of *comments* in one line, without frames and rules made of signs."""
    lines = [line for comment in comments for line in _lines(comment.text)]
    return " ".join(" ".join([line for line in lines if not DECORATION.fullmatch(line)]).split())


def _lines(comment: str) -> list[str]:
    if comment.startswith("--"):
        return [comment.lstrip("-")]
    return [re.sub(r"^\s*[*!]+(?=\s|$)", "", line) for line in comment[2:-2].splitlines()]
