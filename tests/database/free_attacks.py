"""Attacks by ad-hoc SQL on SQLite: statements that try to read, count, guess or detect what is hidden."""

from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

BOM = "\ufeff"  #: whitespace for SQLite, if it comes before a word
#: Where a statement may name a table {t} that it has to open, and where else; a column {c} of customers; a
#: table of the engine {n}. Every kind of statement that names {t}; where SQLite may take the text {t} for a
#: table; and statements that name what is hidden, or do more than read, in other ways.
OPENING, TABLE_FORMS, COLUMN_FORMS, ENGINE_FORMS, CHANGES, PLACES, OTHERS = (
    section.split("\n")
    for section in Path(__file__)
    .with_name("sqlite_free_attacks.sql")
    .read_text("utf-8")
    .replace("{bom}", BOM)
    .strip()
    .split("\n\n")
)
ODD_FORMS = ("select * -- all\nfrom {t} -- of it", "select\t*\nfrom\r\n{t};")
ODD = ("", "select 1; -- a\n commit", "select 1\x00; drop table orders")
#: Spaces that only SQLite, or only other programs, take for white space.
SPACES = (BOM, "\u00a0", "\u2028", "\v", "\f", "\x85", "\u200b")
#: What precedes a change.
BEFORE = (
    "",
    "with x as (select 1) ",
    "with x(a) as materialized (select 1), replace as not materialized (values (1)) ",
    "with recursive materialized(a) as (select 1 union select a + 1 from materialized limit 2) ",
    f"with x as (select 1) {BOM}",
    "with x as (select * from {t}) ",
    "with {t} as (select 1) ",
)
#: Hidden tables, views, full-text tables and their shadows, an index, a trigger, and tables of the engine,
#: which only one of the two databases has.
HIDDEN = (
    *("secrets", "v_secrets", "mails", "mails_content", "secrets_v", "secrets_watched", "numbered"),
    *("sqlite_sequence", "sqlite_stat1", "regions"),
)
WAYS = ("{n}", '"{n}"', "[{n}]", "`{n}`", "'{n}'", "main.{n}", "temp.{n}", BOM + "{n}", "/**/{n}")
TABLES = (
    *("secrets", "SECRETS", '"secrets"', "`secrets`", "[secrets]", "'secrets'", "v_secrets", "mails"),
    *("mails_content", "regions", '"Weird ""Name"', "geheim_ä", "numbered"),
)
COLUMNS = ("SSN", '"ssn"', "[ssn]", "`ssn`", "Salary", "line_total", "code")
ENGINE_TABLES = (
    *("sqlite_master", "sqlite_temp_schema", "sqlite_sequence", "sqlite_stat1", "sqlite_stmt", "dbstat"),
    *("pragma_table_list", "pragma_database_list", "pragma_table_info"),
)


def attacks() -> Iterator[str]:
    """Yield every attack: each form with some of the names, each name in some of the forms."""
    ways = (way.replace("{n}", name) for name in HIDDEN for way in WAYS)
    names, columns = cycle((*TABLES, *ways)), cycle(COLUMNS)
    for form in (*OPENING, *TABLE_FORMS, *ODD_FORMS):
        yield from (form.replace("{t}", name) for name in ("secrets", *islice(names, 2)))
    for form in (before + change for before in BEFORE for change in CHANGES):
        yield from (form.replace("{t}", name) for name in islice(names, 2))
    for form in COLUMN_FORMS:
        yield from (form.replace("{c}", name) for name in ("ssn", *islice(columns, 2)))
    for form in ENGINE_FORMS:
        for name in ENGINE_TABLES:
            yield from (form.replace("{n}", written) for written in (BOM + name, f"'{name}'"))
    yield from (*OTHERS, *ODD)
    yield from (f"select{space}1{space}from{space}secrets{space}" for space in SPACES)
