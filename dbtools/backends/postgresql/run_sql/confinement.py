"""Confine ad-hoc SQL in a transaction of PostgreSQL. A guarded statement in, what may run or a refusal out.

The server reads first what the role sees of the tables, and then the statement: it must lock no other
relation, neither when it is parsed, nor when it is planned, nor when it runs.

Planning runs functions, such as those of an index. They could change what the names in a statement mean, so
the statement is parsed before anything is planned, and after each plan the session must be the same.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any

import asyncpg

from dbtools import errors
from dbtools.backends.compile.selects import CLAIM
from dbtools.backends.compiled import Compiled
from dbtools.backends.postgresql.connection.connections import is_lost
from dbtools.backends.postgresql.connection.pipeline import (
    ServerConnection,
    assertion,
    is_failure_of,
    messages,
    parse_message,
)
from dbtools.backends.postgresql.reading.grammar import PostgresqlGrammar
from dbtools.backends.postgresql.reading.runner import (
    GUARD,
    STALE,
    UNSURE,
    Unsure,
    another_transaction,
    cause_of,
)
from dbtools.backends.postgresql.run_sql.guarded import Guarded, LexemeKind, habit
from dbtools.backends.postgresql.run_sql.lens import lenses
from dbtools.backends.postgresql.schema.changes import CHANGED
from dbtools.backends.postgresql.schema.vocabulary import NAMESAKES, VOCABULARY_NUMBER, Vocabulary
from dbtools.backends.refusals import OTHERS
from dbtools.backends.run_sql import MISSING, OUTSIDE, SIMPLER, UNSHARED, sql_refusal, unknown_column
from dbtools.backends.runs import SqlRun
from dbtools.errors import listing
from dbtools.schema.catalog import Table, TableKind
from dbtools.schema.sql import words
from dbtools.statements.select import versions_of
from dbtools.values.types import Family, quote

GRAMMAR = PostgresqlGrammar()
FIRST_OF_USERS = 16384  #: the least OID of what is not a part of the system
#: The relations that the transaction has locked. It locks none itself.
LOCKED_RELATIONS = messages("""
select coalesce(pg_catalog.string_agg(l.relation::pg_catalog.text, ' '), '')
from pg_catalog.pg_lock_status() as l
where l.pid = pg_catalog.pg_backend_pid() and l.locktype = 'relation'
""")
#: Whether the transaction has locked no other relation than those in the text $1, except TOAST tables and the
#: tables of extensions, which their own functions read. Policies of row-level security may read any table.
WITHIN = """exists (
    select
    from pg_catalog.pg_class as c
    where c.relrowsecurity
        and c.oid::pg_catalog.text = any(pg_catalog.string_to_array($1::pg_catalog.text, ' '))
) or not exists (
    select
    from pg_catalog.pg_lock_status() as l
    join pg_catalog.pg_class as c on c.oid = l.relation
    left join pg_catalog.pg_index as i on i.indexrelid = c.oid
    left join pg_catalog.pg_class as t on t.oid = i.indrelid
    left join pg_catalog.pg_depend as d
        on d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
        and d.objid = coalesce(t.oid, c.oid)
        and d.deptype = 'e'
        -- The owner of an extension may add own tables to it.
        and coalesce(t.relowner, c.relowner) in (select u.oid from pg_catalog.pg_roles as u where u.rolsuper)
    where l.pid = pg_catalog.pg_backend_pid()
        and l.locktype = 'relation'
        and l.relation >= '16384'
        and l.relation::pg_catalog.text <> all(pg_catalog.string_to_array($1::pg_catalog.text, ' '))
        and coalesce(t.relkind, c.relkind) <> 't'
        and d.objid is null
)"""
BEYOND = "dbtools_beyond_the_tables"
CONFINED = f"select where {assertion(WITHIN, BEYOND)} is null"
ELSEWHERE = "dbtools_other_settings"
#: Fails unless a vocabulary has the number $1 as before.
IS_SAME = f"{VOCABULARY_NUMBER} operator(pg_catalog.=) $1::pg_catalog.text"
SAME_NAMES = f"select where {assertion(IS_SAME, CHANGED)} is null"
#: The settings on which the meaning and the rows of a statement depend.
WATCHED = words(
    "search_path role session_authorization transaction_read_only row_security standard_conforming_strings "
    "client_encoding transform_null_equals datestyle intervalstyle timezone bytea_output extra_float_digits"
)
EXPLAIN = "explain (format json, costs off) "
CAST = "Cast the values, as in x::numeric, x::text or x::timestamp."
MORE = "The statement reads more than the tables that it names"
CALLED = "DISTINCT and FILTER are for aggregates, OVER for aggregates and window functions."
ALIAS = "An alias of SELECT works only alone in GROUP BY and ORDER BY: repeat its expression."
QUOTED_NUMBERS = "Write numbers without quotes, or compare as text: x::text."
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
    ("22P02", "A text cannot be cast to the type needed", QUOTED_NUMBERS),
    ("22007", "A text is not a date or time", "Write '2024-03-05' or '2024-03-05 14:30'."),
    ("22008", "A date or time is out of range", "Is there such a day in that month?"),
    ("0A000", "{name} is not supported here", SIMPLER),
    ("25006", "The statement tries to write, but may only read", "Use the tools that change rows."),
)
RULE_BY_STATE = {state: (rule, hint) for states, rule, hint in RULES for state in states.split()}
REFUSED_CLASSES = ("42", "22", "21", "0A", "54", "2F", "38", "39", "HV", "XX")


#: What makes the errors of failed assertions, each error for one call.
FAILURES: Mapping[str, Callable[[], Exception]] = {
    CHANGED: errors.SchemaChanged,
    UNSURE: Unsure,
    ELSEWHERE: partial(
        sql_refusal, "A function that the database runs for these tables changes the session", OTHERS
    ),
    BEYOND: partial(sql_refusal, MORE),
}


class Confined:
    """A statement that the guard permits, in its transaction."""

    plan: Compiled
    prepared: Any
    begin: bytes  #: the messages that begin its transaction

    def __init__(self, guarded: Guarded, run: SqlRun, vocabulary: Vocabulary) -> None:
        self.guarded, self.run = guarded, run
        self._same_names = messages(SAME_NAMES, vocabulary.number)
        self._seen, claims = lenses(guarded.sources, run.whole)
        self.values = tuple(_claim_text(run.claims.get(claim)) for claim in claims)
        self._sent = guarded.sql  #: what was sent last, with the statement in it
        self._locked: frozenset[int] = frozenset()
        self._functions: set[str] = set()

    async def check(self, connection: ServerConnection, begin: bytes) -> None:
        """Let the server parse the statement, and refuse it if that locks more than its tables do.

        *begin*: messages that begin the transaction.
        """
        settings = _settings({*WATCHED, *self.run.context.session})
        counts = (f"(select pg_catalog.count(t) from {each} as t)" for each in self.guarded.sources.values())
        tables = f"{self._seen}select {', '.join(counts)}"
        self._sent = self.select_sql("1")
        session, named, parsed, self._moment = await connection.carried_texts(
            begin
            + messages(f"select {settings}")
            + parse_message(tables)
            + LOCKED_RELATIONS
            + parse_message(self._sent)
            + LOCKED_RELATIONS
            + self._same_names
        )
        _compare(_numbers(parsed), _numbers(named))
        same = f"{settings} operator(pg_catalog.=) $1::pg_catalog.text"
        self._unchanged = messages(f"select where {assertion(same, ELSEWHERE)} is null", session)
        self._unchanged += self._same_names
        self._sent = f"{self.run.context.comment}{self.select_sql('q.*')}"
        self.prepared = await connection.prepare(self._sent, name=False)
        # Only now may something be planned, since planning runs functions on constants.
        try:
            plan, locked = await connection.texts(
                self._explain_messages(tables) + self._unchanged + LOCKED_RELATIONS
            )
        except asyncpg.DataError as exc:
            if not self.values:
                raise
            # A claim is not a value of the type that it is compared with.
            raise errors.Denied from exc
        self._functions = set(_functions(json.loads(plan)))
        self._locked = _numbers(locked)

    def select_sql(self, columns: str, rest: str = "") -> str:
        """Return the SQL that selects *columns* of the rows of the statement, which is q."""
        return f"{self._seen}select {columns} from (\n{self.guarded.sql}\n) as q{rest}"

    def _explain_messages(self, sql: str) -> bytes:
        """Return the messages that plan *sql*."""
        return messages(f"{EXPLAIN}{sql}", *self.values)

    async def audit(self, connection: ServerConnection) -> None:
        """Plan the statement, and refuse it if that locks another relation or scans another function.

        The server also opens the tables that functions in SQL read, so this says nothing about a
        statement that calls a function which the operator has named.
        """
        self._sent = f"{EXPLAIN}{self.plan.sql}"
        plan, locked = await connection.texts(
            self._explain_messages(self.plan.sql) + self._unchanged + LOCKED_RELATIONS
        )
        if not self._may_call_others:
            _compare((number for number in _numbers(locked) if number >= FIRST_OF_USERS), self._locked)
        called = {lexeme.value for lexeme in self.guarded.lexemes}
        for name in set(_functions(json.loads(plan))) - self._functions:
            if name not in called:
                raise sql_refusal("The plan of the statement scans a function that it does not name")

    async def prepare(self, connection: ServerConnection) -> None:
        """Prepare what runs in the next transaction, which fails if the server has analysed it since."""
        self._sent = f"{self.run.context.comment}{self.plan.sql}{GUARD.format(len(self.values) + 1)}"
        self.prepared = await connection.prepare(self._sent)
        self.values = (*self.values, self._moment)

    def confirm_messages(self, begin: bytes) -> bytes:
        """Return the messages that confirm all names, and then *begin* the transaction in which it runs."""
        versions = tuple(version for table in self.guarded.sources for version in versions_of(table))
        # All of its tables are locked, so they stay as they are.
        return self._unchanged + another_transaction(versions, begin, self.run.context.session)

    @property
    def confirmed(self) -> bytes:
        """The messages that fail if the statement, which has run, has read more than its tables."""
        if self._may_call_others or any(map(_runs_functions, self.guarded.sources)):
            return self._unchanged
        return self._unchanged + messages(CONFINED, " ".join(map(str, self._locked)))

    @property
    def is_computed(self) -> bool:
        """Whether a row filter may compute texts, which must be the same as in other tools."""
        filtered = (table for table in self.guarded.sources if table.filter is not None)
        return any(_runs_functions(table) for table in filtered)

    @property
    def _may_call_others(self) -> bool:
        """Whether the statement calls functions that the operator has named, which may read other tables."""
        return self.guarded.calls_others and bool(self.run.functions.include)

    @contextmanager
    def worded(self) -> Iterator[None]:
        """Raise refusals for errors of the server about the statement."""
        try:
            yield
        except asyncpg.UnsupportedClientFeatureError as exc:
            rule = "A column of the result is a row, or a range of timestamps"
            raise sql_refusal(rule, "Cast it to text, or select its parts.") from exc
        except asyncpg.PostgresError as exc:
            if is_lost(exc):
                raise
            raise self._refusal(exc) from exc

    def _refusal(self, error: asyncpg.PostgresError) -> Exception:
        """Return the refusal for *error*, in words without anything of the server's."""
        failure = next((make for mark, make in FAILURES.items() if is_failure_of(error, mark)), None)
        if failure is not None or isinstance(error, STALE):
            return (failure or errors.SchemaChanged)()
        state, position = error.sqlstate or "", getattr(error, "position", None)
        before = self._sent.rindex(self.guarded.sql)
        at = None if position is None else self.guarded.lexeme_at(int(position) - 1 - before)
        offset, name = (None, "") if at is None else (self.guarded.lexemes[at].offset, self._name_at(at))
        tables = {table.name.lower() for table in self.guarded.sources}
        if state == "42703":
            if position is None:
                return sql_refusal(*UNSHARED)
            if name in self._aliases():
                return sql_refusal(f"There is no column {quote(name)}", ALIAS, position=offset)
            return unknown_column(name, self.run.sql, self.run.catalog, tables=tables, position=offset)
        if state in RULE_BY_STATE:
            rule, hint = RULE_BY_STATE[state]
            if state == "42601" and at is not None:
                hint = habit(self.guarded.lexemes, at) or hint
            elif hint in (CAST, CALLED):
                hint = NAMESAKES.get(name, hint)
            elif hint is QUOTED_NUMBERS:
                hint = self._labels() or hint
            return sql_refusal(rule.format(name=quote(name, 60) if name else "…"), hint, position=offset)
        if state.startswith(REFUSED_CLASSES):
            return sql_refusal("The database cannot run this statement", SIMPLER, position=offset)
        return cause_of(error).error()

    def _labels(self) -> str:
        """Return the labels of those columns in the statement that are of enums."""
        named = {lexeme.value for lexeme in self.guarded.lexemes}
        columns = [each for table in self.guarded.sources for each in table.columns if each.name in named]
        enums = {each.name: each.type.labels for each in columns if each.type.family is Family.ENUM}
        return " ".join(f"{name} is one of {listing(labels)}." for name, labels in enums.items())

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


def _runs_functions(table: Table) -> bool:
    """Return whether what a role sees of *table* may call functions, which may read other tables."""
    is_filtered = table.filter is not None and not table.filter.total
    return is_filtered or table.computed or table.kind is TableKind.VIEW


def _settings(names: Iterable[str]) -> str:
    """Return the SQL of a text with the settings *names*."""
    texts = (
        f"pg_catalog.quote_nullable(pg_catalog.current_setting('{name}', true))" for name in sorted(names)
    )
    return f"pg_catalog.concat_ws(' ', {', '.join(texts)})"


def _claim_text(claim: object) -> str:
    """Return *claim* as a text, or raise Denied if it is missing or has several values."""
    text = GRAMMAR.driver_value(claim, CLAIM)
    if not isinstance(text, str):
        raise errors.Denied
    return text


def _numbers(locked: str) -> frozenset[int]:
    """Return the relations that the text *locked* names."""
    return frozenset(map(int, locked.split()))


def _compare(locked: Iterable[int], known: frozenset[int]) -> None:
    """Raise SqlRefused unless all relations that are *locked* are *known*."""
    if not known.issuperset(locked):
        raise sql_refusal(MORE)


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
