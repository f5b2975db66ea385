"""Check the types and collations that free SQL names. Pieces in; pieces with qualified types out.

PostgreSQL turns texts into values while it parses a statement, so a type such as regclass, or a domain whose
check calls a function, would already run something then.
"""

from collections.abc import Mapping, Sequence

from dbtools.backends.free import refused
from dbtools.backends.plans import identifier
from dbtools.backends.postgresql.habits import TYPES
from dbtools.backends.postgresql.spelling import FIELDS, TYPE_WORDS, Kind, Piece
from dbtools.backends.postgresql.types import lexis
from dbtools.backends.postgresql.vocabulary import SYSTEM, Vocabulary
from dbtools.catalog import Catalog
from dbtools.errors import SqlRefused, nearest
from dbtools.sql import code_of
from dbtools.types import Family, quoted

#: The families of visible columns to whose types a cast is permitted.
CASTABLE = (Family.ENUM, Family.OTHER, Family.TEXT)
CAST = "Write cast(value as type)."


class Casts:
    """The types in *pieces*."""

    def __init__(self, pieces: list[Piece], catalog: Catalog, vocabulary: Vocabulary) -> None:
        self._pieces, self._vocabulary = pieces, vocabulary
        own = _own_types(catalog).items()
        self._own = {names: cast for names, cast in own if names[-1] not in vocabulary.blocked}

    def check(self) -> None:
        """Check every type and collation, and write `type 'text'` as `'text'::type`."""
        at = 0
        while at < len(self._pieces):
            match self.word(at):
                case "::":
                    at = self.check_type(at + 1)
                case "cast":
                    self.check_type(self._type_of_cast(at))
                case "collate":
                    self._check_collation(at + 1)
                case "=>" | ":=":
                    self._pieces[at - 1].known = True
                case "extract" if self.word(at + 3) == "from":
                    self._pieces[at + 2].known = True
                case _:
                    if self._begins_literal(at):
                        self._turn_literal(at)
            at += 1

    def word(self, at: int) -> str:
        """Return the word of piece number *at*, empty if there is none."""
        return self._pieces[at].word if 0 <= at < len(self._pieces) else ""

    def check_type(self, at: int) -> int:
        """Check the type that begins at *at*, and return the index of its last piece."""
        piece = self._pieces[at] if at < len(self._pieces) else None
        if piece is None or (piece.kind is not Kind.NAME and piece.text not in TYPE_WORDS):
            raise refused("A type is missing", CAST, position=piece.offset if piece else None)
        if piece.kind is not Kind.NAME:
            if TYPE_WORDS[piece.text] not in self._vocabulary.types:
                raise self._unknown(piece.text, piece)
            return self._end_of_keywords(at) - 1
        is_qualified = self.word(at + 1) == "." and self.word(at + 2) == '"'
        names = self._pieces[at : at + 3 : 2] if is_qualified else [piece]
        cast = self._cast_of([each.value for each in names])
        if cast is None:
            raise self._unknown(".".join(each.value for each in names), piece)
        for each in self._pieces[at : at + 2 * len(names) - 1]:
            each.known = True
            each.write()
        piece.write(cast)
        return at + 2 * len(names) - 2

    def _cast_of(self, names: Sequence[str]) -> str | None:
        """Return the qualified type that *names* mean; that of the system before others."""
        if names[-1] in self._vocabulary.types and names[:-1] in ([], [SYSTEM]):
            return f"{identifier(SYSTEM)}.{identifier(names[-1])}"
        return self._own.get(tuple(names))

    def _unknown(self, name: str, piece: Piece) -> SqlRefused:
        rule = f"The type {quoted(name, 60)} does not exist or is not permitted"
        hint = TYPES.get(name) or nearest(name, self._vocabulary.types).strip()
        return refused(rule, hint, position=piece.offset)

    def _type_of_cast(self, at: int) -> int:
        """Return the index of the type in the cast at *at*."""
        depth = 0
        for end in range(at + 1, len(self._pieces)):
            text = self._pieces[end].text
            depth += (text == "(") - (text == ")")
            if depth == 1 and text == "as":
                return end + 1
        raise refused("A cast has no type", CAST, position=self._pieces[at].offset)

    def _end_of_keywords(self, at: int) -> int:
        """Return the index after the type of keywords at *at*."""
        end = at + 1
        while self.word(end) in ("precision", "varying"):
            end += 1
        if self.word(end) == "(":
            while self.word(end) not in (")", ""):
                end += 1
            end += 1
        return end + 3 if self.word(end) in ("with", "without") and self.word(end + 1) == "time" else end

    def _begins_literal(self, at: int) -> bool:
        """Return whether a type begins at *at* that a string follows."""
        if self.word(at) == '"':
            is_qualified = self.word(at + 1) == "." and self.word(at + 2) == '"'
            return self.word(at + 1 + 2 * is_qualified) == "'" and self.word(at - 1) != "."
        is_type = self._pieces[at].kind is Kind.KEYWORD and self._pieces[at].text in TYPE_WORDS
        return is_type and self.word(at - 1) != "as" and self.word(self._end_of_keywords(at)) == "'"

    def _turn_literal(self, at: int) -> None:
        self.check_type(at)
        end = next(each for each in range(at, len(self._pieces)) if self.word(each) == "'")
        type, string, rest = self._pieces[at:end], self._pieces[end], self._pieces[end + 1 :]
        if type[0].text == "interval" and rest and rest[0].value in FIELDS:
            # interval '2' day
            if not string.value.strip().lstrip("+-").replace(".", "", 1).isdigit():
                raise refused("This interval is not permitted", "interval '1 day'", position=string.offset)
            string.value = f"{string.value} {rest.pop(0).value}"
            string.text = f"'{string.value}'"
        self._pieces[at:] = [string, Piece(Kind.SIGN, "::", string.offset), *type, *rest]

    def _check_collation(self, at: int) -> None:
        is_qualified = self.word(at + 1) == "." and self.word(at + 2) == '"'
        pieces = self._pieces[at : at + 1 + 2 * is_qualified]
        names = [each.value for each in pieces[::2]]
        is_known = bool(names) and names[-1] in self._vocabulary.collations and names[:-1] in ([], [SYSTEM])
        if not is_known:
            raise refused(
                "This collation is not permitted", 'collate "C"', position=self._pieces[at - 1].offset
            )
        for each in pieces:
            each.known = True
            each.write()
        pieces[0].write(f"{identifier(SYSTEM)}.{identifier(names[-1])}")


def _own_types(catalog: Catalog) -> Mapping[tuple[str, ...], str]:
    """Return the types of visible columns that are not of the system, by name with and without schema."""
    found: dict[tuple[str, ...], str] = {}
    for table in catalog.tables:
        for column in table.columns:
            type = column.type.element or column.type
            if type.mask is None and type.family in CASTABLE and not type.cast.startswith(f"{SYSTEM}."):
                names = tuple(token.value for token in code_of(type.cast, lexis) if token.text != ".")
                if len(names) == 2:
                    found |= {names: type.cast, names[1:]: type.cast}
    return found
