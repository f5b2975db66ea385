"""Foreign keys of PostgreSQL, and which of them can be joined."""

import asyncpg
import pytest

from dbtools.schema.catalog import ForeignKey, Selection
from tests.database.postgresql_catalog import catalog_of, connected, foreign_key, table_of

TARGETS = """
create schema other;
create table one (id integer primary key, code text unique);
create table two (x integer, y integer, primary key (x, y));
create table other.one (id integer primary key);
"""


@pytest.mark.parametrize(
    ("ddl", "foreign_keys"),
    [
        pytest.param(
            "create table t (a integer references one)", (foreign_key("a", "one", "id"),), id="simple"
        ),
        pytest.param(
            "create table t (a text references one (code))",
            (foreign_key("a", "one", "code"),),
            id="to-a-unique-key",
        ),
        pytest.param(
            "create table t (a integer, b integer, foreign key (b, a) references two (x, y))",
            (foreign_key("b a", "two", "x y"),),
            id="composite",
        ),
        pytest.param(
            "create table t (id integer primary key, parent integer references t)",
            (foreign_key("parent", "t", "id"),),
            id="to-itself",
        ),
        pytest.param(
            "create table t (a integer references one, b integer references one)",
            (foreign_key("a", "one", "id"), foreign_key("b", "one", "id")),
            id="two-to-one-table",
        ),
        pytest.param(
            "create table t (a integer references one references other.one, b integer references other.one)",
            (
                foreign_key("a", "one", "id"),
                foreign_key("a", "one", "id", "other"),
                foreign_key("b", "one", "id", "other"),
            ),
            id="to-another-schema",
        ),
        pytest.param(
            "create table t (a integer references one); alter table t add foreign key (a) references one",
            (foreign_key("a", "one", "id"),),
            id="said-twice",
        ),
        pytest.param("create table t (a integer not null check (a > 0))", (), id="none"),
    ],
)
async def test_foreign_keys_name_their_targets(
    postgresql_url: str, ddl: str, foreign_keys: tuple[ForeignKey, ...]
) -> None:
    table = await table_of(postgresql_url, f"{TARGETS} {ddl}", "t")

    assert table.foreign_keys == foreign_keys


async def matches(connection: "asyncpg.Connection[asyncpg.Record]", key: ForeignKey) -> list[int]:
    """Return how many rows of the target each row of t is joined with, in t's order."""
    pairs = zip(key.target_columns, key.columns, strict=True)
    rows = await connection.fetch(f"""
        select count(j."{key.target_columns[0]}") as number
        from t left join "{key.target_schema}"."{key.target}" as j
        on {" and ".join(f'j."{there}" = t."{here}"' for there, here in pairs)}
        group by t.n order by t.n
    """)
    return [row["number"] for row in rows]


def two_tables(target: str, source: str, *, values: str = "") -> str:
    """Return DDL of a table p with a key of type *target*, and of t that refers to it by *source*."""
    return f"""
    create type mood as enum ('sad', 'ok');
    create domain code as varchar(9);
    create domain short_code as code;
    create table p (id {target} unique);
    create table t (n serial, a {source} references p (id));
    insert into p values {values or "(null)"};
    insert into t (a) select id from p;
    """


@pytest.mark.parametrize(
    ("ddl", "matched"),
    [
        pytest.param(
            two_tables("integer", "integer", values="(1), (2), (null), (null)"), [1, 1, 0, 0], id="same"
        ),
        pytest.param(two_tables("smallint", "bigint", values="(1), (2)"), [1, 1], id="integers"),
        pytest.param(two_tables("numeric", "int8", values="(1.00), (2)"), [1, 1], id="integer to a decimal"),
        pytest.param(two_tables("real", "float8", values="(1.5), ('nan')"), [1, 1], id="numbers"),
        pytest.param(two_tables("text", "varchar(9)", values="('a'), ('A')"), [1, 1], id="texts"),
        pytest.param(
            two_tables("varchar(9)", "text", values="('a'), ('a ')"), [1, 1], id="texts turned round"
        ),
        pytest.param(two_tables("varchar", "short_code", values="('a'), ('a ')"), [1, 1], id="domain"),
        pytest.param(two_tables("code", "short_code", values="('a'), ('a ')"), [1, 1], id="domains"),
        pytest.param(two_tables("char(3)", "varchar(3)", values="('a'), ('b ')"), [1, 1], id="padded"),
        pytest.param(
            two_tables("text", "char(3)", values="('a'), ('b')"), [1, 1], id="to a text from a padded one"
        ),
        pytest.param(two_tables("timestamp", "date", values="('2024-01-01')"), [1], id="moments"),
        pytest.param(two_tables("mood", "mood", values="('sad')"), [1], id="enum"),
        pytest.param(two_tables("text[]", "text[]", values="('{a,null}')"), [1], id="array"),
        pytest.param(two_tables("inet", "inet", values="('::1')"), [1], id="address"),
        pytest.param(
            two_tables('text collate "C"', 'varchar collate "C"', values="('a'), ('A')"),
            [1, 1],
            id="collation",
        ),
        pytest.param(
            """create table p (x int, y bigint, primary key (y, x));
            insert into p values (1, 2), (2, 1), (1, 1);
            create table t (n serial, a int, b int, foreign key (a, b) references p (x, y));
            insert into t (a, b) values (1, 2), (2, 1), (2, null);""",
            [1, 1, 0],
            id="other order",
        ),
        pytest.param(
            """create table t (n int primary key, a int references t);
            insert into t values (1, 1), (2, 1), (3, null);""",
            [1, 1, 0],
            id="to itself",
        ),
        pytest.param(
            """create table p (id int, part int, primary key (part, id)) partition by list (part);
            create table p1 partition of p for values in (1);
            create table p2 partition of p for values in (2);
            insert into p values (1, 1), (1, 2);
            create table t (n serial, a int, b int, foreign key (a, b) references p (id, part));
            insert into t (a, b) values (1, 1), (1, 2);""",
            [1, 1],
            id="to a partitioned table",
        ),
        pytest.param(
            """create table p (id int primary key); insert into p values (1), (2);
            create table t (n int, a int references p) partition by list (n);
            create table t1 partition of t for values in (1);
            create table t2 (a int references p, n int not null);
            alter table t attach partition t2 for values in (2);
            insert into t values (1, 1), (2, 1);""",
            [1, 1],
            id="from a partitioned table",
        ),
    ],
)
async def test_join_along_a_joinable_foreign_key_finds_one_row_at_most(
    postgresql_url: str, ddl: str, matched: list[int]
) -> None:
    (key,) = (await table_of(postgresql_url, ddl, "t")).foreign_keys

    assert key.joinable
    async with connected(postgresql_url) as connection:
        assert await matches(connection, key) == matched


