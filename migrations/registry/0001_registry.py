"""The registry: permitted queries, the log of calls, and the journal of writes.

The journal makes sure that a confirmed change, or one with an idempotency key, is made once.
"""

from collections.abc import Mapping, Sequence

from alembic import op

revision = "registry_0001"
down_revision = None
branch_labels = ("registry",)
depends_on = None

SQLITE_TABLES = (
    """
create table dbtools_query ( -- Permitted queries: the highest version of a name is the current one.
  name text not null,
  version integer not null check (version >= 1),
  text text not null, -- The whole query, as in a .sql file
  enabled boolean not null default true check (enabled in (0, 1)),
  changed_at datetime not null, -- UTC
  primary key (name, version)
)
""",
    """
create table dbtools_call ( -- The calls of tools, one row each; null is unknown.
  id integer primary key,
  time datetime not null, -- UTC
  identity text,
  role text,
  tool text,
  arguments json,
  rows integer,
  bytes integer,
  truncated boolean,
  affected integer,
  dry_run boolean,
  changes json,
  confirmed text,
  duration real, -- Seconds
  outcome text not null,
  code text,
  protocol text,
  client text
)
""",
    "create index dbtools_call_time on dbtools_call (time)",
    """
create table dbtools_write ( -- Changes that must not be made twice, for 24 hours.
  id text not null primary key,
  caller text not null, -- JSON: role and identity
  tool text not null,
  key text, -- The idempotency key
  arguments text not null, -- A digest
  seconds integer not null, -- Since 1970
  affected integer,
  keys text, -- JSON: the keys of the changed rows
  unique (caller, tool, key)
)
""",
    "create index dbtools_write_seconds on dbtools_write (seconds)",
)
POSTGRESQL_TABLES = (
    """
create table dbtools.dbtools_query (
  name text not null,
  version integer not null check (version >= 1),
  text text not null,
  enabled boolean not null default true,
  changed_at timestamptz not null,
  primary key (name, version)
)
""",
    """
comment on table dbtools.dbtools_query is
  'Permitted queries: the highest version of a name is the current one.'
""",
    "comment on column dbtools.dbtools_query.text is 'The whole query, as in a .sql file'",
    """
create table dbtools.dbtools_call (
  id bigint generated always as identity primary key,
  time timestamptz not null,
  identity text,
  role text,
  tool text,
  arguments jsonb,
  rows bigint,
  bytes bigint,
  truncated boolean,
  affected bigint,
  dry_run boolean,
  changes jsonb,
  confirmed text,
  duration double precision,
  outcome text not null,
  code text,
  protocol text,
  client text
)
""",
    "comment on table dbtools.dbtools_call is 'The calls of tools, one row each; null is unknown.'",
    "comment on column dbtools.dbtools_call.duration is 'Seconds'",
    "create index dbtools_call_time on dbtools.dbtools_call (time)",
    """
create table dbtools.dbtools_write (
  id text primary key,
  caller text not null,
  tool text not null,
  key text,
  arguments text not null,
  seconds bigint not null,
  affected bigint,
  keys text,
  unique (caller, tool, key)
)
""",
    "comment on table dbtools.dbtools_write is 'Changes that must not be made twice, for 24 hours.'",
    "comment on column dbtools.dbtools_write.caller is 'JSON: role and identity'",
    "comment on column dbtools.dbtools_write.key is 'The idempotency key'",
    "comment on column dbtools.dbtools_write.arguments is 'A digest'",
    "comment on column dbtools.dbtools_write.seconds is 'Since 1970'",
    "comment on column dbtools.dbtools_write.keys is 'JSON: the keys of the changed rows'",
    "create index dbtools_write_seconds on dbtools.dbtools_write (seconds)",
)
TABLES: Mapping[str, Sequence[str]] = {"sqlite": SQLITE_TABLES, "postgresql": POSTGRESQL_TABLES}
HAS_SCHEMA = "select pg_catalog.to_regnamespace('dbtools') is not null"
#: Whether anything is left in the schema.
IS_USED = """
select exists (
  select
  from pg_catalog.pg_depend
  where refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass
  and refobjid = 'dbtools'::pg_catalog.regnamespace
)
"""


def upgrade() -> None:
    """Create the tables; on PostgreSQL in the schema dbtools, which is created if it does not exist."""
    connection = op.get_bind()
    dialect = connection.dialect.name
    # "if not exists" would require the privilege to create schemas even if the schema exists.
    if dialect == "postgresql" and not connection.exec_driver_sql(HAS_SCHEMA).scalar():
        connection.exec_driver_sql("create schema dbtools")
    for statement in TABLES[dialect]:
        connection.exec_driver_sql(statement.strip())


def downgrade() -> None:
    """Drop the tables, and the schema if nothing else is in it."""
    connection = op.get_bind()
    schema = "dbtools." if connection.dialect.name == "postgresql" else ""
    for table in ("dbtools_write", "dbtools_call", "dbtools_query"):
        connection.exec_driver_sql(f"drop table {schema}{table}")
    if schema and not connection.exec_driver_sql(IS_USED).scalar():
        connection.exec_driver_sql("drop schema dbtools")
