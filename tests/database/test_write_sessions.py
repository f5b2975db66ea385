"""Connections that change rows: few, opened late, and without traces of what triggers did on them."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import anyio
import asyncpg
import pytest

from dbtools import errors
from dbtools.backends.pool import IDLE
from dbtools.backends.postgresql.writing import writer as postgresql_writer
from dbtools.settings.sections import GrantSection
from tests.conftest import Clock
from tests.database.role_callers import Caller
from tests.database.shop import Serve, Shop
from tests.database.written_journal import DDL, GRANT, told, writing

#: The connections of dbtools that may write, by their session.
WRITERS = """
select pid from pg_stat_activity
where datname = current_database() and application_name = 'writer' order by pid
"""


def _named(shop: Shop) -> str:
    """Return the URL of connections that the tests can count."""
    return f"{shop.url}?application_name=writer"


async def _change_many(caller: Caller, number: int) -> None:
    async def change(id: int) -> None:
        await caller.toolbox.call(caller.identity, "insert_things", {"rows": [{"id": id, "v": "many"}]})

    async with anyio.create_task_group() as group:
        for id in range(100, 100 + number):
            group.start_soon(change, id)


def test_write_connections_are_opened_by_the_first_change_and_are_few(serve: Serve) -> None:
    with serve("postgresql", DDL["postgresql"]) as shop, writing(shop, write_url=_named(shop)) as caller:
        caller.call("list_things")
        before = shop.bare.rows(WRITERS)
        caller.call("update_things", id=1, set={"v": "x"})
        first = shop.bare.rows(WRITERS)
        caller.portal.call(_change_many, caller, 20)
        many = shop.bare.rows(WRITERS)
        stored = shop.bare.rows("select count(*) from things where v = 'many'")

    # One more has checked what the login may do.
    assert (len(before), len(first), stored) == (1, 2, [(20,)])
    assert 2 <= len(many) <= postgresql_writer.CONNECTIONS + 1 == 5


def test_idle_write_connection_is_closed(serve: Serve, clock: Clock) -> None:
    async def wait_until_closed() -> None:
        other = await asyncpg.connect(shop.url)
        with anyio.fail_after(30):
            while await other.fetch(WRITERS):
                await anyio.lowlevel.checkpoint()
        await other.close()

    with serve("postgresql", DDL["postgresql"]) as shop, writing(shop, write_url=_named(shop)) as caller:
        caller.call("update_things", id=1, set={"v": "x"})
        clock.advance(IDLE)
        caller.portal.call(wait_until_closed)


async def _session(caller: Caller, sql: str) -> tuple[int, object]:
    """Return what *sql* says in the session of the next change."""
    writer: Any = await caller.database.writer()
    async with writer.pool.connection() as connection:
        return connection.get_server_pid(), await connection.fetchval(sql)


def _set(name: str, value: str) -> str:
    return f"select set_config('{name}', '{value}', false)"


def _show(name: str) -> str:
    return f"select coalesce(current_setting('{name}', true), '')"


#: What a trigger does to its session, and what shows it.
TRACES = {
    **{
        _set(name, value): _show(name)
        for name, value in (
            ("default_transaction_read_only", "on"),
            ("search_path", "public, elsewhere"),
            ("statement_timeout", "7001"),
            ("lock_timeout", "7001"),
            ("timezone", "Asia/Tokyo"),
            ("app.tenant", "ann"),
        )
    },
    _set("role", "pg_read_all_data"): "select current_user::text",
    "select pg_advisory_lock(5)": "select count(*) from pg_locks where locktype = 'advisory'"
    " and pid = pg_backend_pid()",
    "listen something": "select count(*) from pg_listening_channels()",
    "create temp table if not exists notes as select 1 as n": "select count(*) from pg_class"
    " where relpersistence = 't'",
}
PREPARE = "prepare trap as select 1"
TRAPS = "select count(*) from pg_prepared_statements where from_sql"
#: A trigger that runs the text of a row if it is a statement. By its name, it runs after the one that records
#: changes: up to version 17, that would run as the role that this one sets.
DOING = """
create schema elsewhere;
create function do_it() returns trigger language plpgsql as $$ begin execute new.v; return null; end $$;
create trigger running after update on things for each row
    when (new.v ~ '^(select|listen|create|prepare) ') execute function do_it();
"""


def test_next_caller_does_not_meet_what_a_trigger_did_to_the_session(serve: Serve) -> None:
    with serve("postgresql", DDL["postgresql"] + DOING) as shop, writing(shop) as caller:
        caller.call("update_things", id=2, set={"v": "x"})
        for (does, shows), dry_run in product(TRACES.items(), (False, True)):
            before = caller.portal.call(_session, caller, shows)
            done = caller.call("update_things", id=1, set={"v": does}, dry_run=dry_run)

            assert done["affected"] == 1
            assert caller.portal.call(_session, caller, shows) == before, (does, dry_run)
            assert told(caller, shop, "insert").code == ""


#: A trigger that "set constraints all immediate" runs, and that defers another one until COMMIT.
LATE = DOING.replace(
    "trigger running after update on things", "constraint trigger running after insert on later deferrable"
)
LATE = f"""
create table later (v text);
{LATE}
create function delay() returns trigger language plpgsql as $$
begin
    set constraints all deferred;
    insert into later values (new.v);
    return null;
