"""The one tokenizer of SQL. Text in; tokens, groups of tokens, and Fragments with Parameters out.

`:name` is a parameter on every database, and `:claims.name` is a claim of the caller. A colon right after a
name, a value or a bracket belongs to the SQL instead, as in `a[1:n]` and `json_object('k':v)`; so do `::`,
`:=`, and whatever is in quotes and comments. The tokenizer cuts the text exactly where the database will.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from dbtools.values.types import UNSENDABLE

CLAIMS = "claims"
BLANKS = " \t\n\r\f\v"
LETTER = r"[^\x00-@\[-^`{-\x7f]"  #: including all beyond ASCII; negated, the class compiles faster
CHARACTER = r"[^\x00-#%-/:-@\[-^`{-\x7f]"  #: a letter, a digit or $
WORD = f"{LETTER}{CHARACTER}*+"
#: Words with only spaces and the lengths of types between them.
PHRASE = rf"{WORD}(?:[{BLANKS}]*+\([0-9, ]++\)|[{BLANKS}]++{WORD})*+"
DATE = re.compile(r"[0-9]{4}([-/])[0-9]{2}\1[0-9]{2}(?![0-9.])")
CLOSINGS = {"(": ")", "[": "]"}


class SqlError(ValueError):
    """SQL that cannot be used, and where; callers that know the file raise ConfigurationError."""

    def __init__(self, problem: str, *, sql: str, offset: int) -> None:
        self.problem = problem
        self.offset = offset  #: in characters; lines and columns count from 1
        self.line = sql.count("\n", 0, offset) + 1
        self.column = offset - sql.rfind("\n", 0, offset)
        super().__init__(f"{problem}, at line {self.line}, column {self.column}")


def words(text: str) -> frozenset[str]:
    """Return the words of *text*, which are separated by spaces."""
    return frozenset(text.split())


@dataclass(frozen=True, kw_only=True)
class Lexis:
    """The lexical rules of a database: quotes and comments; and whether comparisons may raise an error."""

    name_quotes: str  #: the characters that open a quoted name; [ is closed by ]
    nested_comments: bool  #: whether a comment may contain another one
    dollar_quotes: bool  #: $tag$ … $tag$
    escape_strings: bool  #: E'…', where a backslash escapes a quote
    line_ends: str  #: the characters that end a one-line comment
    native_marks: str  #: the first characters of the database's own parameters
    lenient: bool  #: whether comparisons of any types raise no error


@dataclass(frozen=True)
class Parameter:
    """A placeholder in SQL for a value of a call."""

    name: str  #: without the colon: "since", "claims.region"

    @property
    def claim(self) -> str | None:
        """The name of the caller's claim that is the value; None for an argument."""
        prefix, _, claim = self.name.partition(".")
        return claim if prefix == CLAIMS and claim else None

    def __str__(self) -> str:
        """Return the parameter as it is written."""
        return f":{self.name}"


