"""What surrounds each read on PostgreSQL: it writes and leaves nothing, and tells of one schema."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest
from anyio.from_thread import BlockingPortal

from dbtools.backends.port import Run
from dbtools.backends.postgresql.changes import CHANNEL
from dbtools.errors import DbtoolsError, SchemaChanged
from dbtools.policy import Caller
from dbtools.service.serving import open_toolbox
from dbtools.settings import DatabaseSection, LimitsSection, Settings, load
from dbtools.statement import Output, Select
from tests.database.conftest import Serve
from tests.database.poolers import Swapping, swapping_proxy
from tests.database.shop import Shop, open_shop, rows_of
from tests.postgresql_server import LOGIN, PostgresqlServer, open_cluster
from tests.secure_server import SecureServer

PATIENCE = 20  #: seconds
SURROUNDINGS = ("transaction_read_only", "transaction_isolation", "statement_timeout", "search_path")
SHOWN = ", ".join(f"current_setting('{name}') as {name}" for name in SURROUNDINGS)
#: A login whose sessions and transactions begin as they should not.
DDL = f"""
create view surroundings as select {SHOWN};
create table t (id integer primary key, v text);
insert into t values (1, 'one');
create function arm() returns text language sql volatile as $$
    select concat(
        set_config('default_transaction_read_only', 'off', false),
        set_config('search_path', 'nowhere', false),
        set_config('statement_timeout', '0', false),
        set_config('lock_timeout', '0', false)
    )
$$;
create view arming as select arm() as v;
create table guarded (id integer primary key); insert into guarded values (1);
alter table guarded enable row level security;
create policy own on guarded using (arm() is not null);
create function write() returns text language sql volatile as $$
    insert into t values (2, 'two') returning v
$$;
create view writing as select write() as v;
create function poison() returns text language plpgsql volatile as $$
declare name text;
begin
    for name in select p.name from pg_prepared_statements as p where p.parameter_types = '{{}}' loop
        execute format('deallocate %I', name);
        execute format('prepare %I as insert into public.t values (3, null)', name);
    end loop;
    return 'done';
end
$$;
create view poisoning as select poison() as v;
create function fail_poisoned() returns text language plpgsql volatile as $$
begin
    perform poison(), pg_advisory_lock(8);
    raise exception 'failed';
end
$$;
create view failing as select fail_poisoned() as v;
create table secured (id integer primary key); insert into secured values (1);
alter table secured enable row level security;
create policy own on secured using (poison() is not null);
create table plain (id integer primary key); insert into plain values (1);
create view locking as select pg_advisory_lock(7)::text as v;
create function tell() returns text language sql volatile as $$
    select pg_notify('{CHANNEL}', 'from a view')::text
