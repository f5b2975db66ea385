"""Functions that the server runs while it plans a statement leave nothing behind in a session."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal

from dbtools.errors import DbtoolsError
from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from dbtools.settings import load
from tests.database.shop import Shop, open_shop, rows_of
from tests.postgresql_server import PostgresqlServer

#: What a caller reads, and a function that changes the sessions of dbtools, which have a lock_timeout. What
#: is immutable may not prepare a statement itself.
DDL = """
create table things (id integer primary key, v varchar not null);
insert into things values (1, 'one'), (2, 'two');
create table salaries (id integer primary key, pay integer);
insert into salaries values (1, 77777);
create table hours (id integer primary key, worked integer);
insert into hours values (1, 8);
create sequence counted;
create function act() returns void language plpgsql as $$ begin end $$;
create function planted() returns integer language plpgsql immutable as $$
begin
    perform public.act();
    return 1;
end
$$;
create function is_planted(varchar, varchar) returns boolean language sql immutable
    as 'select public.planted() = 1';
"""
#: Lets the function do something in the sessions of dbtools.
ACTING = """
create or replace function act() returns void language plpgsql as $$
begin
    if current_setting('lock_timeout') <> '0' then
        begin
            {does}
        exception when read_only_sql_transaction then null;
        end;
    end if;