@dataclass(frozen=True, kw_only=True)
class Fragment:
    """At most one statement, or a part of one, in which every quote and bracket is closed.

    So it cannot close parentheses around it. The closing one must begin a line: a comment may come last.
    """

    pieces: tuple[str | Parameter, ...]
    ending: str = ""  #: the semicolon, and white space and comments after it
    empty: bool = False  #: whether it consists of white space and comments only

    @property
    def text(self) -> str:
        """The SQL as it was written."""
        return self.to_sql(str) + self.ending

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters, each once, in order of appearance."""
        return tuple(dict.fromkeys(piece for piece in self.pieces if isinstance(piece, Parameter)))

    def to_sql(self, placeholder: Callable[[Parameter], str]) -> str:
        """Return the SQL without its ending, the parameters written by *placeholder*.

        A mark and a number, such as $1, fits between any two pieces. A name does not: a database may read the
        text after it, such as `::int`, as a part of the name.
        """
        return "".join(piece if isinstance(piece, str) else placeholder(piece) for piece in self.pieces)

    def offset_of(self, parameter: Parameter) -> int:
        """Return the first offset of *parameter* in the text."""
        return len("".join(map(str, self.pieces[: self.pieces.index(parameter)])))


class TokenKind(StrEnum):
    """The kind of a token."""

    COMMENT = "comment"
    WORD = "word"
    NUMBER = "number"  #: digits, perhaps with a fraction
    SIGN = "sign"  #: a whole operator, a comma, a dot, or any other character
    TEXT = "text"  #: a quoted value
    NAME = "name"  #: a quoted name
    PARAMETER = "parameter"
    OPENING = "opening"
    CLOSING = "closing"
    SEMICOLON = "semicolon"


QUOTED = (TokenKind.TEXT, TokenKind.NAME)
#: The kinds that need no further check, by the names of their groups.
PLAIN = {kind.value: kind for kind in TokenKind if kind is not TokenKind.PARAMETER}


class Token(NamedTuple):
    """A word, a quote, a sign or a comment. White space is not a token."""

    kind: TokenKind
    text: str
    offset: int
    end: int  #: the offset after the token

    @property
    def word(self) -> str:
        """The word or sign in lower case; empty if it is quoted."""
        return "" if self.kind in QUOTED else self.text.lower()

    @property
    def value(self) -> str:
        """The text without quotes."""
        if self.kind not in QUOTED:
            return self.text
        mark = self.text[-1]
        return self.text[1:-1] if mark == "]" else self.text[1:-1].replace(mark * 2, mark)

    @property
    def is_name(self) -> bool:
        """Whether the token is a name, in quotes or not, or a keyword."""
        return self.kind in (TokenKind.WORD, TokenKind.NAME)

    @property
    def parameter(self) -> Parameter:
        """The parameter that the token is."""
        return Parameter(self.text[1:])


@dataclass(eq=False, slots=True)
class Group:
    """The content of brackets; the outermost group is the whole text."""

    word: str  #: the bracket that opens the group, or nothing
    offset: int
    parts: "list[Part]" = field(default_factory=list)
    end: int = 0  #: the offset after the group

    @property
    def words(self) -> list[str]:
        """The words and signs of the parts; a group has the bracket that opens it."""
        return [part.word for part in self.parts]

    def groups(self) -> Iterator["Group"]:
        """Yield this group and all groups in it, each before those in it."""
        left = [self]
        while left:
            group = left.pop()
            yield group
            left += [part for part in reversed(group.parts) if isinstance(part, Group)]


Part = Token | Group


def scan(sql: str, lexis: Lexis) -> Fragment:
    """Return *sql* in pieces, or raise SqlError.

    Reject open quotes and comments, brackets that do not pair, a second statement, parameters in any other
    syntax, `:claims` without a name, and dates without quotes.
    """
    tokens = tuple(tokenize(sql, lexis))
    for token in tokens:
        if token.kind is TokenKind.NUMBER and (date := DATE.match(sql, token.offset)):
            # Some databases compare a date with the difference of the three numbers.
            problem = f"{date[0]} is a calculation: write a date in single quotes, '{date[0]}'"
            raise SqlError(problem, sql=sql, offset=token.offset)
    kinds = [token.kind for token in tokens]
    end = kinds.index(TokenKind.SEMICOLON) if TokenKind.SEMICOLON in kinds else len(tokens)
    statement, rest = tokens[:end], tokens[end:]
    nest(statement, sql)
    for token in rest:
        if token.kind not in (TokenKind.SEMICOLON, TokenKind.COMMENT):
            raise SqlError("there is a second statement", sql=sql, offset=token.offset)
    ending = sql[rest[0].offset :] if rest else ""
    return Fragment(
        pieces=tuple(pieces_of(sql.removesuffix(ending), statement)),
        ending=ending,
        empty=all(token.kind is TokenKind.COMMENT for token in statement),
    )


def pieces_of(sql: str, tokens: Iterable[Token]) -> Iterator[str | Parameter]:
    """Yield the parameters among *tokens* of *sql*, and the texts between them."""
    start = 0
    for token in tokens:
        if token.kind is TokenKind.PARAMETER:
            if start < token.offset:
                yield sql[start : token.offset]
            yield token.parameter
            start = token.end
    if start < len(sql):
        yield sql[start:]


def nest(tokens: Iterable[Token], sql: str) -> Group:
    """Return *tokens* of *sql* as groups without comments, or raise SqlError if brackets do not pair."""
    whole = Group("", 0)
    opened = [whole]
    for token in tokens:
        if token.kind is TokenKind.OPENING:
            group = Group(token.text, token.offset)
            opened[-1].parts.append(group)
            opened.append(group)
        elif token.kind is TokenKind.CLOSING:
            if token.text != CLOSINGS.get(opened[-1].word):
                raise SqlError(f"{token.text} closes nothing", sql=sql, offset=token.offset)
            opened.pop().end = token.end
        elif token.kind is not TokenKind.COMMENT:
            opened[-1].parts.append(token)
    if opened[-1] is not whole:
        raise SqlError(f"{opened[-1].word} is not closed", sql=sql, offset=opened[-1].offset)
    return whole


def split(parts: Iterable[Part], word: str) -> list[list[Part]]:
    """Return *parts* split at *word*, such as a comma."""
    found: list[list[Part]] = [[]]
    for part in parts:
        if part.word == word:
            found.append([])
        else:
            found[-1].append(part)
    return found


def has_name(sql: str, name: str) -> bool:
    """Return whether the word *name* is in *sql*, in any case."""
    pattern = rf"(?<!\w){re.escape(name)}(?!\w)"
    return name.lower() in sql.lower() and re.search(pattern, sql, re.IGNORECASE) is not None


def code_of(sql: str, lexis: Lexis) -> list[Token]:
    """Return the tokens of *sql* without comments, or raise SqlError."""
    return [token for token in tokenize(sql, lexis) if token.kind is not TokenKind.COMMENT]


def tokenize(sql: str, lexis: Lexis, word: str = WORD) -> Iterator[Token]:
    """Yield all of *sql* as tokens, or raise SqlError; brackets and statements are not checked.

    The pattern of a *word* may be PHRASE, which makes half as many tokens.
    """
    if found := UNSENDABLE.search(sql):
        raise SqlError("no database reads this character", sql=sql, offset=found.start())
    pattern, kinds = _token_pattern(lexis, word)
    # Schemas are large, and the constructor of a NamedTuple takes twice as long.
    match, new, at = pattern.match, tuple.__new__, 0
    while found := match(sql, at):
        group = found.lastindex or 0
        start, at = found.span(group)
        if (kind := kinds.get(group)) is not None:
            yield new(Token, (kind, found[group], start, at))
            continue
        token = _checked_token(found, sql, lexis)
        yield token
        at = token.end


def _checked_token(found: re.Match[str], sql: str, lexis: Lexis) -> Token:
    """Return *found* as a parameter or a comment /*, or raise SqlError."""
    group = str(found.lastgroup)
    text, (start, end) = found[group], found.span(group)
    match group:
        case "block":
            end = _end_of_block(sql, start, lexis)
            return Token(TokenKind.COMMENT, sql[start:end], start, end)
        case TokenKind.PARAMETER if text == f":{CLAIMS}":
            problem = f"{text} must name a claim, as in :{CLAIMS}.region"
        case TokenKind.PARAMETER if all(name.isidentifier() for name in text[1:].split(".")):
            return Token(TokenKind.PARAMETER, text, start, end)
        case TokenKind.PARAMETER | "native":
            problem = f"{text} is not a parameter: write :name"
        case _:
            problem = f"{text} is not closed"
    raise SqlError(problem, sql=sql, offset=start)


def _end_of_block(sql: str, start: int, lexis: Lexis) -> int:
    """Return the end of the comment /* at *start*, including those within it."""
    depth = 1
    marks = re.compile(r"/\*|\*/" if lexis.nested_comments else r"\*/")
    for mark in marks.finditer(sql, start + 2):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    raise SqlError("/* is not closed", sql=sql, offset=start)


