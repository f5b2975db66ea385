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
from typing import NamedTuple

TOKEN = re.compile(
    r"""
    --(?P<line>[^\n]*)
    | /\*(?P<block>.*?)(?:\*/|\Z)
    | (?P<quoted>'[^']*(?:''[^']*)*'? | "[^"]*(?:""[^"]*)*"? | `[^`]*(?:``[^`]*)*`? | \[[^\]]*\]?)
    | (?P<mark>[(),])
    | (?P<words>[^\s'"`\[(),/-]+(?:[ \t\r\n\f]+[^\s'"`\[(),/-]+)*)
    """,
    re.VERBOSE | re.DOTALL,
)
CONSTRAINTS = ("constraint", "primary", "unique", "check", "foreign")
CHECK = re.compile(r"(?:^|\s)check$", re.IGNORECASE)
COLLATION = re.compile(r"(?:^|\s)collate(?:$|\s+(?!binary(?:\s|$)))", re.IGNORECASE)
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
    collated: frozenset[str] = frozenset()  #: columns where unequal texts may count as equal


class _Token(NamedTuple):
    kind: str  #: line or block (comments), quoted, mark, words; of a body also opening, separator, closing
    text: str
    start: int
    end: int

    @property
    def is_comment(self) -> bool:
        return self.kind in ("line", "block")


def read_definition(sql: str) -> Definition:
    """Return what the CREATE statement *sql* of a table or a view tells of it."""
    if "--" not in sql and "/*" not in sql and "check" not in sql.lower():
        return Definition()
    tokens = _tokens(sql)
    is_view = BEGINNING_OF_VIEW.match(sql) is not None
    opening = _opening(tokens, is_view)
    head = [token for token in tokens[:opening] if token.is_comment]
    if is_view:
        head += _comments_after_as(sql, tokens)
    body = _body(tokens[opening:])
    parts = _parts(body)
    comments = _comments(parts, _owned(sql, body, parts))
    return Definition(
        comment=_cleaned([*head, *comments.pop(TABLE, [])]),
        comments={_name(parts[owner]): _cleaned(tokens) for owner, tokens in comments.items()},
        checks=tuple(check for part in parts for check in _checks(sql, part)),
        collated=frozenset(_name(part) for part in parts if _is_collated(part)),
    )


def fold(name: str) -> str:
    """Return *name* in lower case as SQLite compares names: only the letters of ASCII."""
    return name.lower() if name.isascii() else name.translate(ASCII_LOWER)


def module_of(sql: str) -> str:
    """Return the folded name of the module that the CREATE VIRTUAL TABLE statement *sql* uses."""
    words = [fold(word) for token in _tokens(sql) if token.kind == "words" for word in token.text.split()]
    return words[words.index("using") + 1] if "using" in words[:-1] else ""


def _tokens(sql: str) -> list[_Token]:
    tokens = []
    for match in TOKEN.finditer(sql):
        kind = str(match.lastgroup)
        tokens.append(_Token(kind, match[kind], match.start(), match.end()))
    return tokens


def _opening(tokens: Sequence[_Token], is_view: bool) -> int:
    """Return where the parenthesis is that opens the list of columns; without one, the end."""
    for index, token in enumerate(tokens):
        if token.text == "(" and token.kind == "mark":
            return index
        if is_view and token.kind == "words" and AS.search(token.text):
            break
    return len(tokens)


def _comments_after_as(sql: str, tokens: Sequence[_Token]) -> Iterator[_Token]:
    words = ((index, AS.search(token.text)) for index, token in enumerate(tokens) if token.kind == "words")
    at, match = next(((index, match) for index, match in words if match), (0, None))
    if match is None or match["more"]:
        return
    for token in tokens[at + 1 :]:
        if not token.is_comment or (match["select"] and "\n" in sql[tokens[at].end : token.start]):
            return
        yield token


def _body(tokens: Sequence[_Token]) -> list[_Token]:
    """Return the parentheses that *tokens* begin with and what is in them; its own marks are named by kind."""
    body: list[_Token] = []
    if not tokens or tokens[0].text != "(":
        return body
    depth = 0
    for token in tokens:
        mark = token.text if token.kind == "mark" else ""
        depth -= mark == ")"
        kind = {(0, "("): "opening", (1, ","): "separator", (0, ")"): "closing"}.get((depth, mark))
        depth += mark == "("
        body.append(token if kind is None else token._replace(kind=kind))
        if kind == "closing":
            break
    return body


def _parts(body: Iterable[_Token]) -> list[list[_Token]]:
    """Return the definitions in *body*, without comments."""
    parts: list[list[_Token]] = [[]]
    for token in body:
        if token.kind == "separator":
            parts.append([])
        elif not token.is_comment and token.kind not in ("opening", "closing"):
            parts[-1].append(token)
    return parts


