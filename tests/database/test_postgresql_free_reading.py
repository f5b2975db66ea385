"""PostgreSQL parses the text of ad-hoc SQL into the statement that the guard has checked."""

import re

import asyncpg
from sqlglot import exp

from dbtools.backends.postgresql.run_sql.casts import Casts
from dbtools.backends.postgresql.run_sql.guard import guard
from dbtools.backends.postgresql.run_sql.guarding import scope_of
from dbtools.backends.postgresql.run_sql.parsing import Tree, lexemes_of
from dbtools.backends.postgresql.schema.vocabulary import Vocabulary, read_vocabulary
from dbtools.errors import SqlRefused
from dbtools.policy.roles import FunctionRules
from tests.database.postgresql_free_shop import SqlShop, shop as shop
from tests.database.test_postgresql_free_attacks import ATTACKS
from tests.database.test_postgresql_free_queries import QUERIES

OTHERS = (
    "select x.m, x.a from json_to_recordset('[{}]') as x(m public.mood, a double precision, b numeric(4, 1))",
    "select public.customers.name from public.customers",
    "select interval '2' day, 'abc'::char, 'abc'::char(2), timestamp with time zone '2024-01-01 00:00+00'",
    "with recursive t(n) as (select id from regions union select n + 1 from t where n < 5) select t.n from t",
    "select * from regions r where not exists (with r as (select 1) select from r, orders)",
)


def test_what_runs_is_read_as_what_was_checked(shop: SqlShop) -> None:
    vocabulary = shop.portal.call(_vocabulary, shop)
    scope = scope_of(shop.catalog, shop.whole, vocabulary)
    different, permitted = [], 0
    for sql in (*QUERIES, *OTHERS, *ATTACKS):
        try:
            guarded = guard(sql, scope)
        except SqlRefused:
            continue
        permitted += 1
        # The guard also writes the schemas of functions and operators.
        runs = re.sub(r'"pg_catalog"\.("\w+" \()', r"\1", guarded.sql)
        runs = re.sub(r'operator\("pg_catalog"\.(\S+)\)', r"\1", runs)
        if _tree(sql, shop, vocabulary) != _tree(runs, shop, vocabulary):
            different.append((sql, guarded.sql))

    assert different == []
    assert permitted > len(QUERIES) + len(OTHERS)


def _tree(sql: str, shop: SqlShop, vocabulary: Vocabulary) -> exp.Expr:
    """Return the tree of *sql* without what the guard replaces: names of tables, CTEs, types of columns."""
    lexemes = lexemes_of(sql)
    Casts(lexemes, shop.catalog, vocabulary).check()
    root = Tree(lexemes).root
    for node in list(root.walk()):
        match node:
            case exp.Table(this=exp.Identifier()):
                node.set("alias", node.args.get("alias") or exp.TableAlias(this=node.this.copy()))
                node.set("this", exp.to_identifier("table"))
                node.set("db", None)
            case exp.CTE():
                node.args["alias"].set("this", exp.to_identifier("cte"))
            case exp.Column():
                node.set("db", None)
                _hide(node.this if node.table else None, vocabulary)
            case exp.Dot():
                _hide(node.expression, vocabulary)
            case exp.ColumnDef():
                node.set("kind", None)
            case _:
                pass
    return root


def _hide(name: exp.Expr | None, vocabulary: Vocabulary) -> None:
    """Replace *name*, after a dot, if it could be a call."""
    if isinstance(name, exp.Identifier) and name.name in ("dbtools nothing", *vocabulary.attributes):
        name.set("this", "nothing")


async def _vocabulary(shop: SqlShop) -> Vocabulary:
    connection = await asyncpg.connect(shop.url)
    try:
        return await read_vocabulary(connection, shop.catalog.search_path, FunctionRules())
    finally:
        await connection.close()
