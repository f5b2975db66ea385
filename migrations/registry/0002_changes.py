"""The log of calls: what they change."""

from alembic import op

revision = "registry_0002"
down_revision = "registry_0001"
branch_labels = None
depends_on = None

COLUMNS = {
    "sqlite": ("affected integer", "dry_run boolean", "changes json", "confirmed text"),
    "postgresql": ("affected bigint", "dry_run boolean", "changes jsonb", "confirmed text"),
}
TABLES = {"sqlite": "dbtools_call", "postgresql": "dbtools.dbtools_call"}


def upgrade() -> None:
    """Add the columns, null for the calls so far: servers of the version before still write to the table."""
    connection = op.get_bind()
    dialect = connection.dialect.name
    for column in COLUMNS[dialect]:
        connection.exec_driver_sql(f"alter table {TABLES[dialect]} add column {column}")


def downgrade() -> None:
    """Drop the columns."""
    connection = op.get_bind()
    dialect = connection.dialect.name
    for column in COLUMNS[dialect]:
        connection.exec_driver_sql(f"alter table {TABLES[dialect]} drop column {column.split()[0]}")