@cache
def _token_pattern(lexis: Lexis, word: str) -> tuple[re.Pattern[str], Mapping[int, TokenKind]]:
    """Return the pattern of one token and the white space before it, and the kinds of tokens by its groups.

    An open quote must be an error, and must not be read as something else: so nothing here backtracks.
    """
    texts, names = tuple(_texts(lexis)), tuple(map(_quote_patterns, lexis.name_quotes))
    marks = "".join(map(re.escape, lexis.native_marks))
    closings = rf"[)\]'{lexis.name_quotes.replace('[', '')}]"
    groups = {
        TokenKind.WORD: f"(?![Ee]'){word}" if lexis.escape_strings else word,
        TokenKind.TEXT: "|".join(text for _, text in texts),
        TokenKind.NAME: "|".join(name for _, name in names),
        "unclosed": "|".join(opening for opening, _ in texts + names),
        TokenKind.NUMBER: r"[0-9]++(?:\.[0-9]++)?+",
        TokenKind.COMMENT: f"--[^{lexis.line_ends}]*+",
        "block": r"/\*",
        TokenKind.PARAMETER: f"(?<!{CHARACTER})(?<!{closings}):(?:{CLAIMS}[.])?{WORD}",
        TokenKind.OPENING: r"[(\[]",
        TokenKind.CLOSING: r"[)\]]",
        TokenKind.SEMICOLON: ";",
        TokenKind.SIGN: f"[,.]|{_operator(lexis)}|::|:=|[^{marks}]",
        "native": f"[{marks}]{CHARACTER}*+",
    }
    alternatives = "|".join(f"(?P<{group}>{pattern})" for group, pattern in groups.items())
    pattern = re.compile(f"[{BLANKS}]*+(?:{alternatives})")
    return pattern, {index: PLAIN[name] for name, index in pattern.groupindex.items() if name in PLAIN}


