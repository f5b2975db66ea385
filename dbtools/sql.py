"""SQL that an operator writes, and the parameters in it. Text in, a Fragment of SQL and Parameters out.

`:name` is a parameter on every database, and `:claims.name` is a claim of the caller. A colon right after a
name, a value or a bracket belongs to the SQL instead, as in `a[1:n]` and `json_object('k':v)`; so do `::`,
`:=`, and whatever stands in quotes and comments. The scanner cuts the text exactly where the database will.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

CLAIMS = "claims"
HIGH = r"\x80-\U0010ffff"  #: is all letters to a database
WORD = rf"[A-Za-z_{HIGH}][A-Za-z0-9_${HIGH}]*+"
UNWRITABLE = re.compile("[\0\ud800-\udfff]")
CLOSING_MARK = re.compile(r"\*/")  #: of comments
NESTED_MARK = re.compile(r"/\*|\*/")
BRACKETS = {")": "(", "]": "["}


class SqlError(ValueError):
    """SQL that cannot be used, and where: whoever knows the file makes a ConfigurationError of it."""

    def __init__(self, problem: str, *, sql: str, offset: int) -> None:
        self.problem = problem
        self.offset = offset  #: characters before; lines and columns count from 1
        self.line = sql.count("\n", 0, offset) + 1
        self.column = offset - sql.rfind("\n", 0, offset)
        super().__init__(f"{problem}, at line {self.line}, column {self.column}")


def words(text: str) -> frozenset[str]:
    """Return the words of *text*, which blanks are between."""
    return frozenset(text.split())


@dataclass(frozen=True, kw_only=True)
class Lexis:
    """How a database tells the words of SQL from what is quoted and what is commented out."""

    nested_comments: bool  #: whether a comment may stand within another
    dollar_quotes: bool  #: $tag$ … $tag$
    escape_strings: bool  #: E'…', where a backslash escapes a quote
    brackets: bool  #: whether [name] is a quoted name, not an index
    backticks: bool  #: whether `name` is a quoted name, not an operator
    line_ends: str  #: the characters of which each ends a comment of one line
    native_marks: str  #: the characters with which the database's own parameters begin
    lenient: bool  #: whether a subquery with more than one row as a value, and comparing, raise no error
    total_functions: frozenset[str]  #: that raise no error, whatever they are given
    total_operators: frozenset[str]  #: likewise


@dataclass(frozen=True)
class Parameter:
    """A place in SQL for a value that comes with a call."""

    name: str  #: without the colon: "since", "claims.region"

    @property
    def claim(self) -> str | None:
        """The name of the caller's claim that is the value, None where the value is an argument."""
        prefix, _, claim = self.name.partition(".")
        return claim if prefix == CLAIMS and claim else None

    def __str__(self) -> str:
        """Return the parameter as it is written."""
        return f":{self.name}"


