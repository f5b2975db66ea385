"""Read ad-hoc SQL in one way only. A caller's SQL in; lexemes, and a tree whose nodes have lexemes, out.

The lexemes have no comments. A string is '…' without escapes. A word is a keyword of SELECT, or else a quoted
name in the case that PostgreSQL gives it. So nothing but a SELECT can be written, and what PostgreSQL reads
without a name, such as current_user, is the name of a column that does not exist.

sqlglot only says what each name is: a table, a function, a column. It reads `||` or `-` instead of operators
that it does not know, since all operators mean the same to it.
"""

import logging
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

from dbtools.backends.compiled import identifier
from dbtools.backends.postgresql.run_sql.guarded import Lexeme, LexemeKind, habit
from dbtools.backends.postgresql.schema.types import cut_name, lexis, name_of, string_of
from dbtools.backends.run_sql import SELECT_ONLY, SIMPLER, sql_refusal, statement_of
from dbtools.schema.sql import Token, TokenKind, words
from dbtools.values.types import quote

MOST_LEXEMES = 4_000
DEEPEST_BRACKETS = 40  #: brackets within each other
#: Words that are always keywords.
RESERVED_WORDS = words(
    "all and any array as asc between both case cast collate cross desc distinct else end except exists "
    "false fetch for from full group having ilike in inner intersect is isnull join lateral leading left "
    "like limit natural not notnull null offset on only or order outer overlaps placing right select similar "
    "some tablesample then trailing true union using variadic when where window with current_date "
    "current_time current_timestamp localtime localtimestamp"
)
#: Where other words are keywords: 0 is a number, ' a string, " a quoted name.
PHRASES = r"""
with recursive|as( not)? materialized|with ordinality|rows from \(
group by|order by|partition by|grouping sets|(cube|rollup|grouping|values|row) \(
tablesample (bernoulli|system) \(|\) repeatable \(
nulls (first|last)|offset 0 rows?|fetch (first|next)( 0)? rows?|\) rows? (only|with ties)|with ties
between symmetric|is( not)? unknown|similar to|escape '|at time zone|with(out)? time zone
\) within group \(|\) filter \(|\) over
(rows|range|groups)(?= (between|unbounded|current|interval|[0']))|current row
unbounded (preceding|following)|((?<=interval )|(?<=[0'")] ))(preceding|following)
exclude (current row|group|ties|no others)
(coalesce|nullif|greatest|least|extract|position|trim) \(
"""
PATTERNS = [re.compile(rf"(?<!\S)({each})(?!\S)") for each in PHRASES.strip().split("\n")]
#: Keywords that PostgreSQL takes for the name of a function before a bracket, unless they follow a value.
CALLABLE = words(
    "collate cross full ilike inner is isnull join left like natural notnull outer overlaps right similar "
    "tablesample"
)
VALUES = words("null true false end current_date current_time current_timestamp localtime localtimestamp")
#: Keywords that end a value or, before `join`, a table.
ENDINGS = VALUES | words("cross full inner left natural outer right")
SAME = {"!=": "<>", ":=": "=>"}
NUMBER_LITERAL = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w$])")
Node = exp.Expr
#: The classes of nodes whose meaning depends on nothing but their parts and the names in them, besides
#: operators with one or two operands.
NODES = words(
    "Alias Aliases All Anonymous Any Array AtTimeZone Between Boolean Bracket CTE Case Cast Coalesce "
    "Collate Column ColumnDef Cube CurrentDate CurrentTime CurrentTimestamp DataType DataTypeParam "
    "Distinct Except Exists Extract Fetch Filter From Group GroupingSets Having Identifier If In "
    "Intersect Join Lateral Limit LimitOptions Literal Localtime Localtimestamp Null ObjectIdentifier "
    "Offset Order Ordered Overlay Paren Rollup Select Slice Star StrPosition Subquery Substring Table "
    "TableAlias TableSample Trim Tuple Union Unnest Values Var Variadic Where Window WindowSpec With "
    "WithinGroup"
)
#: The signs that sqlglot reads as they are.
READ = words("+ - * / = < > <= >= <> || :: => : . , ( ) [ ]")
#: The functions that have words between their arguments.
WORDED_FUNCTIONS = words("CAST EXTRACT OVERLAY POSITION SUBSTRING TRIM")
#: sqlglot would log callers' SQL.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)


