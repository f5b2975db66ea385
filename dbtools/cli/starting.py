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

from dbtools.cli.options import ExampleCommand, complaints, files, json_option, settings_for, wait_for

if TYPE_CHECKING:
    from dbtools.catalog import Catalog, Table

Hidden = Mapping[tuple[str, str], Sequence[str]]  #: names of columns, by schema and table

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
COUNT = """\
-- name: count_{tool}
-- description: How many rows {title} has.
-- returns: one
select count(*) as row_count
from {table}
"""
NOTHING = """\
-- name: one
-- description: The number one: replace this with a question of yours.
-- returns: one
select 1 as one
"""


@click.command(cls=ExampleCommand, example="dbtools sample shop.db")
@click.argument("path", type=click.Path(path_type=Path))
@json_option
def sample(path: Path, as_json: bool) -> None:
    """Write the sample database, an outdoor-equipment shop, to PATH."""
    with complaints():
        from dbtools.errors import ConfigurationError

        if path.exists():
            raise ConfigurationError(f"{path} exists already.", hint="Name a new file.")
        try:
            shutil.copyfile(_sample(), path)
        except OSError as exc:
            raise ConfigurationError(f"{path} cannot be written: {exc.strerror}.") from exc
        if as_json:
            click.echo(json.dumps({"path": str(path)}))
        else:
            click.echo(f"{path} is a database with 15 tables. Try `dbtools tools {path}`.")


def _sample() -> Path:
    """Return the database in the package where that is installed, else the one beside it."""
    package = Path(__file__).parents[1]
    return next(each for each in (package / SAMPLE, package.parent / SAMPLE) if each.exists())


@click.command(cls=ExampleCommand, example="dbtools init shop.db")
@click.argument("target", required=False, metavar="[URL]", shell_complete=files)
@json_option
def init(target: str | None, as_json: bool) -> None:
    """Write a commented dbtools.toml and an example query.

    They are for the database at URL, which may be a file. On a terminal you are asked for what is missing.
    """
    with complaints():
        from dbtools.errors import ConfigurationError

        for path in (CONFIGURATION, EXAMPLE):
            if path.exists():
                raise ConfigurationError(f"{path} exists already.", hint="Remove it, or use another folder.")
        asks = sys.stdin.isatty() and sys.stderr.isatty()
        place = target or _ask_for_database(asks)
        if place.endswith(".toml"):
            raise click.UsageError("URL names a database, not a configuration.")
        url, environment, catalog = wait_for(_read, place)
        hidden = _ask_what_to_hide(catalog, asks)
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
        left_out = [_listed(catalog, location, names) for location, names in hidden.items()]
        if as_json:
            written = [str(CONFIGURATION), str(EXAMPLE)]
            click.echo(json.dumps({"written": written, "tables": len(catalog.tables), "left_out": left_out}))
        else:
            _tell(len(catalog.tables), left_out, password)


def _tell(tables: int, left_out: Sequence[str], password: str) -> None:
    click.echo(f"{CONFIGURATION} and {EXAMPLE} are written for {tables} tables.")
    if left_out:
        click.echo(f"Left out, since they look like secrets: {'; '.join(left_out)}.")
    if password:
        click.echo(f"The password is not in the file. Before the next steps: export {password}=…")
    click.echo("Next: `dbtools check --connect`, then `dbtools connect claude-code --write`.")


def _ask(question: str, default: str) -> str:
    answer: str = click.prompt(question, default=default, show_default=bool(default), err=True)
    return answer


def _ask_for_database(asks: bool) -> str:
    """Return the database that somebody names, or the only one that is here."""
    here = sorted(str(path) for path in Path().glob(DATABASES))
    if asks:
        return _ask("Which database? (a file or a URL)", here[0] if here else "")
    if len(here) == 1:
        return here[0]
    raise click.UsageError("Name the database, for example: dbtools init shop.db")


