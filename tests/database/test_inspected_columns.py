"""The columns of a query, as PostgreSQL and SQLite report them."""

import pytest

from dbtools.errors import Refused
from tests.database.inspecting import (
    by_name,
    inspected,
    lenient,
    postgresql as postgresql,
    shown,
    sqlite as sqlite,
    url as url,
)


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        pytest.param(
            "select id, name, mail, kind, born, seen, rate, score, tags, doc, pair, host, key from people",
            "id: bigint, name: character varying(80), mail: app.email, kind: app.kind, "
            "born: date, seen: timestamp with time zone, rate: numeric(12,2), score: double precision, "
            "tags: text[], doc: jsonb, pair: app.pair, host: inet, key: uuid",
            id="columns",
        ),
        pytest.param(
            "select id + 1 as next, upper(name), doc ->> 'a' as a, (pair).x, tags[1] from people",
            "next: bigint, upper: text, a: text, x: integer, tags: text",
            id="expressions",
        ),
        pytest.param(
            "select kind, count(*), sum(rate), avg(score), array_agg(id) as ids from people group by kind",
            "kind: app.kind, count: bigint, sum: numeric, avg: double precision, ids: bigint[]",
            id="aggregates",
        ),
        pytest.param(
            "with p as (select id, mail from people) select * from p order by mail limit 3",
            "id: bigint, mail: app.email",
            id="CTE",
        ),
        pytest.param(
            "with recursive b (id) as (select 1::bigint union all select p.id from people p, b"
            " where p.boss = b.id) select * from b",
            "id: bigint",
            id="recursive CTE",
        ),
        pytest.param(
            "select * from adults", "id: bigint, name: character varying(80), born: date", id="view"
        ),
        pytest.param("select id from people union all select 5", "id: bigint", id="set operation"),
        pytest.param(
            "select s.id, (select name from people limit 1) as n from (select id from orders) as s",
            "id: bigint, n: character varying(80)",
            id="subqueries",
        ),
        pytest.param(
            "select id, rank() over (order by total) as r, lag(total) over () as l from orders",
            "id: bigint, r: bigint, l: integer",
            id="window functions",
        ),
        pytest.param(
            "select o.id, p.name from orders o left join people p on p.id = o.person",
            "id: bigint, name: character varying(80)",
            id="outer join",
        ),
        pytest.param(
            "select p.id, p.kind from people p group by grouping sets ((p.id, p.kind), ())",
            "id: bigint, kind: app.kind",
            id="grouping sets",
        ),
        pytest.param("select id from parent", "id: integer", id="table that others inherit"),
        pytest.param("values (1, 'a'), (2, null)", "column1: integer, column2: text", id="values"),
        pytest.param("table totals", "person: bigint, total: bigint", id="table"),
        pytest.param(
            'select "Odd column", "select" as "a ""b" from "Odd schema"."Odd ""table" -- a comment',
            'Odd column: integer, a "b: text',
            id="odd names",
        ),
        pytest.param(
            "select p, p.pair, array_agg(p) as a, daterange(born, null) as d from people p group by id",
            "p: people, pair: app.pair, a: people[], d: daterange",
            id="rows and ranges",
        ),
        pytest.param(
            "select row(1, 'a') as r, ctid, pg_sleep(0) as v from people",
            "r: record, ctid: tid, v: void",
            id="types that no column can have",
        ),
        pytest.param("select 'a' as \"été\", null as n", "été: text, n: text", id="literals"),
    ],
)
async def test_columns_on_postgresql(postgresql: str, sql: str, columns: str) -> None:
    found = await inspected(postgresql, sql)

    assert (shown(found), lenient(found), found.casts) == (by_name(columns), set(), {})


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        pytest.param(
            "select id, name, born, rate, doc from people",
            "id: integer, name: varchar(80), born: date, rate: decimal(12,2), doc: json",
            id="columns",
        ),
        pytest.param(
            "select count(*), total + 1, max(total) as m from orders",
            "count(*): any, total + 1: any, m: any",
            id="expressions",
        ),
        pytest.param("with p as (select rate from people) select * from p", "rate: decimal(12,2)", id="CTE"),
        pytest.param("select * from adults", "id: integer, name: varchar(80), born: date", id="view"),
        pytest.param(
            "select s.id, (select name from people limit 1) as n from (select id from orders) as s",
            "id: integer, n: varchar(80)",
            id="subqueries",
        ),
        pytest.param(
            "select rank() over (order by total) as r, id from orders", "r: any, id: integer", id="window"
        ),
        pytest.param("values (1, 'a')", "column1: any, column2: any", id="values"),
        pytest.param("select body from notes where notes match :q", "body: any", id="virtual table"),
        pytest.param(
            "select id as 'a b', name as [c d] from people -- x",
            "a b: integer, c d: varchar(80)",
            id="odd names",
        ),
    ],
)
async def test_columns_on_sqlite(sqlite: str, sql: str, columns: str) -> None:
    found = await inspected(sqlite, sql, q="text")

    assert (shown(found), lenient(found), found.casts) == (by_name(columns), set(by_name(columns)), {})


@pytest.mark.parametrize(
    ("sql", "loose"),
    [
        pytest.param("select id, v, n from exact", set(), id="strict"),
        pytest.param(
            "with e as (select v from exact) select e.v, x.id from e join exact x", set(), id="joined"
        ),
        pytest.param("select v, free from exact", {"free"}, id="any"),
        pytest.param("select id, count(*) as k, n + 1 as m from exact", {"k", "m"}, id="expression"),
        pytest.param("select v from exact union all select 5", {"v"}, id="union"),
        pytest.param("select v from both_of", {"v"}, id="union in a view"),
        pytest.param("select exact.v from exact join people using (id)", {"v"}, id="other table"),
    ],
)
async def test_only_strict_columns_are_exact_on_sqlite(sqlite: str, sql: str, loose: set[str]) -> None:
    found = await inspected(sqlite, sql)

    assert lenient(found) == loose


@pytest.mark.parametrize(
    "shown",
    [":a", ":a + 1", "case when id = :a then 1 end", "id in (:ids)", "*, :claims.x || 'a'", ":a = :a"],
)
async def test_expression_with_a_parameter_wants_a_name_on_sqlite(sqlite: str, shown: str) -> None:
    with pytest.raises(Refused) as caught:
        await inspected(sqlite, f"select id, {shown} from orders", a="integer", ids="integer[]")

    assert caught.value.message == "A column that is computed from a parameter has no name."
    assert caught.value.hint == "Name it with AS."
