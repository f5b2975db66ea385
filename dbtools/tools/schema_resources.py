"""The schema as resources, for hosts that let people attach what a model should know: one, and one a table.

They say what `describe_tables` does, of what the role sees, and are read under the same lens.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dbtools.links import SCHEMA, schema_uri
from dbtools.results import Media, ResultSet
from dbtools.tools.definition import Setting
from dbtools.tools.describe_tables import DescribeCall, DescribeTables, Detail
from dbtools.tools.wording import quotation

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
            description=quotation(table.comment, LONGEST_DESCRIPTION),
        )


def updated_resources(before: Setting, after: Setting) -> Iterator[str]:
    """Yield the addresses of what is there *before* and *after*, and says something else then."""
    old, new = _told(before), _told(after)
    other = [label for label, told in new.items() if label in old and old[label] != told]
    if old and new and (other or old.keys() != new.keys()):
        yield SCHEMA
    yield from map(schema_uri, other)


def _told(setting: Setting) -> Mapping[str, object]:
    """Return what the description of each table is made of; its number of rows changes all the time."""
    catalog = setting.catalog
    references = {
        table: [(catalog.label(other), key) for other, key in catalog.references(table)]
        for table in catalog.tables
    }
    return {
        label: (replace(table, row_estimate=None), references[table])
        for label, table in zip(setting.labels, catalog.tables, strict=True)
    }


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
