"""The tables of a registry: the URL of a database in, which has them then, by the history in `migrations`."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError

import dbtools
from dbtools import errors
from dbtools.backends import open_backend

PACKAGE = Path(dbtools.__file__).parent
BRANCHES = ("registry", "sample")  #: the sample's as well: its database has both


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


def migrations() -> Path:
    """Return the folder of the migrations: in the package where it is installed, else beside it."""
    inside = PACKAGE / "migrations"
    return inside if inside.is_dir() else PACKAGE.parent / "migrations"


def _config(url: str) -> Config:
    config = Config()
    folder = migrations()
    config.set_main_option("script_location", _written(str(folder)))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", _written("\n".join(str(folder / each) for each in BRANCHES)))
    config.attributes["engine"] = open_backend(url).open_engine()
    return config


def _written(value: str) -> str:
    return value.replace("%", "%%")