$$;
create view telling as select tell() as v;
create view keeping as select lo_create(0) as v;
"""
UNSAFE = """
alter database {name} set default_transaction_isolation = 'repeatable read';
alter database {name} set default_transaction_read_only = on
"""
EXPECTED = ["on", "read committed", "10s", "public"]
#: So long that rows come in batches.
LONG = LimitsSection(max_cell=100_000)


@pytest.fixture
def url(
    postgresql_server: PostgresqlServer, postgresql_database: Callable[[str], AbstractContextManager[str]]
) -> Iterator[str]:
    """Give a database of such a login."""
    with postgresql_database(DDL) as url:
        postgresql_server.execute(UNSAFE.format(name=url.rpartition("/")[2]), url=postgresql_server.url)
        yield url


def _settings_after(shop: Shop, view: str) -> list[Any]:
    """Return what is set on the connection on which *view* has been read."""
    shop.rows(view)
    return shop.portal.call(_settings, shop)


async def _settings(shop: Shop) -> list[Any]:
    """Return what is set on the connection that the last call has used."""
    runner: Any = await shop.database.runner()
    names = ", ".join(
        f"'{name}'" for name in (*SURROUNDINGS, "default_transaction_read_only", "lock_timeout")
    )
    async with runner._pool.connection() as connection:
        assert not connection.is_in_transaction()
        rows = await connection.fetch(f"select current_setting(n) from unnest(array[{names}]) as n")
    return [value for (value,) in rows]


@pytest.mark.parametrize("limits", [LimitsSection(), LONG], ids=["at once", "in batches"])
def test_each_read_is_in_a_transaction_that_only_reads(
    limits: LimitsSection, url: str, portal: BlockingPortal
) -> None:
    with open_shop("postgresql", url, portal, limits) as shop:
        answers = [shop.rows("surroundings") for _ in range(3)]

    assert answers == [[EXPECTED]] * 3


async def test_read_of_a_role_and_of_a_request_is_in_such_a_transaction(url: str, tmp_path: Path) -> None:
    path = tmp_path / "dbtools.toml"
    path.write_text(
        f'[database]\nurl = "{url}"\nrequest_id = "comment"\n'
        '[roles.some]\ntables."*" = true\nsettings = { "app.from" = "dbtools" }\n'
    )
    toolbox, database = open_toolbox(load(path))
    try:
        pages = [await toolbox.call(Caller(role="some"), "list_surroundings", {}) for _ in range(3)]
    finally:
        await database.close()

    assert [rows_of(page.structured) for page in pages] == [[EXPECTED]] * 3


def test_session_is_as_before_where_a_view_has_changed_it(url: str, portal: BlockingPortal) -> None:
    with open_shop("postgresql", url, portal) as shop:
        before = _settings_after(shop, "t")
        after = _settings_after(shop, "arming")

        with pytest.raises(DbtoolsError) as refused:
            shop.rows("writing")
        assert (refused.value.code, shop.rows("t")) == ("refused", [[1, "one"]])
        assert after == before
        assert shop.rows("surroundings") == [EXPECTED]


def test_session_is_as_before_where_row_security_has_changed_it(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    postgresql_login: Callable[[str, str], AbstractContextManager[str]],
    portal: BlockingPortal,
) -> None:
    grants = "grant select on guarded, surroundings to {}"
    with (
        postgresql_database(DDL) as url,
        postgresql_login(url, grants) as login,
        open_shop("postgresql", login, portal) as shop,
    ):
        before = _settings_after(shop, "surroundings")
        after = _settings_after(shop, "guarded")

        assert after == before
        assert (shop.rows("guarded"), shop.rows("surroundings")) == ([[1]], [EXPECTED])


#: A column whose own "=" is a function of the database's users, beside the types of the server.
OPERATOR = """
create table named (id integer primary key, name varchar); insert into named values (1, 'x');
create function same(varchar, varchar) returns boolean language sql volatile as 'select poison() is not null';
create operator = (leftarg = varchar, rightarg = varchar, function = same);
"""
NAMED = [{"column": "name", "value": "x"}]


@pytest.mark.parametrize(
    ("table", "where", "ddl"),
    [
        pytest.param("poisoning", [], "", id="a view"),
        pytest.param("failing", [], "", id="a view that fails then"),
        pytest.param("secured", [], "", id="a policy"),
        pytest.param("named", NAMED, OPERATOR, id="an operator"),
    ],
)
def test_connection_on_which_a_function_has_prepared_statements_serves_nobody_else(
    table: str,
    where: list[object],
    ddl: str,
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    postgresql_login: Callable[[str, str], AbstractContextManager[str]],
    portal: BlockingPortal,
) -> None:
    with (
        postgresql_database(DDL + ddl) as url,
        postgresql_login(url, "grant select on all tables in schema public to {}") as login,
        open_shop("postgresql", login, portal) as shop,
    ):
        before = shop.rows("t")
        with pytest.raises(DbtoolsError) as refused:
            shop.rows(table, where=where)
        after = [shop.rows("t") for _ in range(3)]

        assert refused.value.code == "unreadable"
        assert after == [before] * 3
        # It is read by a statement that has not been prepared yet.
        assert shop.rows("plain") == [[1]]


@pytest.mark.parametrize(("view", "lock"), [("locking", 7), ("failing", 8)])
def test_lock_that_a_view_takes_ends_with_its_call(
    view: str, lock: int, url: str, portal: BlockingPortal
) -> None:
    with open_shop("postgresql", url, portal) as shop:
        with suppress(DbtoolsError):
            shop.rows(view)

        assert shop.bare.rows(f"select pg_try_advisory_lock({lock})") == [(True,)]


def test_view_that_notifies_is_not_heard(url: str, portal: BlockingPortal) -> None:
    heard: list[str] = []

    async def told() -> list[str]:
        listener = await asyncpg.connect(url)
        more = anyio.Event()

        def hear(*notification: object) -> None:
            heard.append(str(notification[-1]))
            more.set()

        await listener.add_listener(CHANNEL, hear)
        await shop.toolbox.call(Caller(), "list_telling", {})
        await listener.execute(f"notify {CHANNEL}, 'from elsewhere'")
        with anyio.fail_after(PATIENCE):
            await more.wait()
        await listener.close()
        return heard

    with open_shop("postgresql", url, portal) as shop:
        assert portal.call(told) == ["from elsewhere"]


def test_large_object_of_a_view_is_not_kept(
    url: str, portal: BlockingPortal, postgresql_server: PostgresqlServer
) -> None:
    code = ""
    with open_shop("postgresql", url, portal) as shop:
        try:
            shop.rows("keeping")
        except DbtoolsError as exc:
            code = exc.code

        assert code == ("refused" if postgresql_server.version > 15 else "")
        assert shop.bare.rows("select count(*) from pg_largeobject_metadata") == [(0,)]


def test_large_object_is_not_kept_where_the_server_makes_it(
    secure: SecureServer, portal: BlockingPortal
) -> None:
    """Up to version 15 a transaction that only reads may make one."""
    url = f"postgresql://{LOGIN}@127.0.0.1:{secure.port}/postgres"
    with open_shop("postgresql", url, portal) as shop:
        (version,) = shop.bare.rows("select current_setting('server_version_num')::int / 10000")[0]
        if version > 15:
            pytest.skip("a server up to version 15 is not installed")
        shop.bare.execute("create view keeping as select lo_create(0)::text as v")
        try:
            rows = shop.rows("keeping")
            kept = shop.bare.rows("select count(*) from pg_largeobject_metadata")
        finally:
            shop.bare.execute("drop view keeping")

    assert (len(rows), kept) == (1, [(0,)])


async def _migrate(shop: Shop, call: str, lock: str, change: str) -> object:
    """Return the rows of the table *call*, which is called while *change* is about to be made."""
    found: list[object] = []

    async def read() -> None:
        found.extend(rows_of((await shop.toolbox.call(Caller(), f"list_{call}", {})).structured))

    migration = await asyncpg.connect(shop.url)
    watcher = await asyncpg.connect(shop.url)
    await migration.execute("set default_transaction_read_only = off")
    with anyio.fail_after(PATIENCE):
        async with migration.transaction(), anyio.create_task_group() as group:
            await migration.execute(f"lock table {lock} in access exclusive mode")
            group.start_soon(read)
            while not await watcher.fetchval("select count(*) from pg_locks where not granted"):
                await anyio.lowlevel.checkpoint()
            await migration.execute(change)
            await migration.execute("commit; begin")
    await migration.close()
    await watcher.close()
    return found


LATEST = """
create table m (v integer); insert into m values (7);
create function latest() returns integer language plpgsql volatile as $$
    begin return (select v from m); end
