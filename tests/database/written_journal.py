"""A table that a role may change, with a trigger that records every change."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dbtools import errors
from dbtools.service.serving import open_toolbox
from dbtools.settings import DatabaseSection, LimitsSection, Settings
from dbtools.settings.sections import GrantSection, QueriesSection, RoleSection, ServerSection
from tests.database.query_shop import FILES
from tests.database.role_callers import ROLE, Caller
from tests.database.shop import Shop

TABLES = """
create table things (id integer primary key, v text);
insert into things values (1, 'one'), (2, 'two'), (3, 'three');
create table journal (what text not null, id integer not null, v text);
"""
DDL = {
    "sqlite": TABLES
    + """
    create trigger inserted after insert on things begin insert into journal values ('+', new.id, new.v); end;
    create trigger updated after update on things begin insert into journal values ('=', new.id, new.v); end;
    create trigger deleted after delete on things begin insert into journal values ('-', old.id, old.v); end;
    """,
    "postgresql": TABLES
    + """
    create function note() returns trigger language plpgsql as $$ begin
        if tg_op = 'DELETE' then insert into journal values ('-', old.id, old.v);
        elsif tg_op = 'UPDATE' then insert into journal values ('=', new.id, new.v);
        else insert into journal values ('+', new.id, new.v); end if;
        return null;
    end $$;
    create trigger noted after insert or update or delete on things for each row execute function note();
    """,
}
#: Calls that change one row each, and what the journal then has.
CALLS: Mapping[str, tuple[str, Mapping[str, Any], tuple[object, ...]]] = {
    "insert": ("insert_things", {"rows": [{"id": 9, "v": "new"}]}, ("+", 9, "new")),
    "update": ("update_things", {"id": 1, "set": {"v": "new"}}, ("=", 1, "new")),
    "delete": ("delete_things", {"id": 1}, ("-", 1, "one")),
    "query": ("change_thing", {"id": 1, "v": "new"}, ("=", 1, "new")),
    "upsert": (
        "insert_things",
        {"rows": [{"id": 1, "v": "new"}], "on_conflict": "update"},
        ("=", 1, "new"),
    ),
}
BEFORE: list[tuple[object, ...]] = [(1, "one"), (2, "two"), (3, "three")]
AFTER: Mapping[str, list[tuple[object, ...]]] = {
    "insert": [*BEFORE, (9, "new")],
    "update": [(1, "new"), (2, "two"), (3, "three")],
    "delete": [(2, "two"), (3, "three")],
    "query": [(1, "new"), (2, "two"), (3, "three")],
    "upsert": [(1, "new"), (2, "two"), (3, "three")],
}
GRANT = GrantSection(insert=True, update=True, delete=True)


def repeated(answer: Mapping[str, Any]) -> bool:
    """Return whether *answer* says that an earlier call with its idempotency key has made the change."""
    return "An earlier call" in str(answer.get("note"))


@contextmanager
def writing(
    shop: Shop,
    grant: GrantSection = GRANT,
    *,
    timeout: float = 30,
    table: str = "things",
    role: Mapping[str, Any] | None = None,
    more: Mapping[str, GrantSection] | None = None,
    server: ServerSection | None = None,
    **database: Any,
) -> Iterator[Caller]:
    """Yield a caller who may change a table of *shop* by *grant*; *database* has other settings."""
    settings = Settings(
        database=DatabaseSection(url=shop.url, **database),
        limits=LimitsSection(timeout=timeout),
        server=server or ServerSection(),
        queries=QueriesSection(directory=str(FILES / "changing") if table == "things" else ""),
        roles={ROLE: RoleSection(tables={table: grant, **(more or {})}, queries=("*",), **(role or {}))},
    )
    toolbox, backend = open_toolbox(settings)
    try:
        yield Caller(toolbox=toolbox, database=backend, portal=shop.portal, claims={})
    finally:
        shop.portal.call(backend.close)


@dataclass(frozen=True, kw_only=True)
class Told:
    """The outcome for the caller, and the content of the database."""

    code: str  #: of the error, empty if there is none
    message: str
    things: list[tuple[object, ...]]
    journal: list[tuple[object, ...]]

    def is_true(self, kind: str) -> bool:
        """Return whether the outcome for the caller of *kind* matches what is stored, at most once."""
        done = self.things == AFTER[kind] and self.journal == [CALLS[kind][2]]
        undone = self.things == BEFORE and self.journal == []
        if self.code == "unknown_outcome":
            return done or undone
        return done if not self.code else undone and "Nothing was changed" in self.message


def told(caller: Caller, shop: Shop, kind: str) -> Told:
    """Make the call of *kind*, and restore the database."""
    tool, arguments, _ = CALLS[kind]
    code, message = "", ""
    try:
        caller.call(tool, **arguments)
    except errors.CallError as exc:
        code, message = exc.code, str(exc)
    found = Told(code=code, message=message, things=things(shop), journal=journal(shop))
    restore(shop)
    return found


def things(shop: Shop) -> list[tuple[object, ...]]:
    """Return the rows of the table."""
    return shop.bare.rows("select id, v from things order by id")


def journal(shop: Shop) -> list[tuple[object, ...]]:
    """Return what was done to the table."""
    return shop.bare.rows("select what, id, v from journal order by what, id, v")


def restore(shop: Shop) -> None:
    """Let the database be as it was at first."""
    rows = "(1, 'one'), (2, 'two'), (3, 'three')"
    shop.bare.execute(f"delete from things; insert into things values {rows}; delete from journal")