AWAY = """
create schema away;
create type away.word;
create function away.read(cstring) returns away.word language internal as 'textin' immutable strict;
create function away.write(away.word) returns cstring language internal as 'textout' immutable strict;
create type away.word (input = away.read, output = away.write, like = text);
create cast (away.word as text) without function as implicit;
create function away.equals(away.word, away.word) returns bool language sql immutable strict
    as $$ select lower(textin(away.write($1))) = lower(textin(away.write($2))) $$;
create operator away.= (leftarg = away.word, rightarg = away.word, function = away.equals);
create function away.compares(away.word, away.word) returns int language sql immutable strict
    as $$ select bttextcmp(lower(textin(away.write($1))), lower(textin(away.write($2)))) $$;
create operator class away.words default for type away.word using btree as
    operator 3 away.=, function 1 away.compares(away.word, away.word);
create table p (id away.word unique);
create table t (n serial, a away.word references p (id));
insert into p values ('a');
insert into t (a) values ('A');
"""


@pytest.mark.parametrize(
    ("ddl", "found"),
    [
        pytest.param(
            two_tables("varchar", "char(3)", values="('a'), ('b')") + "insert into p values ('a ')",
            2,
            id="padded text to one with spaces",
        ),
        pytest.param(
            "set timezone = 'Europe/Berlin';"
            + two_tables("timestamp", "timestamptz", values="('2024-03-31 02:30'), ('2024-03-31 03:30')"),
            2,
            id="moment to one of a zone",
        ),
        pytest.param(
            two_tables("name", "varchar", values=f"('{'a' * 63}')") + "update t set a = a || 'b'",
            0,
            id="text to a name",
        ),
        pytest.param(
            two_tables('text collate "C"', 'text collate "POSIX"', values="('a')"),
            "IndeterminateCollationError",
            id="collations",
        ),
        pytest.param(
            two_tables("macaddr", "macaddr8", values="('01:02:03:04:05:06')"),
            "AmbiguousFunctionError",
            id="addresses",
        ),
        pytest.param(
            """create table p (id int primary key); create table heir () inherits (p);
            insert into p values (1); insert into heir values (1);
            create table t (n serial, a int references p); insert into t (a) values (1);""",
            2,
            id="inherited",
        ),
    ],
)
async def test_foreign_key_that_a_join_would_not_follow_is_not_joinable(
    postgresql_url: str, ddl: str, found: int | str
) -> None:
    (key,) = (await table_of(postgresql_url, ddl, "t")).foreign_keys

    assert not key.joinable
    async with connected(postgresql_url) as connection:
        await connection.execute("set timezone = 'Europe/Berlin'")
        try:
            numbers: object = (await matches(connection, key))[0]
        except asyncpg.PostgresError as exc:
            numbers = type(exc).__name__
        assert numbers == found


@pytest.mark.parametrize(
    "ddl",
    [
        pytest.param(AWAY, id="operator out of reach"),
        pytest.param(
            """create type price as (amount numeric); create table p (id price);
            create unique index on p (id record_image_ops); insert into p values (row(1.0)), (row(1.00));
            create table t (n serial, a price references p (id)); insert into t (a) values (row(1.0));""",
            id="operator of another name",
        ),
    ],
)
async def test_foreign_key_that_equality_does_not_follow_is_left_out(postgresql_url: str, ddl: str) -> None:
    assert (await table_of(postgresql_url, ddl, "t")).foreign_keys == ()


async def test_foreign_key_to_a_table_that_is_not_wanted_is_left_out(postgresql_url: str) -> None:
    ddl = f"{TARGETS} create table t (a integer references one, b integer references other.one)"

    catalog = await catalog_of(postgresql_url, ddl, Selection(exclude=("other.*",)))

    assert catalog.find_tables("t")[0].foreign_keys == (foreign_key("a", "one", "id"),)