def lexemes_of(sql: str) -> list[Lexeme]:
    """Return the lexemes of *sql*, or raise SqlRefused."""
    tokens = _tokens(sql)
    keywords = _keywords([_sign_of(token) for token in tokens])
    lexemes: list[Lexeme] = []
    for at, token in enumerate(tokens):
        lexeme = _lexeme(token, is_keyword=at in keywords)
        if lexeme.kind is LexemeKind.STRING and lexemes and lexemes[-1].kind is LexemeKind.STRING:
            raise sql_refusal("A string follows another one", "Write || between them.", position=token.offset)
        lexemes.append(lexeme)
    return lexemes


def string_lexeme(value: str, offset: int) -> Lexeme:
    """Return the string *value*."""
    return Lexeme(LexemeKind.STRING, "'" + value.replace("'", "''") + "'", offset, value)


def name_lexeme(name: str, offset: int) -> Lexeme:
    """Return the quoted *name*."""
    name = cut_name(name)
    return Lexeme(LexemeKind.NAME, identifier(name), offset, name)


def _tokens(sql: str) -> Sequence[Token]:
    tokens = list(_with_whole_numbers(statement_of(sql, lexis), sql))
    if len(tokens) > MOST_LEXEMES:
        raise sql_refusal(f"The statement has more than {MOST_LEXEMES} words and signs", "Split it.")
    depths = ((each.kind is TokenKind.OPENING) - (each.kind is TokenKind.CLOSING) for each in tokens)
    if max(accumulate(depths)) > DEEPEST_BRACKETS:
        raise sql_refusal(f"More than {DEEPEST_BRACKETS} brackets are nested", "Use WITH.")
    return tokens


def _with_whole_numbers(tokens: Sequence[Token], sql: str) -> Iterator[Token]:
    """Yield *tokens* of *sql*, but each number with a fraction or an exponent as one token."""
    end = 0
    for token in tokens:
        if token.offset < end:
            continue
        if token.kind is TokenKind.NUMBER or (token.text == "." and sql[token.end : token.end + 1].isdigit()):
            found = NUMBER_LITERAL.match(sql, token.offset)
            if found is None:
                hint = "Separate them by a space."
                raise sql_refusal("A number ends in letters", hint, position=token.offset)
            token = Token(TokenKind.NUMBER, found[0], token.offset, found.end())
        end = token.end
        yield token


def _sign_of(token: Token) -> str:
    """Return the word or sign in lower case; a mark for what is quoted, and for a number."""
    marks = {TokenKind.TEXT: "'", TokenKind.NUMBER: "0", TokenKind.NAME: '"'}
    return marks.get(token.kind, token.word)


def _keywords(signs: Sequence[str]) -> set[int]:
    """Return which of *signs* are keywords."""
    text = " ".join(signs)
    numbers = {start: at for at, start in enumerate(accumulate((len(each) + 1 for each in signs), initial=0))}
    found = {at for at, each in enumerate(signs) if each in RESERVED_WORDS}
    for pattern in PATTERNS:
        for match in pattern.finditer(text):
            found |= {*range(numbers[match.start()], numbers[match.end() + 1])}
    found |= {at for at in range(len(signs)) if _is_special_call(signs, at)}
    return {at for at in sorted(found) if not _is_name(signs, at, found)}


def _is_name(signs: Sequence[str], at: int, keywords: set[int]) -> bool:
    """Return whether a name must be at *at*, perhaps the name of a function."""
    word, before, after = signs[at], signs[at - 1] if at else "", "".join(signs[at + 1 : at + 2])
    if "." in (before, after) or (before == "as" and word not in ("not", "materialized")):
        return True
    if word not in CALLABLE or after != "(":
        return False
    last = at - 2 if before == "not" else at - 1
    ends_value = signs[last] in ENDINGS or signs[last][-1] in ")]'\"0" or signs[last][0].isalpha()
    return last < 0 or not ends_value or (last in keywords and signs[last] not in ENDINGS)


def _is_special_call(signs: Sequence[str], at: int) -> bool:
    """Return whether *at* begins a call with words between the arguments, which is always the system's."""
    depth = 0
    for each in signs[at + 1 :] if signs[at] in ("substring", "overlay") else ():
        depth += (each == "(") - (each == ")")
        if depth == 0:
            return False
        if depth == 1 and each in ("from", "for", "placing", "similar"):
            return True
    return False


