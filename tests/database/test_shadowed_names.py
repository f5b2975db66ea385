"""Generated statements answer the same when a schema of the search path replaces the system's names."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import asyncpg
import pytest
from anyio.from_thread import BlockingPortal

from dbtools.backends.postgresql.reading.dialect import SYNTAX
from dbtools.backends.postgresql.schema.types import lexis
from dbtools.errors import DbtoolsError
from dbtools.expressions.terms import buckets_of, functions_of
from dbtools.schema.catalog import Column, Table
from dbtools.schema.sql import TokenKind, code_of
from dbtools.values.types import Operator
from tests.database.query_shop import QueryShop, open_query_shop
from tests.postgresql_server import PostgresqlServer

DDL = """
create extension if not exists vector;
create type mood as enum ('good', 'bad');
create domain short as varchar(5);
create domain spot as vector(1);
create table kinds (code varchar(5) primary key, name char(5), parent varchar(5) references kinds);
insert into kinds values ('a', 'north', null), ('b', 'south', 'a');
update kinds set parent = 'a';
create table things (
    id integer primary key, kind varchar(5) references kinds, brief short, padded char(5), body text,
    small int2, big int8, price numeric(8, 2), weight float8, light float4, day date, at timestamp,
    zoned timestamptz, mood mood, moods mood[], tags text[], counts int4[], flag boolean, token uuid,
    place vector(1), spot spot, host inet, hour time, raw bytea
);
create index on things using gin (to_tsvector('english', body));
insert into things
select g, case when g > 2 then 'a' else 'b' end, 's' || g, 'p' || g, 'body ' || g, g, g, g * 1.5, g, g,
    date '2026-01-01' + g, timestamp '2026-01-01' + interval '1 day' * g,
    timestamptz '2026-01-01Z' + interval '1 day' * g, case when g > 2 then 'good' else 'bad' end::mood,
    array['good', 'bad']::mood[], array['t' || g], array[g], g > 2, md5(g::text)::uuid,
    format('[%s]', g)::vector, format('[%s]', g)::vector, '10.0.0.1'::inet, time '10:00', 'x'
from generate_series(1, 4) as g;
create table spots (place vector(1) primary key, name varchar(5));
insert into spots values ('[1]', 'one'), ('[2]', 'two');
create table visits (id integer primary key, spot spot references spots);
insert into visits values (1, '[1]'), (2, '[2]');
"""
#: Of each name that generated SQL uses, those for pairs of types for which the system has none of that name.
SHADOWS = """
do $outer$
declare
    types text[] := '{varchar,text,bpchar,name,int2,int4,int8,numeric,float4,float8,date,timestamp,
        timestamptz,time,bool,uuid,bytea,mood,short,spot,vector,mood[],text[],varchar[],int4[],inet,tsvector,tsquery,
        interval}';
    l text;
    r text;
    sign text;
    name text;
    body constant text := 'begin raise exception ''hijacked''; end';
begin
    foreach l in array types loop
        foreach name in array '{count,sum,avg,min,max,lower,upper,length,char_length,octet_length,abs,round,
            to_json,trim_scale,bool_and,bool_or,unnest,websearch_to_tsquery}'::text[] loop
            continue when to_regprocedure(format('pg_catalog.%s(%s)', name, l)) is not null
                or to_regprocedure(format('public.%s(%s)', name, l)) is not null;
            execute format(
                'create function public.%s(%s) returns %s language plpgsql as %L', name, l, l, body
            );
        end loop;
        foreach r in array types loop
            execute format(
                'create function public.evil(%s, %s) returns boolean language plpgsql as %L', l, r, body
            );
            foreach sign in array '{=,<>,<,<=,>,>=,~~,~~*,~,~*,||,+,-,*,/,@@}'::text[] loop
                continue when to_regoperator(format('pg_catalog.%s(%s,%s)', sign, l, r)) is not null
                    or to_regoperator(format('public.%s(%s,%s)', sign, l, r)) is not null;
                execute format(
                    'create operator public.%s (leftarg = %s, rightarg = %s, function = public.evil)',
                    sign, l, r
                );
            end loop;
            continue when r not in ('int4', 'int8', 'text', 'tsquery');
            foreach name in array '{left,right,round,to_char,ts_rank}'::text[] loop
                continue when to_regprocedure(format('pg_catalog.%s(%s,%s)', name, l, r)) is not null;
                execute format(
                    'create function public.%s(%s, %s) returns text language plpgsql as %L', name, l, r, body
                );
            end loop;
        end loop;
    end loop;