def _comments(
    parts: Sequence[Sequence[_Token]], owned: Iterable[tuple[int, _Token]]
) -> dict[int, list[_Token]]:
    """Return the comments by the definition of a column that they belong to, or TABLE."""
    comments: dict[int, list[_Token]] = {}
    for owner, comment in owned:
        is_column = 0 <= owner < len(parts) and _name(parts[owner])
        if owner == TABLE or is_column:
            comments.setdefault(owner, []).append(comment)
    return comments


def _owned(
    sql: str, body: Sequence[_Token], parts: Sequence[Sequence[_Token]]
) -> Iterator[tuple[int, _Token]]:
    part = 0
    before = above = body[0] if body else None
    owner, continuable = NOBODY, False
    for token, after in zip(body, _next_code(body), strict=True):
        if not token.is_comment:
            part += token.kind == "separator"
            before = token
        elif before is not None:
            is_trailing = "\n" not in sql[before.end : token.start]
            continuable = is_trailing or (continuable and above is not None and _goes_on(sql, above, token))
            if is_trailing or not continuable:
                owner = _owner(sql, token, part, before, after)
                owner = NOBODY if is_trailing and _shares_line(sql, parts, owner, token) else owner
            yield owner, token
        above = token


def _next_code(body: Sequence[_Token]) -> list[_Token]:
    """Return for each token of *body* itself or, if it is a comment, the first after it that is none."""
    found: list[_Token] = []
    for token in reversed(body):
        found.append(found[-1] if found and token.is_comment else token)
    return found[::-1]


def _goes_on(sql: str, above: _Token, comment: _Token) -> bool:
    """Return whether *comment* stands in the line below the comment *above*, and in its column."""
    if not above.kind == comment.kind == "line" or sql.count("\n", above.end, comment.start) != 1:
        return False
    return _indent(sql, above) == _indent(sql, comment)


def _indent(sql: str, token: _Token) -> int:
    return token.start - sql.rfind("\n", 0, token.start)


def _owner(sql: str, comment: _Token, part: int, before: _Token, after: _Token) -> int:
    """Return the definition that *comment* belongs to; *part* is the one being read, or the next."""
    is_trailing = "\n" not in sql[before.end : comment.start]
    is_leading = "\n" not in sql[comment.end : after.start]
    if before.kind not in ("opening", "separator"):
        if is_trailing or after.kind not in ("separator", "closing"):
            return part
        return part + 1 if after.kind == "separator" else NOBODY
    if is_trailing and not is_leading:
        return part - 1 if part else TABLE
    if BLANK_LINE.search(sql, comment.end, after.start):
        return NOBODY if part else TABLE
    return part


def _shares_line(sql: str, parts: Sequence[Sequence[_Token]], owner: int, comment: _Token) -> bool:
    """Return whether *comment* ends a line on which another definition than its *owner* ends too."""
    if owner < 1 or owner >= len(parts) or not parts[owner - 1]:
        return False
    is_last = "\n" in sql[comment.end : comment.end + 1] or comment.kind == "line"
    return is_last and "\n" not in sql[parts[owner - 1][-1].end : comment.start]


def _name(part: Sequence[_Token]) -> str:
    """Return the folded name of the column that *part* defines; of a constraint, nothing."""
    if not part:
        return ""
    first = part[0]
    if first.kind == "quoted":
        return fold(_unquoted(first.text))
    name = fold(first.text.split()[0]) if first.kind == "words" else ""
    return "" if name in CONSTRAINTS else name


def _unquoted(text: str) -> str:
    quote = text[-1]
    return text[1:-1] if quote == "]" else text[1:-1].replace(quote * 2, quote)


def _checks(sql: str, part: Sequence[_Token]) -> Iterator[str]:
    depth = opening = 0
    for index, token in enumerate(part):
        if token.kind != "mark":
            continue
        if token.text == "(":
            opening = index if depth == 0 else opening
            depth += 1
        elif token.text == ")":
            depth -= 1
            word = part[opening - 1] if opening else None
            if depth == 0 and word and word.kind == "words" and CHECK.search(word.text):
                yield sql[part[opening].start : token.end]


def _is_collated(part: Sequence[_Token]) -> bool:
    return any(token.kind == "words" and COLLATION.search(token.text) for token in part)


def _cleaned(comments: Iterable[_Token]) -> str:
    """Return the text of *comments* in one line, without frames and rules made of signs."""
    lines = (line for comment in comments for line in _lines(comment))
    return " ".join(" ".join(line for line in lines if not DECORATION.fullmatch(line)).split())


def _lines(comment: _Token) -> list[str]:
    if comment.kind == "line":
        return [comment.text.lstrip("-")]
    return [re.sub(r"^\s*[*!]+(?=\s|$)", "", line) for line in comment.text.splitlines()]
