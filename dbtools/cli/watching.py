"""`dbtools watch`: have a database tell of changes by itself."""

from pathlib import Path

import click

from dbtools.cli.options import ExampleCommand, complaints, run


@click.group(epilog="\b\nExample:\n  dbtools watch install postgres://admin@db/shop")
def watch() -> None:
    """Have a database tell dbtools of changes, at once. Without it dbtools looks from time to time."""


@watch.command(cls=ExampleCommand, example="dbtools watch install postgres://admin@db/shop --apply")
@click.argument("url")
@click.option("--apply", "applied", is_flag=True, help="Run the script, instead of printing it.")
def install(url: str, applied: bool) -> None:
    """Print the script with which the database at URL tells of each change of its schema."""
    with complaints():
        from dbtools.backends import open_backend
        from dbtools.errors import ConfigurationError
        from dbtools.settings import settings_of

        backend = open_backend(settings_of(url, Path.cwd()).database.url)
        script = backend.facts.watch_script
        if script is None:
            raise ConfigurationError(
                "This database has nothing to install: it cannot tell anybody.",
                hint="dbtools looks at it each second, and before each call.",
            )
        if not applied:
            click.echo(script, nl=False)
            return
        run(backend.install_watch)
        click.echo("The database tells of changes from now on.")
