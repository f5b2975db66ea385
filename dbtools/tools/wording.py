"""Describe tables and columns to a model. Names and comments in, short texts without odd characters out."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate

from dbtools.catalog import Catalog, Column, Table, TableKind
from dbtools.cells import INVISIBLE
from dbtools.paths import normalised

ARGUMENT = re.compile(r"[A-Za-z0-9_.-]{1,64}")
LONGEST_TABLE_COMMENT = 200
LONGEST_COLUMN_COMMENT = 80
LONGEST_DEFAULT = 100
LONGEST_LABEL = 140
LONGEST_COLUMNS = 3_000  #: characters of the list of columns in one description
MOST_CHOICES = 12
CONTROLS = re.compile(r"[\x00-\x1f]")
#: A default that names no user-defined object. The text of a type such as regclass may be such a name.
PLAIN_DEFAULT = re.compile(
    r"(?P<value>[-+\d.]+|'(?:[^']|'')*'|true|false|null|now\(\)|current_(?:date|time|timestamp)"
    r"|gen_random_uuid\(\)|uuidv[47]\(\)|(?:date|time|datetime)\('now'\))(?:::(?!.*reg)[\w. \"\[\](),]+)?",
    re.IGNORECASE,
)
SHORT_TYPES = (
    ("timestamp with time zone", "timestamptz"),
    ("timestamp without time zone", "timestamp"),
    ("character varying", "varchar"),
    ("double precision", "double"),
)


def argument_names(columns: Iterable[Column]) -> Mapping[str, Column]:
    """Return *columns* by the names of their arguments: the same names wherever clients accept them."""
    columns = tuple(columns)
    taken = {column.name for column in columns if ARGUMENT.fullmatch(column.name)}
    arguments: dict[str, Column] = {}
    for column in columns:
        name = column.name
        if name not in taken:
            name = normalised(name)[:60]
            while name in taken:
                name += "_"
            taken.add(name)
        arguments[name] = column
    return arguments


def cleaned(comment: str, most: int) -> str:
    """Return *comment* as one line of at most *most* characters, without invisible characters."""
    if comment.isascii() and comment.isprintable() and "  " not in comment:
        text = comment.strip()
    else:
        text = " ".join(INVISIBLE.sub("", CONTROLS.sub(" ", comment)).split())
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def without_empty(**parts: object) -> dict[str, object]:
    """Return *parts* without null, false and empty ones; 0 stays."""
    return {name: part for name, part in parts.items() if part or (part == 0 and part is not False)}


def quotation(comment: str, most: int) -> str:
    """Return the untrusted *comment* in quotes that it cannot close, or an empty text."""
    text = cleaned(comment, most).rstrip(".;").replace("'", "’")
    return f"'{text}'" if text else ""


def table_name(catalog: Catalog, table: Table) -> str:
    """Return the name of *table*, with its kind if that is not a table."""
    label = cleaned(catalog.label(table), LONGEST_LABEL)
    return label if table.kind is TableKind.TABLE else f"{table.kind} {label}"


def shown_default(default: str | None) -> str:
    """Return *default* without its cast, or an empty text if it may name a hidden object."""
    found = PLAIN_DEFAULT.fullmatch(default or "")
    return cleaned(found["value"], LONGEST_DEFAULT) if found else ""


def column_parts(catalog: Catalog, table: Table, stored: Mapping[str, str]) -> list[str]:
    """Return each column of *table* with type, *stored* values, key, relation and comment."""
    relations = relation_targets(catalog, table)
    parts: list[str] = []
    for column in table.columns:
        key = "key" if column in table.key_columns else ""
        target = f"→ {relations[column.name]}" if column.name in relations else ""
        comment = quotation(column.comment, LONGEST_COLUMN_COMMENT)
        type = ": ".join(filter(None, (type_name(column), stored.get(column.name))))
        words = (cleaned(column.name, 63), type, key, target, comment)
        parts.append(" ".join(filter(None, words)))
    return parts


def columns_line(catalog: Catalog, table: Table) -> str:
    """Return the columns of *table* in one line, as many as are useful."""
    parts = column_parts(catalog, table, {})
    ends = list(accumulate(len(part) + 2 for part in parts))
    count = bisect_right(ends, LONGEST_COLUMNS)
    left = f"and {len(parts) - count} more, see describe_tables" if count < len(parts) else ""
    return "; ".join(filter(None, [*parts[:count], left]))


def searches_line(table: Table) -> str:
    """Return which columns `matches` takes, and what it looks for, or nothing."""
    together = dict.fromkeys(
        tuple(name for name in table.searchable if name in index.reads) for index in table.searchable.values()
    )
    names = ", ".join(cleaned("+".join(each), LONGEST_LABEL) for each in together)
    ranked = next((name for name, index in table.searchable.items() if index.ranked), "")
    rank = f'; order_by "rank({cleaned(ranked, LONGEST_LABEL)})": best first' if ranked else ""
    return f'matches searches {names}: words, "a phrase", or, -word{rank}.' if names else ""


def type_name(column: Column) -> str:
    """Return the type of *column*, or its values if they are few."""
    labels = column.choices or column.type.labels
    if labels and len(labels) <= MOST_CHOICES:
        return "|".join(cleaned(label, 40) for label in labels)
    name = cleaned(column.type.name, 60)
    for long, short in SHORT_TYPES:
        name = name.replace(long, short)
    return name


def relation_targets(catalog: Catalog, table: Table) -> dict[str, str]:
    """Return the target of each column that is part of a foreign key."""
    targets: dict[str, str] = {}
    for foreign_key in table.foreign_keys:
        target = catalog.table(foreign_key.target_schema, foreign_key.target)
        if target is not None:
            pairs = zip(foreign_key.columns, foreign_key.target_columns, strict=True)
            for column, target_column in pairs:
                targets.setdefault(column, f"{catalog.label(target)}.{target_column}")
    return targets


def sentences(description: str, more: str) -> str:
    """Return the operator's *description*, followed by *more* as a separate sentence."""
    if not description or not more:
        return description or more
    stop = "" if description.endswith((".", "!", "?", ":", "…")) else "."
    return f"{description}{stop} {more[0].upper()}{more[1:].removesuffix('.')}."
