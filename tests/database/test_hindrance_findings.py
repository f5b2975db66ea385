"""What `check` says beforehand about row-level security, rules and triggers that refuse changes."""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dbtools.findings import Finding
from dbtools.service.checking import check
from dbtools.settings import DatabaseSection, Settings
from dbtools.settings.sections import GrantSection, RoleSection
from tests.database.shop import Serve, Shop
from tests.postgresql_server import PostgresqlServer

ALL = GrantSection(insert=True, update=True, delete=True)
CODES = ("row_security", "hindered")


@dataclass(frozen=True, kw_only=True)
class Login:
    """A login that owns no table."""

    name: str
    url: str
    shop: Shop
    server: PostgresqlServer

    def run(self, ddl: str) -> None:
        """Run *ddl* as the owner, and let the login read and change all tables."""
        grants = f"grant select, insert, update, delete on all tables in schema public to {self.name};"
        self.server.execute(f"{ddl};{grants}".replace("LOGIN", self.name), url=self.shop.url)

    def found(self, *tables: str, roles: int = 1) -> list[str]:
        """Return what `check` says if some roles may change *tables*."""
        role = RoleSection(tables=dict.fromkeys(tables, ALL))
        return said(self.shop, self.url, {f"r{number}": role for number in range(roles)})


@pytest.fixture
def login(serve: Serve, postgresql_server: PostgresqlServer) -> Iterator[Login]:
    """Yield a login, and the database that it uses."""
    name = f"low_{secrets.token_hex(4)}"
    with serve("postgresql", "create table plain (id integer primary key, v text)") as shop:
        postgresql_server.execute(f"create role {name} login", url=postgresql_server.url)
        parts = urlsplit(shop.url)
        url = parts._replace(netloc=f"{name}@{parts.netloc.rpartition('@')[2]}").geturl()
        try:
            yield Login(name=name, url=url, shop=shop, server=postgresql_server)
        finally:
            postgresql_server.execute(f"drop owned by {name}; drop role {name};", url=shop.url)


def said(shop: Shop, url: str, roles: dict[str, RoleSection]) -> list[str]:
    settings = Settings(database=DatabaseSection(url=url), roles=roles)
    findings: tuple[Finding, ...] = shop.portal.call(check, settings).findings
    levels = {each.level for each in findings if each.code in CODES}
    assert levels <= {"warning"}
    return [each.message for each in findings if each.code in CODES]


SECURED = """
    create table notes (id integer primary key, v text);
    alter table notes enable row level security
"""
APPLIES = "Row-level security applies to the login in {}: callers see only rows that its policies show."
BLIND = "Row-level security applies to the login in {}, and no policy shows it a row: callers see none."
UNPOLICED = "{}: no policy of row-level security lets the login {} rows."
CHANGES = ("insert", "update", "delete")


def test_tables_without_row_level_security_have_no_finding(login: Login) -> None:
    login.run("create table notes (id integer primary key)")

    assert login.found("notes", "plain") == []


def test_table_that_no_policy_opens_is_reported_once(login: Login) -> None:
    login.run(SECURED)

    found = login.found("notes", "plain", roles=2)

    assert found == [BLIND.format("notes"), *(UNPOLICED.format("notes", change) for change in CHANGES)]


#: Policies of a table, and the changes that none of them allows.
POLICIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("create policy p on notes using (true)", ()),
    ("create policy p on notes to LOGIN using (true)", ()),
    (
        "create policy p on notes for select using (true);"
        "create policy q on notes for insert with check (true)",
        ("update", "delete"),
    ),
    (
        "create policy p on notes for select using (true); create policy q on notes as restrictive",
        CHANGES,
    ),
)


def test_changes_that_no_policy_allows_are_reported(login: Login) -> None:
    for policies, missing in POLICIES:
        login.run(f"drop table if exists notes; {SECURED}; {policies}")

        expected = [APPLIES.format("notes"), *(UNPOLICED.format("notes", each) for each in missing)]
        assert login.found("notes") == expected, policies


def test_policy_for_another_role_opens_nothing(login: Login) -> None:
    login.run(f"{SECURED}; create policy p on notes to pg_monitor using (true)")

    assert BLIND.format("notes") in login.found("notes")


