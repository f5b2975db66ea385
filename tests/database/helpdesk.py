"""A help desk whose permitted queries change rows. DDL and queries in, a served database out."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tests.database.query_shop import QueryShop, ServeQueries

DDL = """
create table tickets (
    id integer primary key,
    title text not null,
    status text not null default 'open' check (status in ('open', 'closed')),
    region text not null,
    closed_by text,
    secret text
);
insert into tickets values
    (1, 'Printer', 'open', 'north', null, 'CANARY-1'), (2, 'Mouse', 'open', 'north', null, 'CANARY-2'),
    (3, 'Screen', 'open', 'south', null, 'CANARY-3');
create table drafts (
    id integer primary key,
    ticket_id integer not null references tickets (id) on delete cascade,
    body text not null unique
);
insert into drafts values (1, 1, 'try again'), (2, 1, 'turn it off'), (3, 3, 'look');
create table history (ticket_id integer not null, what text not null);
create table notes (body text not null);
"""
TRIGGERS = {
    "sqlite": """
create table labels (label text unique on conflict replace);
create trigger kept after update on tickets begin
    insert into history values (new.id, new.status);
end;
""",
    "postgresql": """
create function keep() returns trigger language plpgsql as $$
begin
    insert into history values (new.id, new.status);
    return null;
end $$;
create trigger kept after update on tickets for each row execute function keep();
""",
}
CLOSE = """
-- name: close_ticket
-- description: Close open tickets of the caller's region.
-- writes: 2
-- param ids: integer[]  Which.
-- param by: text?  Who closed them.
update tickets set status = 'closed' /*? , closed_by = :by ?*/
where id in (:ids) and region = :claims.region and status = 'open'
returning id, title, status
"""
REMOVE = """
-- name: remove_ticket
-- description: Delete a ticket with its drafts.
-- writes: 1
-- confirm: true
-- param id: integer  Which.
delete from tickets where id = :id returning id
"""
NOTE = """
-- name: add_note
-- description: Keep a note.
-- writes: 1
-- param body: text  What.
insert into notes (body) values (:body)
"""
READ = """
-- name: notes_kept
-- description: All notes.
select body from notes order by body
"""
QUERIES = {"desk.sql": CLOSE + REMOVE + NOTE + READ}
ACCEPTED = '"*"'
ROLES = f"""
[roles.desk]
queries = [{ACCEPTED}]
[roles.reader]
queries = ["notes_kept"]
"""
DESK = {"role": "desk", "region": "north"}
#: A dialect, and perhaps other queries and roles, in; the served help desk out.
OpenDesk = Callable[..., AbstractContextManager[QueryShop]]


def opening(serve_queries: ServeQueries) -> OpenDesk:
    """Return what serves a help desk."""

    @contextmanager
    def opened(
        dialect: str, sql: str = "", roles: str = ROLES, *, ddl: str = DDL, triggers: bool = True
    ) -> Iterator[QueryShop]:
        queries = {"other.sql": sql} if sql else QUERIES
        ddl = ddl + TRIGGERS[dialect] * triggers
        with serve_queries(dialect, ddl, queries, roles) as shop:
            yield shop

    return opened


def answered(shop: QueryShop, tool: str, arguments: Mapping[str, object], **caller: object) -> Any:
    """Return the structured answer of *tool*."""
    return shop.call(tool, arguments, **caller).structured


def stored(shop: QueryShop, sql: str) -> list[tuple[object, ...]]:
    """Return the rows of *sql* as they are in the database."""
    return [tuple(row) for row in shop.bare.rows(sql)]


def problems(shop: QueryShop, role: str = "desk") -> list[str]:
    """Return what is wrong, besides what the login of the tests can do."""
    found = shop.view(role).problems
    findings = [each for each in found if not isinstance(each, str)]
    return [each.message for each in findings if each.code not in ("posture", "no_sql")]