def _lexeme(token: Token, *, is_keyword: bool) -> Lexeme:
    offset = token.offset
    match token.kind:
        case TokenKind.TEXT:
            return string_lexeme(string_of(token), offset)
        case TokenKind.WORD if is_keyword:
            return Lexeme(LexemeKind.KEYWORD, token.word, offset)
        case TokenKind.WORD | TokenKind.NAME:
            return name_lexeme(name_of(token), offset)
        case TokenKind.NUMBER:
            return Lexeme(LexemeKind.NUMBER, token.text, offset)
        case _:
            return Lexeme(LexemeKind.SIGN, SAME.get(token.text, token.text), offset)


class _Dialect(Postgres):
    """PostgreSQL without what sqlglot knows about functions: it would change some calls."""

    class Parser(PostgresParser):
        """Reads all functions alike but for WORDED_FUNCTIONS, and ARRAY only at the beginning of a value."""

        FUNCTIONS: ClassVar[Any] = {}
        FUNCTION_PARSERS: ClassVar[Any] = {
            name: parser
            for name, parser in PostgresParser.FUNCTION_PARSERS.items()
            if name in WORDED_FUNCTIONS
        }
        #: Types are checked before, so that ARRAY only begins a value. Trying both would double the time with
        #: each array in an array.
        TYPE_TOKENS: ClassVar[Any] = PostgresParser.TYPE_TOKENS - {TokenType.ARRAY}


class Tree:
    """A statement as sqlglot reads it."""

    root: Node
    nodes: Sequence[Node]

    def __init__(self, lexemes: Sequence[Lexeme]) -> None:
        """Parse *lexemes*, or raise SqlRefused."""
        self._lexemes = lexemes
        self._places: dict[int, int] = {}  #: the numbers of lexemes by where they begin
        sql = ""
        for at in range(len(lexemes)):
            self._places[len(sql)] = at
            sql += _read_as(*lexemes[at : at + 2], before=lexemes[at - 1] if at else None) + " "
        try:
            trees = _Dialect().parse(sql)
        except sqlglot.errors.SqlglotError as exc:
            raise self._syntax_error(exc) from exc
        if len(trees) != 1 or not isinstance(trees[0], exp.Query | exp.Values):
            raise sql_refusal("This is not a SELECT", SELECT_ONLY)
        self.root = trees[0]
        self.nodes = list(self.root.walk())
        for node in self.nodes:
            if type(node).__name__ not in NODES and not isinstance(node, exp.Binary | exp.Unary):
                construct = f"The construct {type(node).__name__.lower()} is not permitted"
                raise sql_refusal(construct, SIMPLER, position=self.offset_of(node))

    def lexeme_of(self, node: object) -> int | None:
        """Return the number of the lexeme that *node*, a name, a call or a value, is."""
        start = node.meta.get("start") if isinstance(node, Node) else None
        return None if start is None else self._places.get(start)

    def offset_of(self, node: Node) -> int | None:
        """Return the offset of the first lexeme of *node* that is known."""
        found = [at for each in node.walk() if (at := self.lexeme_of(each)) is not None]
        return self._lexemes[min(found)].offset if found else None

    def _syntax_error(self, error: Exception) -> Exception:
        """Return the refusal of what sqlglot cannot parse."""
        column = (getattr(error, "errors", None) or [{}])[0].get("col") or 0
        last = max((at for start, at in self._places.items() if start < column), default=0)
        lexeme = self._lexemes[last]
        rule = f"Syntax error near {quote(lexeme.value or lexeme.text, 40)}"
        hint = "Is a word missing, or a column named like a keyword? Write it in double quotes."
        return sql_refusal(rule, habit(self._lexemes, last) or hint, position=lexeme.offset)


def _read_as(lexeme: Lexeme, after: Lexeme | None = None, *, before: Lexeme | None) -> str:
    """Return the text of *lexeme* for sqlglot."""
    if (
        lexeme.kind is LexemeKind.NAME
        and lexeme.value.upper() in WORDED_FUNCTIONS
        and after
        and after.text == "("
    ):
        # sqlglot does not tell such a name from the keyword.
        return '"f"'
    if lexeme.kind is not LexemeKind.SIGN or lexeme.text in READ:
        return lexeme.text
    if before is None or (before.kind is LexemeKind.SIGN and before.text not in (")", "]")):
        return "-"
    return "-" if before.kind is LexemeKind.KEYWORD and before.text not in VALUES else "||"
