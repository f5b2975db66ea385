"""The journal of writes, so that a confirmed change, or one with an idempotency key, is made once."""

from collections.abc import Mapping, Sequence

from alembic import op

revision = "registry_0003"
down_revision = "registry_0002"
branch_labels = None
depends_on = None

SQLITE_TABLES = (
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


def upgrade() -> None:
    """Create the table."""
    connection = op.get_bind()
    for statement in TABLES[connection.dialect.name]:
        connection.exec_driver_sql(statement.strip())


def downgrade() -> None:
    """Drop the table."""
    connection = op.get_bind()
    schema = "dbtools." if connection.dialect.name == "postgresql" else ""
    connection.exec_driver_sql(f"drop table {schema}dbtools_write")
