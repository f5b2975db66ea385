"""Spell free SQL so that every reader reads the same. A caller's SQL in, pieces without ambiguity out.

Comments go; a string becomes '…' without escapes; every word that is not a keyword of a SELECT becomes a
quoted name, as PostgreSQL folds it. So no statement but a SELECT can be written, and a keyword that
PostgreSQL would read as something else, such as current_user, is the name of a column that does not exist.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dbtools.backends.free import SELECT_ONLY, no_parameters, refused
from dbtools.backends.plans import identifier
from dbtools.backends.postgresql.types import lexis
from dbtools.sql import Kind as Lexeme, SqlError, Token, code_of, words
from dbtools.types import quoted

LONGEST_NAME = 63  #: bytes; the server cuts longer names
MOST_PIECES = 4_000
DEEPEST = 40  #: brackets within each other
#: Keywords that PostgreSQL reserves, at least where a name could stand.
RESERVED = words(
    "all and any array as asc between both case cast collate cross desc distinct else end except exists "
    "false fetch from full group having ilike in inner intersect is isnull join lateral leading left like "
    "limit natural not notnull null offset on only or order outer overlaps placing right select similar "
    "some tablesample then trailing true union using variadic when where window with current_date "
    "current_time current_timestamp localtime localtimestamp for"
)
#: Words that are keywords only after, or before, one of these words and signs. "0" stands for a number,
#: "'" for a string, and "" for the end.
BESIDE: Mapping[str, tuple[str, str]] = {
    "at": ("", "time"),
    "by": ("group order partition", ""),
    "current": ("", "row"),
    "escape": ("", "'"),
    "exclude": ("", "current group ties no"),
    "filter": (")", ""),
    "first": ("nulls fetch", ""),
    "following": ("0 ' unbounded )", ""),
    "groups": ("", "between unbounded current 0"),
    "last": ("nulls", ""),
    "materialized": ("as not", ""),
    "next": ("fetch", ""),
    "no": ("exclude", ""),
    "nulls": ("", "first last"),
    "ordinality": ("with", ""),
    "others": ("no", ""),
    "over": (")", ""),
    "partition": ("", "by"),
    "preceding": ("0 ' unbounded )", ""),
    "range": ("", "between unbounded current 0 ' interval"),
    "recursive": ("with", ""),
    "row": ("current first next 0", "("),
    "rows": ("first next 0 )", "between unbounded current from only with 0"),
    "sets": ("grouping", ""),
    "symmetric": ("between", ""),
    "ties": ("with exclude", ""),
    "time": ("at with without", ""),
    "to": ("similar", ""),
    "unbounded": ("", "preceding following"),
    "unknown": ("is not", ""),
    "within": (")", ""),
    "zone": ("time", ""),
    **dict.fromkeys(
        words(
            "coalesce cube extract greatest grouping least nullif overlay position repeatable rollup "
            "substring trim values"
        ),
        ("", "("),
    ),
    "grouping": ("", "( sets"),
}
SIDES = {word: (words(before), words(after)) for word, (before, after) in BESIDE.items()}
#: The types that are keywords, with the type of the system that each is.
TYPE_WORDS: Mapping[str, str] = {
    "bigint": "int8",
    "int": "int4",
    "integer": "int4",
    "smallint": "int2",
    "real": "float4",
    "float": "float8",
    "double": "float8",
    "boolean": "bool",
    "bit": "bit",
    "interval": "interval",
    **dict.fromkeys(("numeric", "decimal", "dec"), "numeric"),
    **dict.fromkeys(("char", "character"), "bpchar"),
    "varchar": "varchar",
    "time": "time",
    "timestamp": "timestamp",
}
FIELDS = words("year month day hour minute second")
STRING = re.compile(r"[Ee]'((?:[^'\\]|''|\\(?s:.))*)'", re.DOTALL)
ESCAPE = re.compile(r"''|\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(?s:(.)))")
CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


class Kind(StrEnum):
    """The kind of a piece."""

    KEYWORD = "keyword"
    NAME = "name"
    STRING = "string"
    NUMBER = "number"
    SIGN = "sign"


@dataclass(slots=True)
class Piece:
    """A keyword, a quoted name, a value or a sign."""

    kind: Kind
    text: str  #: as it is written
    offset: int  #: in the caller's SQL
    value: str = ""  #: of a name or a string
    known: bool = False  #: whether it is a type, a collation or an argument, which the tree may lack
    #: What runs instead, if not the text: texts, each with the claim that follows it, or nothing.
    written: Sequence[tuple[str, str]] | None = None

    @property
    def word(self) -> str:
        """The keyword or sign; a mark for other kinds."""
        return {Kind.NAME: '"', Kind.STRING: "'", Kind.NUMBER: "0"}.get(self.kind, self.text)

    def write(self, *texts: str) -> None:
        """Let *texts* run instead."""
        self.written = [(text, "") for text in texts]


def spelled(sql: str) -> list[Piece]:
    """Return *sql* in pieces, or raise SqlRefused."""
    tokens = _tokens(sql)
    pieces = list(_pieces(tokens, sql))
    _check_brackets(pieces)
    if not pieces:
        raise refused("The statement is empty", SELECT_ONLY)
    if len(pieces) > MOST_PIECES:
        raise refused(f"The statement has more than {MOST_PIECES} words and signs", "Ask for less at once.")
    return pieces


def string_piece(value: str, offset: int) -> Piece:
    """Return the string *value*."""
    return Piece(Kind.STRING, "'" + value.replace("'", "''") + "'", offset, value)


def name_piece(name: str, offset: int) -> Piece:
    """Return the quoted *name*."""
    return Piece(Kind.NAME, identifier(name), offset, name)


def _tokens(sql: str) -> list[Token]:
    try:
        tokens = code_of(sql, lexis)
    except SqlError as exc:
        if "parameter" in exc.problem:
            raise no_parameters(position=exc.offset) from exc
        raise refused(exc.problem[:1].upper() + exc.problem[1:], position=exc.offset) from exc
    while tokens and tokens[-1].kind is Lexeme.SEMICOLON:
        tokens.pop()
    return tokens


def _pieces(tokens: Sequence[Token], sql: str) -> Iterator[Piece]:
    end, last = 0, None
    for at, token in enumerate(tokens):
        if token.offset < end:
            continue
        after = tokens[at + 1] if at + 1 < len(tokens) else None
        if _begins_number(token, sql):
            piece, end = _number(token.offset, sql)
        elif token.kind is Lexeme.TEXT and last is not None and last.kind is Kind.STRING:
            if "\n" not in sql[end : token.offset]:
                raise refused("A string follows another one", "Write || between them.", position=token.offset)
            # Strings on lines that follow each other are one.
            last.value += _string(token).value
            last.text, end = string_piece(last.value, last.offset).text, token.end
            continue
        else:
            word = "0" if after is not None and _begins_number(after, sql) else _beginning(after)
            piece, end = _piece(token, after, word, last), token.end
        yield piece
        last = piece


def _begins_number(token: Token, sql: str) -> bool:
    return token.kind is Lexeme.NUMBER or (token.text == "." and "0" <= sql[token.end : token.end + 1] <= "9")


def _number(offset: int, sql: str) -> tuple[Piece, int]:
    found = NUMBER.match(sql, offset)
    assert found is not None
    following = sql[found.end() : found.end() + 1]
    if following.isalnum() or following in ("_", "$"):
        raise refused("A number ends in letters", "Separate them by a space.", position=offset)
    return Piece(Kind.NUMBER, found[0], offset), found.end()


def _piece(token: Token, after: Token | None, following: str, last: Piece | None) -> Piece:
    offset = token.offset
    match token.kind:
        case Lexeme.TEXT:
            return _string(token)
        case Lexeme.NAME:
            return _name(token.value, offset)
        case Lexeme.WORD:
            if after is not None and after.offset == token.end and _is_prefix(token, after):
                hint = "Write the characters themselves, and '101'::bit(3) for bits."
                raise refused(f"Quotes after {token.text[:10]} are not permitted", hint, position=offset)
            return _word(token, following, last)
        case Lexeme.PARAMETER:
            raise no_parameters(position=offset)
        case Lexeme.SEMICOLON:
            raise refused("There is more than one statement", SELECT_ONLY, position=offset)
        case Lexeme.OPENING | Lexeme.CLOSING:
            return Piece(Kind.SIGN, token.text, offset)
        case _:
            return Piece(Kind.SIGN, "<>" if token.text == "!=" else token.text, offset)


def _is_prefix(token: Token, after: Token) -> bool:
    """Return whether *token* changes the meaning of quotes right after it, as in U&"…" and b'…'."""
    return (token.word == "u" and after.text == "&") or after.text[0] == "'"


def _string(token: Token) -> Piece:
    if token.text[0] == "'":
        return string_piece(token.value, token.offset)
    if token.text[0] == "$":
        mark = token.text[: token.text.index("$", 1) + 1]
        return string_piece(token.text[len(mark) : -len(mark)], token.offset)
    found = STRING.fullmatch(token.text)
    if found is None:
        raise refused("A string E'…' goes on in another line", "Write one string.", position=token.offset)
    value = ESCAPE.sub(_unescaped, found[1])
    if re.search("[\0\ud800-\udfff\x80-\xff]", value) and re.search(r"\\[0-7xuU]", found[1]):
        raise refused("This escape is not permitted", "Write the characters.", position=token.offset)
    return string_piece(value, token.offset)


def _unescaped(found: re.Match[str]) -> str:
    octal, pair, four, eight, plain = found.groups()
    if octal or pair or four or eight:
        code = int(octal, 8) if octal else int(pair or four or eight, 16)
        return chr(code) if code < 0x110000 and (code < 0x80 or not (octal or pair)) else "\0"
    return "'" if plain is None else CONTROLS.get(plain, plain)


def _name(name: str, offset: int) -> Piece:
    if len(name.encode()) > LONGEST_NAME:
        raise refused(f"The name {quoted(name, 40)} is too long", position=offset)
    return name_piece(name, offset)


def _word(token: Token, following: str, last: Piece | None) -> Piece:
    # PostgreSQL folds ASCII letters only.
    word = "".join(each.lower() if each.isascii() else each for each in token.text)
    before = last.word if last else ""
    if "." in (before, following) or not _is_keyword(word, before, following):
        return _name(word, token.offset)
    return Piece(Kind.KEYWORD, word, token.offset)


def _beginning(token: Token | None) -> str:
    if token is None:
        return ""
    kinds = {Lexeme.TEXT: "'", Lexeme.NUMBER: "0", Lexeme.NAME: '"'}
    return kinds.get(token.kind, token.word)


def _is_keyword(word: str, before: str, after: str) -> bool:
    if before == "as" and word not in ("not", "materialized", "select", "values"):
        # A label may be any word; the type of a cast is read later.
        return word in TYPE_WORDS
    if word in ("left", "right") and after == "(":
        return False
    if word in RESERVED or (before == "tablesample" and word in ("bernoulli", "system")):
        return True
    if word in SIDES:
        befores, afters = SIDES[word]
        if before in befores or after in afters:
            return True
    if word == "double":
        return after == "precision"
    if word in TYPE_WORDS:
        return before in ("::", '"') or after in ("'", "(", "with", "without", "precision", "varying")
    if word in ("precision", "varying"):
        return before in TYPE_WORDS
    return word == "without" and before in ("time", "timestamp", ")")


def _check_brackets(pieces: Sequence[Piece]) -> None:
    opened: list[Piece] = []
    for piece in pieces:
        if piece.text in ("(", "["):
            opened.append(piece)
        elif piece.text in (")", "]"):
            if not opened or (opened[-1].text == "(") != (piece.text == ")"):
                raise refused(f"{piece.text} closes nothing", position=piece.offset)
            opened.pop()
        if len(opened) > DEEPEST:
            raise refused(f"More than {DEEPEST} brackets are open", "Use with.", position=piece.offset)
    if opened:
        raise refused(f"{opened[-1].text} is not closed", position=opened[-1].offset)