end
$outer$;
"""
#: Words before a parenthesis that are no function.
WORDS = (
    *SYNTAX,
    *("and", "as", "by", "case", "cast", "distinct", "else", "exists", "extract", "from", "having", "in"),
    *("not",),
    *("on", "operator", "or", "over", "select", "then", "values", "when", "where", "with"),
)
WRITES = 'tables."*" = { insert = true, update = true, delete = true }\n'
#: Keywords for operators.
KEYWORDS = ("between", "like", "ilike", "similar", "using", "natural")
#: What is not found by the types of operands, or has operands of exactly the system's types: the bounds that
#: dates are kept in, negative numbers, the document of an index, and the assignments of an UPDATE.
EXACT = re.compile(
    r"\((?:date|timestamp|timestamptz) '[^']*' \+ [^)]*\)|-(?=\d)|to_tsvector\('english'::regconfig, body\)"
    r'|(?<=SET )"\w+"=|USING (?=\()|ON CONFLICT '
)
Outcome = tuple[str, str, list[object]]


@pytest.fixture(scope="module")
def shadowed(
    postgresql_server: PostgresqlServer,
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    portal: BlockingPortal,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[QueryShop, list[Outcome]]]:
    """Yield a served database, and its answers before the names were replaced."""
    if not postgresql_server.offers("vector"):
        pytest.skip("the server has no vector")
    folder = tmp_path_factory.mktemp("shadowed")
    rest = f"[roles.default]\n{WRITES}"
    with (
        postgresql_database(DDL) as url,
        open_query_shop(url, folder, {}, rest, portal) as shop,
    ):
        before = list(_outcomes(shop))
        shop.bare.execute(SHADOWS)
        runner: Any = portal.call(shop.database.runner)
        portal.call(runner.close)
        writer: Any = portal.call(shop.database.writer)
        portal.call(writer.close)
        shop.refresh()
        yield shop, before


def _outcomes(shop: QueryShop) -> Iterator[Outcome]:
    """Yield what many calls answer, with the second page of those that have one."""
    for tool, arguments in _calls(shop):
        answers: list[object] = []
        cursor: dict[str, object] = {}
        try:
            for _ in range(2):
                answer = shop.call(tool, {**arguments, **cursor}).structured
                answers.append({name: value for name, value in answer.items() if name != "next_cursor"})
                if "next_cursor" not in answer:
                    break
                cursor = {"cursor": answer["next_cursor"]}
        except DbtoolsError as exc:
            answers.append(f"{exc.code}: {exc}")
        yield tool, json.dumps(arguments), answers


def _calls(shop: QueryShop) -> Iterator[tuple[str, dict[str, Any]]]:
    tables = {table.name: table for table in shop.view().context.catalog.tables}
    for table in tables.values():
        for column in table.columns:
            yield from _calls_of(shop, table, column)
    for arguments in EXPRESSIONS:
        yield "list_things", {"columns": ["id", arguments]}
    for where in CONDITIONS:
        yield "list_things", {"columns": ["id", "kind.name", "kind.parent.name"], "where": [where]}
    yield "list_kinds", {"columns": ["code", "count(things)", "max(things.price)", "sum(things.weight)"]}
    yield "list_kinds", {"where": [{"some": "things", "where": [{"column": "id", "op": "gt", "value": 3}]}]}
    yield "list_spots", {"columns": ["name", "count(visits)"]}
    yield "list_visits", {"columns": ["id", "spot_spots.name"]}
    yield "get_kinds", {"code": "a"}
    yield "get_spots", {"place": "[1]"}
    yield "get_things", {"id": 1}
    yield from WRITTEN


def _calls_of(shop: QueryShop, table: Table, column: Column) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield calls that use *column* in every way."""
    name, tool = column.name, f"list_{table.name}"
    value = shop.rows(tool, {"columns": [name], "limit": 1})[0][0]  # type: ignore[index]
    where = [{"column": name, "op": each, **_given(each, value)} for each in column.type.operators]
    yield tool, {"where": where, "match": "any"}
    yield tool, {"columns": [name], "order_by": [name], "limit": 1}
    functions = functions_of(column.type)
    measures = [{"function": each, "column": name, "name": f"m{at}"} for at, each in enumerate(functions)]
    yield "aggregate_rows", {"table": table.name, "measures": measures}
    groups = {"group_by": [name], "measures": [{"function": "count", "name": "n"}]}
    having = [{"column": "n", "op": "gt", "value": 0}]
    yield "aggregate_rows", {"table": table.name, **groups, "having": having}
    if buckets := [f"{name}:{bucket}" for bucket in buckets_of(column.type)]:
        yield "aggregate_rows", {"table": table.name, "group_by": buckets}