end
$$;
create constraint trigger delaying after update on things deferrable initially deferred
    for each row execute function delay();
"""
LATE_TRACES = {**TRACES, PREPARE: TRAPS, _set("statement_timeout", "1"): "select 1 from pg_sleep(0.1)"}


def test_next_caller_does_not_meet_what_a_trigger_did_during_commit(serve: Serve) -> None:
    with serve("postgresql", DDL["postgresql"] + LATE) as shop, writing(shop) as caller:
        caller.call("update_things", id=2, set={"v": "x"})
        for does, shows in LATE_TRACES.items():
            _, before = caller.portal.call(_session, caller, shows)
            done = caller.call("update_things", id=1, set={"v": does})
            stored = shop.bare.rows("select v from things where id = 1")

            assert (done["affected"], stored) == (1, [(does,)])
            assert caller.portal.call(_session, caller, shows)[1] == before, does
            assert told(caller, shop, "insert").code == ""


def test_trigger_that_prepares_a_statement_is_refused(serve: Serve) -> None:
    with serve("postgresql", DDL["postgresql"] + DOING) as shop, writing(shop) as caller:
        with pytest.raises(errors.Refused, match="Nothing was changed"):
            caller.call("update_things", id=1, set={"v": PREPARE})
        stored = shop.bare.rows("select v from things where id = 1")
        _, left = caller.portal.call(_session, caller, TRAPS)

    assert stored == [("one",)]
    assert left == 0


SEEING = """
create view seen as select id, v, set_config('app.tenant', 'ann', false) as tenant from things;
create function do_it() returns trigger language plpgsql as $$ begin
    perform set_config('default_transaction_read_only', 'off', false);
    return null;
end $$;
create trigger running after update on things for each row execute function do_it();
"""


def test_function_that_a_view_calls_leaves_the_read_connection_as_it_was(serve: Serve) -> None:
    ddl = DDL["postgresql"] + SEEING
    seen = {"seen": GrantSection()}
    with serve("postgresql", ddl) as shop, writing(shop, more=seen) as caller:
        caller.call("update_things", id=1, set={"v": "x"})
        rows = caller.rows("list_seen")
        runner = caller.portal.call(caller.database.runner)
        probe = caller.portal.call(runner.probe)

    assert [row[2] for row in rows] == ["ann"] * 3
    assert probe.refuses_writes


@pytest.fixture
def guarded(serve: Serve) -> Iterator[Shop]:
    """Yield a database whose rows are secured by the role and by a setting."""
    with serve("postgresql", SECURED) as shop:
        yield shop


SECURED = """
create table things (
    id integer primary key, v text, owner text not null default current_setting('app.owner')
);
insert into things values (1, 'one', 'ann'), (2, 'two', 'bob');
alter table things enable row level security;
create policy own on things using (owner = current_setting('app.owner', true));
do $$ begin
    if not exists (select from pg_roles where rolname = 'dbtools_test_clerk') then
        create role dbtools_test_clerk;
    end if;
end $$;
grant select, insert, update, delete on things to dbtools_test_clerk;
"""


def test_row_level_security_decides_with_the_role_and_the_settings_of_the_caller(guarded: Shop) -> None:
    section = {"set_role": "dbtools_test_clerk", "settings": {"app.owner": "ann"}}
    with writing(guarded, GRANT, role=section) as caller:
        inserted = caller.call("insert_things", rows=[{"id": 3, "v": "three"}])
        with pytest.raises(errors.NoRow):
            caller.call("update_things", id=2, set={"v": "stolen"})
        with pytest.raises(errors.ConstraintViolated, match=r"Row-level security .* Nothing was changed"):
            caller.call("update_things", id=1, set={"owner": "bob"})
        with pytest.raises(errors.ConstraintViolated, match=r"Row-level security .* Nothing was changed"):
            caller.call("insert_things", rows=[{"id": 4, "owner": "bob"}])
        stored = guarded.bare.rows("select * from things order by id")
        _, user = caller.portal.call(_session, caller, "select current_user::text")

    assert inserted["rows"] == [[3, "three", "ann"]]
    assert stored == [(1, "one", "ann"), (2, "two", "bob"), (3, "three", "ann")]
    assert user != "dbtools_test_clerk"


def test_login_that_only_reads_by_default_makes_every_kind_of_change(serve: Serve) -> None:
    ddl = (
        DDL["postgresql"]
        + "create type mood as enum ('sad'); create table moods (id int primary key, m mood);"
    )
    with serve("postgresql", ddl) as shop, writing(shop, more={"moods": GRANT}) as caller:
        ((name,),) = shop.bare.rows("select current_database()")
        shop.bare.execute(f'alter database "{name}" set default_transaction_read_only = on')
        calls: list[tuple[str, dict[str, object]]] = [
            ("update_things", {"id": 1, "set": {"v": "x"}}),
            ("insert_moods", {"rows": [{"id": 1, "m": "sad"}]}),
            ("update_rows", {"table": "things", "where": [{"column": "id", "value": 2}], "set": {"v": "y"}}),
            ("insert_things", {"rows": [{"id": 2, "v": "z"}], "on_conflict": "update"}),
            ("delete_moods", {"id": 1}),
            ("delete_things", {"id": 1}),
        ]
        affected = [caller.call(tool, **arguments)["affected"] for tool, arguments in calls]

    assert affected == [1] * len(calls)
