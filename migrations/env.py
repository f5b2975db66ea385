"""Alembic's entry: a URL, an engine or an open connection in, migrated tables out."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from logging.config import fileConfig

import anyio
import sqlalchemy as sa
from alembic import context
from alembic.util import CommandError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from dbtools.alembic import notify
from dbtools.backends.postgresql.registry import HAS_FOREIGN_TYPE, TRUSTED, TRUSTED_PATH

VERSION_TABLE = "dbtools_version"
OWN_PATH = "select pg_catalog.current_setting('search_path')"
SET_PATH = sa.text("select pg_catalog.set_config('search_path', :path, true)")
#: Without an operator: until the search path is set, it could be that of another role.
SCHEMAS = "select pg_catalog.unnest(pg_catalog.current_schemas(false))"
VERSION_SCHEMAS = sa.text("""
select n.nspname
from pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
where c.relname = 'dbtools_version'
    and c.relkind = 'r'
    and n.nspname = any(cast(:schemas as pg_catalog.name[]))
""")

#: Why not to migrate: an untrusted role owns the schema or a table; or a table has code that the migration
#: would run, such as triggers, and neither the login nor a superuser owns it. The version tables are those in
#: `:schemas`. The permitted expressions are those of the registry's tables.
OBJECTIONS = f"""{TRUSTED},
found as (
    select
        c.oid,
        c.relowner as owner,
        pg_catalog.format('%I.%I', n.nspname, c.relname) as place,
        c.relname in ('dbtools_query', 'dbtools_call', 'dbtools_version') and c.relkind <> 'r'
        or c.relkind in ('r', 'p', 'f')
        and (c.relhasrules or c.relhastriggers or c.relrowsecurity or c.relhassubclass) as runs_code,
        {HAS_FOREIGN_TYPE} as has_foreign_type,
        (o.rolname = session_user or o.rolsuper) and c.relname <> 'dbtools_version' as own
    from pg_catalog.pg_class as c
    join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
    join pg_catalog.pg_roles as o on o.oid = c.relowner
    where c.relkind in ('r', 'p', 'v', 'm', 'f')
        and (
            n.nspname = 'dbtools'
            or c.relname = 'dbtools_version'
            and n.nspname = any(cast(:schemas as pg_catalog.name[]))
        )
),
expressions (relation, text) as (
    select k.conrelid, pg_catalog.pg_get_expr(k.conbin, k.conrelid)
    from pg_catalog.pg_constraint as k
    where k.contype = 'c'
    union all
    select d.adrelid, pg_catalog.pg_get_expr(d.adbin, d.adrelid)
    from pg_catalog.pg_attrdef as d
    union all
    select i.indrelid, ''
    from pg_catalog.pg_index as i
    where i.indexprs is not null
        or i.indpred is not null
)
select 'an untrusted role owns the schema dbtools'
from pg_catalog.pg_namespace as n
where n.nspname = 'dbtools'
    and n.nspowner not in (select t.role from trusted as t)
union all
select pg_catalog.concat('an untrusted role owns ', f.place)
from found as f
where f.owner not in (select t.role from trusted as t)
union all
select pg_catalog.concat(f.place, ' has triggers, checks, defaults or other code that would run')
from found as f
where not f.own
    and (
        f.runs_code
        or f.has_foreign_type
        or exists (
            select
            from expressions as e
            where e.relation = f.oid
                and e.text not in ('(version >= 1)', 'true')
        )
    )
"""


def migrate(connection: sa.Connection) -> None:
    """Run the requested revisions on *connection*, each in its own transaction."""
    if connection.dialect.name != "postgresql":
        _run(connection, schema=None, own_schemas=())
        return
    is_callers = connection.in_transaction()
    own_path = connection.exec_driver_sql(OWN_PATH).scalar_one()
    own_schemas = _own_schemas(connection)
    with _pinned(connection):
        schema = _version_schema(connection, own_schemas)
        if not is_callers:
            connection.commit()
        _run(connection, schema=schema, own_schemas=own_schemas)
    if is_callers:
        connection.execute(SET_PATH, {"path": own_path})


@contextmanager
def _pinned(connection: sa.Connection) -> Iterator[None]:
    """Set the search path in each transaction: a pooler would pass a session's path on to other clients."""

    def pin(begun: sa.Connection) -> None:
        begun.execute(SET_PATH, {"path": TRUSTED_PATH})

    pin(connection)
    sa.event.listen(connection, "begin", pin)
    try:
        yield
    finally:
        sa.event.remove(connection, "begin", pin)


def _run(connection: sa.Connection, *, schema: str | None, own_schemas: Sequence[str]) -> None:
    context.configure(
        connection=connection,
        version_table=VERSION_TABLE,
        version_table_schema=schema,
        transactional_ddl=True,
        transaction_per_migration=True,
        on_version_apply=notify,
        own_schemas=own_schemas,  # for revisions, by the `opts` of their context
    )
    with context.begin_transaction():
        context.run_migrations()


def _own_schemas(connection: sa.Connection) -> Sequence[str]:
    """Return the schemas of the login's search path that tables may go into."""
    names = connection.exec_driver_sql(SCHEMAS).scalars().all()
    # A search path begins with the schema that has the name of the login. For a login named dbtools, this is
    # the schema of the registry, which must not get the tables of the sample.
    schemas = [name for name in names if name != "dbtools" and not name.startswith("pg_")]
    if not schemas:
        raise CommandError("the search path of the login has no schema")
    return schemas


def _version_schema(connection: sa.Connection, own_schemas: Sequence[str]) -> str:
    """Return the schema of the version table, created if it does not exist; or raise CommandError."""
    schemas = {"schemas": list(own_schemas)}
    objection = connection.execute(sa.text(OBJECTIONS), schemas).scalars().first()
    if objection is not None:
        raise CommandError(objection)
    found = connection.execute(VERSION_SCHEMAS, schemas).scalars().all()
    for schema in own_schemas:
        if schema in found:
            return schema
    # Alembic would use one that another role has created in the meantime.
    sa.Table(
        VERSION_TABLE,
        sa.MetaData(),
        sa.Column("version_num", sa.String(32), nullable=False),
        sa.PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
        schema=own_schemas[0],
    ).create(connection, checkfirst=False)
    return own_schemas[0]


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
    # sqlite3 opens no transaction before DDL, so a failing revision would leave its first statements applied.
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
