"""`dbtools init` and `dbtools sample`: a first configuration, and a database to try things on."""

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dbtools.cli.options import echo, example, files, json_option, settings_for, wait_for

if TYPE_CHECKING:
    from dbtools.catalog import Catalog, Table

Hidden = Mapping[str, Sequence[str]]  #: names of columns, by the unique name of their table

CONFIGURATION, EXAMPLE = Path("dbtools.toml"), Path("queries/example.sql")
SAMPLE = "sample.db"
DATABASES = "*.db"

FILE = """\
# What dbtools serves, and to whom. `dbtools check` validates this file, and `dbtools schema` prints a
# JSON Schema of it for your editor.

[database]
url = {url}
{login}{description}# exclude = ["audit_*"]       # tables that nobody sees

[queries]
directory = "queries"         # each .sql file in it becomes a tool

# A role says what its callers see; without any role everybody sees everything. `default` is the role of a
# caller who names no other. The queries of a registry count only where [registry] url names it.
[roles.default]
queries = ["*"]               # names or patterns of the queries that it may call
tables."*" = true             # names or patterns of tables: true, false, or what the role sees of it:
# tables.{table} = false
# tables.{table} = {{ exclude = [{column}] }}
# and, with columns of yours: {{ where = "status <> 'draft'", mask = {{ email = "partial" }} }}
{hidden}
# [limits]
# max_rows = 200              # rows of one answer
# timeout = "10s"             # of one call
"""
HIDDEN = """
# These columns look like secrets. To show one, take it out of its list.
"""
LOGIN = "# The password is not written here: it comes from the environment variable {}.\n"
FIND = """\
-- name: find_{tool}
-- description: Rows of {title} whose {label} is like a pattern; upper and lower case are the same.
-- param pattern: text  Of the {label}: % stands for any text, _ for one character.
select {columns}
from {table}
where lower({column}) like lower(:pattern)
order by {order}
"""
NOTHING = """\
-- name: one
-- description: The number one: replace this with a question of yours.
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
        raise ConfigurationError(f"{path} exists already.", hint="Name a new file.")
    # It is in the package where that is installed, else beside it.
    package = Path(__file__).parents[1]
    source = next(each for each in (package / SAMPLE, package.parent / SAMPLE) if each.exists())
    try:
        shutil.copyfile(source, path)
    except OSError as exc:
        raise ConfigurationError(f"{path} cannot be written: {exc.strerror}.") from exc
    text = f"{path} is a database with 15 tables. Try `dbtools tools {path}`."
    echo(as_json, {"path": str(path)}, text)


@click.command(epilog=example("dbtools init shop.db"))
@click.argument("target", required=False, metavar="[URL]", shell_complete=files)
@json_option
def init(target: str | None, as_json: bool) -> None:
    """Write a commented dbtools.toml and an example query.

    They are for the database at URL, which may be a file. On a terminal you are asked for what is missing.
    """
    from dbtools.cells import visible
    from dbtools.errors import ConfigurationError

    for path in (CONFIGURATION, EXAMPLE):
        if path.exists():
            raise ConfigurationError(f"{path} exists already.", hint="Remove it, or use another folder.")
    asks = sys.stdin.isatty() and sys.stderr.isatty()
    place = target or _only_database(asks)
    if place.endswith(".toml"):
        raise click.UsageError("URL names a database, not a configuration.")
    url, environment, catalog, hidden = wait_for(_read, place)
    left_out = [visible(", ".join(f"{table}.{name}" for name in names)) for table, names in hidden.items()]
    question = f"These columns look like secrets: {'; '.join(left_out)}. Leave them out?"
    if asks and hidden and not click.confirm(question, default=True, err=True):
        hidden, left_out = {}, []
    description = _ask("What is the database about, in one sentence? (may be empty)", "") if asks else ""
    # What the URL holds and this file does not: its password.
    password = next((each for each in environment if each not in os.environ), "")
    text = configuration(catalog, url, hidden, description, password)
    try:
        EXAMPLE.parent.mkdir(exist_ok=True)
        EXAMPLE.write_text(example_query(catalog, hidden), encoding="utf-8")
        CONFIGURATION.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise ConfigurationError(f"{exc.filename} cannot be written: {exc.strerror}.") from exc
    count = len(catalog.tables)
    lines = [
        f"{CONFIGURATION} and {EXAMPLE} are written for {count} tables.",
        f"Left out, since they look like secrets: {'; '.join(left_out)}." if left_out else "",
        f"The password is not in the file. Before the next steps: export {password}=…" if password else "",
        "Next: `dbtools check --connect`, then `dbtools connect claude-code --write`.",
    ]
    content = {"written": [str(CONFIGURATION), str(EXAMPLE)], "tables": count, "left_out": left_out}
    echo(as_json, content, "\n".join(filter(None, lines)))


def _only_database(asks: bool) -> str:
    """Return the database that somebody names, or the only one in this folder."""
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
    """Return the URL of the database at *place*, what its environment holds, its catalog and its secrets."""
    from dbtools.backends import open_backend
    from dbtools.policy import secret_columns

    settings = settings_for(place)
    backend = open_backend(settings.database.url)
    try:
        catalog = await backend.introspect(settings.selection())
    finally:
        await backend.close()
    url, environment = backend.shareable()
    found = secret_columns(catalog)
    secrets = {catalog.unique_name(each): found.get(each.location, ()) for each in catalog.tables}
    hidden = {name: columns for name, columns in secrets.items() if columns}
    return url if "://" in place else place, environment, catalog, hidden


def configuration(catalog: "Catalog", url: str, hidden: Hidden, description: str, password: str) -> str:
    """Return the text of dbtools.toml for the database at *url*, in which columns are *hidden*.

    *password* is the variable that holds the password, if there is one.
    """
    rules = "".join(
        f"tables.{_toml(table)} = {{ exclude = [{', '.join(map(_toml, names))}] }}\n"
        for table, names in hidden.items()
    )
    first = catalog.tables[0] if catalog.tables else None
    return FILE.format(
        table=_toml(catalog.unique_name(first)) if first else "orders",
        column=_toml(first.columns[-1].name) if first else '"note"',
        url=_toml(url),
        login=LOGIN.format(password) if password else "",
        description=f"description = {_toml(description)}\n" if description else "",
        hidden=f"{HIDDEN}{rules}" if rules else "",
    )


def _toml(text: str) -> str:
    """Return *text* as a string of TOML, whose escapes are those of JSON and DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def example_query(catalog: "Catalog", hidden: Hidden) -> str:
    """Return the text of a query that searches the largest table with names or titles, or with any text."""
    tables = sorted(catalog.tables, key=lambda table: table.row_estimate or 0, reverse=True)
    found = [(each, name) for each in tables if each.keys for name in _texts(catalog, each, hidden)]
    if not found:
        return NOTHING
    from dbtools.backends.plans import identifier

    table, column = max(found, key=lambda each: each[1].lower().endswith(("name", "title")))
    keys = [each.name for each in table.key_columns()]
    names = (table.name,) if not table.schema or table.schema in catalog.search_path else table.location
    return FIND.format(
        tool=re.sub(r"[^a-z0-9]+", "_", table.name.lower()).strip("_")[:30] or "rows",
        title=_plain(table.name),
        label=_plain(column),
        columns=", ".join(map(identifier, dict.fromkeys([*keys, column]))),
        table=".".join(map(identifier, names)),
        column=identifier(column),
        order=", ".join(map(identifier, keys)),
    )


def _texts(catalog: "Catalog", table: "Table", hidden: Hidden) -> list[str]:
    from dbtools.types import Family

    names = [each.name for each in table.columns if each.type.family is Family.TEXT]
    return [name for name in names if name not in hidden.get(catalog.unique_name(table), ())]


def _plain(name: str) -> str:
    """Return *name* on one line of a comment."""
    return re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029]+", " ", name)
