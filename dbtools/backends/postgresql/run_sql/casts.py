"""Check the types and collations that ad-hoc SQL names. Lexemes in; lexemes with qualified types out.

PostgreSQL turns texts into values while it parses a statement, so a type such as regclass, or a domain whose
check calls a function, would already run something then.
"""

from collections.abc import Mapping, Sequence

from dbtools.backends.compiled import identifier
from dbtools.backends.postgresql.run_sql.guarded import Lexeme, LexemeKind
from dbtools.backends.postgresql.run_sql.parsing import name_lexeme, string_lexeme
from dbtools.backends.postgresql.schema.types import lexis
from dbtools.backends.postgresql.schema.vocabulary import HABITS, SYSTEM, Vocabulary
from dbtools.backends.run_sql import sql_refusal
from dbtools.errors import correction_of
from dbtools.schema.catalog import Catalog
from dbtools.schema.sql import code_of, words
from dbtools.values.types import Family, quote

#: The families of visible columns to whose types a cast is permitted.
CASTABLE = (Family.ENUM, Family.OTHER, Family.TEXT)
#: The names of the system's types by those in SQL.
SQL_TYPES: Mapping[str, str] = {
    "smallint": "int2",
    "int": "int4",
    "integer": "int4",
    "bigint": "int8",
    "real": "float4",
    "float": "float8",
    "double precision": "float8",
    "dec": "numeric",
    "decimal": "numeric",
    "boolean": "bool",
    "char": "bpchar",
    "character": "bpchar",
    "char varying": "varchar",
    "character varying": "varchar",
    "bit varying": "varbit",
    "time with time zone": "timetz",
    "time without time zone": "time",
    "timestamp with time zone": "timestamptz",
    "timestamp without time zone": "timestamp",
}
SEVERAL_WORDS = [each.split() for each in SQL_TYPES if " " in each]
ONE_CHARACTER = ("char", "character", "bit")  #: types whose length is 1 if none is given
FIELDS = words("year month day hour minute second")


class Casts:
    """The types in *lexemes*."""

    def __init__(self, lexemes: list[Lexeme], catalog: Catalog, vocabulary: Vocabulary) -> None:
        self._lexemes, self._vocabulary = lexemes, vocabulary
        own = _own_types(catalog).items()
        self._own = {names: cast for names, cast in own if names[-1] not in vocabulary.blocked}

    def check(self) -> None:
        """Check every type and collation but those of columns, and write `type 'text'` as `'text'::type`."""
        self._join_words()
        at = 0
        while at < len(self._lexemes):
            match self.word(at):
                case "::":
                    self.check_type(at + 1)
                case "cast":
                    self.check_type(self._type_of_cast(at))
                case "collate":
                    self._check_collation(at + 1)
                case "=>":
                    self._lexemes[at - 1].kind = LexemeKind.LABEL
                case "extract" if self.word(at + 3) == "from":
                    self._lexemes[at + 2].kind = LexemeKind.LABEL
                case '"' if self.word(at - 1) != "." and self.word(at + self._width(at)) == "'":
                    self._turn_literal(at)
            at += 1

    def word(self, at: int) -> str:
        """Return the word of lexeme number *at*, empty if there is none."""
        return self._lexemes[at].word if 0 <= at < len(self._lexemes) else ""

    def check_type(self, at: int) -> None:
        """Check the type that begins at *at*."""
        names = self._names(at)
        cast = self._cast_of(names)
        if cast is None:
            rule = f"The type {quote('.'.join(names), 60)} does not exist or is not permitted"
            hint = HABITS.get(names[-1]) or correction_of(names[-1], self._vocabulary.types).strip()
            raise sql_refusal(rule, hint, position=self._offset(at))
        length = "(1)" if names[-1] in ONE_CHARACTER and self.word(at + self._width(at)) != "(" else ""
        self._qualify(at, cast + length)

    def _cast_of(self, names: Sequence[str]) -> str | None:
        """Return the qualified type that *names* refer to; a system type takes precedence."""
        name = SQL_TYPES.get(names[-1], names[-1])
        if name in self._vocabulary.types and names[:-1] in ([], [SYSTEM]):
            return f"{identifier(SYSTEM)}.{identifier(name)}"
        return self._own.get(tuple(names))

    def _join_words(self) -> None:
        """Join the words of each type whose name has several words."""
        at = 0
        while at < len(self._lexemes):
            for phrase in SEVERAL_WORDS:
                found = self._lexemes[at : at + len(phrase)]
                if [each.value or each.text for each in found] == phrase:
                    self._lexemes[at : at + len(phrase)] = [name_lexeme(" ".join(phrase), found[0].offset)]
            at += 1

    def _width(self, at: int) -> int:
        """Return the number of lexemes of the name at *at*, which may have a schema."""
        return 3 if self.word(at + 1) == "." and self.word(at + 2) == '"' else 1

    def _names(self, at: int) -> Sequence[str]:
        """Return the name at *at*, perhaps after its schema."""
        if self.word(at) != '"':
            raise sql_refusal("A type is missing", "Write cast(value as type).", position=self._offset(at))
        return [each.value for each in self._lexemes[at : at + self._width(at) : 2]]

    def _offset(self, at: int) -> int | None:
        return self._lexemes[at].offset if at < len(self._lexemes) else None

    def _qualify(self, at: int, name: str) -> None:
        """Write *name* instead of the one at *at*; the number of lexemes stays the same."""
        for lexeme in self._lexemes[at : at + self._width(at)]:
            lexeme.kind, lexeme.text = LexemeKind.TYPE, ""
        self._lexemes[at].text = name

    def _type_of_cast(self, at: int) -> int:
        """Return the index of the type in the cast at *at*."""
        depth = 0
        for end in range(at + 1, len(self._lexemes)):
            depth += (self.word(end) == "(") - (self.word(end) == ")")
            if depth == 1 and self.word(end) == "as":
                return end + 1
        raise sql_refusal("A cast has no type", "Write cast(value as type).", position=self._offset(at))

    def _turn_literal(self, at: int) -> None:
        """Write the type at *at* after its string."""
        end = at + self._width(at)
        type, string = self._lexemes[at:end], self._lexemes[end]
        after = self._lexemes[end + 1].value if self.word(end + 1) == '"' else ""
        if type[-1].value == "interval" and after in FIELDS:
            # interval '2' day; any other name is an alias.
            del self._lexemes[end + 1]
            if not string.value.strip().isdigit():
                raise sql_refusal(
                    "This is not an interval", "Write interval '1 day'.", position=string.offset
                )
            string = string_lexeme(f"{string.value} {after}", string.offset)
        self._lexemes[at : end + 1] = [string, Lexeme(LexemeKind.SIGN, "::", string.offset), *type]

    def _check_collation(self, at: int) -> None:
        names = self._names(at)
        if names[-1] not in self._vocabulary.collations or names[:-1] not in ([], [SYSTEM]):
            hint = HABITS.get(names[-1], 'Write collate "C".')
            raise sql_refusal("Unknown collation", hint, position=self._offset(at - 1))
        self._qualify(at, f"{identifier(SYSTEM)}.{identifier(names[-1])}")


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