def _operator(lexis: Lexis) -> str:
    """Return the pattern of an operator: as many signs as there are, up to a comment.

    A + or - at its end belongs to what follows, unless the operator contains a rarer sign.
    """
    peculiar = re.escape("".join({*"~!@#%^&|?`"} - {*lexis.native_marks, *lexis.name_quotes}))
    sign, end = r"(?!--)[-+]", r"(?!/\*)[*/<>=]"
    # No database has longer ones.
    return (
        f"(?=(?:{sign}|{end}){{0,62}}+[{peculiar}])(?:{sign}|{end}|[{peculiar}]){{1,63}}+"
        f"|(?:(?:{sign}){{0,62}}+{end}){{1,63}}+"
    )


def _quote_patterns(mark: str) -> tuple[str, str]:
    if mark == "[":
        return r"\[", r"\[[^\]]*+\]"
    return mark, f"{mark}(?:[^{mark}]++|{mark}{mark})*+{mark}"


def _texts(lexis: Lexis) -> Iterator[tuple[str, str]]:
    yield _quote_patterns("'")
    if lexis.dollar_quotes:
        delimiter = rf"\$(?:{LETTER}(?:(?!\$){CHARACTER})*+)?+\$"
        yield delimiter, rf"(?P<delimiter>{delimiter})(?s:.*?)(?P=delimiter)"
    if lexis.escape_strings:
        # The string continues in a quote on the next line, where backslashes escape as well.
        comment = f"--[^{lexis.line_ends}]*+"
        gap = rf"(?:[ \t\f\v]|{comment})*+[\n\r](?:[ \t\n\r\f\v]|{comment}[\n\r])*+"
        string = r"'(?:[^'\\]++|''|\\(?s:.))*+'"
        yield "[Ee]'", f"[Ee]{string}(?:{gap}{string})*+(?!{gap}')"
