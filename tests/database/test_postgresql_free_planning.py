"""Functions that the planner runs change nothing about what ad-hoc SQL means, or the statement does not run.

Someone who may create objects, but may not read the hidden table, lets a function of an index change the
search path, so that an operator of a caller's statement would read that table as dbtools' login.
"""

from collections.abc import Iterator

import pytest
from anyio.from_thread import BlockingPortal

from dbtools.policy.roles import FunctionRules, Grant, Role, Rule, restrict
from dbtools.schema.catalog import Catalog
from tests.database.postgresql_free_shop import SqlShop, open_free_shop
from tests.postgresql_server import PostgresqlServer, execute

#: What the planner runs of each table when it reads it.
PLANNED = {
    "predicate": "create index on {} (id) where turned()",
    "expression": "create index on {} ((id + case when turned() then 1 else 0 end))",
    "statistics": "create statistics public.about on (case when turned() then id end), label from {}",
    "parted": "create index on {} (id) where turned()",
    "summary": "create index on {} (id) where turned()",
    "plain": "create index on {} (id)",
}
#: Operators of the attacker, which show the hidden table.
EVIL = """
create schema evil;
create function evil.shown(text, text) returns boolean language plpgsql as $$
    begin return (select pg_catalog.starts_with(v, 'CANARY') from public.secrets order by v limit 1); end $$;
create function evil.shown(integer, integer) returns boolean language plpgsql as $$
    begin return (select pg_catalog.length(v) > 3 from public.secrets order by v limit 1); end $$;
""" + "".join(
    f"create operator evil.{sign} (function = evil.shown, leftarg = {type}, rightarg = {type});"
    for type, signs in (("text", "|| <> = < ~~ ~"), ("integer", "+ -"))
    for sign in signs.split()
)
#: What the functions do to the session.
CHANGES = {
    "path of the transaction": "set_config('search_path', 'evil, pg_catalog', true)",
    "path of the session": "set_config('search_path', 'evil, pg_catalog', false)",
    "strings": "set_config('standard_conforming_strings', 'off', true)",
    "row security": "set_config('row_security', 'off', true)",
    "encoding": "set_config('client_encoding', 'SQL_ASCII', true)",
}
DDL = """
create function turned() returns boolean language sql immutable as 'select false';
create function checked(text) returns boolean language sql immutable as 'select true';
create domain word as text check (checked(value));
create table predicate (id integer, label text);
create table expression (id integer, label text);
create table statistics (id integer, label text);
create table plain (id integer, label text);
create table parted (id integer, label text) partition by range (id);
create table parted_low partition of parted for values from (0) to (10) ;
create materialized view summary as select 1 as id, 'a'::text as label;
create table words (id integer, label text, tags word[]);
insert into predicate values (1, 'a'); insert into expression values (1, 'a');
insert into statistics values (1, 'a'); insert into plain values (1, 'a'); insert into parted values (1, 'a');
insert into words values (1, 'a', '{a}');
"""
TURNED = """
create or replace function turned() returns boolean language plpgsql immutable as $$
    begin perform {0}; return false; end $$;
create or replace function checked(text) returns boolean language plpgsql immutable as $$
    begin perform {0}; return true; end $$;
"""
STATEMENTS = (
    "select label || 'x' from {}",
    "select label <> 'x', label = 'a', label < 'b', label ~ 'a' from {}",
    "select label from {} where label like 'a%' and label in ('a', 'b') and label between 'a' and 'b'",
    "select id + 1, id - 1 from {}",
    r"select label || '\' from {} where label <> '\'",
    "select case label when 'a' then 1 end, nullif(label, 'a') from {}",
    "select t.label from {0} t join {0} u using (label)",
    "with recursive r as (select label from {0} union all select label || 'x' from r where false)"
    " select label from r",
    "select (select string_agg(label || 'y', ',') from {})",
)


@pytest.fixture(scope="module")
def shop(postgresql_server: PostgresqlServer, portal: BlockingPortal) -> Iterator[SqlShop]:
    planned = ";\n".join(sql.format(table) for table, sql in PLANNED.items())
    with open_free_shop(postgresql_server, portal, hidden=True, more=f"{DDL}{planned};{EVIL}") as shop:
        yield shop


