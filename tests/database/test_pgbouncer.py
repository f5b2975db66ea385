"""Behind PgBouncer, each transaction may run in another session, which other clients use as well."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import asyncpg
import pytest
from anyio.from_thread import BlockingPortal

from dbtools import errors
from dbtools.policy.roles import Caller
from tests.database.pgbouncer import SHARED, SPREAD, needs_pgbouncer, pgbouncer
from tests.database.query_shop import QueryShop, open_query_shop
from tests.database.shop import BarePostgresql, open_bare, rows_of
from tests.database.ways import netloc_of

pytestmark = [needs_pgbouncer, pytest.mark.slow]

SESSIONS = 3  #: of each login, if PgBouncer may open many

DDL = """
create schema elsewhere;
create table visible (id integer primary key);
insert into visible values (3), (6);
create table elsewhere.visible as select generate_series(1, 6) as id;
create table orders (
    id integer primary key, status text, at timestamptz default '2024-03-05 12:00:00+01',
    bytes bytea default '\\x00ff', span interval default '1 day 2 hours', price float8 default 0.1
);
insert into orders select g, 'new' from generate_series(1, 6) as g;
create table notes (id integer primary key, owner text);
insert into notes values (1, 'ann'), (2, 'bob');
alter table notes enable row level security;
create policy own on notes using (owner = current_setting('app.owner', true));
create table things (id integer primary key, v text);
insert into things values (1, 'one');
create function do_it() returns trigger language plpgsql as $$ begin execute new.v; return null; end $$;
create trigger running after update on things for each row execute function do_it();
create view locking as
select id, pg_advisory_lock(7)::text as lock, set_config('app.owner', 'ann', false) as owner from visible;
create view endless as select count(*) as total from generate_series(1, 1000000000000);
create function locked(integer) returns boolean language plpgsql immutable
    set search_path = pg_catalog, pg_temp
    as 'begin perform pg_advisory_lock(8); return true; end';
create function remembered(integer) returns integer language plpgsql
    as 'begin perform setseed(0.5); return pg_backend_pid(); end';
"""
QUERIES = {
    "mine.sql": "-- name: mine\n-- description: Orders.\n"
    "select id, at, span from orders where id in (select id from visible) order by id",
    "locked.sql": "-- name: locked\n-- description: Orders.\n"
    "select id from orders where locked(1) order by id",
}
RULES = """
[roles.reader]
sql = true
functions = ["remembered"]
tables.orders = { where = "id in (select id from visible) and lower(status) <> 'x'", update = ["status"] }
tables.notes = true
tables.locking = true
tables.endless = true
tables.things = { update = ["v"] }
queries = ["mine", "locked"]
limits.timeout = "600s"
[roles.locked]
tables.orders = { where = "locked(1)" }
[roles.owner]
settings = { "app.owner" = ":claims.owner" }
tables.notes = true
"""
COLUMNS = ["id", "at", "bytes", "span", "price"]
CALLS: Sequence[tuple[str, Mapping[str, object]]] = (
    ("list_orders", {"columns": COLUMNS}),
    ("aggregate_rows", {"table": "orders", "group_by": ["at:month"]}),
    ("mine", {}),
    ("locked", {}),
    ("run_sql", {"sql": f"select {', '.join(COLUMNS)} from orders"}),
    ("list_notes", {}),
    ("list_locking", {}),
    ("run_sql", {"sql": "select id, owner from locking"}),
    ("update_orders", {"id": 3, "set": {"status": "paid"}}),
    ("update_orders", {"id": 1, "set": {"status": "paid"}}),
)
REMEMBERED = {"sql": "select remembered(1)"}
#: What triggers do to their session.
TRACES = (
    "select set_config('search_path', 'elsewhere', false)",
    "select set_config('timezone', 'Asia/Tokyo', false)",
    "select set_config('role', 'pg_read_all_data', false)",
    "select pg_advisory_lock(9)",
    "listen something",
    "create temp table visible as select generate_series(1, 6) as id",
    "prepare trap as select 1",
)
LOCKS = "select objid from pg_locks where locktype = 'advisory'"
LEFT = """
select name::text, setting::text from pg_settings
where source = 'session' and name not in ('application_name', 'client_encoding')
union all select 'role', current_user::text where current_user <> session_user
union all select 'statement', name::text from pg_prepared_statements where from_sql
union all select 'channel', pg_listening_channels()
union all select 'temporary table', relname::text from pg_class where relpersistence = 't'
"""
#: What takes for ever.
ACTIVE = """
select from pg_stat_activity
where datname = current_database() and state = 'active' and query ~ 'endless|generate_series'
    and pid <> pg_backend_pid()
