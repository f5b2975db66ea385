"""What dbtools has to do with Alembic: a hook for migrations of yours, and the tables of a registry.

In the env.py of your own migrations, this tells servers at once of what they change:

from dbtools.alembic import notify

context.configure(..., on_version_apply=notify)
"""

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError

import dbtools
from dbtools import errors
from dbtools.backends import announcement_of, open_backend

PACKAGE = Path(dbtools.__file__).parent
BRANCHES = ("registry", "sample")  #: the sample's as well: its database has both


def notify(ctx: Any, *_: object, **__: object) -> None:
    """Tell servers, in the transaction of the migration itself: they hear of it when that is committed.

    A hook for `on_version_apply` of Alembic's `EnvironmentContext.configure`; *ctx* is its MigrationContext.
    Where the database has nothing to tell with, servers look, and this does nothing. Offline it becomes a
    part of the script.
    """
    statement = announcement_of(ctx.dialect.name)
    if statement is not None:
        ctx.impl.execute(statement)


def upgrade(url: str) -> None:
    """Give the database at *url* the tables of a registry, or bring those that it has up to date.

    Raise ConfigurationError, with the database's own words, where that cannot be. There must be no loop.
    """
    try:
        command.upgrade(_config(url), "registry@head")
    except CommandError as exc:
        raise errors.ConfigurationError(
            f"The registry cannot be upgraded: {exc}.", hint="A newer dbtools may have made it."
        ) from exc
    except sa.exc.DBAPIError as exc:
        words = str(exc.orig).rpartition(">: ")[2]
        raise errors.ConfigurationError(f"The registry cannot be upgraded: {words}.") from exc


def _config(url: str) -> Config:
    config = Config()
    # In the package where it is installed, else beside it.
    folder = next(each for each in (PACKAGE / "migrations", PACKAGE.parent / "migrations") if each.is_dir())
    versions = "\n".join(str(folder / each) for each in BRANCHES)
    for option, value in (("script_location", str(folder)), ("version_locations", versions)):
        config.set_main_option(option, value.replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    config.attributes["engine"] = open_backend(url).open_engine()
    return config
