"""Ad-hoc SQL from callers: the port to the part of a backend that runs it, and the wording of refusals.

Two safeguards confine callers' SQL, different ones on each database. The wording is the same on all, and
never that of the database: its messages quote hidden data, and distinguish a hidden name from an unknown one.
"""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, Protocol, TypeVar

import anyio

from dbtools.answers.results import ResultSet
from dbtools.backends.runs import SqlRun
from dbtools.errors import SqlRefused, correction_of, did_you_mean, listing
from dbtools.schema.catalog import Catalog
from dbtools.schema.sql import Group, Lexis, SqlError, Token, TokenKind, code_of, nest, words
from dbtools.values.types import Mask, quote

T = TypeVar("T")
LONG = 200  #: characters of a statement that takes some milliseconds to check
LONGEST_NAME = 100  #: characters of a name in a refusal
READING = words("select with values")  #: beginnings of statements
CHANGING = words("insert replace update delete merge")  #: beginnings of what may follow a WITH, too
BYTE_ORDER_MARK = "\ufeff"
SELECT_ONLY = "run_sql only reads: write one statement that begins with select, with or values."
DESCRIBED = "describe_tables lists tables and columns."
COMPUTING = "Only functions that compute a value from their arguments are permitted."
MISSING = "Is a word or a comma missing?"
SIMPLER = "Write it more simply."
OUTSIDE = "Write the window function in a subquery, and its condition outside."
UNSHARED = ("A column after USING is not in both tables", "Write ON.")
NO_PARAMETERS = ("Parameters are not supported", "Write the value.")


class SqlOffer(NamedTuple):
    """Whether a login can be offered run_sql."""

    server: str = ""  #: the database and its version, such as "PostgreSQL 16.2"; empty: never offered
    obstacle: str = ""  #: why it cannot be offered; empty: it can


class SqlExplanation(NamedTuple):
    """How ad-hoc SQL would run."""

    sql: str  #: as the database would run it
    parameters: tuple[str, ...]  #: the claims in it
    verdicts: tuple[str, ...]  #: what each safeguard says, as sentences


class SqlRunner(Protocol):
    """The part of a backend that runs callers' SQL, confined by two safeguards."""

    async def run(self, run: SqlRun) -> ResultSet:
        """Return the rows of *run*, with the names and types that the database gives; or raise a CallError.

        Raise SqlRefused if a safeguard refuses it, and SchemaChanged if the schema no longer has its stamp.
        When the task is cancelled, stop the statement before returning.
        """

    async def explain(self, run: SqlRun) -> SqlExplanation:
        """Return how *run* would run, without running it; or raise a CallError."""

    async def close(self) -> None:
        """End everything that is open."""


async def check(sql: str, checks: Callable[[], T], limiter: anyio.CapacityLimiter) -> T:
    """Return the result of *checks* on *sql*: in a thread if it is long, so that other calls need not wait.

    *limiter* limits these threads.
    """
    if len(sql) <= LONG:
        return checks()
    return await anyio.to_thread.run_sync(checks, abandon_on_cancel=True, limiter=limiter)


def sql_refusal(rule: str, hint: str = "", *, position: int | None = None) -> SqlRefused:
    """Return the refusal by *rule*, a sentence; *position*: of the first wrong character, from 0."""
    place = "" if position is None else f" (position {position + 1})"
    return SqlRefused(f"{rule.removesuffix('.')}{place}.", hint=hint)


