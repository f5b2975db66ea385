"""Why a change is refused: what the database said in words of dbtools, or that it gave no reason."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from dbtools import errors
from dbtools.settings.sections import GrantSection
from tests.database.role_callers import Caller, Grants, calling_as
from tests.database.shop import Serve
from tests.database.written_shop import Opens, refused
from tests.postgresql_server import PostgresqlServer

ALL = GrantSection(insert=True, update=True, delete=True, max_affected=5)


POLICIES = """
    create table notes (id integer primary key, word text check (word <> 'unfit'), owner text);
    insert into notes values (1, 'a', 'me'), (2, 'b', 'you');
    alter table notes enable row level security;
    create policy seen on notes for select using (true);
    create policy added on notes for insert with check (word <> 'bad');
    create policy changed on notes for update using (owner = 'me') with check (word <> 'bad');
    create policy removed on notes for delete using (owner = 'me');
    create table plain (id integer primary key, word text);
    insert into plain values (1, 'a');
    create function refuse() returns trigger language plpgsql as $$ begin
        if new.word = 'check' then
            raise check_violation using message = 'CANARY', table = 'notes', column = 'owner';
        elsif new.word = 'privilege' then
            raise insufficient_privilege using message = 'CANARY';
        elsif new.word = 'plain' then
            raise exception 'CANARY';
        elsif new.word = 'keep' then
            return null;
        end if;
        return new;
    end $$;
    create trigger refusing before insert or update on plain for each row execute function refuse();
"""


@pytest.fixture
def policed(serve: Serve, postgresql_server: PostgresqlServer) -> Iterator[Caller]:
    """Yield a caller whose login is subject to row-level security."""
    login = f"low_{secrets.token_hex(4)}"
    with serve("postgresql", POLICIES, fresh=True) as shop:
        postgresql_server.execute(
            f"create role {login} login; grant select, insert, update, delete on notes, plain to {login};",
            url=shop.url,
        )
        parts = urlsplit(shop.url)
        own = parts._replace(netloc=f"{login}@{parts.netloc.rpartition('@')[2]}").geturl()
        try:
            with calling_as(replace(shop, url=own), {"notes": ALL, "plain": ALL}, {}) as caller:
                yield caller
        finally:
            postgresql_server.execute(f"drop owned by {login}; drop role {login};", url=shop.url)


ROW_SECURITY = "Row-level security of the database does not allow the row. Nothing was changed."
KEPT = "The database left the row as it is, and gave no reason. Nothing was changed."
RAISED = "A trigger or function of the database refused the change. Nothing was changed."


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("insert_notes", {"rows": [{"id": 3, "word": "bad"}]}, ROW_SECURITY),
        ("update_notes", {"id": 1, "set": {"word": "bad"}}, ROW_SECURITY),
        ("update_notes", {"id": 2, "set": {"word": "c"}}, KEPT),
        ("delete_notes", {"id": 2}, KEPT),
        ("insert_plain", {"rows": [{"id": 3, "word": "check"}]}, RAISED),
        ("update_plain", {"id": 1, "set": {"word": "privilege"}}, RAISED),
        ("update_plain", {"id": 1, "set": {"word": "plain"}}, RAISED),
        ("update_plain", {"id": 1, "set": {"word": "keep"}}, KEPT),
        (
            "update_notes",
            {"id": 1, "set": {"word": "unfit"}},
            "A check of notes does not allow this word. Nothing was changed.",
        ),
    ],
)
def test_reason_is_what_the_database_said(
    policed: Caller, tool: str, arguments: dict[str, object], message: str
) -> None:
    error = refused(policed, tool, **arguments)

    assert (error.code, error.message) == ("constraint", message)


@pytest.mark.parametrize("tool", ["update_rows", "delete_rows"])
def test_rows_that_row_level_security_keeps_are_not_blamed_on_a_trigger_alone(
    policed: Caller, tool: str
) -> None:
    new = {"set": {"word": "c"}} if tool == "update_rows" else {}
    error = refused(policed, tool, table="notes", where=[{"column": "id", "op": "gt", "value": 0}], **new)

    assert "row-level security keeps them as they are" in error.message


def test_trigger_that_ignores_a_change_gives_no_reason(opened: Opens) -> None:
    ddl = """
        create table notes (id integer primary key, word text);
        insert into notes values (1, 'a');
        create trigger keeping before update on notes begin select raise(ignore); end;
    """
    with opened("sqlite", {"notes": ALL}, ddl=ddl) as (caller, _):
        error = refused(caller, "update_notes", id=1, set={"word": "c"})

    assert error.message == KEPT


VIEW = GrantSection()
VIEWS = """
    create table base (id integer primary key);
    create materialized view kept as select id from base with no data;
    create view above as select id from kept;
"""


@pytest.mark.parametrize("sees", [True, False])
def test_view_that_was_never_refreshed_is_named_to_who_sees_it(opened: Opens, sees: bool) -> None:
    grants: Grants = {"above": VIEW, **({"kept": VIEW} if sees else {})}
    with opened("postgresql", grants, ddl=VIEWS, fresh=True) as (caller, shop):
        with pytest.raises(errors.Unreadable) as caught:
            caller.call("list_above")
        warnings = caller.portal.call(caller.toolbox.snapshot).catalog.warnings
        shop.bare.execute("refresh materialized view kept")
        after = caller.rows("list_above")

    named = (
        "kept was never refreshed, so it cannot be read. An operator can run REFRESH MATERIALIZED VIEW kept."
    )
    assert (str(caught.value) == named) is sees
    assert ("kept" in str(caught.value)) is sees
    [warning] = warnings
    assert warning.endswith("cannot be read until you run REFRESH MATERIALIZED VIEW public.kept.")
    assert after == []


ARRAYS = """
    create table tagged (id integer primary key, tags text[]);
    insert into tagged values (1, '{x,y}'), (2, '{x}');
"""


def test_advice_for_an_array_leads_to_the_condition_that_works(opened: Opens) -> None:
    """Each refused form is followed by what its hint says, until a call is answered."""
    forms: list[dict[str, object]] = [
        {"op": "eq", "value": "x"},
        {"op": "eq", "value": ["x", "y"]},
        {"op": "in", "values": ["x", "y"]},
        {"op": "eq", "values": ["x", "y"]},
    ]
    with opened("postgresql", {"tagged": True}, ddl=ARRAYS) as (caller, _):
        for form in forms:
            where: list[object] = [{"column": "tags", **form}]
            for _ in range(3):
                try:
                    answer = caller.call("list_tagged", where=where)
                    break
                except errors.CallError as exc:
                    where = advised(exc, "x")
            assert answer["rows"], form


def advised(error: errors.CallError, item: str) -> list[object]:
    """Return the conditions that the hint of *error* writes."""
    decoder, found = json.JSONDecoder(), []
    text, at = error.hint.replace("ITEM", item), 0
    while (at := text.find("{", at)) >= 0:
        condition, at = decoder.raw_decode(text, at)
        found.append(condition)
    assert found, error
    return found
