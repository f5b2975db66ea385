"""For the env.py of a user's own migrations: have dbtools told at once of what they change.

from dbtools.alembic import notify

context.configure(..., on_version_apply=notify)
"""

from typing import Any

from dbtools.backends import announcement_of


def notify(ctx: Any, *_: object, **__: object) -> None:
    """Tell servers, in the transaction of the migration itself: they hear of it when that is committed.

    A hook for `on_version_apply` of Alembic's `EnvironmentContext.configure`; *ctx* is its MigrationContext.
    Where the database has nothing to tell with, servers look, and this does nothing. Offline it becomes a
    part of the script.
    """
    statement = announcement_of(ctx.dialect.name)
    if statement is not None:
        ctx.impl.execute(statement)
