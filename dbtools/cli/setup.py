"""Commands to prepare a server: write a configuration, check it, and create logins and tokens."""

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dbtools.cli.options import (
    ANY_FILE,
    DEFAULT_ROLE,
    REFUSED,
    count_of,
    echo,
    example,
    json_option,
    run,
    settings_for,
    target_argument,
    wait_for,
    waiting,
)

if TYPE_CHECKING:
    from dbtools.schema.catalog import Catalog

Hidden = Mapping[str, Sequence[str]]  #: names of columns, by the unique name of their table

CONFIGURATION, EXAMPLE = Path("dbtools.toml"), Path("queries/example.sql")
SAMPLE = "sample.db"
DATABASES = "*.db"

CONFIGURATION_TEMPLATE = """\
# `dbtools check` validates this file against the database. `dbtools schema` prints its JSON Schema for
# your editor.

[database]
url = {url}
{login}{description}# exclude = ["audit_*"]       # tables that no role sees

[queries]
directory = "queries"         # each query in its .sql files becomes a tool

# A role sees the tables and calls the queries that it is granted. Callers that name no role get `default`.
[roles.default]
queries = ["*"]               # names or patterns
tables."*" = true             # names or patterns; more specific rules take precedence, such as these:
# tables.orders = false
# tables.orders = {{ exclude = ["margin"] }}
# Rules may also filter rows and mask columns: {{ where = "status = 'paid'", mask = {{ email = "partial" }} }}
# Callers only read, unless a rule lets them write: {{ insert = true, update = ["status"], delete = true }}
# sql = true                  # callers may run their own SELECT (the tool run_sql)
{hidden}
# [registry]
# url = {url}  # also serve the queries that `dbtools query add` saved there

# [limits]
# max_rows = 200              # per answer
# timeout = "10s"             # per call
"""
SECRETS_TEMPLATE = """
# These columns look like secrets. To show one, remove it here, and describe it in [tables.TABLE.columns].
"""
LOGIN = "# The password is in the environment variable {}.\n"
FIND = """\
-- name: find_{tool}
-- description: Find rows of {title} by {label}; the case of A to Z does not matter.
-- param pattern: text  A pattern for {label}: % matches any text, _ one character.
select {columns}
from {table}
where lower({column}) like lower(:pattern)
order by {order}
"""
QUERY_TEMPLATE = """\
-- name: one
-- description: The number one. Replace this with your own query.
-- returns: one
select 1 as one
"""


@click.command(epilog=example("dbtools sample shop.db"))
@click.argument("path", type=click.Path(path_type=Path))
@json_option
def sample(path: Path, as_json: bool) -> None:
    """Write the sample database, an outdoor-equipment shop, to PATH."""
    from dbtools.errors import ConfigurationError

    if path.exists():
        raise ConfigurationError(f"{path} already exists.", hint="Choose another path.")
    # An installed package contains it; in the repository it is beside the package.
    package = Path(__file__).parents[1]
    source = next(each for each in (package / SAMPLE, package.parent / SAMPLE) if each.exists())
    shutil.copyfile(source, path)
    text = f"Wrote {path}, a database with 15 tables. Next: `dbtools tools {path}`."
    echo(as_json, {"path": str(path)}, text)


@click.command(epilog=example("dbtools init shop.db"))
@click.argument("target", required=False, metavar="[URL]", type=ANY_FILE)
@json_option
def init(target: str | None, as_json: bool) -> None:
    """Write a commented dbtools.toml and an example query.

    URL is a database URL or a database file. On a terminal, dbtools asks for what is missing.
    """
    from dbtools.errors import ConfigurationError
    from dbtools.values.cells import escape

    for path in (CONFIGURATION, EXAMPLE):
        if path.exists():
            raise ConfigurationError(f"{path} already exists.", hint="Remove it, or use another folder.")
    asks = sys.stdin.isatty() and sys.stderr.isatty()
    place = target or _only_database(asks)
    if place.endswith(".toml"):
        raise click.UsageError("URL must name a database, not a configuration.")
    url, environment, catalog, hidden = wait_for(_read, place)
    left_out = [escape(", ".join(f"{table}.{name}" for name in names)) for table, names in hidden.items()]
    question = f"These columns look like secrets: {'; '.join(left_out)}. Hide them?"
    if asks and hidden and not click.confirm(question, default=True, err=True):
        hidden, left_out = {}, []
    description = _ask("Describe the database in one sentence (optional)", "") if asks else ""
    # The URL may contain a password, which must not be in the file.
    password = next((each for each in environment if each not in os.environ), "")
    text = configuration(url, hidden, description, password)
    EXAMPLE.parent.mkdir(exist_ok=True)
    EXAMPLE.write_text(example_query(catalog, hidden), encoding="utf-8")
    CONFIGURATION.write_text(text, encoding="utf-8")
    count = len(catalog.tables)
    lines = [
        f"Wrote {CONFIGURATION} and {EXAMPLE} for {count_of(count, 'table')}.",
        f"Hidden, because they look like secrets: {'; '.join(left_out)}." if left_out else "",
        f"The password is not in the file. Set it first: export {password}=…" if password else "",
        "Not offered: run_sql (set sql = true), and the queries of a registry (set [registry] url).",
        "Next: `dbtools check --connect`, then `dbtools connect claude-code --write`.",
    ]
    content = {"written": [str(CONFIGURATION), str(EXAMPLE)], "tables": count, "left_out": left_out}
    echo(as_json, content, "\n".join(filter(None, lines)))


