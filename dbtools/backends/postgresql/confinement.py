"""Confine free SQL in a transaction of PostgreSQL. A guarded statement in, what may run or a refusal out.

The server reads first what the role sees of the tables, and then the statement: it must lock no other
relation, neither when it is parsed nor when it is planned.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import asyncpg

from dbtools import errors
from dbtools.backends.free import MISSING, OUTSIDE, SIMPLER, UNSHARED, FreeRun, refused, unknown_column
from dbtools.backends.plans import Plan
from dbtools.backends.postgresql.changes import CHANGED, confirmation
from dbtools.backends.postgresql.connections import is_lost
from dbtools.backends.postgresql.guard import Guarded
from dbtools.backends.postgresql.parsing import LexemeKind, habit
from dbtools.backends.postgresql.pipeline import ServerConnection, is_failure_of, messages, parsing
from dbtools.backends.postgresql.runner import STALE, translated
from dbtools.backends.postgresql.vocabulary import NAMESAKES
from dbtools.types import quoted

FIRST_OF_USERS = 16384  #: the least OID of what is not a part of the system
#: The relations that the transaction has locked. It locks none itself.
LOCKED_RELATIONS = messages("""
select coalesce(pg_catalog.string_agg(l.relation::pg_catalog.text, ' '), '')
from pg_catalog.pg_lock_status() as l
where l.pid = pg_catalog.pg_backend_pid() and l.locktype = 'relation'
""")
EXPLAIN = "explain (format json, costs off) "
CAST = "Cast the values, as in x::numeric, x::text or x::timestamp."
CALLED = "DISTINCT and FILTER are for aggregates, OVER for aggregates and window functions."
ALIAS = "An alias of SELECT works only alone in GROUP BY and ORDER BY: repeat its expression."
#: SQLSTATEs, our words and a hint. {name}: of what is wrong, or … if it is unknown.
RULES: Sequence[tuple[str, str, str]] = (
    ("42P01 42501 3F000", "There is no table or alias {name}", "Name each table in from, before its use."),
    ("42601", "Syntax error near {name}", MISSING),
    ("42702", "The column {name} is in several tables", "Write table.column."),
    ("42712", "Two tables have the same name", "Give each an alias."),
    (
        "42803",
        "{name} is not grouped, or is an aggregate where none may be",
        "Group by it or aggregate it. Conditions on aggregates belong in HAVING.",
    ),
    ("42809", "{name} cannot be called like this", CALLED),
    ("42883 42725", "No function or operator {name} takes these types", CAST),
    ("42804 42846 42P18 42P21 42P22", "The types do not match at {name}", CAST),
    ("42P20", "A window function is not permitted here", OUTSIDE),
    ("42P19", "This recursion is not permitted", "Write select … union all select … from the CTE, once."),
    ("42P10", "ORDER BY or DISTINCT ON does not match the columns", "Order by columns of the result."),
    ("21000", "A subquery returned more than one row", "Add limit 1, or use in."),
    ("22003", "A number is out of range", "Cast to bigint or numeric first."),
    ("22023", "An argument of a function is not valid", "Is a number negative, or a unit unknown?"),
    ("2201W 2201X", "LIMIT or OFFSET is negative", ""),
    ("22012", "Division by zero", "Write a / nullif(b, 0)."),
    ("22P02 22007 22008", "A text cannot be cast to the type needed", "Compare as text: x::text."),
    ("0A000", "{name} is not supported here", SIMPLER),
    ("25006", "The statement tries to write, but may only read", "Use the tools that change rows."),
)
RULE_BY_STATE = {state: (rule, hint) for states, rule, hint in RULES for state in states.split()}
REFUSED = ("42", "22", "21", "0A", "54", "2F", "38", "39", "HV", "XX")


class Confined:
    """A statement that the guard permits, in its transaction."""

    plan: Plan
    prepared: Any

    def __init__(self, guarded: Guarded, values: tuple[str, ...], run: FreeRun) -> None:
        self.guarded, self.values, self.run = guarded, values, run
        self._sent = guarded.sql  #: what was sent last, with the statement in it
        self._locked: frozenset[int] = frozenset()
        self._functions: set[str] = set()

    async def check(self, connection: ServerConnection, begin: bytes) -> None:
        """Let the server parse the statement, and refuse it if that locks more than its tables do.

        *begin*: messages that begin the transaction.
        """
        counts = (f"(select pg_catalog.count(t) from {each} as t)" for each in self.guarded.sources.values())
        tables = f"{self.guarded.seen}select {', '.join(counts)}"
        self._sent = self.selecting("1")
        named, parsed = await connection.texts(
            begin + parsing(tables) + LOCKED_RELATIONS + parsing(self._sent) + LOCKED_RELATIONS
        )
        _compare(_numbers(parsed), _numbers(named))
        # Only now may something be planned, since planning runs functions on constants.
        plan, locked = await connection.texts(self._explaining(tables) + LOCKED_RELATIONS)
        self._functions = set(_functions(json.loads(plan)))
        self._locked = _numbers(locked)
        self.prepared = await self.prepare(connection, self.selecting("q.*"))

    def selecting(self, columns: str, rest: str = "") -> str:
        """Return the SQL that selects *columns* of the rows of the statement, which is q."""
        return f"{self.guarded.seen}select {columns} from (\n{self.guarded.sql}\n) as q{rest}"

    async def prepare(self, connection: ServerConnection, sql: str) -> Any:
        """Prepare *sql*, which contains the statement."""
        self._sent = f"{self.run.comment}{sql}"
        return await connection.prepare(self._sent, name=False)

    def _explaining(self, sql: str) -> bytes:
        """Return the messages that plan *sql*."""
        return messages(f"{EXPLAIN}{sql}", *self.values)

    async def audit(self, connection: ServerConnection) -> None:
        """Plan the statement, and refuse it if that locks another relation or scans another function.

        The server also opens the tables that functions in SQL read, so this says nothing about a
        statement that calls a function which the operator has named.
        """
        self._sent = f"{EXPLAIN}{self.plan.sql}"
        versions = tuple(table.version for table in self.guarded.sources if table.version)
        # At its end, all of its tables are locked, so they stay as they are then.
        plan, locked = await connection.texts(
            self._explaining(self.plan.sql) + LOCKED_RELATIONS + confirmation(versions)
        )
        if not (self.guarded.calls_others and self.run.functions.include):
            _compare((number for number in _numbers(locked) if number >= FIRST_OF_USERS), self._locked)
        called = {lexeme.value for lexeme in self.guarded.lexemes}
        for name in set(_functions(json.loads(plan))) - self._functions:
            if name not in called:
                raise refused("The plan of the statement scans a function that it does not name")

    @contextmanager
    def worded(self) -> Iterator[None]:
        """Raise refusals for errors of the server about the statement."""
        try:
            yield
        except asyncpg.UnsupportedClientFeatureError as exc:
            rule = "A column of the result is a row, or a range of timestamps"
            raise refused(rule, "Cast it to text, or select its parts.") from exc
        except asyncpg.PostgresError as exc:
            if is_lost(exc):
                raise
            raise self._refusal(exc) from exc

    def _refusal(self, error: asyncpg.PostgresError) -> errors.CallError:
        """Return the refusal for *error*, in words without anything of the server's."""
        if is_failure_of(error, CHANGED) or isinstance(error, STALE):
            return errors.SchemaChanged()
        state, position = error.sqlstate or "", getattr(error, "position", None)
        before = self._sent.rindex(self.guarded.sql)
        at = None if position is None else self.guarded.lexeme_at(int(position) - 1 - before)
        offset, name = (None, "") if at is None else (self.guarded.lexemes[at].offset, self._name_at(at))
        tables = {table.name.lower() for table in self.guarded.sources}
        if state == "42703":
            if position is None:
                return refused(*UNSHARED)
            if name in self._aliases():
                return refused(f"There is no column {quoted(name)}", ALIAS, position=offset)
            return unknown_column(name, self.run.sql, self.run.catalog, tables=tables, position=offset)
        if state in RULE_BY_STATE:
            rule, hint = RULE_BY_STATE[state]
            if state == "42601" and at is not None:
                hint = habit(self.guarded.lexemes, at) or hint
            elif hint in (CAST, CALLED):
                hint = NAMESAKES.get(name, hint)
            return refused(rule.format(name=quoted(name, 60) if name else "…"), hint, position=offset)
        if state.startswith(REFUSED):
            return refused("The database cannot run this statement", SIMPLER, position=offset)
        return translated(error)

    def _aliases(self) -> set[str]:
        """Return the names that may be aliases of columns."""
        names = (pair for pair in pairwise(self.guarded.lexemes) if pair[1].kind is LexemeKind.NAME)
        return {name.value for before, name in names if before.text in ("as", ")")}

    def _name_at(self, at: int) -> str:
        """Return the name, with the names after its dots, that begins with lexeme number *at*."""
        lexemes, end = self.guarded.lexemes, at + 1
        while end + 1 < len(lexemes) and lexemes[end].text == ".":
            end += 2
        return "".join(lexeme.value or lexeme.text for lexeme in lexemes[at:end])


def _numbers(locked: str) -> frozenset[int]:
    """Return the relations that the text *locked* names."""
    return frozenset(map(int, locked.split()))


def _compare(locked: Iterable[int], known: frozenset[int]) -> None:
    if not known.issuperset(locked):
        raise refused("The statement reads more than the tables that it names")


def _functions(plan: object) -> Iterator[str]:
    """Yield the functions that *plan* scans."""
    if isinstance(plan, list):
        for each in plan:
            yield from _functions(each)
    elif isinstance(plan, dict):
        if "Function Name" in plan:
            yield plan["Function Name"]
        for each in plan.values():
            yield from _functions(each)
