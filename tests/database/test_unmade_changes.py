"""Changes of a SQLite table whose triggers or checks need what is missing: reported, and not offered."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dbtools.backends.refusals import Cause
from dbtools.backends.sqlite.writing.writer import refusal
from dbtools.policy.roles import Caller
from dbtools.service.checking import check
from dbtools.service.serving import open_toolbox
from dbtools.settings import DatabaseSection, Settings
from dbtools.settings.sections import GrantSection, RoleSection

DDL = """
create table layer (id integer primary key, geom blob, name text);
create table plain (id integer primary key, name text, layer integer references layer (id) on delete cascade);
"""
EVENTS = {"insert": "insert", "update": "update of name", "delete": "delete"}
#: What follows the event of a trigger, and what SQLite says.
BODIES = {
    "begin select ST_IsEmpty(1); end": "no such function: ST_IsEmpty",
    "when ST_IsEmpty(1) begin select 1; end": "no such function: ST_IsEmpty",
    "begin delete from absent; end": "no such table: main.absent",
    "begin select absent from plain; end": "no such column: absent",
    "begin insert into plain (absent) values (1); end": "table plain has no column named absent",
    "begin delete from plain where layer < 'a' collate absent; end": "no such collation sequence: absent",
}


async def test_changes_that_triggers_prevent_are_reported_and_not_offered(
    sqlite_database: Callable[[str], Path],
) -> None:
    """Each table has a trigger for one event, and each role may make one kind of change."""
    cases = {
        f"{event}{at}": (event, body, says)
        for at, (body, says) in enumerate(BODIES.items())
        for event in EVENTS
    }
    ddl = "".join(
        f"create table {table} (id integer primary key, name text);"
        f"create trigger on_{table} after {EVENTS[event]} on {table} {body};"
        for table, (event, body, _) in cases.items()
    )
    grants = {
        "insert": GrantSection(insert=("name",)),
        "update": GrantSection(update=("name",)),
        "delete": GrantSection(delete=True),
    }
    roles = {
        f"{kind}_{table}": RoleSection(tables={table: grant})
        for kind, grant in grants.items()
        for table in cases
    }
    path = sqlite_database(DDL + ddl)
    settings = Settings(database=DatabaseSection(url=f"sqlite:///{path}"), roles=roles)
    messages = [each.message for each in (await check(settings)).findings]
    toolbox, backend = open_toolbox(settings)
    try:
        offered = {role for role in roles if role in (await toolbox.view(role)).tools}
    finally:
        await backend.close()

    prevented = {f"{event}_{table}" for table, (event, *_) in cases.items()}
    assert offered == roles.keys() - prevented
    assert {each for each in messages if "cannot be changed" in each} == {
        f"role {event}_{table}, tables.{table}: {table} cannot be changed: "
        f"SQLite cannot prepare {event} statements: {says}."
        for table, (event, _, says) in cases.items()
    }


async def test_trigger_of_a_cascade_prevents_the_change_that_starts_it(
    sqlite_database: Callable[[str], Path],
) -> None:
    path = sqlite_database(f"{DDL} create trigger t after delete on plain begin select absent(1); end;")
    settings = Settings(database=DatabaseSection(url=f"sqlite:///{path}", writable=True))
    toolbox, backend = open_toolbox(settings)
    try:
        view = await toolbox.view("default")
    finally:
        await backend.close()

    assert [table.name for table in view.catalog.tables if table.writes is not None] == []
    assert "no such function: absent" in " ".join(map(str, view.problems))


async def test_geopackage_layer_is_read_although_it_cannot_be_changed(
    sqlite_database: Callable[[str], Path],
) -> None:
    trigger = (
        "after insert on layer when (new.geom not null and not ST_IsEmpty(new.geom)) begin select 1; end"
    )
    path = sqlite_database(f"{DDL} insert into layer values (1, null, 'a'); create trigger rtree {trigger};")
    toolbox, backend = open_toolbox(
        Settings(database=DatabaseSection(url=f"sqlite:///{path}", writable=True))
    )
    try:
        answer = await toolbox.call(Caller(role="default"), "list_layer", {"columns": ["name"]})
    finally:
        await backend.close()

    assert answer.structured["rows"] == [["a"]]


PARTS = {
    "check": "create table part (id integer primary key, name text check (st_isempty(name) = 0));",
    "generated column": "create table part (id integer primary key, name text, n as (st_isempty(name)));",
    "index": "create table part (id integer primary key, name); create index i on part (st_isempty(name));",
}


@pytest.mark.parametrize("part", PARTS)
async def test_part_of_a_table_that_needs_what_is_missing_prevents_its_changes(
    tmp_path: Path, part: str
) -> None:
    path = tmp_path / "parts.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.create_function("st_isempty", 1, lambda _: 0, deterministic=True)
        connection.executescript(PARTS[part])
    role = RoleSection(tables={"part": GrantSection(insert=("name",))})
    found = await check(Settings(database=DatabaseSection(url=f"sqlite:///{path}"), roles={"r": role}))

    assert [each.message for each in found.findings if "part cannot be changed" in each.message] == [
        "role r, tables.part: part cannot be changed: SQLite cannot prepare insert statements: "
        "unknown function: st_isempty()."
    ]


@pytest.mark.parametrize("sql", ["select ST_IsEmpty(1)", "insert into part (name) values ('a')"])
def test_refusal_says_that_something_is_missing_without_words_of_the_engine(tmp_path: Path, sql: str) -> None:
    path = tmp_path / "part.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.create_function("ST_IsEmpty", 1, lambda _: 0, deterministic=True)
        connection.execute("create table part (name text check (ST_IsEmpty(name) = 0))")
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.Error) as raised:
        connection.execute(sql)
    refused = refusal(raised.value)

    assert str(refused) == str(Cause.INCOMPLETE_SCHEMA.error())
    assert "ST_IsEmpty" not in str(refused)
