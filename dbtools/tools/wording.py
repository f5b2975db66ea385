"""Describe tables and columns to a model. Names and comments in, short texts without odd characters out."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, count

from dbtools.schema.catalog import Catalog, Column, Table, TableKind
from dbtools.schema.paths import normalise
from dbtools.values.cells import INVISIBLE, escape
from dbtools.values.types import choices_schema

#: The names of arguments that all providers of models accept.
ARGUMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
DESCRIPTION_LIMIT = 1_024  #: characters that all providers of models accept
LONGEST_TABLE_COMMENT = 200
LONGEST_COLUMN_COMMENT = 80
LONGEST_DEFAULT = 100
LONGEST_LABEL = 140
MOST_FREQUENT = 20  #: columns in the schema of a tool of any table
LONGEST_ARGUMENT = 58  #: characters of a name that is not that of its column, before a number
LONGEST_NAMES = 160  #: characters of a list of names in a description
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
    """Return *columns* by the names of their arguments: their own names wherever providers accept them."""
    columns = tuple(columns)
    taken = {column.name for column in columns if ARGUMENT.fullmatch(column.name)}
    arguments: dict[str, Column] = {}
    for column in columns:
        name = column.name
        if name not in taken:
            bare = re.sub("^(?=[0-9])", "_", normalise(name)[:LONGEST_ARGUMENT])
            numbered = (f"{bare}_{number}" for number in count(2))
            name = next(each for each in chain([bare], numbered) if each not in taken)
            taken.add(name)
        arguments[name] = column
    return arguments


def table_arguments(table: Table, columns: Sequence[Column]) -> Mapping[str, Column]:
    """Return *columns* of *table* by the names of their arguments, which are the same in all tools."""
    if all(ARGUMENT.fullmatch(column.name) for column in columns):
        return {column.name: column for column in columns}
    every = {column.name: column for column in (*table.columns, *columns)}
    names = {column.name: name for name, column in argument_names(every.values()).items()}
    return {names[column.name]: column for column in columns}


def frequent_values(columns: Iterable[tuple[Table, Sequence[Column]]]) -> dict[str, object]:
    """Return the JSON Schema of values by column for tools of any table, with the most frequent *columns*."""
    return frequent_texts(chain.from_iterable(table_arguments(table, some) for table, some in columns))


def frequent_texts(names: Iterable[str]) -> dict[str, object]:
    """Return the JSON Schema of an object with texts by *names*; it lists the most frequent ones."""
    listed = [name for name, _ in Counter(names).most_common(MOST_FREQUENT)]
    return {"type": "object", "properties": {name: {"type": "string"} for name in listed or ["id"]}}


def column_note(argument: str, column: Column) -> str:
    """Return which *column* an *argument* with another name is for."""
    return "" if argument == column.name else f"column {tidy(column.name, 63)}"


def argument_schema(name: str, column: Column, *notes: str) -> dict[str, object]:
    """Return the JSON Schema of the argument *name* for a value of *column*, described with *notes*."""
    schema = column.type.schema()
    if column.choices and "enum" not in schema and schema["type"] == "string":
        schema |= choices_schema(column.choices)
    return schema | description_of(column_note(name, column), schema.pop("description", ""), *notes)


def description_of(*notes: object) -> dict[str, object]:
    """Return the description of a JSON Schema that consists of *notes*, or nothing if they are empty."""
    words = ", ".join(map(str, filter(None, notes)))
    return {"description": cut_description(escape(words))} if words else {}


def cut_description(description: str, most: int = DESCRIPTION_LIMIT) -> str:
    """Return *description*, cut after a word if it has more than *most* characters."""
    return description if len(description) <= most else description[: most - 1].rpartition(" ")[0] + "…"


def list_names(names: Iterable[str], more: str = "") -> str:
    """Return as many of *names* as fit into a description; *more* says where the others are."""
    return fit_parts(list(names), ", ", LONGEST_NAMES, more)


def fit_parts(parts: Sequence[str], separator: str, most: int, more: str = "") -> str:
    """Return *parts* in at most *most* characters, or as many as fit, how many are left out, and *more*."""
    text = separator.join(parts)
    if len(text) <= most:
        return text
    ends = list(accumulate(len(part) + len(separator) for part in parts))
    fit = bisect_right(ends, most - len(f"and {len(parts):,} more{more}"))
    return separator.join([*parts[:fit], f"and {len(parts) - fit:,} more{more}"])


def tidy(comment: str, most: int) -> str:
    """Return *comment* as one line of at most *most* characters, without invisible characters."""
    if comment.isascii() and comment.isprintable() and "  " not in comment:
        text = comment.strip()
    else:
        text = " ".join(INVISIBLE.sub("", CONTROLS.sub(" ", comment)).split())
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def nonempty_parts(**parts: object) -> dict[str, object]:
    """Return *parts* without null, false and empty ones; 0 stays."""
    return {name: part for name, part in parts.items() if part or (part == 0 and part is not False)}


def quotation(comment: str, most: int) -> str:
    """Return the untrusted *comment* in quotes that it cannot close, or an empty text."""
    text = tidy(comment, most).rstrip(".;").replace("'", "’")
    return f"'{text}'" if text else ""


def table_name(catalog: Catalog, table: Table) -> str:
    """Return the name of *table*, with its kind if that is not a table."""
    label = tidy(catalog.label(table), LONGEST_LABEL)
    return label if table.kind is TableKind.TABLE else f"{table.kind} {label}"


def shown_default(default: str | None) -> str:
    """Return *default* without its cast, or an empty text if it may name a hidden object."""
    found = PLAIN_DEFAULT.fullmatch(default or "")
    return tidy(found["value"], LONGEST_DEFAULT) if found else ""


def column_parts(catalog: Catalog, table: Table, stored: Mapping[str, str]) -> list[str]:
    """Return each column of *table* with type, *stored* values, key, relation and comment."""
    relations = relation_targets(catalog, table)
    parts: list[str] = []
    for column in table.columns:
        key = "key" if column in table.key_columns else ""
        target = f"→ {relations[column.name]}" if column.name in relations else ""
        comment = quotation(column.comment, LONGEST_COLUMN_COMMENT)
        type = ": ".join(filter(None, (type_name(column), stored.get(column.name))))
        words = (tidy(column.name, 63), type, key, target, comment)
        parts.append(" ".join(filter(None, words)))
    return parts


def columns_line(catalog: Catalog, table: Table, most: int) -> str:
    """Return the columns of *table* in at most *most* characters, without comments if they need more."""
    parts = column_parts(catalog, table, {})
    if len("; ".join(parts)) > most:
        bare = [replace(column, comment="") for column in table.columns]
        parts = column_parts(catalog, replace(table, columns=tuple(bare)), {})
    return fit_parts(parts, "; ", most, ": describe_tables")


def searches_line(table: Table) -> str:
    """Return which columns `matches` takes, and what it looks for, or nothing."""
    together = dict.fromkeys(
        tuple(name for name in table.searchable if name in index.reads) for index in table.searchable.values()
    )
    names = list_names(tidy("+".join(each), LONGEST_NAMES) for each in together)
    ranked = next((name for name, index in table.searchable.items() if index.ranked), "")
    rank = f'; order_by "rank({tidy(ranked, LONGEST_LABEL)})": best first' if ranked else ""
    return f'matches searches {names}: words, "a phrase", or, -word{rank}.' if names else ""


def type_name(column: Column) -> str:
    """Return the type of *column*, or its values if they are few."""
    labels = column.choices or column.type.labels
    if labels and len(labels) <= MOST_CHOICES:
        return "|".join(tidy(label, 40) for label in labels)
    name = tidy(column.type.name, 60)
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
