"""Read what SQLite keeps only in the text of CREATE statements. The text in, comments and checks out.

Whose a comment is:
- The table's: between its name and the opening parenthesis, on that parenthesis' line, or at the top of the
  body with an empty line after it. A view's: before its SELECT.
- A column's: on lines of its own before the definition, within it, or after it on its last line, be it after
  the comma. Where a line holds several definitions, a comment at its end is nobody's.
- A comment right below one that stands after code, and in line with it, goes on with that one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import dropwhile, islice, pairwise, takewhile

from dbtools.sql import WORD

TOKEN = re.compile(
    r"""
    (?=\S)(?:
    (?P<words>[^\s'"`\[(),/-](?:[^'"`\[(),/-]*[^\s'"`\[(),/-])?)
    | (?P<mark>[(),])
    | --(?P<line>[^\n]*)
    | /\*(?P<block>.*?)(?:\*/|\Z)
    | (?P<quoted>'[^']*(?:''[^']*)*'? | "[^"]*(?:""[^"]*)*"? | `[^`]*(?:``[^`]*)*`? | \[[^\]]*\]?)
    )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
SIGNS = ("--", "/*", "check", "collate")  #: of anything that is read here
COMMENTS = ("line", "block")
STEPS = {"(": 1, ",": 0, ")": -1}  #: into parentheses and out
CONSTRAINTS = ("constraint", "primary", "unique", "check", "foreign")
BINARY = "binary"  #: the collation of a column that names none
CHECK = re.compile(r"(?:^|\s)check$", re.IGNORECASE)
BEGINNING_OF_VIEW = re.compile(r"\s*create\s+(?:temp\w*\s+)?view\s", re.IGNORECASE)
AS = re.compile(
    r"(?:^|\s)as(?P<select>\s+(?:select|with|values))?(?P<more>\s.*)?$", re.IGNORECASE | re.DOTALL
)
BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
DECORATION = re.compile(r"[-=*#_~+/\s]*")
ASCII_LOWER = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}

TABLE = -1  #: the table, where the definitions of its columns are counted from 0
NOBODY = -2


@dataclass(frozen=True, kw_only=True)
class Definition:
    """What a CREATE statement tells beside the catalog; names of columns are folded."""

    comment: str = ""
    comments: Mapping[str, str] = field(default_factory=dict)  #: of columns
    checks: tuple[str, ...] = ()  #: the expressions of CHECK constraints
    collations: Mapping[str, str] = field(default_factory=dict)  #: of columns that name one, folded

    @cached_property
    def collated(self) -> frozenset[str]:
        """The columns where unequal texts may count as equal."""
        return frozenset(name for name, collation in self.collations.items() if collation != BINARY)


_Token = re.Match[str]


@dataclass(kw_only=True, slots=True)
class _Part:
    """One definition in the body of a CREATE statement: of a column, or a constraint."""

    begin: int  #: where the mark before it ends
    end: int = 0  #: where the mark after it begins
    code: list[_Token] = field(default_factory=list)
    comments: list[tuple[int, _Token]] = field(default_factory=list)  #: how much code is before, and each

    @property
    def name(self) -> str | None:
        """The folded name of the column; None of a constraint."""
        if not self.code:
            return None
        first = self.code[0]
        if first.lastgroup == "quoted":
            return fold(_unquoted(first[0]))
        name = fold(first[0].split(None, 1)[0]) if first.lastgroup == "words" else ""
        return name if name and name not in CONSTRAINTS else None


def read_definition(sql: str) -> Definition:
    """Return what the CREATE statement *sql* of a table or a view tells of it."""
    folded = sql.lower()
    if not any(sign in folded for sign in SIGNS):
        return Definition()
    tokens = list(TOKEN.finditer(sql))
    is_view = BEGINNING_OF_VIEW.match(sql) is not None
    opening = _opening(tokens, is_view=is_view)
    head = [token for token in tokens[:opening] if token.lastgroup in COMMENTS]
    if is_view:
        head += _comments_after_as(sql, tokens)
    parts = _parts(tokens[opening:])
    comments = _comments(sql, parts)
    return Definition(
        comment=_cleaned([*head, *comments.pop(None, [])]),
        comments={name: _cleaned(found) for name, found in comments.items() if name is not None},
        checks=tuple(check for part in parts for check in _checks(sql, part)) if "check" in folded else (),
        collations=_collations(parts) if "collate" in folded else {},
    )


def generation(sql: str) -> Mapping[str, frozenset[str]]:
    """Return the words in the definition of each column of the CREATE TABLE statement *sql*, all folded.

    What a generated column is computed from is among its words.
    """
    tokens = list(TOKEN.finditer(sql))
    parts = _parts(tokens[_opening(tokens, is_view=False) :])
    return {part.name: frozenset(_names(part)) for part in parts if part.name is not None}


def _names(part: _Part) -> Iterator[str]:
    for token in part.code:
        if token.lastgroup == "quoted":
            yield fold(_unquoted(token[0]))
        else:
            yield from (fold(word) for word in re.findall(WORD, token[0]))


def fold(name: str) -> str:
    """Return *name* in lower case as SQLite compares names: only the letters of ASCII."""
    return name.lower() if name.isascii() else name.translate(ASCII_LOWER)


def module_of(sql: str) -> str:
    """Return the folded name of the module that the CREATE VIRTUAL TABLE statement *sql* uses."""
    is_next = False
    for token in TOKEN.finditer(sql):
        if token.lastgroup == "quoted" and is_next:
            return fold(_unquoted(token[0]))
        for word in fold(token[0]).split() if token.lastgroup == "words" else ():
            if is_next:
                return word
            is_next = word == "using"
    return ""


def _opening(tokens: Sequence[_Token], *, is_view: bool) -> int:
    """Return where the list of columns opens or, in a view without one, where its AS is."""
    for index, token in enumerate(tokens):
        if token["mark"] == "(" or (is_view and token["words"] and AS.search(token[0])):
            return index
    return len(tokens)


def _comments_after_as(sql: str, tokens: Sequence[_Token]) -> Iterator[_Token]:
    """Return the comments between AS and SELECT, or on the line of that SELECT."""
    rest = dropwhile(lambda token: not (token["words"] and AS.search(token[0])), tokens)
    beginning = next(rest, None)
    match = AS.search(beginning[0]) if beginning else None
    if beginning is None or match is None or match["more"]:
        return
    for token in takewhile(lambda token: token.lastgroup in COMMENTS, rest):
        if match["select"] and "\n" in sql[beginning.end() : token.start()]:
            return
        yield token


def _parts(tokens: Sequence[_Token]) -> list[_Part]:
    """Return the definitions in the parentheses that *tokens* begin with."""
    if not tokens or tokens[0]["mark"] != "(":
        return []
    parts = [_Part(begin=tokens[0].end())]
    depth = 0
    for token in islice(tokens, 1, None):
        part, kind = parts[-1], token.lastgroup
        if kind in COMMENTS:
            part.comments.append((len(part.code), token))
            continue
        if kind == "mark":
            mark = token[0]
            if depth == 0 and mark != "(":
                part.end = token.start()
                if mark == ")":
                    break
                parts.append(_Part(begin=token.end()))
                continue
            depth += STEPS[mark]
        part.code.append(token)
    return parts


def _comments(sql: str, parts: Sequence[_Part]) -> dict[str | None, list[_Token]]:
    """Return the comments by the column that they belong to; by None, those of the table."""
    comments: dict[str | None, list[_Token]] = {}
    for owner, comment in _owned(sql, parts):
        name = parts[owner].name if 0 <= owner < len(parts) else None
        if name is not None or owner == TABLE:
            comments.setdefault(name, []).append(comment)
    return comments


def _owned(sql: str, parts: Sequence[_Part]) -> Iterator[tuple[int, _Token]]:
    """Return each comment with the number of the definition that it belongs to, or TABLE, or NOBODY."""
    above: _Token | None = None
    owner = NOBODY
    for number, part in enumerate(parts):
        for place, comment in part.comments:
            before = part.code[place - 1].end() if place else part.begin
            if "\n" not in sql[before : comment.start()]:
                owner = _owner_of_trailing(sql, parts, number, place, comment)
                above = comment
            elif above is not None and _goes_on(sql, above, comment):
                above = comment
            else:
                owner = _owner_of_own_line(sql, part, number, place, comment)
                above = None
            yield owner, comment


def _goes_on(sql: str, above: _Token, comment: _Token) -> bool:
    """Return whether *comment* stands in the line below the comment *above*, and in its column."""
    if not above.lastgroup == comment.lastgroup == "line":
        return False
    is_below = sql.count("\n", above.end(), comment.start()) == 1
    return is_below and _indent(sql, above) == _indent(sql, comment)


def _indent(sql: str, token: _Token) -> int:
    return token.start() - sql.rfind("\n", 0, token.start())


def _owner_of_trailing(sql: str, parts: Sequence[_Part], number: int, place: int, comment: _Token) -> int:
    """Return whose a *comment* is that stands after code, or after a mark, on the same line."""
    part = parts[number]
    after = part.code[place].start() if place < len(part.code) else part.end
    is_last = "\n" in sql[comment.end() : after]
    if place == 0 and not is_last:
        return number
    owner = number if place else number - 1
    # A column that was added later may have come between a comment and its own column.
    if is_last and owner > 0 and parts[owner - 1].code:
        other = parts[owner - 1].code[-1]
        return owner if "\n" in sql[other.end() : comment.start()] else NOBODY
    return owner


def _owner_of_own_line(sql: str, part: _Part, number: int, place: int, comment: _Token) -> int:
    """Return whose a *comment* is that begins its line."""
    if place and place < len(part.code):
        return number
    if place:
        return number + 1 if sql.startswith(",", part.end) else NOBODY
    after = part.code[0].start() if part.code else part.end
    if BLANK_LINE.search(sql, comment.end(), after):
        return NOBODY if number else TABLE
    return number


def _unquoted(text: str) -> str:
    quote = text[-1]
    return text[1:-1] if quote == "]" else text[1:-1].replace(quote * 2, quote)


def _checks(sql: str, part: _Part) -> Iterator[str]:
    depth = opening = 0
    for index, token in enumerate(part.code):
        if token.lastgroup != "mark":
            continue
        if depth == 0:
            opening = index
        depth += STEPS[token[0]]
        if depth == 0 and opening and CHECK.search(part.code[opening - 1][0]):
            yield sql[part.code[opening].start() : token.end()]


def _collations(parts: Iterable[_Part]) -> dict[str, str]:
    """Return the collations of columns by their names: that which a definition names last."""
    return {
        part.name: collation
        for part in parts
        if part.name is not None
        for collation in [second for first, second in pairwise(_words(part)) if first == "collate"]
    }


def _words(part: _Part) -> Iterator[str]:
    """Yield the folded words of *part* outside of parentheses."""
    depth = 0
    for token in part.code:
        if token.lastgroup == "mark":
            depth += STEPS[token[0]]
        elif depth == 0 and token.lastgroup == "quoted":
            yield fold(_unquoted(token[0]))
        elif depth == 0:
            yield from fold(token[0]).split()


def _cleaned(comments: Iterable[_Token]) -> str:
    """Return the text of *comments* in one line, without frames and rules made of signs."""
    lines = (line for comment in comments for line in _lines(comment))
    return " ".join(" ".join(line for line in lines if not DECORATION.fullmatch(line)).split())


def _lines(comment: _Token) -> list[str]:
    if comment.lastgroup == "line":
        return [comment["line"].lstrip("-")]
    return [re.sub(r"^\s*[*!]+(?=\s|$)", "", line) for line in comment["block"].splitlines()]