def test_owner_is_subject_to_forced_row_level_security_only(serve: Serve, login: Login) -> None:
    login.run(f"{SECURED}; alter table notes owner to LOGIN; create policy p on notes using (true)")
    free = login.found("notes")
    login.run("alter table notes force row level security")
    forced = login.found("notes")

    assert free == []
    assert forced == [APPLIES.format("notes")]


#: What is beside a table, by dialect, and what `check` says about it.
FUNCTION = """
    create function act() returns trigger language plpgsql as $$
    -- why
    begin {body} end $$;
    create trigger acting {when} on notes for each row {condition} execute function act()
"""
REFUSES = "notes: the trigger acting refuses each {}."
IGNORES = "notes: the trigger acting leaves the row as it is at each {}."
RULE = "notes: the rule acting replaces each {}, so that every such call fails."
HINDRANCES: dict[str, tuple[str, str, list[str]]] = {
    "raises": (
        "raise exception 'no';",
        "select raise(abort, 'no');",
        [REFUSES.format("update")],
    ),
    "keeps": ("return null;", "select raise(ignore);", [IGNORES.format("update")]),
    "warns": ("raise warning 'yes'; return new;", "select 'raise(abort)';", []),
    "raises sometimes": (
        "if new.v = 'a' then raise exception 'no'; end if; return new;",
        "select raise(abort, 'no') where new.v = 'a';",
        [],
    ),
}


DROPPED = "drop table if exists notes cascade; drop function if exists act;"
NOTES = "create table notes (id integer primary key, v text);"


def test_trigger_that_refuses_every_row_is_reported(
    login: Login, sqlite_database: Callable[[str], Path]
) -> None:
    roles = dict.fromkeys(("r0", "r1"), RoleSection(tables={"notes": ALL}))
    for postgresql, sqlite, expected in HINDRANCES.values():
        login.run(DROPPED + NOTES + FUNCTION.format(body=postgresql, when="before update", condition=""))
        path = sqlite_database(f"{NOTES} create trigger acting before update on notes begin {sqlite} end;")

        assert login.found("notes", roles=2) == expected
        assert said(login.shop, f"sqlite:///{path}", roles) == expected


#: When a trigger refuses, its condition, and the changes for which it is reported.
REFUSALS: tuple[tuple[str, str, list[str]], ...] = (
    ("before insert", "", ["insert"]),
    ("after insert or delete", "", ["insert", "delete"]),
    ("before update of v", "", []),
    ("before update", "when (new.v = 'a')", []),
)


def test_trigger_is_reported_for_the_changes_that_it_is_about(
    login: Login, sqlite_database: Callable[[str], Path]
) -> None:
    role = {"r": RoleSection(tables={"notes": ALL})}
    for when, condition, reported in REFUSALS:
        login.run(
            DROPPED + NOTES + FUNCTION.format(body="raise exception 'no';", when=when, condition=condition)
        )
        events = [f"{when.split()[0]} {each}" for each in when.partition(" ")[2].split(" or ")]
        body = "begin select raise(abort, 'no'); end;"
        triggers = (
            f"create trigger acting{at} {event} on notes {condition} {body}"
            for at, event in enumerate(events)
        )
        in_file = said(login.shop, f"sqlite:///{sqlite_database(NOTES + ''.join(triggers))}", role)

        assert login.found("notes") == [REFUSES.format(each) for each in reported]
        assert [each.rpartition(" ")[2] for each in in_file] == [f"{each}." for each in reported]


RULES = {
    "create rule acting as on update to notes do instead nothing": RULE.format("update"),
    "create rule acting as on delete to notes where old.id = 1 do instead nothing": RULE.format("delete"),
    "create rule acting as on insert to notes do also notify plain": "notes: because of the rule acting, "
    "a change with on_conflict, a filter or a check fails.",
}


def test_rule_that_refuses_is_reported(login: Login) -> None:
    for rule, expected in RULES.items():
        login.run(f"drop table if exists notes; create table notes (id integer primary key, v text); {rule}")

        assert login.found("notes") == [expected]


def test_only_granted_changes_are_reported(login: Login) -> None:
    login.run(SECURED)
    role = RoleSection(tables={"notes": GrantSection(insert=True)})

    found = said(login.shop, login.url, {"r": role})

    assert found == [BLIND.format("notes"), UNPOLICED.format("notes", "insert")]