@pytest.fixture(scope="module", params=CHANGES)
def seen(request: pytest.FixtureRequest, shop: SqlShop) -> Catalog:
    """Return what the role sees, all but the hidden table, once the functions make such a change."""
    shop.portal.call(execute, shop.url, TURNED.format(CHANGES[request.param]))
    names = (*PLANNED, "words")
    return restrict(shop.whole, Role(rules=tuple(Rule(pattern=name, grant=Grant()) for name in names)))


def test_function_that_the_planner_runs_changes_no_name(shop: SqlShop, seen: Catalog) -> None:
    expected = [shop.answer(sql.format("plain"), catalog=seen) for sql in STATEMENTS]

    assert [each for each in expected if isinstance(each[0], str)] == []
    for table in PLANNED:
        for sql, plain in zip(STATEMENTS, expected, strict=True):
            answer = shop.answer(sql.format(table), catalog=seen)
            assert answer == plain or answer[0] == "sql_refused"


def test_check_of_a_domain_changes_no_name(shop: SqlShop, seen: Catalog) -> None:
    for value in ("label || 'x'", "id + 1", "id - 1", "label <> 'x'", "label ~ 'x'"):
        expected = shop.answer(f"select {value} as v from plain", catalog=seen)
        assert not isinstance(expected[0], str)
        for condition in ("tags = '{a}'", "tags <> '{a}'", "tags[1:1] = '{a}'"):
            inner = f"select {condition} as c, {value} as v from words"
            answer = shop.answer(f"select q.v from ({inner}) q", catalog=seen)

            assert answer == expected or answer[0] == "sql_refused"


#: The type of a column, of which a domain is a part, and a comparison that runs its CHECK while it is parsed.
PARTS = {
    "an array": ("word[]", "v = '{{{}}}'"),
    "a row": ("paired", "v = '({},1)'"),
    "the row of the table": ("word", "t = '({})'"),
    "a range": ("span", "v = '[{0},{0}]'"),
    "a domain over an array": ("lists", "v = '{{{}}}'"),
    "a cast in the CHECK of another": ("other[]", "v = '{{{}}}'"),
}
RESTORING = """
create schema evil;
create function evil.shown(integer, integer) returns boolean language plpgsql as $$
    begin return exists (select from public.secrets where v = 'CANARY'); end $$;
create operator evil.+ (function = evil.shown, leftarg = integer, rightarg = integer);
create function turned(v text) returns boolean language plpgsql immutable as $$
    begin
        perform set_config(
            'search_path', case v when 'on' then 'evil, pg_catalog, public' else 'public' end, true
        );
        return true;
    end $$;
create domain word as text check (turned(value));
create domain lists as word[];
create domain other as text check (value::word is not null);
create type paired as (a word, b integer);
create type span as range (subtype = word);
"""


def test_check_that_restores_the_path_changes_no_name(
    postgresql_server: PostgresqlServer, portal: BlockingPortal
) -> None:
    tables = "".join(
        f"create table t{at} (v {type}); insert into t{at} values (null);create view seen{at} as table t{at};"
        for at, (type, _) in enumerate(PARTS.values())
    )
    with open_free_shop(postgresql_server, portal, hidden=True, more=RESTORING + tables) as shop:
        names = (f"{name}{at}" for at in range(len(PARTS)) for name in ("t", "seen"))
        seen = restrict(shop.whole, Role(rules=tuple(Rule(pattern=each, grant=Grant()) for each in names)))
        for at, (_, comparison) in enumerate(PARTS.values()):
            on, off = comparison.format("on"), comparison.format("off")
            for source in (f"t{at}", f"seen{at}"):
                sql = f"select {on} as a, 1 + 2 as b, {off} as c from {source} as t"
                code, text = shop.answer(sql, catalog=seen)

                assert code == "sql_refused"
                assert str(text).startswith("run_sql cannot read")
            assert shop.rows("select 1 + 2", catalog=seen) == [(3,)]
        permitting = FunctionRules(include=("public.turned",))
        permitted = shop.rows("select count(*) from t0", catalog=seen, functions=permitting)

    assert permitted == [(1,)]