"""
#: What another client of PgBouncer does to a session before dbtools gets it.
LEAVES = {
    "path": "set search_path = elsewhere, public",
    "path without the tables": "set search_path = elsewhere",
    "temporary table": "create temp table if not exists visible as select generate_series(1, 6) as id",
    "role": "set role pg_monitor",
    "row security": "set row_security = off",
    "styles": "set timezone = 'Asia/Tokyo'; set datestyle = German; set bytea_output = escape; "
    "set intervalstyle = postgres_verbose; set extra_float_digits = -10",
    "backslashes": "set standard_conforming_strings = off",
    "encoding": "set client_encoding = latin1",
    "setting of a policy": "set app.owner = 'bob'",
    "only reads": "set default_transaction_read_only = on",
    "isolation": "set default_transaction_isolation = serializable",
    "marks of dbtools": "set lock_timeout = 5003; set search_path = elsewhere",
    "no prepared statements": "deallocate all",
    "nothing": "discard all",
}


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """A database that is served through PgBouncer."""

    shop: QueryShop
    bare: BarePostgresql  #: a direct connection
    urls: Sequence[str]  #: of PgBouncer, with the login that reads and the one that writes
    sessions: int  #: of each login
    served_again: Callable[[], AbstractContextManager["Pooled"]]

    def answer(self, tool: str, arguments: Mapping[str, object]) -> object:
        """Return what *tool* answers, or the code of its refusal."""
        try:
            return self.shop.call(tool, arguments, role="reader").structured
        except errors.DbtoolsError as exc:
            return exc.code

    def answers(self) -> list[object]:
        """Return what all CALLS answer."""
        return [self.answer(tool, arguments) for tool, arguments in CALLS]

    def left(self) -> list[Sequence[object]]:
        """Return what is set, prepared or created in a session of PgBouncer."""
        return [
            row for url in self.urls for row in self.shop.portal.call(in_sessions, url, self.sessions, LEFT)
        ]

    def leave(self, statements: str) -> None:
        """Run *statements* in all sessions of PgBouncer, which then keep what they set and create."""
        for url in self.urls:
            self.shop.portal.call(_leave, url, self.sessions, statements)


#: Settings of PgBouncer in; a database that is served through it out.
ServePooled = Callable[..., AbstractContextManager[Pooled]]


async def in_sessions(url: str, number: int, sql: str) -> list[Sequence[object]]:
    """Return the rows of *sql* in so many sessions of PgBouncer at *url*, in use at the same time."""
    clients: list[Any] = [await asyncpg.connect(url) for _ in range(number)]
    for client in clients:
        await client.execute("begin")
    rows: list[Sequence[object]] = [tuple(row) for client in clients for row in await client.fetch(sql)]
    for client in clients:
        await client.execute("rollback")
        await client.close()
    return rows


async def _leave(url: str, number: int, statements: str) -> None:
    """Run *statements* in so many sessions of PgBouncer at *url*, one after the other."""
    client = await asyncpg.connect(url)
    for _ in range(number):
        with suppress(asyncpg.DuplicatePreparedStatementError):
            await client.execute(statements)
    await client.close()


@pytest.fixture
def serve_pooled(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    postgresql_login: Callable[..., AbstractContextManager[str]],
    portal: BlockingPortal,
    tmp_path: Path,
) -> ServePooled:
    """Return a factory: settings of PgBouncer in, a database that is served through it out."""
    granted = "grant select on all tables in schema public to {}; grant usage on schema elsewhere to {}"

    @contextmanager
    def serve(**settings: str) -> Iterator[Pooled]:
        with (
            postgresql_database(DDL) as url,
            postgresql_login(url, f"{granted}; grant pg_monitor to {{}}") as login,
            portal.wrap_async_context_manager(pgbouncer(url, **settings)) as writing,
        ):
            reading = urlsplit(writing)._replace(netloc=netloc_of(login, writing)).geturl()
            bare = open_bare("postgresql", url, portal)
            assert isinstance(bare, BarePostgresql)
            urls, sessions = (reading, writing), SESSIONS if settings == SPREAD else 1
            for each in urls:
                portal.call(in_sessions, each, sessions, "select 1")

            @contextmanager
            def opened() -> Iterator[Pooled]:
                with open_query_shop(reading, tmp_path, QUERIES, RULES, portal, writing) as shop:
                    yield Pooled(shop=shop, bare=bare, urls=urls, sessions=sessions, served_again=opened)

            with opened() as pooled:
                yield pooled
            bare.close()

    return serve


@pytest.fixture(params=[SPREAD, SHARED], ids=["many sessions", "one session"])
def pooled(request: pytest.FixtureRequest, serve_pooled: ServePooled) -> Iterator[Pooled]:
    """Yield a served database behind PgBouncer, with many sessions or one."""
    with serve_pooled(**request.param) as pooled:
        yield pooled


def test_calls_leave_nothing_in_a_session(pooled: Pooled) -> None:
    started = pooled.bare.rows(LOCKS)
    answers = pooled.answers()
    for does in TRACES:
        pooled.answer("update_things", {"id": 1, "set": {"v": does}})
        pooled.answer("update_things", {"id": 1, "set": {"v": does}, "dry_run": True})

    assert started == pooled.bare.rows(LOCKS) == []
    assert [each for each in answers if isinstance(each, str)] == ["no_row"]
    assert pooled.left() == []


def test_session_in_which_an_operators_function_has_run_ends(pooled: Pooled) -> None:
    async def ended(process: int) -> None:
        with anyio.fail_after(60):
            while await pooled.bare.connection.fetch("select from pg_stat_activity where pid = $1", process):
                await anyio.lowlevel.checkpoint()

    for _ in range(4):
        ((process,),) = rows_of(pooled.shop.call("run_sql", REMEMBERED, role="reader").structured)
        assert isinstance(process, int)
        pooled.shop.portal.call(ended, process)

    assert pooled.shop.rows("mine", {}, role="reader") != []


@pytest.mark.parametrize("leaves", LEAVES.values(), ids=LEAVES)
def test_what_another_client_leaves_in_a_session_changes_no_answer(
    serve_pooled: ServePooled, leaves: str
) -> None:
    with serve_pooled(**SHARED) as pooled:
        before = pooled.answers()
        pooled.leave(leaves)
        after = pooled.answers()
        pooled.leave(leaves)
        pooled.shop.refresh()
        refreshed = pooled.answers()
        pooled.leave(leaves)
        with pooled.served_again() as again:
            renewed = again.answers()

    assert [each for each in before if isinstance(each, str)] == ["no_row"]
    assert after == before
    assert refreshed == before
    assert renewed == before


def test_session_with_a_statement_of_another_client_serves_nothing(serve_pooled: ServePooled) -> None:
    with serve_pooled(**SHARED) as pooled:
        before = pooled.answers()
        pooled.leave("prepare trap as select 1")
        after = pooled.answers()
        later = pooled.answers()

    assert [each for each, other in zip(after, before, strict=True) if each not in (other, "refused")] == []
    assert later == before


def test_callers_at_the_same_time_see_their_own_rows(pooled: Pooled) -> None:
    owners = ("ann", "bob", "nobody") * 8

    async def notes(owner: str) -> object:
        caller = Caller(role="owner", claims={"owner": owner})
        return (await pooled.shop.toolbox.call(caller, "list_notes", {})).structured["rows"]

    async def all_notes() -> list[object]:
        return await asyncio.gather(*map(notes, owners))

    expected = {"ann": [[1, "ann"]], "bob": [[2, "bob"]], "nobody": []}
    assert pooled.shop.portal.call(all_notes) == [expected[owner] for owner in owners]


def test_statement_that_pgbouncer_has_given_up_is_prepared_again(
    serve_pooled: ServePooled,
) -> None:
    with serve_pooled(max_prepared_statements="5", **SHARED) as pooled:
        answers = [pooled.answers() for _ in range(3)]

    assert [each for each in answers[0] if isinstance(each, str)] == ["no_row"]
    assert answers[1:] == answers[:1] * 2


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("list_endless", {}),
        ("run_sql", {"sql": "select count(*) from orders a, orders b, generate_series(1, 1000000000) c"}),
    ],
)
def test_cancelled_call_is_stopped_in_the_database_and_no_other(
    pooled: Pooled, tool: str, arguments: Mapping[str, object]
) -> None:
    async def cancelled() -> None:
        call = pooled.shop.toolbox.call(Caller(role="reader"), tool, arguments)
        task = asyncio.ensure_future(call)
        with anyio.fail_after(60):
            while not await pooled.bare.connection.fetch(ACTIVE):
                await anyio.lowlevel.checkpoint()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with anyio.fail_after(60):
            while await pooled.bare.connection.fetch(ACTIVE):
                await anyio.lowlevel.checkpoint()

    for _ in range(3):
        pooled.shop.portal.call(cancelled)
        assert pooled.shop.rows("mine", {}, role="reader") != []
