"""`dbtools registry` and `dbtools query`: the permitted queries that a database keeps."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dbtools.cli.options import (
    REFUSED,
    ExampleCommand,
    complaints,
    is_target,
    json_option,
    run,
    settings_for,
    with_toolbox,
)

if TYPE_CHECKING:
    from dbtools.backends.port import Backend
    from dbtools.settings import Settings

QUERY = ".sql"  #: how a file of queries ends, and no TARGET
ONE = "[TARGET] NAME"


@click.group(epilog="\b\nExample:\n  dbtools registry upgrade shop.db")
def registry() -> None:
    """Keep permitted queries in a database: every server on it has them."""


@registry.command(cls=ExampleCommand, example="dbtools registry upgrade shop.db")
@click.argument("url")
def upgrade(url: str) -> None:
    """Give the database at URL the tables of a registry, or bring those that it has up to date.

    They are dbtools_query and dbtools_call, in a schema dbtools where the database has schemas. Tables of
    yours, and a history of migrations of yours, stay as they are.
    """
    with complaints():
        from dbtools.alembic import upgrade as build
        from dbtools.backends.records import LATEST
        from dbtools.cli.presentation import counted
        from dbtools.records.registry import read_entries

        place = _place(settings_for(url))
        build(place)
        entries = run(read_entries, place)
        click.echo(f"The registry is at {LATEST}, with {counted(len(entries), 'query', 'queries')}.")


@click.group(epilog="\b\nExample:\n  dbtools query add sample.db top_customers.sql")
def query() -> None:
    """Keep permitted queries in the registry of TARGET, which `dbtools registry upgrade` makes.

    It is the one that [registry] url of a configuration names, else that of the database itself.
    """


@query.command(cls=ExampleCommand, example="dbtools query add sample.db top_customers.sql")
@click.argument("words", nargs=-1, metavar="[TARGET] FILE…")
def add(words: tuple[str, ...]) -> None:
    """Put the queries in each FILE into the registry of TARGET, once the database understands all of them.

    What a query was before is kept as its previous version. Where one is wrong, none is saved.
    """
    with complaints():
        from dbtools.records.registry import add as save, read_entries

        with_target = bool(words) and is_target(words[0]) and not words[0].lower().endswith(QUERY)
        target, files = (words[0], words[1:]) if with_target else (None, words)
        _check_files(files)
        settings = settings_for(target)
        place = _place(settings)
        run(read_entries, place)
        texts = _checked(settings, [Path(each) for each in files])
        for entry in run(save, place, texts).values():
            click.echo(f"{entry.current.name}: version {entry.current.version}")


def _check_files(files: Sequence[str]) -> None:
    if not files:
        raise click.UsageError("No FILE is given. FILE is a file of queries that ends in .sql.")
    from dbtools.errors import ConfigurationError
    from dbtools.settings import is_file

    for each in files:
        if not is_file(Path(each)):
            raise ConfigurationError(f"There is no file {each!r}.")


def _checked(settings: "Settings", files: Sequence[Path]) -> Mapping[str, str]:
    """Return the texts of the queries in *files* by name, or end with what is wrong with them."""
    from dbtools.service.permitted import candidates
    from dbtools.service.resolve import read_catalog

    async def check(_: object, backend: "Backend") -> object:
        return await candidates(settings, await read_catalog(settings, backend), backend, files)

    texts: Mapping[str, str]
    texts, findings = with_toolbox(settings, check)
    for finding in findings:
        click.echo(str(finding), err=True)
    if findings or not texts:
        click.echo("dbtools: Nothing is saved.", err=True)
        sys.exit(REFUSED)
    return texts


@query.command("list", cls=ExampleCommand, example="dbtools query list sample.db")
@click.argument("target", required=False)
@json_option
def list_queries(target: str | None, as_json: bool) -> None:
    """Show the queries in the registry of TARGET."""
    with complaints():
        from dbtools.backends import open_backend
        from dbtools.cli.presentation import print_entries, rows_json
        from dbtools.records.registry import read_entries
        from dbtools.service.queries import query_of

        settings = settings_for(target)
        lexis = open_backend(settings.database.url).facts.lexis
        rows: list[dict[str, object]] = []
        for name, entry in run(read_entries, _place(settings)).items():
            found, _ = query_of(entry, lexis)
            rows.append(
                {
                    "name": name,
                    "version": entry.current.version,
                    "enabled": entry.current.enabled,
                    "description": found[0].description if found else "",
                    "changed_at": entry.current.changed_at,
                }
            )
        if as_json:
            click.echo(rows_json(rows))
        else:
            print_entries(rows)


@query.command(cls=ExampleCommand, example="dbtools query show sample.db order_status")
@click.argument("words", nargs=-1, metavar=ONE)
@click.option("--previous", is_flag=True, help="The version before.")
def show(words: tuple[str, ...], previous: bool) -> None:
    """Print the query NAME in the registry of TARGET, as it would stand in a file."""
    with complaints():
        from dbtools.cells import visible
        from dbtools.errors import ConfigurationError
        from dbtools.records.registry import entry_of

        target, name = _one(words)
        entry = run(entry_of, _place(settings_for(target)), name)
        shown = entry.previous if previous else entry.current
        if shown is None:
            raise ConfigurationError(f"{name} has no version before {entry.current.version}.")
        # A terminal would obey what somebody else wrote; a file wants it as it is.
        text = shown.text
        if sys.stdout.isatty():
            text = "\n".join(visible(line) for line in text.splitlines())
        click.echo(text, nl=not text.endswith("\n"))


def _add_change(verb: str, done: str, help: str) -> None:
    """Add the command that does to one query what *verb* of the registry does."""

    @query.command(
        verb, cls=ExampleCommand, example=f"dbtools query {verb} sample.db slow_parcels", help=help
    )
    @click.argument("words", nargs=-1, metavar=ONE)
    def change(words: tuple[str, ...]) -> None:
        with complaints():
            from dbtools.records import registry as records

            target, name = _one(words)
            run(getattr(records, verb), _place(settings_for(target)), name)
            click.echo(f"{name}: {done}")


_add_change(
    "remove", "removed", "Drop the query NAME from the registry of TARGET, with its previous version."
)
_add_change("enable", "enabled", "Serve the query NAME in the registry of TARGET again.")
_add_change("disable", "disabled", "Keep the query NAME in the registry of TARGET, and do not serve it.")


def _one(words: Sequence[str]) -> tuple[str | None, str]:
    if not 1 <= len(words) <= 2:
        raise click.UsageError(f"The arguments are {ONE}.")
    return (words[0] if len(words) == 2 else None), words[-1]


def _place(settings: "Settings") -> str:
    """Return where the registry is that the commands read and write."""
    return settings.registry.url or settings.database.url