def _only_database(asks: bool) -> str:
    """Return the database that the user names, or the only one in this folder."""
    here = sorted(str(path) for path in Path().glob(DATABASES))
    if asks:
        return _ask("Which database? (a file or a URL)", here[0] if here else "")
    if len(here) == 1:
        return here[0]
    raise click.UsageError("Name the database, for example: dbtools init shop.db")


def _ask(question: str, default: str) -> str:
    answer: str = click.prompt(question, default=default, show_default=bool(default), err=True)
    return answer


async def _read(place: str) -> "tuple[str, Mapping[str, str], Catalog, Hidden]":
    """Return the URL of the database, the variables it needs, its catalog, and columns to hide."""
    from dbtools.backends import is_url, open_backend
    from dbtools.policy.sensitive import secret_columns

    settings = settings_for(place)
    backend = open_backend(settings.database.url)
    try:
        catalog = await backend.introspect(settings.selection())
    finally:
        await backend.close()
    url, environment = backend.shareable_url()
    found = secret_columns(catalog)
    secrets = {catalog.unique_name(each): found.get(each.location, ()) for each in catalog.tables}
    hidden = {name: columns for name, columns in secrets.items() if columns}
    return url if is_url(place) else place, environment, catalog, hidden


def configuration(url: str, hidden: Hidden, description: str, password: str) -> str:
    """Return the text of dbtools.toml for the database at *url*, with columns *hidden*.

    *password* is the variable that holds the password, or empty.
    """
    import tomlkit

    rules = "".join(
        f"tables.{tomlkit.key(table).as_string()} = {{ exclude = {tomlkit.item(names).as_string()} }}\n"
        for table, names in hidden.items()
    )
    about = tomlkit.string(description).as_string()
    return CONFIGURATION_TEMPLATE.format(
        url=tomlkit.string(url).as_string(),
        login=LOGIN.format(password) if password else "",
        description=f"description = {about}\n" if description else "",
        hidden=f"{SECRETS_TEMPLATE}{rules}" if rules else "",
    )


def example_query(catalog: "Catalog", hidden: Hidden) -> str:
    """Return a query that searches the largest table with names or titles, or with any text."""
    from dbtools.backends.compiled import identifier
    from dbtools.values.cells import one_line
    from dbtools.values.types import Family

    found = [
        (table, column.name)
        for table in sorted(catalog.tables, key=lambda each: each.row_estimate or 0, reverse=True)
        for column in table.columns
        if table.keys and column.type.family is Family.TEXT
        if column.name not in hidden.get(catalog.unique_name(table), ())
    ]
    if not found:
        return QUERY_TEMPLATE
    table, column = max(found, key=lambda each: each[1].lower().endswith(("name", "title")))
    keys = [each.name for each in table.key_columns]
    names = (table.name,) if not table.schema or table.schema in catalog.search_path else table.location
    return FIND.format(
        tool=re.sub(r"[^a-z0-9]+", "_", table.name.lower()).strip("_")[:30] or "rows",
        title=one_line(table.name),
        label=one_line(column),
        columns=", ".join(map(identifier, dict.fromkeys([*keys, column]))),
        table=".".join(map(identifier, names)),
        column=identifier(column),
        order=", ".join(map(identifier, keys)),
    )


