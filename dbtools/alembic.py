"""Alembic: a hook for your own migrations, and the migrations of the registry.

In the env.py of your migrations, this notifies servers of each schema change immediately:

from dbtools.alembic import notify

context.configure(..., on_version_apply=notify)
"""

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script.revision import ResolutionError
from alembic.util import CommandError

import dbtools
from dbtools import errors
from dbtools.backends import announcement_of, open_backend
from dbtools.backends.records import OTHER_REVISION

PACKAGE = Path(dbtools.__file__).parent
BRANCHES = ("registry", "sample")  #: both, since the sample database has both


def notify(ctx: Any, *_: object, **__: object) -> None:
    """Notify servers in the transaction of the migration: the notification is sent at COMMIT.

    A hook for `on_version_apply` of Alembic's `EnvironmentContext.configure`; *ctx* is its MigrationContext.
    It does nothing for a database without notifications, which servers poll. Offline, it becomes a part of
    the script.
    """
    statement = announcement_of(ctx.dialect.name)
    if statement is not None:
        ctx.impl.execute(statement)


def upgrade(url: str) -> None:
    """Create or upgrade the tables of the registry in the database at *url*.

    Raise ConfigurationError, with the message of the database, if that fails. No event loop may be running.
    """
    try:
        command.upgrade(_config(url), "registry@head")
    except CommandError as exc:
        hint = OTHER_REVISION if isinstance(exc.__cause__, ResolutionError) else ""
        raise errors.ConfigurationError(f"The registry cannot be upgraded: {exc}.", hint=hint) from exc
    except sa.exc.DBAPIError as exc:
        words = str(exc.orig).rpartition(">: ")[2]
        raise errors.ConfigurationError(f"The registry cannot be upgraded: {words}.") from exc


def _config(url: str) -> Config:
    config = Config()
    # An installed package contains the folder; in the repository it is beside the package.
    folder = next(each for each in (PACKAGE / "migrations", PACKAGE.parent / "migrations") if each.is_dir())
    versions = "\n".join(str(folder / each) for each in BRANCHES)
    for option, value in (("script_location", str(folder)), ("version_locations", versions)):
        config.set_main_option(option, value.replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.attributes["engine"] = open_backend(url).open_engine()
    return config
