"""`dbtools.toml` and the environment into frozen settings; every complaint names the file and the key."""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from dbtools import errors
from dbtools.catalog import Catalog, Column, Selection, Table
from dbtools.column_types import quoted
from dbtools.database import Database
from dbtools.dialects import resolved_url, url_of_file
from dbtools.errors import listing, nearest
from dbtools.execution import Execution
from dbtools.policy import Limits, Role
from dbtools.results import Rows, Style, Text
from dbtools.toolbox import Manner, Toolbox
from dbtools.tools import Listing, Surface

FILE = "dbtools.toml"
VARIABLE = re.compile(r"\$\{([^}]*)\}")
UNITS: Mapping[str, float] = {"ms": 0.001, "s": 1.0, "m": 60.0, "": 1.0}


def _seconds(value: object) -> object:
    """Read "10s", "500ms" or "2m" as seconds."""
    if not isinstance(value, str):
        return _number(value)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|)", value.strip())
    if match is None:
        raise ValueError('wants a duration such as "10s", "500ms" or "2m"')
    return float(match[1]) * UNITS[match[2]]


def _number(value: object) -> object:
    """Refuse a boolean, which Python takes for a number."""
    if isinstance(value, bool):
        raise ValueError("wants a number, not a boolean")
    return value


Whole = Annotated[int, BeforeValidator(_number)]
Duration = Annotated[
    float,
    BeforeValidator(_seconds, json_schema_input_type=float | str),
    Field(gt=0, le=3600),
]


class Section(BaseModel):
    """A table of the file: an unknown key in it is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DatabaseSection(Section):
    """[database]: which database is served, and which of its tables."""

    url: str = Field(default="", description="database file or URL; ${NAME} is read from the environment")
    schemas: tuple[str, ...] = Field(
        default=(), description="schemas to serve; none means all but the system's"
    )
    include: tuple[str, ...] = Field(default=("*",), description="patterns of tables to serve")
    exclude: tuple[str, ...] = Field(default=(), description="patterns of tables to leave out")
    description: str = Field(default="", description="what the database is about, for people and models")


class TableSection(Section):
    """[tables.T]: what the database's own comments do not say."""

    description: str = Field(default="", description="replaces the table's comment")
    columns: dict[str, str] = Field(default={}, description="replaces comments of columns")


class LimitsSection(Section):
    """[limits]: how much one call may take."""

    max_rows: Whole = Field(default=200, ge=1, le=10_000, description="rows of one answer")
    max_tokens: Whole = Field(default=20_000, ge=500, le=1_000_000, description="bytes of one answer / 3")
    max_cell: Whole = Field(default=2_000, ge=20, le=100_000, description="characters of one cell in a list")
    timeout: Duration = Field(default=10.0, description='of one call: "10s", "500ms", "2m", or seconds')


class ToolsSection(Section):
    """[tools]: how tools are listed."""

    style: Surface = Field(
        default=Surface.AUTO,
        description="typed: tools for each table; generic: for any; auto: typed while the budget allows",
    )
    budget: Whole = Field(
        default=10_000, ge=0, description="tokens (bytes / 4) that the definitions of typed tools may cost"
    )
    pin: tuple[str, ...] = Field(default=(), description="tables with tools of their own on either surface")


class ResultsSection(Section):
    """[results]: how answers are written."""

    rows: Rows = Field(
        default=Rows.ARRAYS, description="rows as arrays under one list of columns, or objects"
    )
    text: Text = Field(default=Text.JSON, description='the text channel: "json", or "csv" for fewer tokens')


class Settings(Section):
    """All of dbtools.toml."""

    database: DatabaseSection = DatabaseSection()
    tables: dict[str, TableSection] = {}
    limits: LimitsSection = LimitsSection()
    tools: ToolsSection = ToolsSection()
    results: ResultsSection = ResultsSection()

    def roles(self) -> tuple[Role, ...]:
        """Return the roles: one, which sees everything."""
        return (Role(limits=Limits(**self.limits.model_dump())),)

    def selection(self) -> Selection:
        """Return which tables are read."""
        wanted = self.database
        return Selection(schemas=wanted.schemas, include=wanted.include, exclude=wanted.exclude)

    def manner(self) -> Manner:
        """Return how answers are written and tools are listed."""
        tools = self.tools
        return Manner(
            style=Style(rows=self.results.rows, text=self.results.text),
            listing=Listing(surface=tools.style, budget=tools.budget, pin=tools.pin),
        )


def settings_of(target: str | None, folder: Path) -> Settings:
    """Return the settings that *target* names: a database file, a URL, a `.toml` file, or ./dbtools.toml."""
    if target is None:
        if not (folder / FILE).is_file():
            raise errors.ConfigurationError(
                f"No TARGET is given and there is no {FILE} here.",
                hint="Name a database file, a database URL or a .toml file.",
            )
        return load(folder / FILE)
    if target.endswith(".toml"):
        return load(folder / target)
    if "://" in target:
        return Settings(database=DatabaseSection(url=resolved_url(target, folder)))
    if not is_file(folder / target):
        raise errors.ConfigurationError(
            f"There is no file {quoted(target, 200)}.",
            hint="TARGET is a database file, a database URL or a .toml file.",
        )
    return Settings(database=DatabaseSection(url=url_of_file(folder / target)))


