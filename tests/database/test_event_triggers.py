"""`dbtools watch install`: only a superuser can change what runs with the rights of a migration's user."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import asyncpg

from dbtools.backends import open_backend
from dbtools.backends.postgresql.connection.connections import connect

OWNER = """
select r.rolsuper
from pg_catalog.pg_proc as f
join pg_catalog.pg_roles as r on r.oid = f.proowner
where f.proname = 'dbtools_notify_schema'
"""
FOREIGN = "create function dbtools_notify_schema() returns event_trigger language plpgsql as 'begin end'"


async def test_function_of_another_owner_is_replaced(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    postgresql_login: Callable[[str, str], AbstractContextManager[str]],
) -> None:
    with (
        postgresql_database("create table t (id integer)") as url,
        postgresql_login(url, "grant create on schema public to {}") as login,
    ):
        foreign = await asyncpg.connect(login)
        await foreign.execute(FOREIGN)
        await foreign.close()
        await open_backend(url).install_watch()
        connection = await connect(url)
        owners = [owner for (owner,) in await connection.fetch(OWNER)]
        await connection.close()

    assert owners == [True]