async def _read(place: str) -> "tuple[str, Mapping[str, str], Catalog]":
    """Return the URL of the database at *place*, what its environment holds, and its catalog."""
    from dbtools.backends import open_backend

    settings = settings_for(place)
    backend = open_backend(settings.database.url)
    try:
        catalog = await backend.introspect(settings.selection())
    finally:
        await backend.close()
    url, environment = backend.shareable()
    return url if "://" in place else place, environment, catalog


def _ask_what_to_hide(catalog: "Catalog", asks: bool) -> Hidden:
    from dbtools.vetting import secret_columns

    found = secret_columns(catalog)
    if not asks or not found:
        return found
    listed = "; ".join(_listed(catalog, location, names) for location, names in found.items())
    is_hidden = click.confirm(
        f"These columns look like secrets: {listed}. Leave them out?", default=True, err=True
    )
    return found if is_hidden else {}


def _listed(catalog: "Catalog", location: tuple[str, str], names: Sequence[str]) -> str:
    from dbtools.cells import visible

    table = catalog.table(*location)
    assert table is not None
    return visible(", ".join(f"{catalog.unique_name(table)}.{name}" for name in names))


def configuration(catalog: "Catalog", url: str, hidden: Hidden, description: str, password: str) -> str:
    """Return the text of dbtools.toml for the database at *url*, in which columns are *hidden*.

    *password* is the variable that holds the password, if there is one.
    """
    rules = []
    for location, names in hidden.items():
        table = catalog.table(*location)
        assert table is not None
        columns = ", ".join(map(_toml, names))
        rules.append(f"tables.{_toml(catalog.unique_name(table))} = {{ exclude = [{columns}] }}\n")
    first = catalog.tables[0] if catalog.tables else None
    return FILE.format(
        table=_toml(catalog.unique_name(first)) if first else "orders",
        column=_toml(first.columns[-1].name) if first else '"note"',
        url=_toml(url),
        login=LOGIN.format(password) if password else "",
        description=f"description = {_toml(description)}\n" if description else "",
        hidden=f"{HIDDEN}{''.join(rules)}" if rules else "",
    )


def _toml(text: str) -> str:
    """Return *text* as a string of TOML, whose escapes are those of JSON and DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def example_query(catalog: "Catalog", hidden: Hidden) -> str:
    """Return the text of a query that searches the largest table with names or titles, or with any text."""
    tables = sorted(catalog.tables, key=lambda table: table.row_estimate or 0, reverse=True)
    found = [(table, column) for table in tables for column in _texts(table, hidden) if table.keys]
    if found:
        return _search(catalog, *max(found, key=lambda each: each[1].lower().endswith(("name", "title"))))
    if not tables:
        return NOTHING
    largest = tables[0]
    return COUNT.format(tool=_word(largest.name), title=_plain(largest.name), table=_name(catalog, largest))


def _texts(table: "Table", hidden: Hidden) -> list[str]:
    from dbtools.types import Family

    names = [each.name for each in table.columns if each.type.family is Family.TEXT]
    return [name for name in names if name not in hidden.get(table.location, ())]


def _search(catalog: "Catalog", table: "Table", column: str) -> str:
    from dbtools.backends.plans import identifier

    keys = [each.name for each in table.key_columns()]
    columns = list(dict.fromkeys([*keys, column]))
    return FIND.format(
        tool=_word(table.name),
        title=_plain(table.name),
        label=_plain(column),
        columns=", ".join(map(identifier, columns)),
        table=_name(catalog, table),
        column=identifier(column),
        order=", ".join(map(identifier, keys)),
    )


def _name(catalog: "Catalog", table: "Table") -> str:
    from dbtools.backends.plans import identifier

    names = (table.name,) if not table.schema or table.schema in catalog.search_path else table.location
    return ".".join(map(identifier, names))


def _word(name: str) -> str:
    """Return *name* as a part of the name of a tool."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:30] or "rows"


def _plain(name: str) -> str:
    """Return *name* on one line of a comment."""
    return re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029]+", " ", name)