def statement_of(sql: str, lexis: Lexis) -> list[Token]:
    """Return the tokens of the one statement in *sql*, or raise SqlRefused if it is not one that reads."""
    try:
        tokens = code_of(sql, lexis)
        while tokens and tokens[-1].kind is TokenKind.SEMICOLON:
            tokens.pop()
        whole = nest(tokens, sql)
    except SqlError as exc:
        if "parameter" in exc.problem:
            raise sql_refusal(*NO_PARAMETERS, position=exc.offset) from exc
        raise sql_refusal(exc.problem[:1].upper() + exc.problem[1:], position=exc.offset) from exc
    first = next((token for token in tokens if token.text != "("), None)
    if first is None:
        raise sql_refusal("The statement is empty", SELECT_ONLY)
    if first.word not in READING:
        hint = f"{SELECT_ONLY} {DESCRIBED}"
        raise sql_refusal("This is not a SELECT", hint, position=first.offset)
    if (other := _change_word(whole)) is not None:
        raise sql_refusal("This is not a SELECT", SELECT_ONLY, position=other.offset)
    for token in tokens:
        if token.kind is TokenKind.SEMICOLON:
            raise sql_refusal(
                "There are several statements", "Make one call for each.", position=token.offset
            )
        if token.kind is TokenKind.PARAMETER:
            raise sql_refusal(*NO_PARAMETERS, position=token.offset)
    return tokens


def _change_word(statement: Group) -> Token | None:
    """Return the word that begins a change after the common table expressions of *statement*, if any does."""
    if statement.parts[0].word != "with":
        return None
    is_query = is_complete = False  # whether a query comes next, and whether one has just ended
    for part in statement.parts:
        # Before a word, SQLite takes a byte order mark for white space.
        word = part.word.lstrip(BYTE_ORDER_MARK)
        if is_complete and isinstance(part, Token) and word not in ("", ","):
            return part if word in CHANGING else None
        if isinstance(part, Group):
            is_query, is_complete = False, is_query
        elif word:
            is_query, is_complete = is_query or word == "as", False
    return None


def unknown_table(name: str, catalog: Catalog, *, position: int | None = None) -> SqlRefused:
    """Return the refusal of the table *name*, which *catalog* lacks."""
    labels = [catalog.label(table) for table in catalog.tables if table.aggregated]
    known = f"Tables: {listing(labels)}." if len(labels) <= 20 else DESCRIBED
    rule = f"There is no table {quote(name, LONGEST_NAME)}"
    last = name.rpartition(".")[2]
    same = [label for label in labels if label.lower() == last.lower()]
    close = f"Write just {same[0]}. " if same else did_you_mean(last, labels)
    return sql_refusal(rule, f"{close}{known}", position=position)


def unknown_column(
    name: str, sql: str, catalog: Catalog, *, tables: Collection[str] = (), position: int | None = None
) -> SqlRefused:
    """Return the refusal of the column *name* in *sql*; *tables*: those that it names, in lower case."""
    read = [table for table in catalog.tables if table.name.lower() in tables]
    seen = [column for table in read for column in table.columns]
    hashed = {column.name for column in seen if column.type.mask is Mask.HASH}
    columns = [each for each in dict.fromkeys(column.name for column in seen) if each not in hashed]
    qualifier, _, last = name.rpartition(".")
    if last in hashed:
        rule = f"run_sql cannot read {quote(last, LONGEST_NAME)}, which is masked by a hash"
        return sql_refusal(rule, "Use the tools that list its table.", position=position)
    if qualifier and last in columns:
        close = "Qualify it with a table of the same FROM, or with its alias. "
    else:
        close = did_you_mean(last, columns)
    text = " Write text in single quotes." if f'"{last}"' in sql else ""
    hint = f"{close}{DESCRIBED}{text}"
    return sql_refusal(f"There is no column {quote(name, LONGEST_NAME)}", hint, position=position)


def unknown_function(
    name: str, known: Iterable[str], *, hint: str = "", position: int | None = None
) -> SqlRefused:
    """Return the refusal of the function *name*, which is not among those that are *known*.

    *hint*: what to write for it, if that is known.
    """
    rule = f"The function {quote(name, LONGEST_NAME)} does not exist or is not permitted"
    return sql_refusal(rule, hint or f"{correction_of(name, known)}{COMPUTING}", position=position)