@click.command(epilog=example("dbtools check dbtools.toml"))
@target_argument
@click.option(
    "--against", metavar="URL", help="Compare with a migrated database, and list the tools that change."
)
@click.option("--connect", is_flag=True, help="Also try each step, from the connection to a call.")
@json_option
def check(target: str | None, against: str | None, connect: bool, as_json: bool) -> None:
    """Validate the configuration against the live database.

    The exit status is 1 if there are errors, and 2 if the configuration or the database cannot be read.
    """
    from dbtools.cli.presentation import print_review, review_content
    from dbtools.server.running import review_server
    from dbtools.service.checking import check as check_served, check_against, examine

    if connect and against is not None:
        raise click.UsageError("Use either --connect or --against.")
    other = settings_for(against).database.url if against is not None else None
    with waiting("Checking"):
        settings = settings_for(target)
        server = run(review_server, settings)
        found = run(check_against, settings, other, server) if other else run(check_served, settings, server)
        steps = run(examine, settings) if connect else ()
    if as_json:
        echo(as_json, review_content(found, steps))
    else:
        print_review(found, steps)
    if any(finding.level == "error" for finding in (*found.findings, *steps)):
        sys.exit(REFUSED)


@click.command(epilog=example("dbtools schema > dbtools.schema.json"))
@click.option("--json", is_flag=True, expose_value=False, help="Print JSON; this is the default.")
def schema() -> None:
    """Print the JSON Schema of dbtools.toml, for editors."""
    from dbtools.settings import Settings

    click.echo(json.dumps(Settings.model_json_schema(), indent=2))


@click.command(epilog=example("dbtools grants dbtools.toml --role support > support.sql"))
@target_argument
@click.option(
    "--role",
    "roles",
    metavar="ROLE",
    multiple=True,
    help="A role that the login serves; may be repeated.  [default: default]",
)
@click.option("--login", metavar="NAME", help="The name of the login.  [default: dbtools_ROLE]")
@click.option("--url", help="The database with a login that sees everything, if that of TARGET does not.")
@json_option
def grants(
    target: str | None, roles: Sequence[str], login: str | None, url: str | None, as_json: bool
) -> None:
    """Print the SQL for a login that can do what roles do.

    The login reads, changes rows where a role may, and does nothing else. With [database] write_url, a second
    login changes rows. dbtools does not run the SQL: run it yourself, with a login that may create others.
    """
    from dbtools.service.checking import grants_of

    names = tuple(dict.fromkeys(roles)) or (os.environ.get("DBTOOLS_ROLE") or DEFAULT_ROLE,)
    settings = settings_for(target, *names)
    if url is not None:
        settings = settings.with_value("database", "url", url)
    name = f"dbtools_{'_'.join(names)}" if login is None else login
    script, findings = wait_for(grants_of, settings, names, name)
    for finding in findings:
        click.echo(f"dbtools: {finding}", err=True)
    echo(as_json, {"login": name, "roles": names, "sql": script}, script.removesuffix("\n"))


@click.group(epilog=example("dbtools watch install postgres://admin@db/shop"))
def watch() -> None:
    """Let a database notify dbtools of schema changes.

    Otherwise, dbtools polls.
    """


@watch.command(epilog=example("dbtools watch install postgres://admin@db/shop --apply"))
@click.argument("url")
@click.option("--apply", "applied", is_flag=True, help="Run the SQL instead of printing it.")
@json_option
def install(url: str, applied: bool, as_json: bool) -> None:
    """Print the SQL that lets the database at URL notify dbtools.

    The database then reports each schema change immediately.
    """
    from dbtools.backends import open_backend
    from dbtools.errors import ConfigurationError

    backend = open_backend(settings_for(url).database.url)
    script = backend.facts.watch_script
    if script is None:
        raise ConfigurationError(
            "This database cannot send notifications, so there is nothing to install.",
            hint="dbtools checks its schema every second, and before each call.",
        )
    if applied:
        wait_for(backend.install_watch)
    text = "The database now notifies dbtools of schema changes." if applied else script.removesuffix("\n")
    echo(as_json, {"applied": applied, "sql": script}, text)


@click.group(epilog=example("dbtools token new"))
def token() -> None:
    """Create tokens for callers over HTTP."""


@token.command(epilog=example("dbtools token new --json"))
@json_option
def new(as_json: bool) -> None:
    """Print a new token, and its hash for the configuration.

    Save the token: the configuration holds only its hash.
    """
    from dbtools.server.http.identity import hash_of, new_token

    made = new_token()
    hashed = hash_of(made)
    text = (
        f"token:  {made}\nsha256: {hashed}\n\n"
        "Give the token to the caller, who sends it in the header Authorization: Bearer TOKEN.\n"
        f'Add its hash to dbtools.toml:\n\n[auth]\ntokens = [{{ sha256 = "{hashed}", role = "default" }}]'
    )
    echo(as_json, {"token": made, "sha256": hashed}, text)
