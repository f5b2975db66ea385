"""The tokenizer of operators' SQL finds the same parameters as the databases."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import asyncpg
import pytest
from hypothesis import HealthCheck, assume, example, given, settings, strategies as st

from dbtools.backends import open_backend
from dbtools.schema.sql import Fragment, Lexis, SqlError, scan, tokenize
from tests.postgresql_server import PostgresqlServer

URLS = {"sqlite": "sqlite:///a", "postgresql": "postgresql://"}
MARKS = {"sqlite": "?", "postgresql": "$"}

Rows = list[tuple[object, ...]]


class RefusedError(Exception):
    """The database refused a statement, be it for its syntax or for its types."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """A real database."""

    lexis: Lexis
    mark: str  #: of the driver's numbered parameters
    #: Statement and values in, rows out; complains where the statement has more parameters, or fewer.
    fetch: Callable[[str, Sequence[object]], Rows]

    def run(self, fragment: Fragment, values: Mapping[str, object]) -> Rows:
        """Return the rows of *fragment*, its parameters bound to *values*."""
        parameters = fragment.parameters
        sql = fragment.to_sql(lambda each: f"{self.mark}{parameters.index(each) + 1}")
        return self.fetch(sql, [values[each.name] for each in parameters])


@pytest.fixture(scope="module")
def engine(dialect: str, request: pytest.FixtureRequest) -> Iterator[Engine]:
    lexis, mark = open_backend(URLS[dialect]).facts.lexis, MARKS[dialect]
    if dialect == "sqlite":
        with closing(sqlite3.connect(":memory:")) as connection:
            yield Engine(lexis=lexis, mark=mark, fetch=_sqlite_fetch(connection))
        return
    server: PostgresqlServer = request.getfixturevalue("postgresql_server")
    connection = server.portal.call(asyncpg.connect, server.url)
    yield Engine(lexis=lexis, mark=mark, fetch=_postgresql_fetch(server, connection))
    server.portal.call(connection.close)


def _sqlite_fetch(connection: sqlite3.Connection) -> Callable[[str, Sequence[object]], Rows]:
    def fetch(sql: str, values: Sequence[object]) -> Rows:
        try:
            return connection.execute(sql, tuple(values)).fetchall()
        except sqlite3.OperationalError as exc:
            raise RefusedError from exc

    return fetch


def _postgresql_fetch(
    server: PostgresqlServer, connection: "asyncpg.Connection[asyncpg.Record]"
) -> Callable[[str, Sequence[object]], Rows]:
    def fetch(sql: str, values: Sequence[object]) -> Rows:
        try:
            return [tuple(row) for row in server.portal.call(connection.fetch, sql, *values)]
        except asyncpg.PostgresError as exc:
            if "multiple commands" in str(exc):
                raise  # the scanner has let a second statement pass
            raise RefusedError from exc

    return fetch


def _literal(value: object) -> str:
    return f"({value})" if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


EITHER = [
    pytest.param("select :a", id="nothing else"),
    pytest.param("select ':a' || :a || ':a'", id="quotes"),
    pytest.param("select 'it''s :a' || :a || ''''", id="doubled quotes"),
    pytest.param('select ":a" || :a from (select \'x\' as ":a") as t', id="quoted name"),
    pytest.param("select '\\' || :a || '\\'", id="backslashes"),
    pytest.param("select /* :b ' */ :a -- :c '", id="comments"),
    pytest.param("select '12:30' || :a || '--' || :b || '/*'", id="signs in quotes"),
    pytest.param("select :b||:a||:b", id="twice"),
    pytest.param("select '{\"a\": 1.10}' || :a", id="JSON"),
    pytest.param("select 4 - - (0-:n)", id="minus"),
    pytest.param("select 1 where :n in (:n,2) and not(:n=5)", id="list"),
    pytest.param("select t.a$1 || :a from (select 'x' as a$1) as t", id="name with a dollar"),
    pytest.param("select 'été' || :a", id="beyond ASCII"),
    pytest.param("select 1.5e3 * :n, 7 % :n", id="numbers"),
    pytest.param("select :claims.region || :a", id="claim"),
    pytest.param("select :a ; -- :b", id="ending"),
]
ONLY = {
    "sqlite": [
        pytest.param("select [:a] || :a from (select 'x' as [:a])", id="brackets"),
        pytest.param("select `:a` || :a from (select 'x' as `:a`)", id="backticks"),
        pytest.param("select /* /* :a */ :a", id="comments do not nest"),
        pytest.param('select \'{"k": "v"}\'->>:k', id="arrow"),
        pytest.param("select :a -- :b\r:b\n || :a", id="carriage return"),
    ],
    "postgresql": [
        pytest.param("select :n::int + '1'::int, :a::text", id="casts"),
        pytest.param('select \'{"k": "v"}\'::jsonb->>:k', id="arrow"),
        pytest.param("select (array[1,2,3])[1:2], (array[1,2,3])[:n], (array[1,2,3])[1: :n]", id="slices"),
        pytest.param(
            "select t.a[1:n] from (select array[1,2,3] as a, 2 as n) as t where 3 = :n", id="columns"
        ),
        pytest.param("select (array[:n,:n + 1])[:n::int: :n::int + 1]", id="array"),
        pytest.param("select make_interval(days := :n, hours=>:n)", id="named arguments"),
        pytest.param(
            "select '{\"k\": 1}'::jsonb ? :k, '{\"k\": 1}'::jsonb ?| array[:k]", id="question marks"
        ),
        pytest.param("select '{\"k\": 1}'::jsonb @? '$.k ? (@ > 0)', @ :n::int, 1 - @:n::int", id="at signs"),
        pytest.param("select '{\"k\": 1}'::jsonb #>> array[:k], 5 # :n", id="hashes"),
        pytest.param("select $$ :a ' $$ || :a || $t$ :b $$ $t$", id="dollar quotes"),
        pytest.param("select E'it\\'s :a' || :a || e'\\\\'", id="escapes"),
        pytest.param("select E'x' -- it's\n'\\' :b' || :a", id="string that goes on"),
        pytest.param("select E'x' --\n\n -- '\n \t'\\' :b' || :a", id="string that goes on later"),
        pytest.param("select U&'\\0061:b' || :a", id="code points"),
        pytest.param("select B'01'::text, :a", id="bits"),
        pytest.param("select /* /* :b */ :c */ :a", id="nested comment"),
        pytest.param("select 5*/*:b*/:n, 5 -/*'*/:n", id="operators and comments"),
        pytest.param("select :a -- :b\r || :a", id="carriage return"),
    ],
}
VALUES = {"a": "it's :a", "b": "$1 ? --", "k": "k", "n": 3, "claims.region": "north"}


def _same_rows(sql: str, engine: Engine) -> None:
    fragment = scan(sql, engine.lexis)
    literal = fragment.to_sql(lambda each: _literal(VALUES[each.name]))

    assert engine.run(fragment, VALUES) == engine.fetch(literal, ()) != []


@pytest.mark.parametrize("sql", EITHER)
def test_bound_values_give_the_rows_of_literals(sql: str, engine: Engine) -> None:
    _same_rows(sql, engine)


@pytest.mark.parametrize("sql", ONLY["sqlite"])
@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
def test_bound_values_give_the_rows_of_literals_on_sqlite(sql: str, engine: Engine) -> None:
    _same_rows(sql, engine)


@pytest.mark.parametrize("sql", ONLY["postgresql"])
@pytest.mark.parametrize("dialect", ["postgresql"], indirect=True)
def test_bound_values_give_the_rows_of_literals_on_postgresql(sql: str, engine: Engine) -> None:
    _same_rows(sql, engine)


#: What is easily taken for something else.
SCRAPS = (
    *("'", "''", '"', "`", "[", "]", "(", ")", "\\", "\\'", "'\n'", "' --'\n'", "$$", "$t$", "$", "t$", "e"),
    *("--", "\n", "\r", "/*", "*/", "/", "*", ":a", ":b", ":", "::text", ";", ",", "?", "@", "#", "-", "é"),
)
#: Where it means nothing, unless it ends that place too soon.
PLACES = (
    *("'{}'", "E'{}'", "e'{}'||'\\'", "U&'{}'", "$${}$$", "$t${}$t$"),
    *('1 as "{}"', "1 as [{}]", "1 as `{}`", ":a as a{}", "1{}", "{}:a", ":a{}", "(:b{})"),
    *(":a/*{}*/", "/*{}*/:b", ":b--{}\n", "--{}\n:a", "1=1{}or 1=1", "1=1{}", "{}1=1", "({}1=1{}"),
)
BODIES = st.lists(st.sampled_from(SCRAPS), max_size=3).map("".join)
ITEMS = st.tuples(st.sampled_from(PLACES), BODIES).map(lambda item: item[0].replace("{}", item[1]))
FUZZ = settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(items=st.lists(ITEMS, min_size=1, max_size=3))
def test_database_sees_as_many_parameters_and_one_statement(engine: Engine, items: list[str]) -> None:
    _rows(f"select {','.join(items)}", engine)


@FUZZ
@given(items=st.lists(ITEMS, min_size=1, max_size=3), joint=st.sampled_from((" or ", " and ", "", "=")))
def test_condition_does_not_leave_its_parentheses(engine: Engine, items: list[str], joint: str) -> None:
    try:
        condition = scan(joint.join(items), engine.lexis).to_sql(str)
    except SqlError:
        return

    assert _rows(f"select 1 where 1=0 and ({condition}\n)", engine) == []


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
@FUZZ
@given(items=st.lists(ITEMS, max_size=3))
@example(items=["a*/`b"])  # a quote right behind an operator
def test_same_quotes_are_closed_for_sqlite(engine: Engine, items: list[str]) -> None:
    sql = ",".join(items)
    try:
        closed = bool(tuple(tokenize(sql, engine.lexis))) or not sql
    except SqlError as exc:
        assume("not closed" in exc.problem)
        closed = False

    assert sqlite3.complete_statement(f"{sql}\n;") == closed


def _rows(sql: str, engine: Engine) -> Rows:
    """Return the rows of *sql*; none where the scanner or the database refuses it."""
    try:
        fragment = scan(sql, engine.lexis)
        return engine.run(fragment, {each.name: "x" for each in fragment.parameters})
    except (SqlError, RefusedError):
        return []
