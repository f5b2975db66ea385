"""How tables and columns are described to a model: short, cleaned of controls, never trusted."""

import re
from bisect import bisect_right
from itertools import accumulate

from dbtools.catalog import Catalog, Column, Table
from dbtools.cells import INVISIBLE

LONGEST_TABLE_COMMENT = 200
LONGEST_COLUMN_COMMENT = 80
LONGEST_COLUMNS = 3_000  #: characters of the list of columns in one description
MOST_CHOICES = 12
CONTROLS = re.compile(r"[\x00-\x1f]")
SHORT_TYPES = (
    ("timestamp with time zone", "timestamptz"),
    ("timestamp without time zone", "timestamp"),
    ("character varying", "varchar"),
    ("double precision", "double"),
)


def cleaned(comment: str, most: int) -> str:
    """Return *comment* on one line of at most *most* characters, without invisible characters."""
    if comment.isascii() and comment.isprintable() and "  " not in comment:
        text = comment.strip()
    else:
        text = " ".join(INVISIBLE.sub("", CONTROLS.sub(" ", comment)).split())
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def sentence(text: str) -> str:
    """Return *text* with a full stop at its end."""
    return text if not text or text.endswith((".", "!", "?", "…")) else text + "."


def column_parts(catalog: Catalog, table: Table) -> list[str]:
    """Return each column of *table* with type, key, relation and comment."""
    relations = relation_targets(catalog, table)
    return [_column(table, column, relations.get(column.name)) for column in table.columns]


def columns_line(catalog: Catalog, table: Table) -> str:
    """Return the columns of *table* in one line, as many as are useful."""
    parts = column_parts(catalog, table)
    ends = list(accumulate(len(part) + 2 for part in parts))
    count = bisect_right(ends, LONGEST_COLUMNS)
    left = f"and {len(parts) - count} more, see describe_tables" if count < len(parts) else ""
    return "; ".join(filter(None, [*parts[:count], left]))


def _column(table: Table, column: Column, target: str | None) -> str:
    key = table.primary_key
    words = [cleaned(column.name, 63), type_name(column)]
    if key and column.name in key.columns:
        words.append("key")
    if target:
        words.append(f"→ {target}")
    comment = cleaned(column.comment, LONGEST_COLUMN_COMMENT)
    return " ".join(words) + (f": {comment.rstrip('.;')}" if comment else "")


def type_name(column: Column) -> str:
    """Return the type of *column*, or the values that it can have where they are few."""
    labels = column.choices or column.type.labels
    if labels and len(labels) <= MOST_CHOICES:
        return "|".join(cleaned(label, 40) for label in labels)
    name = cleaned(column.type.name, 60)
    for long, short in SHORT_TYPES:
        name = name.replace(long, short)
    return name


def relation_targets(catalog: Catalog, table: Table) -> dict[str, str]:
    """Return for each column of a foreign key the column of the table that it points to."""
    targets: dict[str, str] = {}
    for foreign_key in table.foreign_keys:
        target = catalog.table(foreign_key.target_schema, foreign_key.target)
        if target is not None:
            pairs = zip(foreign_key.columns, foreign_key.target_columns, strict=True)
            for column, target_column in pairs:
                targets.setdefault(column, f"{catalog.label(target)}.{target_column}")
    return targets
