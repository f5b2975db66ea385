"""SQLite's syntax. CREATE statements in; the comments, checks and collations that only they contain out.

A comment belongs to:
- the table, if it is outside the body, or on the line of its opening parenthesis; a view, if it is before its
  SELECT;
- a column, if it is on the lines above the definition, not indented further; within it; or at the end of its
  last line, also after the comma. If that line has several definitions, the comment is ignored.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import dropwhile, pairwise, takewhile
from typing import NamedTuple

from dbtools.backends.compiled import identifier
from dbtools.schema.sql import (
    PHRASE,
    QUOTED,
    WORD,
    Group,
    Lexis,
    SqlError,
    Token,
    TokenKind,
    code_of,
    nest,
    split,
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
)
ASCII_LOWER = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
#: SQLite may not report to the authorizer tables that are joined like this (3.40).
SILENT_JOINS = frozenset({"using", "natural"})
DEFINITION_MARKS = ("--", "/*", "check", "collate")  #: a statement without these has an empty Definition
DEPTH_CHANGES = {"(": 1, ",": 0, ")": -1}  #: changes of depth
#: Names of options of FTS5, in the order in which it looks for them.
FTS_OPTIONS = ("prefix", "tokenize", "content", "contentless_delete", "content_rowid", "columnsize", "detail")
CONSTRAINTS = ("constraint", "primary", "unique", "check", "foreign")
#: Words in the condition of a partial index that are neither columns nor functions.
IN_CONDITIONS = words("and or not is null isnull notnull in between like glob true false")
END_OF_SQL = Token(TokenKind.SEMICOLON, "", -1, -1)
BINARY = "binary"  #: the default collation
NEW_VIEW = "create view "  #: as SQLite normalizes it
CHECK = re.compile(r"(?<!\S)check$", re.IGNORECASE)  #: at the end of a phrase
BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
DECORATION = re.compile(r"[-=*#_~+/\s]*")  #: frames and rules
TABLE = -1  #: the owner of a comment, besides the number of a definition
NO_OWNER = -2


def fold(name: str) -> str:
    """Return *name* folded as SQLite compares names: only ASCII letters are lowered."""
    return name.lower() if name.isascii() else name.translate(ASCII_LOWER)


def read_tokens(sql: str, word: str = WORD) -> list[Token]:
    """Return the tokens of *sql* up to an error, such as an unclosed comment, which SQLite accepts."""
    tokens: list[Token] = []
    with suppress(SqlError):
        tokens.extend(tokenize(sql, lexis, word))
    return tokens


def in_groups(sql: str) -> Group:
    """Return *sql* as groups, up to an error; an empty group if brackets do not match."""
    with suppress(SqlError):
        return nest(read_tokens(sql), sql)
    return Group("", 0)


def words_in(sql: str) -> frozenset[str]:
    """Return the unquoted words and signs of *sql*, folded."""
    return frozenset(fold(token.word) for token in code_of(sql, lexis))


def names_in(sql: str) -> frozenset[str]:
    """Return the words and quoted texts of *sql*, folded."""
    return frozenset(fold(token.value) for token in code_of(sql, lexis))


def with_names(sql: str) -> str:
    """Return *sql*, a piece of an operator's SQL, with backticks instead of double quotes.

    SQLite takes an unknown name in double quotes for a text (sqlite.org/quirks.html, 8), so a condition on a
    dropped column could be true of every row. In backticks, it is an error.
    """
    written, end = "", 0
    for token in tokenize(sql, lexis):
        is_quoted = token.kind is TokenKind.NAME and token.text.startswith('"')
        text = f"`{token.value.replace('`', '``')}`" if is_quoted else token.text
        # Without a space, two adjacent names would become one.
        joint = " " if written.endswith("`") and text.startswith("`") else ""
        written += (sql[end : token.offset] or joint) + text
        end = token.end
    return written + sql[end:]


def message_with_hint(message: str, sql: str) -> str:
    """Return SQLite's *message* about an operator's *sql*, with a hint if a text was probably meant."""
    name = message.removeprefix("no such column: ")
    if identifier(name) not in sql:
        return f"{message}."
    text = name.replace("'", "''")
    return f"{message}. Double quotes are for names; write a text in single quotes: '{text}'."


@dataclass(frozen=True, kw_only=True)
class Definition:
    """What only a CREATE statement contains, with folded column names."""

    comment: str = ""
    comments: Mapping[str, str] = field(default_factory=dict)  #: by column
    checks: tuple[str, ...] = ()  #: the expressions of CHECK constraints
    collations: Mapping[str, str] = field(default_factory=dict)  #: by column, folded


@dataclass(frozen=True, kw_only=True)
class _Statement:
    """A CREATE statement, for a view without its query."""

    sql: str
    code: Sequence[Token]  #: adjacent words may be one token
    comments: Sequence[tuple[int, Token]]  #: each with the index of the next token in the code
    marks: Sequence[int]  #: indexes of the tokens that open, separate and close the definitions
    checks: Sequence[str]  #: the parentheses after CHECK

    def text(self, number: int) -> str:
        """Return the text of the definition *number*, of a column or a constraint."""
        begin, end = self.code[self.marks[number]], self.code[self.marks[number + 1]]
        return self.sql[begin.end : end.offset]

    def name(self, number: int) -> str | None:
        """Return the folded name of the column in the definition *number*, None for a constraint."""
        first = self.code[self.marks[number] + 1]
        if first.kind in QUOTED:
            return fold(first.value)
        name = fold(first.text.split(None, 1)[0]) if first.kind is TokenKind.WORD else ""
        return name if name and name not in CONSTRAINTS else None

    def columns(self) -> Iterator[tuple[str, str]]:
        """Yield the folded name of each column, and its definition."""
        for number in range(len(self.marks) - 1):
            if (name := self.name(number)) is not None:
                yield name, self.text(number)

    def is_broken(self, begin: Token, end: Token) -> bool:
        """Return whether there is a line break between the tokens *begin* and *end*."""
        return "\n" in self.sql[begin.end : end.offset]

    def is_apart(self, comment: Token, code: Token) -> bool:
        """Return whether *comment* is indented further than *code*, or an empty line is between them."""
        indents = [each.offset - self.sql.rfind("\n", 0, each.offset) for each in (comment, code)]
        return indents[0] > indents[1] or BLANK_LINE.search(self.sql, comment.end, code.offset) is not None


@lru_cache(maxsize=10_000)  # a refresh parses only changed tables
def read_definition(sql: str) -> Definition:
    """Return the Definition in *sql*, the CREATE statement of a table or a view."""
    folded = sql.lower()
    if not any(sign in folded for sign in DEFINITION_MARKS):
        return Definition()
    statement = _statement(
        sql, _before_query(sql) if folded.startswith(NEW_VIEW) else read_tokens(sql, PHRASE)
    )
    comments: dict[str | None, list[Token]] = {None: []}
    for owner, comment in _owned_comments(statement):
        name = statement.name(owner) if owner >= 0 else None
        if name is not None or owner == TABLE:
            comments.setdefault(name, []).append(comment)
    return Definition(
        comment=_comment_text(comments.pop(None)),
        comments={name: _comment_text(found) for name, found in comments.items() if name is not None},
        checks=tuple(statement.checks),
        collations=dict(_collations(statement)) if "collate" in folded else {},
    )


def generation(sql: str) -> Mapping[str, frozenset[str]]:
    """Return the words in the definition of each column of the CREATE TABLE statement *sql*, folded.

    They include the columns that a generated column is computed from.
    """
    return {name: names_in(text) for name, text in _statement(sql, read_tokens(sql, PHRASE)).columns()}


class Module(NamedTuple):
    """The module of a virtual table, and its arguments, each as unquoted words."""

    name: str
    arguments: Sequence[Sequence[str]]

    def option(self, name: str) -> str:
        """Return an option of a full-text table; FTS5 accepts abbreviated names, the first that fits."""
        for first, *rest in filter(None, self.arguments):
            full = next((each for each in FTS_OPTIONS if each.startswith(fold(first))), "")
            if rest[:1] == ["="] and full == name:
                return rest[1] if rest[1:] else ""
        return ""


@lru_cache(maxsize=1_000)
def module_of(sql: str) -> Module:
    """Return the module in the CREATE VIRTUAL TABLE statement *sql*, with a folded name; empty if unclear."""
    parts = in_groups(sql).parts
    named = (each for using, each in pairwise(parts) if using.word == "using" and isinstance(each, Token))
    group = next((part.parts for part in parts if isinstance(part, Group)), [])
    texts = (sql[each[0].offset : each[-1].end] if each else "" for each in split(group, ","))
    return Module(
        name=next((fold(each.value) for each in named), ""),
        arguments=[[token.value for token in code_of(text, lexis)] for text in texts],
    )


@lru_cache(maxsize=10_000)
def query_of(sql: str) -> str:
    """Return the SELECT in the CREATE VIEW statement *sql*, without comments."""
    code = (token for token in read_tokens(sql) if token.kind is not TokenKind.COMMENT)
    query = dropwhile(lambda token: token.word != "as", code)
    return "".join(" " * (here.end < there.offset) + there.text for here, there in pairwise(query)).strip()


@lru_cache(maxsize=1_000)
def condition_of(sql: str) -> str:
    """Return the condition in the CREATE INDEX statement *sql* of a partial index, without comments."""
    parts = in_groups(sql).parts
    where = next((part.offset for part in parts if part.word == "where"), len(sql))
    code = [
        token for token in read_tokens(sql) if token.kind is not TokenKind.COMMENT and token.offset >= where
    ]
    return "".join(" " * (here.end < there.offset) + there.text for here, there in pairwise(code)).strip()


def predicate_of(condition: str, columns: Mapping[str, str]) -> tuple[str, frozenset[str]]:
    """Return *condition* of a partial index, empty if it may mean something else elsewhere, and its columns.

    *columns* has the names of the table's columns by folded names. A condition that is not understood may
    name any of them.
    """
    tokens = code_of(condition, lexis)
    reads: set[str] = set()
    for token, after in pairwise([*tokens, END_OF_SQL]):
        name = columns.get(fold(token.value)) if token.is_name else None
        # A word before a quote may be the beginning of a BLOB.
        if name is not None and after.kind not in QUOTED and after.text not in (".", "("):
            reads.add(name)
        elif token.kind is TokenKind.NAME or (token.kind is TokenKind.WORD and not _is_plain(token, after)):
            return "", frozenset(columns.values())
    return condition, frozenset(reads)


def _is_plain(word: Token, after: Token) -> bool:
    """Return whether *word* is a function, or syntax that is the same in every statement."""
    return word.word in IN_CONDITIONS or after.text == "("


def _before_query(sql: str) -> Iterator[Token]:
    """Yield the tokens of the CREATE VIEW statement *sql* before its AS, and the comments after it."""
    tokens = iter(read_tokens(sql))
    yield from takewhile(lambda token: token.word != "as", tokens)
    yield from takewhile(lambda token: token.kind is TokenKind.COMMENT, tokens)


def _statement(sql: str, tokens: Iterable[Token]) -> _Statement:
    code: list[Token] = []
    comments: list[tuple[int, Token]] = []
    marks: list[int] = []
    checks: list[str] = []
    depth, opening = 0, code
    for token in tokens:
        at, text = len(code), token.text
        if token.kind is TokenKind.COMMENT:
            comments.append((at, token))
            continue
        code.append(token)
        if text in DEPTH_CHANGES:
            level, depth = depth, depth + DEPTH_CHANGES[text]
            # Between depths 0 and 1, the body opens and closes; at depth 1, a comma separates definitions.
            if level + depth in (1, 2):
                marks.append(at)
            elif level + depth == 3 and text == "(":
                opening = code[-2:]
            # A constant such as (1) belongs to the phrase before it.
            elif level + depth == 3 and opening[0].kind is TokenKind.WORD and CHECK.search(opening[0].text):
                checks.append(sql[opening[1].offset : token.end])
    return _Statement(sql=sql, code=code, comments=comments, marks=marks, checks=checks)


def _owned_comments(statement: _Statement) -> Iterator[tuple[int, Token]]:
    """Yield each comment with its owner: the number of a definition, TABLE or NO_OWNER."""
    for at, comment in statement.comments:
        number = bisect_left(statement.marks, at) - 1
        is_inside = 0 <= number < len(statement.marks) - 1
        yield _owner(statement, number, at, comment) if is_inside else TABLE, comment


def _owner(statement: _Statement, number: int, at: int, comment: Token) -> int:
    """Return the owner of the *comment* before the token *at*, in or after the definition *number*."""
    code, marks = statement.code, statement.marks
    is_first, ends_line = at - 1 == marks[number], statement.is_broken(comment, code[at])
    if statement.is_broken(code[at - 1], comment):
        owner = number + (at == marks[number + 1])  # it may be above a leading comma
        is_last = owner == len(marks) - 1
        return NO_OWNER if is_last or statement.is_apart(comment, code[max(at, marks[owner] + 1)]) else owner
    owner = number - 1 if is_first and ends_line else number
    # ALTER TABLE may have added a column between a comment and its column.
    is_shared = owner > 0 and ends_line and not statement.is_broken(code[marks[owner] - 1], comment)
    return NO_OWNER if is_shared else owner


def _collations(statement: _Statement) -> Iterator[tuple[str, str]]:
    """Yield each column with a collation, both folded; the last one of a column counts."""
    for name, text in statement.columns():
        for word, collation in pairwise(in_groups(text).parts) if "collate" in text.lower() else ():
            if word.word == "collate" and isinstance(collation, Token):
                yield name, fold(collation.value)


def _comment_text(comments: Iterable[Token]) -> str:
    """Return the text of *comments* in one line, without decoration."""
    lines = [line for comment in comments for line in _lines(comment.text)]
    return " ".join(" ".join([line for line in lines if not DECORATION.fullmatch(line)]).split())


def _lines(comment: str) -> list[str]:
    if comment.startswith("--"):
        return [comment.lstrip("-")]
    return [re.sub(r"^\s*[*!]+(?=\s|$)", "", line) for line in comment[2:-2].splitlines()]