CODE_IS_A = {"column": "code", "op": "eq", "value": "a"}


def _given(operator: Operator, value: object) -> dict[str, Any]:
    match operator:
        case Operator.IN | Operator.NOT_IN:
            return {"values": [value]}
        case Operator.BETWEEN:
            return {"values": [value, value]}
        case Operator.IS_NULL:
            return {"value": True}
        case _:
            return {"value": value[0] if isinstance(value, list) else value}


EXPRESSIONS = (
    *("price * small as x", "weight / price as x", "big - small as x", "-price as x", "round(price, 1) as x"),
    *("abs(price) as x", "lower(body) as x", "upper(kind) as x", "length(brief) as x", "day - at as x"),
    *("day + 3 as x", "zoned + 1.5 as x", "at + small as x", "coalesce(brief, kind) as x", "light + 1 as x"),
    *("coalesce(price, big) as x", "round(weight) as x"),
)
CONDITIONS: tuple[dict[str, Any], ...] = (
    {"column": "kind.name", "op": "eq", "value": "north"},
    {"column": "kind", "op": "eq", "value_column": "brief"},
    {"column": "small", "op": "lt", "value_column": "price"},
    {"column": "day", "op": "lt", "value_column": "at"},
    {"column": "price * 2", "op": "gt", "value": 3},
    {"column": "body", "op": "matches", "value": "body"},
    {"any": [{"column": "kind", "op": "eq", "value": "a"}, {"column": "id", "op": "eq", "value": 1}]},
)
#: Dry runs, which leave the rows as they are.
WRITTEN: tuple[tuple[str, dict[str, Any]], ...] = tuple(
    (tool, {**arguments, "dry_run": True})
    for tool, arguments in (
        ("insert_kinds", {"rows": [{"code": "c", "name": "x"}]}),
        ("insert_kinds", {"rows": [{"code": "a", "name": "x"}], "on_conflict": "update"}),
        ("update_kinds", {"code": "a", "set": {"name": "x"}, "expected": {"name": "north"}}),
        ("update_spots", {"place": "[1]", "set": {"name": "x"}, "expected": {"name": "one"}}),
        ("insert_spots", {"rows": [{"place": "[1]", "name": "x"}], "on_conflict": "update"}),
        ("update_rows", {"table": "kinds", "set": {"name": "x"}, "where": [CODE_IS_A]}),
        ("update_things", {"id": 1, "set": {"brief": "x"}, "expected": {"mood": "bad", "spot": "[1]"}}),
        ("delete_rows", {"table": "visits", "where": [{"column": "spot", "op": "eq", "value": "[1]"}]}),
        ("delete_visits", {"id": 1, "expected": {"spot": "[1]"}}),
    )
)


def test_answers_are_the_same(shadowed: tuple[QueryShop, list[Outcome]]) -> None:
    shop, before = shadowed

    after = list(_outcomes(shop))

    assert len(before) > 150
    # What is refused: what cannot be sorted, grouped or measured.
    assert sum(isinstance(answers[-1], str) for _, _, answers in before) < 10
    assert [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]] == []


def test_operators_and_functions_would_replace_those_of_the_system(
    shadowed: tuple[QueryShop, list[Outcome]],
) -> None:
    bare = shadowed[0].bare

    for sql in ("select from kinds where code = 'a'::varchar", "select min(code) from kinds"):
        with pytest.raises(asyncpg.RaiseError, match="hijacked"):
            bare.rows(sql)


def test_generated_sql_has_a_schema_for_each_function_and_operator(
    shadowed: tuple[QueryShop, list[Outcome]],
) -> None:
    shop = shadowed[0]

    explained = [(tool, shop.explain(tool, arguments).sql) for tool, arguments in _calls(shop)]

    assert [(tool, name) for tool, sql in explained for name in _without_schema(sql or "")] == []


def _without_schema(sql: str) -> Iterator[str]:
    """Yield the functions and operators in *sql* whose operands decide what they mean."""
    tokens = code_of(EXACT.sub("", re.sub(r"\$(\d+)", r"\1", sql)), lexis)
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        is_bare = before is None or before.text != "."
        if token.kind is TokenKind.SIGN and token.text not in (".", ",", "::", "*"):
            yield from [token.text] if is_bare else []
        elif token.kind is TokenKind.WORD and token.word in KEYWORDS:
            yield token.text
        elif token.kind is TokenKind.WORD and after is not None and after.text == "(":
            yield from [token.text] if is_bare and token.word not in WORDS else []
