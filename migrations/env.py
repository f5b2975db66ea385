"""Alembic's entry: a URL, an engine or an open connection in, migrated tables out."""

from logging.config import fileConfig

import anyio
import sqlalchemy as sa
from alembic import context
from alembic.util import CommandError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from dbtools.alembic import notify

#: A search path begins with the login's own schema: for a login named dbtools that of the registry, once it
#: is there, and tables of the sample would go into it.
SETTLE = """
select pg_catalog.set_config('search_path', pg_catalog.string_agg(pg_catalog.quote_ident(name), ', '), false)
from pg_catalog.unnest(pg_catalog.current_schemas(false)) as name
where name <> 'dbtools'
"""


#: Whose triggers, rules or policies would run as the login that migrates. A superuser's are trusted.
STRANGE = """
select n.nspname || '.' || c.relname
from pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
join pg_catalog.pg_roles as r on r.oid = c.relowner
where (n.nspname = 'dbtools' or c.relname = 'dbtools_version' and n.nspname = any(current_schemas(false)))
    and c.relkind in ('r', 'p', 'v', 'm', 'f')
    and not r.rolsuper
    and not pg_catalog.pg_has_role(session_user, c.relowner, 'usage')
union all
select n.nspname::text
from pg_catalog.pg_namespace as n
join pg_catalog.pg_roles as r on r.oid = n.nspowner
where n.nspname = 'dbtools'
    and not r.rolsuper
    and not pg_catalog.pg_has_role(session_user, n.nspowner, 'usage')
union all
select n.nspname || '.' || c.relname
from pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
where c.relname = 'dbtools_version'
    and n.nspname = any(current_schemas(false))
    and (c.relhasrules or c.relhastriggers or c.relrowsecurity)
"""


def migrate(connection: sa.Connection) -> None:
    """Run the requested revisions on *connection*, each in a transaction of its own."""
    if connection.dialect.name == "postgresql":
        is_callers = connection.in_transaction()
        strange = connection.exec_driver_sql(STRANGE).scalars().first()
        if strange is not None:
            raise CommandError(f"{strange} is somebody else's, or has triggers, which would run here")
        connection.exec_driver_sql(SETTLE)
        if not is_callers:
            connection.commit()
    context.configure(
        connection=connection,
        version_table="dbtools_version",
        transactional_ddl=True,
        transaction_per_migration=True,
        on_version_apply=notify,
    )
    with context.begin_transaction():
        context.run_migrations()


def migrate_engine(engine: sa.Engine | AsyncEngine) -> None:
    """Open a connection of *engine* and migrate its database."""
    if isinstance(engine, AsyncEngine):
        anyio.run(_migrate_asynchronously, engine)
        return
    _begin_explicitly(engine)
    with engine.connect() as connection:
        migrate(connection)


async def _migrate_asynchronously(engine: AsyncEngine) -> None:
    _begin_explicitly(engine.sync_engine)
    async with engine.connect() as connection:
        await connection.run_sync(migrate)


def _engine() -> sa.Engine | AsyncEngine:
    url = _url()
    create = create_async_engine if url.get_dialect().is_async else sa.create_engine
    return create(url, poolclass=sa.NullPool)


def _begin_explicitly(engine: sa.Engine) -> None:
    # sqlite3 opens no transaction before DDL, so a revision that fails would leave its first half.
    if engine.dialect.name != "sqlite":
        return

    @sa.event.listens_for(engine, "connect")
    def take_over_transactions(connection: sa.engine.interfaces.DBAPIConnection, _: object) -> None:
        connection.isolation_level = None
        connection.execute("pragma foreign_keys = on")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("begin immediate")


def _url() -> sa.URL:
    named = context.get_x_argument(as_dictionary=True).get("url")
    url = sa.make_url(named or context.config.get_main_option("sqlalchemy.url") or "")
    if url.drivername in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+asyncpg")
    return url


def _main() -> None:
    if context.is_offline_mode():
        raise CommandError("these migrations need a database: --sql is not supported")
    # Only the command line sets cmd_opts; a caller in Python keeps the logging it has.
    if context.config.cmd_opts is not None and context.config.config_file_name is not None:
        fileConfig(context.config.config_file_name, disable_existing_loggers=False)
    connection = context.config.attributes.get("connection")
    if connection is not None:
        migrate(connection)
    else:
        migrate_engine(context.config.attributes.get("engine") or _engine())


_main()