@dataclass(frozen=True, kw_only=True)
class Fragment:
    """At most one statement, or a part of one: every quote and every bracket in it is closed.

    So nothing in it leaves parentheses around it, if the closing one begins a line: a comment may come last.
    """

    pieces: tuple[str | Parameter, ...]
    ending: str = ""  #: the semicolon, and blanks and comments after it
    empty: bool = False  #: whether there is nothing but blanks and comments

    @property
    def text(self) -> str:
        """The SQL as it was written."""
        return self.written(str) + self.ending

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters, each once, in the order of their first places."""
        return tuple(dict.fromkeys(piece for piece in self.pieces if isinstance(piece, Parameter)))

    def written(self, placeholder: Callable[[Parameter], str]) -> str:
        """Return the SQL without its ending, the parameters written by *placeholder*.

        A mark and a number, such as $1, fits between any two pieces. A name does not: a database may take
        what follows, such as `::int`, for a part of it.
        """
        return "".join(piece if isinstance(piece, str) else placeholder(piece) for piece in self.pieces)

    def offset_of(self, parameter: Parameter) -> int:
        """Return where in the text *parameter* first stands."""
        before = self.pieces[: self.pieces.index(parameter)]
        return sum(len(str(piece)) for piece in before)


class Kind(StrEnum):
    """What a token is."""

    BLANK = "blank"
    COMMENT = "comment"
    QUOTED = "quoted"
    PARAMETER = "parameter"
    OPENING = "opening"
    CLOSING = "closing"
    SEMICOLON = "semicolon"
    CODE = "code"  #: a word, a digit, or a sign


@dataclass(frozen=True, kw_only=True)
class Token:
    """The smallest part of SQL that can be told apart."""

    kind: Kind
    text: str
    offset: int


def scan(sql: str, lexis: Lexis) -> Fragment:
    """Return *sql* in pieces, or raise SqlError.

    Refused are open quotes and comments, brackets that do not pair, a second statement, parameters in any
    other syntax, and `:claims` without a name.
    """
    tokens = tuple(tokenize(sql, lexis))
    semicolon = next((number for number, token in enumerate(tokens) if token.kind is Kind.SEMICOLON), None)
    statement, rest = tokens[:semicolon], tokens[len(tokens) if semicolon is None else semicolon :]
    _check_brackets(statement, sql)
    for token in rest:
        if token.kind not in (Kind.SEMICOLON, Kind.BLANK, Kind.COMMENT):
            raise SqlError("there is a second statement", sql=sql, offset=token.offset)
    return Fragment(
        pieces=tuple(_pieces(statement)),
        ending="".join(token.text for token in rest),
        empty=all(token.kind in (Kind.BLANK, Kind.COMMENT) for token in statement),
    )


def _check_brackets(tokens: Sequence[Token], sql: str) -> None:
    opened: list[Token] = []
    for token in tokens:
        if token.kind is Kind.OPENING:
            opened.append(token)
        if token.kind is Kind.CLOSING and (not opened or opened.pop().text != BRACKETS[token.text]):
            raise SqlError(f"{token.text} closes nothing", sql=sql, offset=token.offset)
    if opened:
        raise SqlError(f"{opened[-1].text} is not closed", sql=sql, offset=opened[-1].offset)


def _pieces(tokens: Sequence[Token]) -> Iterator[str | Parameter]:
    """Yield the parameters among *tokens*, and what is between them as one text each."""
    text = ""
    for token in tokens:
        if token.kind is not Kind.PARAMETER:
            text += token.text
            continue
        if text:
            yield text
        yield Parameter(token.text[1:])
        text = ""
    if text:
        yield text


def unquoted(text: str) -> str:
    """Return what the quoted name or text *text* holds."""
    mark = text[-1]
    return text[1:-1] if mark == "]" else text[1:-1].replace(mark * 2, mark)


def tokenize(sql: str, lexis: Lexis) -> Iterator[Token]:
    """Yield all of *sql* as tokens, or raise SqlError; brackets and statements are not looked at."""
    if found := UNWRITABLE.search(sql):
        raise SqlError("no database reads this character", sql=sql, offset=found.start())
    pattern = _pattern(lexis)
    at = 0
    while found := pattern.match(sql, at):
        group, end = str(found.lastgroup), found.end()
        if group == "block":
            group, end = Kind.COMMENT, _end_of_block(sql, at, lexis)
        if problem := _problem(group, found[0]):
            raise SqlError(problem, sql=sql, offset=at)
        yield Token(kind=Kind(group), text=sql[at:end], offset=at)
        at = end


def _end_of_block(sql: str, start: int, lexis: Lexis) -> int:
    """Return where the comment /* that begins at *start* ends, with all those within it."""
    depth = 1
    marks = NESTED_MARK if lexis.nested_comments else CLOSING_MARK
    for mark in marks.finditer(sql, start + 2):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    raise SqlError("/* is not closed", sql=sql, offset=start)


def _problem(group: str, text: str) -> str:
    """Return what is wrong with *text*, which *group* of the pattern has matched; nothing if all is well."""
    match group:
        case "unclosed":
            return f"{text} is not closed"
        case "native" if text.startswith(":"):
            return f"{text} is no parameter: a blank or a sign comes before the colon, a letter after it"
        case "native":
            return f"{text} is no parameter here, only :name is"
        case Kind.PARAMETER if text == f":{CLAIMS}":
            return f"{text} names no claim, as :{CLAIMS}.region does"
        case Kind.PARAMETER if not all(name.isidentifier() for name in text[1:].split(".")):
            return f"{text} is no parameter: letters, digits and _ make a name"
        case _:
            return ""


@cache
def _pattern(lexis: Lexis) -> re.Pattern[str]:
    """Return the pattern of one token: a group for each kind, and for each thing that is wrong.

    What is not closed must be an error, never read in another way: so nothing here backtracks.
    """
    quotes = tuple(_quotes(lexis))
    marks = "".join(map(re.escape, lexis.native_marks))
    value_end = rf"[A-Za-z0-9_${HIGH})\]'\"{'`' if lexis.backticks else ''}]"
    groups = {
        Kind.BLANK: r"[ \t\n\r\f\v]++",
        Kind.COMMENT: f"--[^{lexis.line_ends}]*+",
        "block": r"/\*",
        Kind.QUOTED: "|".join(quote for _, quote in quotes),
        "unclosed": "|".join(opening for opening, _ in quotes),
        Kind.PARAMETER: f"(?<!{value_end}):(?:{CLAIMS}[.])?{WORD}",
        Kind.OPENING: r"[(\[]",
        Kind.CLOSING: r"[)\]]",
        Kind.SEMICOLON: ";",
        Kind.CODE: f"{WORD}|::|:=|[^{marks}]",
        "native": f"[{marks}][A-Za-z0-9_${HIGH}]*+",
    }
    return re.compile("|".join(f"(?P<{group}>{pattern})" for group, pattern in groups.items()))


def _quotes(lexis: Lexis) -> Iterator[tuple[str, str]]:
    """Yield the pattern of what opens a quote, and the pattern of all of it, for each sort of quote."""
    for mark in ("'", '"', *(["`"] if lexis.backticks else [])):
        yield mark, f"{mark}(?:[^{mark}]++|{mark}{mark})*+{mark}"
    if lexis.brackets:
        yield r"\[", r"\[[^\]]*+\]"
    if lexis.dollar_quotes:
        delimiter = rf"\$(?:[A-Za-z_{HIGH}][A-Za-z0-9_{HIGH}]*+)?+\$"
        yield delimiter, rf"(?P<delimiter>{delimiter})(?s:.*?)(?P=delimiter)"
    if lexis.escape_strings:
        # The string goes on, and its backslashes escape, in a next quote on another line.
        comment = f"--[^{lexis.line_ends}]*+"
        gap = rf"(?:[ \t\f\v]|{comment})*+[\n\r](?:[ \t\n\r\f\v]|{comment}[\n\r])*+"
        string = r"'(?:[^'\\]++|''|\\(?s:.))*+'"
        yield "[Ee]'", f"[Ee]{string}(?:{gap}{string})*+(?!{gap}')"