$$;
create view newest as select latest() as v;
create table t (id integer primary key, size text); insert into t values (1, '7');
"""
NEW_M = "alter table m rename to old; create table m (v integer); insert into m values (8)"


@pytest.mark.parametrize(
    ("call", "lock", "change", "rows"),
    [
        pytest.param("newest", "m", NEW_M, [[8]], id="function that reads a table"),
        pytest.param("t", "t", "alter table t alter size type integer using size::int", [[1, 7]], id="table"),
    ],
)
def test_read_that_waits_for_a_migration_is_of_what_is_there_afterwards(
    call: str, lock: str, change: str, rows: object, serve: Serve
) -> None:
    with serve("postgresql", LATEST) as shop:
        isolation = "set default_transaction_isolation = 'repeatable read'"
        shop.bare.execute(f"alter database {shop.url.rpartition('/')[2]} {isolation}")
        shop.rows(call)

        assert shop.portal.call(_migrate, shop, call, lock, change) == rows


#: The connections of whoever else is there.
PIDS = """
select pid
from pg_stat_activity
where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
order by pid
"""
#: What a statement reads beneath the table that it names, and how that becomes something else.
BENEATH = {
    "child": (
        "create table things (id integer); create table other (id integer); insert into other values (1);",
        "alter table other inherit things",
    ),
    "view of a view": (
        """
        create table notes (id integer); create table other (id integer); insert into other values (1);
        create view beneath as select id from notes; create view things as select id from beneath;
        """,
        "create or replace view beneath as select id from other",
    ),
    "columns of the same type": (
        "create table things (a text, b text, primary key (a)); ",
        "alter table things rename a to c; alter table things rename b to a"
        "; alter table things rename c to b",
    ),
    "nulls": ("create table things (a integer not null);", "alter table things alter a drop not null"),
}


@asynccontextmanager
async def _running(url: str) -> AsyncIterator[Callable[[str | None], Awaitable[object]]]:
    """Give what reads the table things, as of its version or of another one that is given."""
    toolbox, database = open_toolbox(Settings(database=DatabaseSection(url=url)))
    try:
        tables = (await toolbox.snapshot()).catalog.tables
        table = next(each for each in tables if each.name == "things")
        runner = await database.runner()
        outputs = tuple(Output(term=column, cut=100) for column in table.columns)
        plan = runner.compile(Select(table=table, outputs=outputs))

        async def read(version: str | None = None) -> object:
            run = Run(plan, {}, limit=1, timeout=5, stamp=version or "", versions=(version or table.version,))
            return (await runner.run(run)).rows

        yield read
    finally:
        await database.close()


async def test_statement_is_confirmed_again_for_another_schema(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
) -> None:
    with postgresql_database(THINGS) as url:
        async with _running(url) as read:
            before = [await read(None) for _ in range(3)]
            with pytest.raises(SchemaChanged):
                await read("1 2")
            after = await read(None)

    assert [*before, after] == [((1, "7", "text"),)] * 4


async def test_statement_that_is_found_stale_is_prepared_again_on_its_connection(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
) -> None:
    with postgresql_database(THINGS) as url:
        other = await asyncpg.connect(url)
        async with _running(url) as read:
            before = await read(None), await other.fetch(PIDS)
            await other.execute("alter table things alter id type bigint")
            causes = []
            for _ in range(2):
                with pytest.raises(SchemaChanged) as changed:
                    await read(None)
                causes.append(type(changed.value.__cause__))
            after = await other.fetch(PIDS)
        await other.close()

    assert before == (((1, "7", "text"),), after)
    assert causes == [asyncpg.InvalidCachedStatementError, asyncpg.UndefinedObjectError]


@pytest.mark.parametrize("case", BENEATH)
async def test_change_of_what_is_read_is_found_by_a_statement_that_has_been_confirmed(
    case: str, postgresql_database: Callable[[str], AbstractContextManager[str]]
) -> None:
    ddl, change = BENEATH[case]
    with postgresql_database(ddl) as url:
        other = await asyncpg.connect(url)
        async with _running(url) as read:
            # So often that the server has made a plan for any values.
            before = [await read(None) for _ in range(8)]
            await other.execute(change)
            with pytest.raises(SchemaChanged):
                await read(None)
        await other.close()

    assert before == [()] * 8


async def test_statement_is_prepared_again_where_its_table_has_been_analyzed(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
) -> None:
    with postgresql_database(THINGS) as url:
        toolbox, database = open_toolbox(Settings(database=DatabaseSection(url=url)))
        other = await asyncpg.connect(url)
        try:
            rows = []
            for _ in range(3):
                for _ in range(2):
                    answer = await toolbox.call(Caller(), "list_things", {})
                    rows.append(rows_of(answer.structured))
                await other.execute("analyze things")
            runner: Any = await database.runner()
            async with runner._pool.connection() as connection:
                await connection.prepare("select 'asyncpg closes what is given up now'")
                prepared = await connection.fetch("select statement from pg_prepared_statements")
        finally:
            await other.close()
            await database.close()

    assert rows == [[[1, "7", "text"]]] * 6
    assert len([each for (each,) in prepared if "things" in each]) == 1


#: Each makes the type of a column another one, and says so in the rows.
CHANGES = (
    "alter table things alter size type integer using size::integer; update things set kind = 'integer'",
    """
    create table next (id integer primary key, size text, kind text);
    insert into next values (1, '7', 'text');
    alter table things rename to old; alter table next rename to things; drop table old
    """,
    """
    drop table things; create table things (id integer primary key, size integer, kind text);
    insert into things values (1, 7, 'integer')
    """,
    "alter table things alter size type text; update things set kind = 'text'",
)
THINGS = """
create table things (id integer primary key, size text, kind text);
insert into things values (1, '7', 'text');
"""
ROUNDS, CALLERS = 15, 4


async def _load(shop: Shop) -> tuple[set[object], set[str]]:
    """Return what is answered, and by which codes calls fail, while the table is changed again and again."""
    answers, codes, done = set[object](), set[str](), anyio.Event()

    async def call() -> None:
        answer = await shop.toolbox.call(Caller(), "list_things", {"columns": ["size", "kind"]})
        ((size, kind),) = rows_of(answer.structured)
        answers.add((type(size).__name__, kind))

    async def call_on() -> None:
        while not done.is_set():
            try:
                await call()
            except DbtoolsError as exc:
                codes.add(exc.code)

    migration = await asyncpg.connect(shop.url)
    async with anyio.create_task_group() as group:
        for _ in range(CALLERS):
            group.start_soon(call_on)
        for _ in range(ROUNDS):
            for change in CHANGES:
                await migration.execute(change)
                await call()
        done.set()
    await migration.close()
    return answers, codes


def test_table_that_is_changed_swapped_and_made_again_under_load_is_answered_as_what_it_is(
    serve: Serve,
) -> None:
    with serve("postgresql", THINGS) as shop:
        answers, codes = shop.portal.call(_load, shop)

    assert answers == {("str", "text"), ("int", "integer")}
    assert codes <= {"schema_changed"}


SPANS = "create view spans as select '1 day 2 hours'::interval::text as span"


@pytest.mark.parametrize("replays", [False, True], ids=["forgets statements", "prepares them again"])
async def test_session_that_a_pooler_has_swapped_serves_nothing(
    replays: bool, postgresql_database: Callable[[str], AbstractContextManager[str]], tmp_path: Path
) -> None:
    with postgresql_database(SPANS) as url:
        async with swapping_proxy(url, replays=replays) as pooler:
            answers = await _spans(pooler, tmp_path)

    assert answers == [[["P1DT2H"]]] * 3
    assert pooler.is_due is False


async def _spans(pooler: Swapping, folder: Path) -> list[object]:
    path = folder / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{pooler.url}"\n')
    toolbox, database = open_toolbox(load(path))
    answers: list[object] = []
    try:
        for due in (False, True, False):
            await toolbox.snapshot()
            pooler.is_due = due
            with anyio.fail_after(PATIENCE):
                answers.append(rows_of((await toolbox.call(Caller(), "list_spans", {})).structured))
    finally:
        await database.close()
    return answers


def test_server_that_restarts_is_found_again(portal: BlockingPortal) -> None:
    with open_cluster() as cluster:
        port = cluster.start()
        url = f"postgresql://{LOGIN}@127.0.0.1:{port}/postgres"
        with _stopping(cluster), open_shop("postgresql", url, portal) as shop:
            shop.bare.execute("create table t (id integer primary key); insert into t values (1)")
            shop.bare.execute("checkpoint")
            before = shop.rows("t")
            cluster.stop()
            with pytest.raises(DbtoolsError) as away:
                shop.rows("t")
            cluster._start(port, ())

            assert (before, away.value.code, shop.rows("t")) == ([[1]], "database_unavailable", [[1]])


@contextmanager
def _stopping(cluster: Any) -> Iterator[None]:
    try:
        yield
    finally:
        cluster.stop()
