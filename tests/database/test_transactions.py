"""Each read runs in a read-only transaction, and leaves nothing behind in its session."""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest
from anyio.from_thread import BlockingPortal

from dbtools.backends.postgresql.schema.changes import CHANNEL
from dbtools.errors import DbtoolsError
from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from dbtools.settings import LimitsSection, load
from tests.database.shop import Shop, open_shop, pool_of, rows_of
from tests.database.transaction_views import DDL, PATIENCE, SURROUNDINGS, url as url
from tests.postgresql_server import LOGIN, PostgresqlServer
from tests.secure_server import SecureServer

EXPECTED = ["on", "read committed", "10s", "public"]
#: So long that rows come in batches.
LONG = LimitsSection(max_cell=100_000)


def _settings_after(shop: Shop, view: str) -> list[Any]:
    """Return what is set on the connection on which *view* has been read."""
    shop.rows(view)
    return shop.portal.call(_settings, shop)


async def _settings(shop: Shop) -> list[Any]:
    """Return what is set on the connection that the last call has used."""
    names = ", ".join(
        f"'{name}'" for name in (*SURROUNDINGS, "default_transaction_read_only", "lock_timeout")
    )
    async with (await pool_of(shop.database)).connection() as connection:
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


RULES = """
create rule more as on insert to plain do also insert into t values (new.id, 'a rule');
create rule none as on update to plain do instead nothing;
create rule other as on delete to plain do instead select arm()
"""


def test_rules_of_a_table_change_neither_its_rows_nor_the_session(url: str, portal: BlockingPortal) -> None:
    with open_shop("postgresql", url, portal) as shop:
        before = shop.rows("plain"), _settings_after(shop, "plain")
        shop.bare.execute("set default_transaction_read_only = off")
        shop.bare.execute(RULES)
        after = shop.rows("plain"), _settings_after(shop, "plain")

        assert after == before
        assert (shop.rows("plain"), shop.rows("t")) == ([[1]], [[1, "one"]])


@pytest.mark.parametrize(
    "table",
    [
        pytest.param("poisoning", id="a view"),
        pytest.param("failing", id="a view that fails then"),
        pytest.param("secured", id="a policy"),
    ],
)
def test_connection_with_statements_of_a_function_is_not_reused(
    table: str,
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    postgresql_login: Callable[[str, str], AbstractContextManager[str]],
    portal: BlockingPortal,
) -> None:
    with (
        postgresql_database(DDL) as url,
        postgresql_login(url, "grant select on all tables in schema public to {}") as login,
        open_shop("postgresql", login, portal) as shop,
    ):
        before = shop.rows("t")
        with pytest.raises(DbtoolsError) as refused:
            shop.rows(table)
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