def is_file(path: Path) -> bool:
    """Return whether there is a file at *path*; a name that no file can have names none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def load(path: Path) -> Settings:
    """Return the settings in the file at *path*, or raise ConfigurationError."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        problem = "there is no such file" if isinstance(exc, FileNotFoundError) else "the file cannot be read"
        raise errors.ConfigurationError(f"{path.name}: {problem}.") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise errors.ConfigurationError(f"{path.name}: not TOML: {exc}.") from exc
    try:
        settings = Settings.model_validate(_filled(content, path.name, ""))
    except ValidationError as exc:
        raise _complaint(exc, path.name) from exc
    if not settings.database.url:
        raise errors.ConfigurationError(f"{path.name}: [database] url is missing.")
    url = settings.database.url
    folder = path.absolute().parent
    full = resolved_url(url, folder) if "://" in url else url_of_file(folder / url)
    return settings.model_copy(update={"database": settings.database.model_copy(update={"url": full})})


def _filled(value: Any, file: str, key: str) -> Any:
    """Return *value* with each ${NAME} in its strings replaced from the environment."""
    if isinstance(value, dict):
        return {name: _filled(each, file, f"{key}.{name}".lstrip(".")) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, file, f"{key}[{at}]") for at, each in enumerate(value)]
    if not isinstance(value, str):
        return value
    return VARIABLE.sub(partial(_variable, file, key), value)


def _variable(file: str, key: str, match: re.Match[str]) -> str:
    name = match[1]
    if name not in os.environ:
        raise errors.ConfigurationError(f"{file}: {key}: the environment has no variable {quoted(name)}.")
    before, after = match.string[: match.start()], match.string[match.end() :]
    if "://" in before and "@" not in before.partition("://")[2] and "@" in after:
        # A user or a password in a URL: what would end it there is percent-encoded (RFC 3986, 3.2.1).
        return quote(os.environ[name], safe="%!$&'()*+,;=:")
    return os.environ[name]


def _complaint(exc: ValidationError, file: str) -> errors.ConfigurationError:
    first = exc.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"] if not str(part).startswith("function-"))
    if first["type"] == "extra_forbidden":
        known = _known(first["loc"][:-1])
        return errors.ConfigurationError(
            f"{file}: {key}: there is no such key.",
            hint=f"{nearest(str(first['loc'][-1]), known)}Keys here: {listing(known)}.",
        )
    message = WANTED.get(first["type"]) or first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    # Not of texts: one may hold a secret of the environment.
    given = f", not {first['input']}" if isinstance(first["input"], int | float) else ""
    return errors.ConfigurationError(f"{file}: {key}: {message}{given}.")


WANTED: Mapping[str, str] = {
    "tuple_type": "wants an array of strings",
    "string_type": "wants a string",
    "int_type": "wants an integer",
    "dict_type": "wants a table",
    "model_type": "wants a table",
}


def _known(place: tuple[int | str, ...]) -> list[str]:
    model: Any = Settings
    for part in place:
        model = TableSection if part == "tables" else getattr(model, "model_fields", {}).get(part, model)
        model = getattr(model, "annotation", model)
    return list(getattr(model, "model_fields", {}))


def described(catalog: Catalog, sections: Mapping[str, TableSection]) -> Catalog:
    """Return *catalog* with the descriptions of *sections*, or raise ConfigurationError on unknown names."""
    tables = {(table.schema, table.name): table for table in catalog.tables}
    for name, section in sections.items():
        table = _the_table(catalog, name, "[tables]")
        tables[(table.schema, table.name)] = _described(table, section)
    return replace(catalog, tables=tuple(tables.values()))


def _the_table(catalog: Catalog, name: str, key: str) -> Table:
    """Return the one table that *name* under *key* means, or raise ConfigurationError."""
    found = catalog.named(name)
    if len(found) != 1:
        labels = [catalog.label(table) for table in found or catalog.tables]
        problem = "means several tables" if found else "is no table of the database"
        raise errors.ConfigurationError(
            f"{key}: {quoted(name)} {problem}.",
            hint=f"{nearest(name, labels)}There are: {listing(labels)}.",
        )
    return found[0]


def _described(table: Table, section: TableSection) -> Table:
    for name in section.columns:
        if name not in table.column_by_name:
            known = table.column_by_name
            raise errors.ConfigurationError(
                f"[tables.{table.name}.columns] {quoted(name)} is no column of {table.name}.",
                hint=f"{nearest(name, known)}There are: {listing(known)}.",
            )
    columns = tuple(_commented(column, section.columns.get(column.name)) for column in table.columns)
    return replace(table, comment=section.description or table.comment, columns=columns)


def _commented(column: Column, comment: str | None) -> Column:
    return column if comment is None else replace(column, comment=comment)


def open_toolbox(settings: Settings) -> tuple[Toolbox, Database]:
    """Return the toolbox that *settings* describe, and the database behind it, which is to be closed."""
    database = Database(settings.database.url)

    async def introspect() -> Catalog:
        catalog = described(await database.introspect(settings.selection()), settings.tables)
        for name in settings.tools.pin:
            _the_table(catalog, name, "[tools] pin")
        return catalog

    execution = Execution(database)
    return Toolbox(introspect, execution, roles=settings.roles(), manner=settings.manner()), database
