"""`dbtools registry` and `dbtools query`, which manage the permitted queries in a database."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dbtools.cli.options import (
    ANY_FILE,
    REFUSED,
    count_of,
    echo,
    example,
    is_target,
    json_option,
    settings_for,
    target_argument,
    wait_for,
    waiting,
    with_toolbox,
)

if TYPE_CHECKING:
    from dbtools.settings import Settings

QUERY = ".sql"  #: the suffix of a query file, which is never a TARGET
ONE = "[TARGET] NAME"
STATE_COMMANDS: Mapping[str, tuple[str, str]] = {
    "remove": ("removed", "Remove the query NAME and its previous version."),
    "enable": ("enabled", "Serve the query NAME again."),
    "disable": ("disabled", "Stop serving the query NAME, but keep it."),
}


@click.group(epilog=example("dbtools registry upgrade shop.db"))
def registry() -> None:
    """Create or upgrade the registry in a database.

    The registry keeps permitted queries, the audit log, and a record of changes, for all servers of the
    database.
    """


@registry.command(epilog=example("dbtools registry upgrade shop.db"))
@click.argument("url", type=ANY_FILE)
@json_option
def upgrade(url: str, as_json: bool) -> None:
    """Create or upgrade the registry in the database at URL.

    Its tables are dbtools_query, dbtools_call and dbtools_write, in the schema dbtools if the database has
    schemas. Your own tables and your migration history do not change.
    """
    from dbtools.alembic import upgrade as build
    from dbtools.backends.records import REVISION
    from dbtools.records.registry import read_entries

    place = _place(settings_for(url))
    with waiting("Upgrading the registry"):
        build(place)
    count = len(wait_for(read_entries, place))
    text = f"The registry has version {REVISION} and {count_of(count, 'query', 'queries')}."
    echo(as_json, {"version": REVISION, "query_count": count}, text)


@click.group(epilog=example("dbtools query add sample.db top_customers.sql"))
def query() -> None:
    """Manage the permitted queries in the registry.

    [registry] url in the configuration names the registry; by default it is in the database itself.
    `dbtools registry upgrade` creates it.
    """


@query.command(epilog=example("dbtools query add sample.db top_customers.sql"))
@click.argument("words", nargs=-1, metavar="[TARGET] FILE…", type=ANY_FILE)
@json_option
def add(words: Sequence[str], as_json: bool) -> None:
    """Save the queries in each FILE to the registry.

    dbtools checks all of them against the database first, and saves none if one is wrong. It keeps the
    previous version of each query.
    """
    from dbtools.configured.query_sources import UNREAD, registry_url
    from dbtools.errors import DbtoolsError
    from dbtools.records.registry import add as save, read_entries
    from dbtools.service.serving import snapshot_of

    with_target = bool(words) and is_target(words[0]) and not words[0].lower().endswith(QUERY)
    target, paths = (words[0], words[1:]) if with_target else (None, words)
    _check_files(paths)
    settings = settings_for(target)
    place = _place(settings)
    wait_for(read_entries, place)
    texts = _checked_texts(settings, [Path(each) for each in paths])
    saved = [entry.current for entry in wait_for(save, place, texts).values()]
    content = [{"name": each.name, "version": each.version} for each in saved]
    echo(as_json, content, "\n".join(f"{each.name}: version {each.version}" for each in saved))
    if not registry_url(settings):
        click.echo(f"dbtools: The queries are not served. {UNREAD}", err=True)
    # The queries are saved, even if the database cannot be read again.
    with suppress(DbtoolsError):
        for role, view in wait_for(snapshot_of, settings).views.items():
            for line in view.replacement_notes(settings.listing()):
                click.echo(f"dbtools: role {role}: {line}", err=True)


def _check_files(paths: Sequence[str]) -> None:
    if not paths:
        raise click.UsageError("FILE is missing. Name a file of queries that ends in .sql.")
    from dbtools.errors import ConfigurationError
    from dbtools.settings import is_file

    for each in paths:
        if Path(each).is_dir():
            raise ConfigurationError(f"{each!r} is a folder.", hint=f"Name its files: {Path(each, '*.sql')}.")
        if not is_file(Path(each)):
            raise ConfigurationError(f"There is no file {each!r}.")


def _checked_texts(settings: "Settings", paths: Sequence[Path]) -> Mapping[str, str]:
    """Return the texts of the queries in *paths* by name, or print their problems and exit."""
    from dbtools.configured.permitted import candidates

    texts: Mapping[str, str]
    texts, findings = with_toolbox(
        settings, lambda _, backend: candidates(settings, backend, paths), title="Checking the queries"
    )
    for finding in findings:
        click.echo(str(finding), err=True)
    if findings or not texts:
        click.echo("dbtools: No query was saved.", err=True)
        sys.exit(REFUSED)
    return texts


@query.command("list", epilog=example("dbtools query list sample.db"))
@target_argument
@json_option
def list_queries(target: str | None, as_json: bool) -> None:
    """List the queries in the registry."""
    from dbtools.backends import open_backend
    from dbtools.cli.presentation import print_entries
    from dbtools.configured.query_sources import query_of
    from dbtools.records.registry import read_entries

    settings = settings_for(target)
    lexis = open_backend(settings.database.url).facts.lexis
    rows: list[dict[str, object]] = []
    for name, entry in wait_for(read_entries, _place(settings)).items():
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
        echo(as_json, rows)
    else:
        print_entries(rows)


@query.command(epilog=example("dbtools query show sample.db order_status"))
@click.argument("words", nargs=-1, metavar=ONE, type=ANY_FILE)
@click.option("--previous", is_flag=True, help="Print the previous version.")
@json_option
def show(words: Sequence[str], previous: bool, as_json: bool) -> None:
    """Print the query NAME in the form of a query file."""
    from dbtools.errors import ConfigurationError
    from dbtools.records.registry import entry_of
    from dbtools.values.cells import escape

    target, name = _one(words)
    entry = wait_for(entry_of, _place(settings_for(target)), name)
    shown = entry.previous if previous else entry.current
    if shown is None:
        raise ConfigurationError(f"{name} has no version before {entry.current.version}.")
    # Escape sequences in the text must not reach a terminal; a file gets the text unchanged.
    text = shown.text
    if sys.stdout.isatty():
        text = "\n".join(escape(line) for line in text.splitlines())
    echo(as_json, asdict(shown), text.removesuffix("\n"))


def _add_command(verb: str, state: str, help: str) -> None:
    """Add the command *verb*, which calls the function of this name for one query."""

    @query.command(verb, epilog=example(f"dbtools query {verb} sample.db slow_parcels"), help=help)
    @click.argument("words", nargs=-1, metavar=ONE, type=ANY_FILE)
    @json_option
    def change(words: Sequence[str], as_json: bool) -> None:
        from dbtools.records.registry import change as changed

        target, name = _one(words)
        wait_for(changed, _place(settings_for(target)), name, verb)
        echo(as_json, {"name": name, "state": state}, f"{name}: {state}")


for verb, (state, help) in STATE_COMMANDS.items():
    _add_command(verb, state, help)


def _one(words: Sequence[str]) -> tuple[str | None, str]:
    if not 1 <= len(words) <= 2:
        raise click.UsageError(f"Expected {ONE}.")
    return (words[0] if len(words) == 2 else None), words[-1]


def _place(settings: "Settings") -> str:
    """Return the URL of the registry."""
    return settings.registry.url or settings.database.url
