"""The schema as resources, for hosts that let people attach what a model should know: one, and one a table.

They say what `describe_tables` does, of what the role sees, and are read under the same lens.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dbtools.catalog import Table
from dbtools.links import SCHEMA, schema_uri
from dbtools.results import Media, ResultSet
from dbtools.tools.definition import Setting
from dbtools.tools.describe_tables import DescribeCall, DescribeTables, Detail
from dbtools.tools.wording import cleaned

LONGEST_DESCRIPTION = 200  #: characters


@dataclass(frozen=True, kw_only=True)
class Resource:
    """A resource as `resources/list` shows it."""

    uri: str
    name: str
    title: str
    description: str = ""

    def content(self) -> dict[str, object]:
        """Return the resource as `resources/list` shows it (MCP 2026-07-28, server/resources)."""
        described: dict[str, object] = {"description": self.description} if self.description else {}
        return {
            "uri": self.uri,
            "name": self.name,
            "title": self.title,
            **described,
            "mimeType": "application/json",
        }


def define_resources(setting: Setting) -> Iterator[Resource]:
    """Yield the resources of *setting*: that of the whole schema first."""
    if not setting.catalog.tables:
        return
    description = "All tables: columns, types, keys and relations."
    yield Resource(uri=SCHEMA, name="schema", title="Schema", description=description)
    for table, label in zip(setting.catalog.tables, setting.labels, strict=True):
        yield Resource(
            uri=schema_uri(label),
            name=label,
            title=f"Schema of {label}",
            description=cleaned(table.comment, LONGEST_DESCRIPTION),
        )


def updated_resources(before: Setting, after: Setting) -> Iterator[str]:
    """Yield the addresses of what is there *before* and *after*, and says something else then."""
    old = dict(zip(before.labels, before.catalog.tables, strict=True))
    new = dict(zip(after.labels, after.catalog.tables, strict=True))
    other = [label for label, table in new.items() if label in old and _differs(old[label], table)]
    if old and new and (other or old.keys() != new.keys()):
        yield SCHEMA
    yield from map(schema_uri, other)


def _differs(before: Table, after: Table) -> bool:
    """Return whether something else is told of a table; its number of rows changes all the time."""
    return before != after and before != replace(after, row_estimate=before.row_estimate)


@dataclass(frozen=True, kw_only=True)
class SchemaCall:
    """The schema by its address."""

    uri: str
    call: DescribeCall
    statement: None = None

    def render(self, found: ResultSet) -> Media:
        """Return the description as JSON, as `describe_tables` answers it."""
        answer = self.call.render(found)
        return Media(uri=self.uri, type="application/json", content=answer.text.encode())


def bind_schema(setting: Setting, uri: str, table: str | None) -> SchemaCall:
    """Return the call that reads *uri*, the schema of *table*, or of all tables; or raise UnknownTable."""
    arguments: Mapping[str, object] = {"tables": [table], "detail": Detail.FULL} if table is not None else {}
    return SchemaCall(uri=uri, call=DescribeTables(setting=setting).bind(arguments))
