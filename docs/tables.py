"""The generated parts of the documents: `python -m cogapp -r docs/reference/*.md` writes them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import click

from dbtools import errors
from dbtools.backends.postgresql.connection.urls import PARAMETERS
from dbtools.cli import main
from dbtools.expressions.terms import Bucket, Function
from dbtools.findings import FindingCode, Kind, Level
from dbtools.records.entries import AuditEntry, Outcome
from dbtools.service.serving import snapshot_of
from dbtools.settings import Settings, settings_of
from dbtools.settings.sections import (
    AuthSection,
    GrantSection,
    JwtSection,
    RoleLimitsSection,
    RoleSection,
    TokenSection,
)
from dbtools.tools.definition import ToolDefinition
from dbtools.values.types import FAMILIES

ROOT = Path(__file__).parents[1]
#: What each key of the audit log holds.
AUDIT = {
    "time": "when the call arrived, in UTC (RFC 3339)",
    "identity": "the `name` of a token or the start of its hash; `sub` of a signed token; null over stdio",
    "role": "the role of the caller",
    "tool": "the tool, or the MCP method of a request that reads a resource or completes a name",
    "arguments": "the arguments, with values replaced unless `[log] arguments = true`",
    "rows": "rows of the answer",
    "bytes": "bytes of the answer",
    "truncated": "whether there are more rows than the answer holds",
    "affected": "rows that the call changed, or would change in a dry run; null without either",
    "dry_run": "for a call that changes rows, also a refused one: whether it was a dry run; otherwise null",
    "changes": "with `[log] changes = true`: [old and new values](#changes)",
    "confirmed": "`elicitation` (a person confirmed it), `token` (a second call), `declined`, or null",
    "duration": "seconds",
    "outcome": ", ".join(f"`{each}`" for each in Outcome),
    "code": "the code of the error: see [Errors](errors.md)",
    "protocol": "the version of the protocol",
    "client": "the name of the client, as it calls itself",
    "request": "the ID of the request; only with `[database] request_id`",
}
#: The tools of the reference, and what `T` stands for in each.
TOOLS = (
    *("list_T", "get_T", "aggregate_rows", "describe_tables", "run_sql", "list_tables", "list_rows"),
    "get_row",
)
CHANGING_TOOLS = ("insert_T", "update_T", "delete_T", "insert_rows", "update_rows", "delete_rows")
QUERY_TOOLS = ("find_queries", "run_query")
TABLE = "suppliers"
#: What the arguments mean that the schemas leave to the description of their tool.
ARGUMENTS = {
    "where": "[conditions](#conditions)",
    "sql": "one SELECT: see [Ad-hoc SQL](#ad-hoc-sql)",
    "columns": "columns, paths and [expressions](expressions.md); default all",
    "group_by": "columns, paths, buckets and expressions",
    "measures": "each with `function`, `column` and `name`; without any, the answer is the groups alone",
    "match": "`all` or `any`: whether all conditions must hold; default all",
    "cursor": "`next_cursor` of the previous page",
    "offset": "rows to skip, up to 100,000",
    "table": "the name of the table or view",
    "id": "the key",
    "query": "the name of the query",
    "arguments": "the arguments of the query",
    "rows": "new rows, each with its values by column",
    "set": "new values by column",
}
KEYS = ("key", "default", "meaning")
UNBOUNDED = 2**31 - 1  #: as the largest value of a key


def _table(headings: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def settings_tables() -> str:
    """Return the keys of dbtools.toml, a table for each section."""
    return "\n\n".join(
        f"## {name}\n\n{_summary(section)}\n\n{_table(KEYS, _keys(section))}" for name, section in _sections()
    )


def _summary(section: Any) -> str:
    """Return the docstring of *section* without its name."""
    text = str(section.__doc__).partition(": ")[2]
    return text[:1].upper() + text[1:]


def _sections() -> Iterator[tuple[str, Any]]:
    for name, field in Settings.model_fields.items():
        section: Any = field.annotation
        if name in ("tables", "roles"):
            section = section.__args__[1]
            name = "tables.T" if name == "tables" else "roles.R"
        if section is not AuthSection:
            yield f"[{name}]", section
        if section is RoleSection:
            yield "[roles.R.tables.T]", GrantSection
            yield "[roles.R.limits]", RoleLimitsSection
        if section is AuthSection:
            yield "[[auth.tokens]]", TokenSection
            yield "[auth.jwt]", JwtSection


def _keys(section: Any) -> Iterator[Sequence[str]]:
    for key, each in section.model_fields.items():
        if each.description:
            default = "required" if each.is_required() else f"`{_written(each.default)}`"
            yield f"`{key}`", default, each.description + _bounds(each.metadata)


def _bounds(metadata: Sequence[object]) -> str:
    """Return what numbers a key takes."""
    least: int | None = next((each.ge for each in metadata if hasattr(each, "ge")), None)
    most: int | None = next((each.le for each in metadata if hasattr(each, "le")), None)
    if least is not None and most is not None and most < UNBOUNDED:
        return f"; {least:,} to {most:,}"
    return f"; at least {least:,}" if least else ""


def _written(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case dict():
            return "{}"
        case tuple():
            return "[" + ", ".join(map(_written, value)) + "]"
        case str():
            return f'"{value}"'
        case float():
            return f'"{value:g}s"'
        case _:
            return str(value)


def errors_table() -> str:
    """Return the errors that a caller may get."""
    return _table(("code", "meaning", "arrives as"), _errors(errors.DbtoolsError))


def _errors(kind: type[errors.DbtoolsError]) -> Iterator[Sequence[str]]:
    for each in kind.__subclasses__():
        if each is errors.CallError:
            yield from _errors(each)
            continue
        arrives = "a result with `isError`" if issubclass(each, errors.CallError) else "a protocol error"
        arrives = "exit status 2" if each is errors.ConfigurationError else arrives
        yield f"`{each.code}`", str(each.__doc__), arrives


def findings_table() -> str:
    """Return the codes of findings, with their levels."""
    return _table(("code", "level", "meaning"), _findings())


def _findings() -> Iterator[Sequence[str]]:
    for code in FindingCode:
        levels = {kind.level for kind in Kind if kind.code is code}
        either = {Level.ERROR, Level.WARNING} if None in levels else set()
        shown = [each for each in Level if each in levels | either]
        yield f"`{code}`", errors.alternatives(shown), code.meaning


def operators_table() -> str:
    """Return the operators that columns of each type take."""
    families: dict[str, list[str]] = {}
    for family, row in FAMILIES.items():
        families.setdefault(" ".join(f"`{each}`" for each in row.operators), []).append(str(family))
    return _table(
        ("type of the column", "operators"), ((", ".join(names), ops) for ops, names in families.items())
    )


def functions() -> str:
    """Return the functions of measures and the buckets of dates."""
    return "\n".join(
        f"- {what}: {', '.join(f'`{each}`' for each in words)}"
        for what, words in (("functions of measures", Function), ("buckets of dates", Bucket))
    )


def tools_tables(names: Sequence[str] = TOOLS) -> str:
    """Return the tools of *names* with their arguments, as the sample has them."""
    definitions = anyio.run(_definitions)
    return "\n\n".join(
        f"### `{name}`\n\n{_arguments(definitions[name.replace('T', TABLE)].input_schema)}" for name in names
    )


async def _definitions() -> Mapping[str, ToolDefinition]:
    settings = settings_of(str(ROOT / "sample.db"))
    database = settings.database.model_copy(update={"writable": True})
    snapshot = await snapshot_of(settings.model_copy(update={"database": database}))
    return {name: tool.definition for name, tool in snapshot.view("default").tools.items()}


def _arguments(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = (
        (f"`{name}`", _type(each), "required" if name in required else _default(each), _meaning(name, each))
        for name, each in schema["properties"].items()
    )
    return _table(("argument", "type", "default", "meaning"), rows)


def _type(schema: Mapping[str, Any]) -> str:
    if schema["type"] == "array":
        return f"array of {_type(schema['items'])}s"
    return str(schema["type"])


def _default(schema: Mapping[str, Any]) -> str:
    return f"`{json.dumps(schema['default'])}`" if schema.get("default") is not None else ""


def _meaning(name: str, schema: Mapping[str, Any]) -> str:
    """Return what the argument *name* means: its *schema* says so, or else ARGUMENTS."""
    if "maximum" in schema and name not in ARGUMENTS:
        return f"{schema['minimum']} to `max_rows`"
    if "default" in schema and "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    return str(schema.get("description") or ARGUMENTS[name])


def commands() -> str:
    """Return every command of the command line with its options."""
    context = click.Context(main, info_name="dbtools")
    return "\n\n".join(_commands(main, context))


def _commands(group: click.Group, above: click.Context) -> Iterator[str]:
    for name in group.list_commands(above):
        command = group.get_command(above, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=above)
        if isinstance(command, click.Group):
            yield from _commands(command, context)
        else:
            yield "\n\n".join(_command(command, context))


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"### `{context.command_path}`"
    yield "`" + " ".join([context.command_path, *command.collect_usage_pieces(context)]) + "`"
    if command.name != "completion":
        yield " ".join(str(command.help).replace("\b", "").split())
    else:
        yield str(command.help).partition("\n")[0]
    rows = [_option(each, context) for each in command.params if isinstance(each, click.Option)]
    if rows:
        yield _table(("option", "meaning"), iter(rows))


def _option(option: click.Option, context: click.Context) -> Sequence[str]:
    names, text = option.get_help_record(context) or ("", "")
    return f"`{' '.join(names.split())}`", " ".join(text.split())


def audit_table() -> str:
    """Return the keys of one line of the audit log."""
    entry = AuditEntry(
        time=datetime.now(UTC),
        identity=None,
        role="",
        tool="",
        arguments={},
        vocabulary=tuple,
        rows=None,
        bytes=None,
        truncated=None,
        duration=0.0,
        outcome=Outcome.OK,
        code=None,
        protocol=None,
        client=None,
        request="",
    )
    return _table(("key", "value"), ((f"`{key}`", AUDIT[key]) for key in entry.content(arguments=False)))


def parameters_table() -> str:
    """Return the parameters of a PostgreSQL URL."""
    return _table(("parameter", "variable", "values", "effect"), _parameters())


def _parameters() -> Iterator[Sequence[str]]:
    for name, each in PARAMETERS.items():
        values = ", ".join(f"`{value}`" for value in each.values) or ("none" if each.why else "any")
        effect = f"{'no effect' if each.values else 'refused'}: {each.why}" if each.why else ""
        yield f"`{name}`", f"`{each.variable}`" if each.variable else "", values, effect
