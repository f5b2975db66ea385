"""The schema of what a permitted query answers: exact where its database keeps its types."""

from collections.abc import Mapping, Sequence

from dbtools.catalog import Column
from dbtools.results import Rows
from dbtools.tools.arguments import narrowed_schema
from dbtools.tools.definition import ROW_SCHEMA, ROWS_SCHEMA
from dbtools.types import SAFE_INTEGER, ColumnType, Family

#: A query has no pages: where rows are cut off, a note says what helps.
MANY_SCHEMA: Mapping[str, object] = {
    **ROWS_SCHEMA,
    "properties": {
        "row_count": {"type": "integer"},
        "truncated": {"type": "boolean"},
        "columns": {"type": "array"},
        "rows": {"type": "array"},
        "note": {"type": "string"},
    },
}
#: How cells are shown; those that are not here are texts.
SHOWN: Mapping[Family, tuple[str, ...]] = {
    Family.INTEGER: ("integer",),
    Family.NUMBER: ("number", "string"),  # NaN and infinities
    Family.BOOLEAN: ("boolean",),
    Family.ARRAY: ("array", "string"),  # cut where it is too long
    Family.OBJECT: ("object", "string"),
}


def rows_schema(columns: Sequence[Column], rows: Rows) -> Mapping[str, object]:
    """Return the schema of many rows of *columns*."""
    row: dict[str, object] = {"type": "array", "prefixItems": [_cell(each) for each in columns]}
    if rows is Rows.OBJECTS:
        row = _object(columns)
    schema = narrowed_schema(MANY_SCHEMA, ("properties", "rows", "items"), row)
    return narrowed_schema(schema, ("properties", "columns", "items"), {"type": "string"})


def row_schema(columns: Sequence[Column]) -> Mapping[str, object]:
    """Return the schema of the one row of *columns*."""
    return narrowed_schema(ROW_SCHEMA, ("properties", "row"), _object(columns))


def _object(columns: Sequence[Column]) -> dict[str, object]:
    return {"type": "object", "properties": {each.name: _cell(each) for each in columns}}


def _cell(column: Column) -> dict[str, object]:
    if column.type.lenient or column.type.family in (Family.ANY, Family.JSON):
        return {}
    types = [*_types(column.type), *(["null"] if column.nullable else [])]
    return {"type": types[0] if len(types) == 1 else types}


def _types(type: ColumnType) -> tuple[str, ...]:
    if type.family is Family.INTEGER and not _is_safe(type):
        return ("integer", "string")
    return SHOWN.get(type.family, ("string",))


def _is_safe(type: ColumnType) -> bool:
    """Return whether every value is an integer that all readers of JSON read."""
    return type.maximum is not None and type.maximum <= SAFE_INTEGER
