"""Callers with a role: grants and claims in; what each request gets out."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from anyio.from_thread import BlockingPortal

from dbtools import errors
from dbtools.backends.port import Backend
from dbtools.configured.claims import typed_claims
from dbtools.policy import roles as policy
from dbtools.service.serving import open_toolbox
from dbtools.service.toolbox import Toolbox
from dbtools.settings import DatabaseSection, Settings
from dbtools.settings.sections import GrantSection, PolicySection, RoleSection, TableSection
from dbtools.values.types import Mask, ParameterName
from tests.database.shop import Serve, Shop, Shops, open_shops, rows_of

ROLE = "reader"
KEY = "a key of the operator's"
MOST_PAGES = 100
NORTH = {"region": "north"}
Grants = Mapping[str, bool | GrantSection]
Outcome = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class Caller:
    """A caller with a role and claims."""

    toolbox: Toolbox
    database: Backend
    portal: BlockingPortal
    claims: Mapping[str, object]
    role: str = ROLE

    @property
    def identity(self) -> policy.Caller:
        """Who calls."""
        return policy.Caller(role=self.role, claims=self.claims)

    def call(self, tool: str, **arguments: object) -> Mapping[str, object]:
        """Return the structured answer of *tool*."""
        answer = self.portal.call(self.toolbox.call, self.identity, tool, arguments)
        return answer.structured

    def rows(self, tool: str, **arguments: object) -> list[list[object]]:
        """Return the rows of one page of *tool*."""
        return rows_of(self.call(tool, **arguments))

    def tools(self) -> list[str]:
        """Return the names of all tools that can be called."""
        return list(self.portal.call(self.toolbox.view, self.role).tools)

    def problems(self) -> tuple[str, ...]:
        """Return what is wrong with the role, for the operator: not what the login of the tests can do."""
        snapshot = self.portal.call(self.toolbox.snapshot)
        warnings = tuple(map(str, snapshot.views[self.role].problems))
        return tuple(each for each in warnings if not any(one in each for one in snapshot.catalog.posture))

    def outcome(self, ask: "Ask") -> Outcome:
        """Return all that a client gets when it asks *ask*."""
        return self.portal.call(ask.send, self)

    def pages(self, tool: str, **arguments: object) -> Iterator[Mapping[str, object]]:
        """Yield the pages of *tool* to the end."""
        cursor: dict[str, object] = {}
        for _ in range(MOST_PAGES):
            page = self.call(tool, **arguments, **cursor)
            yield page
            if "next_cursor" not in page:
                return
            cursor = {"cursor": page["next_cursor"]}
        raise AssertionError("the pages have no end")


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A request: what it says, and how a caller sends it."""

    words: tuple[object, ...]
    send: Callable[[Caller], Awaitable[Outcome]]


def calling(tool: str, **arguments: object) -> Ask:
    """Return the request that calls *tool*."""
    return Ask(
        words=(tool, arguments),
        send=lambda caller: _outcome(caller.toolbox.call(caller.identity, tool, arguments)),
    )


def reading(uri: str) -> Ask:
    """Return the request that reads *uri*."""
    return Ask(words=(uri,), send=lambda caller: _outcome(caller.toolbox.read(caller.identity, uri)))


def completing(template: str, name: str, value: str, **given: str) -> Ask:
    """Return the request that completes *value*."""
    return Ask(
        words=(name, value, given),
        send=lambda caller: _outcome(caller.toolbox.complete(caller.identity, template, name, value, given)),
    )


async def _outcome(answer: Awaitable[object]) -> Outcome:
    try:
        return ("answer", repr(await answer))
    except errors.DbtoolsError as exc:
        return (exc.code, str(exc))


async def _definitions(caller: Caller) -> Outcome:
    view = await caller.toolbox.view(caller.role)
    return (view.definitions, [tool.definition for tool in view.tools.values()])


#: Asks for all definitions, listed or not.
listing_tools = Ask(words=(), send=_definitions)

TYPES: Mapping[str, ParameterName] = {"region": "text", "least": "integer", "level": "integer"}


@contextmanager
def calling_as(
    shop: Shop,
    grants: Grants,
    claims: Mapping[str, object] | None = None,
    *,
    roles: Mapping[str, RoleSection] | None = None,
    inherits: Sequence[str] = (),
    hash_key: str = KEY,
    declared: Mapping[str, ParameterName] = TYPES,
    excluded: Sequence[str] = (),
    tables: Mapping[str, TableSection] | None = None,
    sql: bool = False,
) -> Iterator[Caller]:
    """Return a caller with *grants* on the database of *shop*."""
    settings = Settings(
        database=DatabaseSection(url=shop.url, exclude=tuple(excluded)),
        roles={**(roles or {}), ROLE: RoleSection(tables=dict(grants), inherits=tuple(inherits), sql=sql)},
        policy=PolicySection(hash_key=hash_key, claims=dict(declared)),
        tables=dict(tables or {}),
    )
    known, key = typed_claims(settings, claims or {}), repr(settings)
    if key not in shop.toolboxes:
        shop.toolboxes[key] = open_toolbox(settings)
    toolbox, database = shop.toolboxes[key]
    yield Caller(toolbox=toolbox, database=database, portal=shop.portal, claims=known)


#: Two databases of which a role sees the same: in one there is more, and other values where nothing is shown.
SEEN_PATIENTS = "id integer primary key, name text not null, region text not null, email text, height integer"
RICH = f"""
    create table doctors (id integer primary key, name text not null);
    insert into doctors values (1, 'Dr Strange'), (2, 'Dr Who');
    create table patients ({SEEN_PATIENTS}, remark text, doctor_id integer references doctors(id));
    insert into patients values
        (1, 'Ann', 'north', 'ann@example.org', 170, 'cursed', 1),
        (2, 'Bob', 'south', 'bob@hidden.org', 180, 'blessed', 2),
        (3, 'Cid', 'north', null, 160, null, null),
        (4, 'Dan', 'south', 'dan@hidden.org', 190, 'cursed', 1),
        (5, 'Eve', 'north', 'eve@example.org', null, 'healed', 2);
    create table visits (id integer primary key, patient_id integer references patients(id), price integer);
    insert into visits values (1, 1, 10), (2, 2, 20), (3, 3, 30), (4, null, 40), (5, 4, 50);
    create view burdens as select id, name, remark from patients;
"""
UNCHECKED = {"sqlite": "", "postgresql": "set session_replication_role = replica;"}
FILTER = "region = :claims.region"
MASKS = {"email": Mask.PARTIAL, "height": Mask.REDACT}
RICH_GRANTS: Grants = {
    "patients": GrantSection(exclude=("remark", "doctor_id"), where=FILTER, mask=MASKS),
    "visits": True,
}


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    with open_shops(serve, dict.fromkeys(UNCHECKED, RICH)) as shops:
        yield shops


COUNT = [{"function": "count"}]


KEYED = {
    "sqlite": """
    create table keyed (id integer primary key, code text not null unique, word text);
    create table paired (a integer, b integer, v text, primary key (a, b)) without rowid;
    """,
    "postgresql": """
    create table keyed (id integer primary key, code text not null unique, word text);
    create table paired (a integer, b integer, v text, primary key (a, b));
    """,
}
