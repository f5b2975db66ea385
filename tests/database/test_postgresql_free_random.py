"""Random ad-hoc SQL on PostgreSQL has the answer of plain SQL on a database with only what the role sees."""

from collections.abc import Sequence

import asyncpg
from hypothesis import HealthCheck, given, settings, strategies as st

from dbtools.errors import OutOfRange, SqlRefused
from tests.database.postgresql_free_shop import SqlShop, shop as shop, twin as twin

#: The columns of tables by the family of their types.
TABLES = {
    "customers": {"n": ["id"], "t": ["name", "region", "mood::text"], "d": ["born"]},
    "orders": {"n": ["id", "customer_id", "total"], "t": ["status"], "d": ["ordered_on"]},
    "regions": {"n": ["id"], "t": ["name"], "d": []},
    "logs": {"n": ["id"], "t": ["note"], "d": ["at"]},
    "paid": {"n": ["id", "total"], "t": [], "d": []},
}
NUMBERS = ("0", "1", "2", "10", "-3", "2.5", "1e2", ".5")
TEXTS = ("'north'", "'A'", "''", "E'n\\tx'", "$$paid$$", "'it''s'")
DATES = ("date '2024-03-01'", "'2024-01-01'::date", "cast('1990-05-01' as date)")

Scope = Sequence[tuple[str, str]]  #: aliases and their tables


def number(scope: Scope, depth: int = 2) -> st.SearchStrategy[str]:
    plain = st.sampled_from([*NUMBERS, *_columns(scope, "n") * 3])
    if not depth:
        return plain
    inner, text = number(scope, depth - 1), words(scope, depth - 1)
    return st.one_of(
        plain,
        st.builds("{} {} {}".format, inner, st.sampled_from(["+", "-", "*"]), inner),
        st.builds("({} / nullif({}, 0))".format, inner, inner),
        st.builds("-{}".format, plain),
        st.builds("{}({})".format, st.sampled_from(["abs", "round", "sign", "floor"]), inner),
        st.builds("length({})".format, text),
        st.builds("coalesce({}, {})".format, inner, inner),
        st.builds("case when {} then {} else {} end".format, condition(scope, depth - 1), inner, inner),
        st.builds("extract(month from {})".format, st.sampled_from([*DATES, *_columns(scope, "d")])),
    )


def words(scope: Scope, depth: int = 2) -> st.SearchStrategy[str]:
    plain = st.sampled_from([*TEXTS, *_columns(scope, "t") * 3])
    if not depth:
        return plain
    inner = words(scope, depth - 1)
    return st.one_of(
        plain,
        st.builds("{} || {}".format, inner, inner),
        st.builds("{}({})".format, st.sampled_from(["upper", "lower", "reverse", "md5"]), inner),
        st.builds("left({}, 2)".format, inner),
        st.builds("substring({} from 1 for 2)".format, inner),
        st.builds("replace({}, 'n', {})".format, inner, plain),
        st.builds("cast({} as text)".format, number(scope, 0)),
    )


def condition(scope: Scope, depth: int = 2) -> st.SearchStrategy[str]:
    compare = st.sampled_from(["=", "<", ">", "<=", ">=", "<>", "!=", "is distinct from"])
    numbers, texts = number(scope, 0), words(scope, 0)
    plain = st.one_of(
        st.builds("{} {} {}".format, numbers, compare, numbers),
        st.builds("{} {} {}".format, texts, compare, texts),
        st.builds("{} like '%{}%'".format, texts, st.sampled_from(["n", "A", "pai"])),
        st.builds("{} ~ '[a-n]'".format, texts),
        st.builds("{} is null".format, st.one_of(numbers, texts)),
        st.builds("{} between {} and {}".format, numbers, numbers, numbers),
        st.builds("{} in (1, 2, 3)".format, numbers),
        st.builds("{} not in ('north', 'paid')".format, texts),
        st.builds("{} = any (array[1, 3])".format, numbers),
        st.builds("{} in (select id from regions)".format, numbers),
        st.builds("exists (select 1 from orders s where s.customer_id = {})".format, numbers),
    )
    if not depth:
        return plain
    inner = condition(scope, depth - 1)
    return st.one_of(
        plain,
        st.builds("{} and {}".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("not {}".format, inner),
    )


def _columns(scope: Scope, family: str) -> list[str]:
    return [f"{alias}.{column}" for alias, table in scope for column in TABLES[table][family]]


@st.composite
def source(draw: st.DrawFn, prefix: str) -> tuple[str, Scope]:
    """Return a FROM clause and its scope."""
    names = draw(st.lists(st.sampled_from(sorted(TABLES)), min_size=1, max_size=2))
    scope = [(f"{prefix}{at}", name) for at, name in enumerate(names)]
    spelled = [f"{draw(st.sampled_from(['', 'public.']))}{table} as {alias}" for alias, table in scope]
    if len(scope) == 1:
        return spelled[0], scope
    kind = draw(st.sampled_from(["join", "left join", "full join", "cross join", ","]))
    joined = f"{spelled[0]} {kind} {spelled[1]}"
    return (
        joined if kind in (",", "cross join") else f"{joined} on {scope[0][0]}.id = {scope[1][0]}.id"
    ), scope


@st.composite
def query(draw: st.DrawFn, depth: int = 2) -> str:
    """Return a query with two columns, a number and a text."""
    clause, scope = draw(source("abc"[depth]))
    where = f" where {draw(condition(scope))}" if draw(st.booleans()) else ""
    form = draw(st.integers(0, 6)) if depth else 0
    first, second = draw(number(scope)), draw(words(scope))
    plain = f"select {first} as x, {second} as y from {clause}{where}"
    match form:
        case 1:
            having = draw(st.sampled_from(["", " having count(*) > 1"]))
            sums = draw(
                st.sampled_from(["count(*)", f"sum({first})", f"max({first}) filter (where {first} > 1)"])
            )
            return f"select {sums} as x, {second} as y from {clause}{where} group by {second}{having}"
        case 2:
            over = f"over (partition by {second} order by {first})"
            return f"select sum({first}) {over} as x, {second} as y from {clause}{where}"
        case 3:
            name = draw(st.sampled_from(["regions", "orders", "w", "secrets"]))
            return (
                f"with {name} as ({draw(query(depth - 1))}) select x, y from {name} where x > 0 or y is null"
            )
        case 4:
            operator = draw(st.sampled_from(["union", "union all", "except", "intersect"]))
            return f"({plain}) {operator} ({draw(query(depth - 1))})"
        case 5:
            return f"select q.x + 1 as x, q.y from ({draw(query(depth - 1))}) as q"
        case 6:
            inner = f"select {first} as x, {second} as y"
            return f"select l.x, l.y from {clause}, lateral ({inner}) as l"
        case _:
            return plain


@settings(suppress_health_check=list(HealthCheck))
@given(sql=query())
def test_random_query_has_the_answer_of_plain_sql(sql: str, shop: SqlShop, twin: SqlShop) -> None:
    plain = twin.portal.call(_plain, twin.url, sql)
    try:
        rows = sorted(
            str(row[0]) for row in shop.rows(f"select cast(q as text) from ({sql}) as q", limit=5000)
        )
    except (SqlRefused, OutOfRange):
        rows = None

    assert rows == plain


async def _plain(url: str, sql: str) -> list[str] | None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("set timezone = 'UTC'")
        found = await connection.fetch(f"select cast(q as text) as row from ({sql}) as q")
        return sorted(row["row"] for row in found)
    except asyncpg.PostgresError:
        return None
    finally:
        await connection.close()