end
$$
"""
PLANTING = ACTING.format(
    does="""
    perform pg_advisory_lock(5);
    if not exists (select from pg_prepared_statements as p where p.name = 'planted') then
        execute 'prepare planted as select 1';
    end if;
    """
)
#: Lets the next statement that reads the table be planned again.
PLANNED = "drop index if exists planned; create index planned on things (v) where planted() = 1"
#: A function gets into the plan of a statement that reads {t} by this DDL.
MEANS = {
    "index predicate": "create index on {t} (v) where planted() = 1",
    "index expression": "create index on {t} ((id + planted()))",
    "statistics": "create statistics s on v, (id + planted()) from {t}; analyze {t}",
    "check": "alter table {t} add check (id < 9 + planted())",
    "domain": "create domain short as varchar check (planted() = 1); alter table {t} alter v type short",
    "default": "alter table {t} alter v set default planted()::varchar",
    "generated column": "alter table {t} add twice integer generated always as (id + planted()) stored",
    "row security": (
        "alter table {t} enable row level security; create policy p on {t} using (planted() = 1)"
    ),
    "heir": "create table heir () inherits ({t}); alter table heir add check (id < 9 + planted())",
    "index of a materialized view": """
    drop table {t};
    create materialized view {t} as select id, v from things;
    create index on {t} (v) where planted() = 1
    """,
    "partitions": """
    drop table {t};
    create table {t} (id integer primary key, v varchar) partition by range (id);
    create table part partition of {t} for values from (0) to (9);
    insert into {t} values (1, 'one');
    create index on part (v) where planted() = 1;
    alter table part add check (id < 9 + planted())
    """,
    "key of partitions": """
    drop table {t};
    create table {t} (id integer not null, v varchar) partition by range ((id + planted()));
    create table first partition of {t} for values from (0) to (9)
    """,
}
OPERATOR = "create operator public.{} (leftarg = varchar, rightarg = varchar, function = is_planted)"
#: These concern every table.
NAMES = (
    """
    create function cast_planted(varchar) returns integer language sql immutable as 'select public.planted()';
    create cast (varchar as integer) with function cast_planted(varchar) as implicit
    """,
    *(OPERATOR.format(operator) for operator in ("~~", "<", "<>", "=")),
)
CONDITIONS = [
    {"column": "v", "op": "eq", "value": "one"},
    {"column": "v", "op": "ne", "value": "two"},
    {"column": "v", "op": "lt", "value": "p"},
    {"column": "v", "op": "contains", "value": "n"},
]
GRANT = """
alter default privileges grant select on tables to public;
grant select on all tables in schema public to {};
alter role {} set constraint_exclusion = on
"""
PostgresqlDatabase = Callable[[str], AbstractContextManager[str]]
PostgresqlLogin = Callable[[str, str], AbstractContextManager[str]]


@pytest.fixture(scope="module")
def shop(
    postgresql_database: PostgresqlDatabase, postgresql_login: PostgresqlLogin, portal: BlockingPortal
) -> Iterator[Shop]:
    """Yield a database that is served to a login that may only read."""
    with (
        postgresql_database(f"{DDL}; {PLANNED}") as url,
        postgresql_login(url, GRANT) as login,
        open_shop("postgresql", login, portal) as shop,
    ):
        yield shop


@pytest.fixture
def planted(
    postgresql_database: PostgresqlDatabase, postgresql_login: PostgresqlLogin, portal: BlockingPortal
) -> Iterator[Shop]:
    """Yield one with a table for each of the means."""
    tables = (
        f"create table t{at} (id integer primary key, v varchar not null);"
        f"insert into t{at} values (1, 'one'), (2, 'two');"
        for at in range(len(MEANS))
    )
    with (
        postgresql_database(f"{DDL}{PLANTING};{''.join(tables)}") as url,
        postgresql_login(url, GRANT) as login,
        open_shop("postgresql", login, portal) as shop,
    ):
        yield shop


#: What a function could leave in its session, and a query that shows it.
TRACES = {
    "prepared statement": (
        "prepare planted as select 1",
        "count(*) from pg_prepared_statements where from_sql",
    ),
    "advisory lock": (
        "select pg_advisory_lock(5)",
        "count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()",
    ),
    "setting": ("select set_config('app.tenant', 'ann', false)", "current_setting('app.tenant', true)"),
    "search path": ("select set_config('search_path', 'nowhere', false)", "current_setting('search_path')"),
    "read only": (
        "select set_config('default_transaction_read_only', 'off', false)",
        "current_setting('default_transaction_read_only')",
    ),
    "role": ("set role pg_monitor", "current_user"),
    "session authorization": ("set session authorization default", "session_user"),
    "temporary table": (
        "create temp table t as select 1",
        "count(*) from pg_class where relpersistence = 't'",
    ),
    "temporary view": ("create temp view t as select 1", "count(*) from pg_class where relpersistence = 't'"),
    "LISTEN": ("listen planted", "count(*) from pg_listening_channels()"),
    "cursor": ("declare planted cursor with hold for select 1", "count(*) from pg_cursors"),
    "large object": ("select lo_create(0)", "count(*) from pg_largeobject_metadata"),
    "sequence": ("select nextval('counted')", "last_value from counted"),
}


def _shown(shop: Shop, shows: str, tool: str = "") -> object:
    """Return what the idle session that *tool* has used last shows."""

    async def shown() -> object:
        runner: Any = await (shop.database.sql_runner() if tool == "run_sql" else shop.database.runner())
        async with runner.pool.connection() as connection:
            return await connection.fetchval(f"select {shows}")

    return shop.portal.call(shown)


def _change(shop: Shop, server: PostgresqlServer, ddl: str) -> None:
    """Run *ddl* as a superuser."""
    server.execute(ddl, url=server.url_of(shop.url.rpartition("/")[2]))


@pytest.mark.parametrize("is_served", [False, True], ids=["before the first call", "between two calls"])
def test_function_in_a_plan_leaves_nothing_in_the_session(
    is_served: bool, planted: Shop, postgresql_server: PostgresqlServer
) -> None:
    tables = [f"t{at}" for at in range(len(MEANS))]
    if is_served:
        for table in ("things", *tables):
            _call_all(planted, table)
    left = {}
    for table, (name, ddl) in zip(tables, MEANS.items(), strict=True):
        _change(planted, postgresql_server, ddl.format(t=table))
        left[name] = _call_all(planted, table)
    for ddl in NAMES:
        _change(planted, postgresql_server, ddl)
        left[ddl] = _call_all(planted, "things")

    assert {name: each for name, each in left.items() if each} == {}


def _call_all(shop: Shop, table: str) -> set[str]:
    """Read *table* in many ways, until it has been refused thrice, and return what was left in a session."""
    first, *rest = ((f"list_{table}", {"where": [each]}) for each in CONDITIONS)
    # A plan for all values takes over after five calls.
    calls: list[tuple[str, dict[str, Any]]] = [first, *[(f"get_{table}", {"id": 1})] * 6, *rest]
    left: set[str] = set()
    refused = 0
    for tool, arguments in calls:
        if refused == 3:
            break
        try:
            shop.call(tool, arguments)
        except DbtoolsError:
            refused += 1
        left |= {each for each in ("prepared statement", "advisory lock") if _shown(shop, TRACES[each][1])}
    return left


@pytest.mark.parametrize("tool", ["get_things", "run_sql"])
@pytest.mark.parametrize("name", TRACES)
def test_planned_function_leaves_none_of_what_a_session_keeps(
    name: str, tool: str, shop: Shop, postgresql_server: PostgresqlServer
) -> None:
    does, shows = TRACES[name]
    arguments = {"sql": "select v from things where id = 1"} if tool == "run_sql" else {"id": 1}
    revoked = "revoke all on sequence counted from public"
    _change(shop, postgresql_server, f"{revoked};{ACTING.format(does='')}")
    shop.call(tool, arguments)
    granted = "grant all on sequence counted to public;" if name == "sequence" else ""
    _change(shop, postgresql_server, f"{granted}{ACTING.format(does=f'execute {does!r};')};{PLANNED}")
    before = _shown(shop, shows, tool)
    after = []
    for _ in range(7):
        with suppress(DbtoolsError):
            shop.call(tool, arguments)
        after.append(_shown(shop, shows, tool))

    assert after == [before] * 7


#: Replaces the statements of dbtools by one that reads another table.
STEALING = """
create or replace function act() returns void language plpgsql as $$
declare taken record;
begin
    for taken in
        select p.name, array_to_string(p.parameter_types, ', ') as types
        from pg_prepared_statements as p
        where not p.from_sql and p.statement like '%hours%'
    loop
        execute format('deallocate %I', taken.name);
        execute format('prepare %I (%s) as select id, pay from public.salaries', taken.name, taken.types);
    end loop;
end
$$
"""


def test_planned_function_cannot_replace_the_statement_of_another_role(
    shop: Shop, postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    path = tmp_path / "dbtools.toml"
    path.write_text(
        f'[database]\nurl = "{shop.url}"\n'
        "[roles.clerk]\ntables.hours = true\n[roles.guest]\ntables.things = true\n"
    )
    clerk, guest = Caller(role="clerk"), Caller(role="guest")
    toolbox, database = open_toolbox(load(path))
    call = partial(shop.portal.call, toolbox.call)
    try:
        for _ in range(8):
            call(clerk, "list_hours", {})
        _change(shop, postgresql_server, f"{STEALING};{PLANNED}")
        rows = []
        for _ in range(8):
            with suppress(DbtoolsError):
                call(guest, "get_things", {"id": 1})
            rows.append(rows_of(call(clerk, "list_hours", {}).structured))
    finally:
        shop.portal.call(database.close)

    assert rows == [[[1, 8]]] * 8
