"""A role sees what it is granted: nothing else can be read, counted, or told from what is not there."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal

from dbtools import errors, policy
from dbtools.backends.port import Backend
from dbtools.backends.sqlite.arithmetic import install
from dbtools.links import CELL_TEMPLATE, ROW_TEMPLATE
from dbtools.policy import REDACTED
from dbtools.service.serving import open_toolbox
from dbtools.service.toolbox import Toolbox
from dbtools.settings import DatabaseSection, Settings, typed_claims
from dbtools.settings.sections import GrantSection, PolicySection, RoleSection, TableSection
from dbtools.types import Mask, ParameterName
from tests.database.conftest import Serve, Shops, open_shops
from tests.database.shop import BareSqlite, Shop, rows_of

ROLE = "reader"
KEY = "a key of the operator's"
MOST_PAGES = 100
NORTH = {"region": "north"}
Grants = Mapping[str, bool | GrantSection]
Outcome = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Somebody who has a role and claims."""

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
        return self.portal.call(ask, self)

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


Ask = Callable[[Caller], Any]


def calling(tool: str, **arguments: object) -> Ask:
    """Return the request that calls *tool*."""

    async def ask(caller: Caller) -> Outcome:
        answer = caller.toolbox.call(caller.identity, tool, arguments)
        return await _told(answer)

    return ask


def reading(uri: str) -> Ask:
    """Return the request that reads *uri*."""

    async def ask(caller: Caller) -> Outcome:
        return await _told(caller.toolbox.read(caller.identity, uri))

    return ask


def completing(template: str, name: str, value: str, **given: str) -> Ask:
    """Return the request that completes *value*."""

    async def ask(caller: Caller) -> Outcome:
        found = caller.toolbox.complete(caller.identity, template, name, value, given)
        return await _told(found)

    return ask


async def listing_tools(caller: Caller) -> Outcome:
    """Ask for all definitions, listed or not."""
    view = await caller.toolbox.view(caller.role)
    return (view.definitions, [tool.definition for tool in view.tools.values()])


async def _told(answer: Any) -> Outcome:
    try:
        return ("answer", repr(await answer))
    except errors.DbtoolsError as exc:
        return (exc.code, str(exc))


TYPES: Mapping[str, ParameterName] = {
    "region": "text",
    "least": "integer",
    "level": "integer",
}


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
) -> Iterator[Caller]:
    """Give somebody with *grants* on the database of *shop*."""
    settings = Settings(
        database=DatabaseSection(url=shop.url, exclude=tuple(excluded)),
        roles={**(roles or {}), ROLE: RoleSection(tables=dict(grants), inherits=tuple(inherits))},
        policy=PolicySection(hash_key=hash_key, claims=dict(declared)),
        tables=dict(tables or {}),
    )
    toolbox, database = open_toolbox(settings)
    try:
        known = typed_claims(settings, claims or {})
        yield Caller(toolbox=toolbox, database=database, portal=shop.portal, claims=known)
    finally:
        shop.portal.call(database.close)


#: Two databases of which a role sees the same: in one there is more, and other values where nothing is shown.
SEEN_PATIENTS = "id integer primary key, name text not null, region text not null, email text, height integer"
RICH = f"""
    create table doctors (id integer primary key, name text not null);
    insert into doctors values (1, 'Dr Strange'), (2, 'Dr Who');
    create table patients ({SEEN_PATIENTS}, secret text, doctor_id integer references doctors(id));
    insert into patients values
        (1, 'Ann', 'north', 'ann@example.org', 170, 'cursed', 1),
        (2, 'Bob', 'south', 'bob@hidden.org', 180, 'blessed', 2),
        (3, 'Cid', 'north', null, 160, null, null),
        (4, 'Dan', 'south', 'dan@hidden.org', 190, 'cursed', 1),
        (5, 'Eve', 'north', 'eve@example.org', null, 'healed', 2);
    create table visits (id integer primary key, patient_id integer references patients(id), price integer);
    insert into visits values (1, 1, 10), (2, 2, 20), (3, 3, 30), (4, null, 40), (5, 4, 50);
    create view burdens as select id, name, secret from patients;
"""
POOR = f"""
    create table patients ({SEEN_PATIENTS});
    insert into patients values
        (1, 'Ann', 'north', 'a....@example.org', 9),
        (3, 'Cid', 'north', null, null),
        (5, 'Eve', 'north', 'ex@example.org', 1);
    create table visits (id integer primary key, patient_id integer references patients(id), price integer);
    insert into visits values (1, 1, 10), (3, 3, 30), (4, null, 40);
    -- As foreign keys that nobody checks may do.
    {{unchecked}}
    insert into visits values (2, 2, 20), (5, 4, 50);
"""
UNCHECKED = {"sqlite": "", "postgresql": "set session_replication_role = replica;"}
FILTER = "region = :claims.region"
MASKS = {"email": Mask.PARTIAL, "height": Mask.REDACT}
RICH_GRANTS: Grants = {
    "patients": GrantSection(exclude=("secret", "doctor_id"), where=FILTER, mask=MASKS),
    "visits": True,
}
POOR_GRANTS: Grants = {"patients": GrantSection(where=FILTER, mask=MASKS), "visits": True}


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    """Give the rich database."""
    with open_shops(serve, dict.fromkeys(UNCHECKED, RICH)) as shops:
        yield shops


@pytest.fixture(scope="module")
def poor_shops(serve: Serve) -> Iterator[Shops]:
    """Give the poor database."""
    with open_shops(serve, {each: POOR.format(unchecked=UNCHECKED[each]) for each in UNCHECKED}) as shops:
        yield shops


@pytest.fixture(scope="module")
def twins(dialect: str, shops: Shops, poor_shops: Shops) -> Iterator[tuple[Caller, Caller]]:
    """Give somebody who sees the same of the rich and of the poor database."""
    with (
        calling_as(shops(dialect), RICH_GRANTS, NORTH) as rich,
        calling_as(poor_shops(dialect), POOR_GRANTS, NORTH) as poor,
    ):
        yield rich, poor


OPERATORS: Sequence[Mapping[str, object]] = [
    *({"op": each, "value": "cursed"} for each in ("eq", "ne", "lt", "lte", "gt", "gte")),
    *({"op": each, "value": "c"} for each in ("contains", "starts_with", "ends_with")),
    {"op": "in", "values": ["cursed"]},
    {"op": "not_in", "values": ["cursed"]},
    {"op": "between", "values": ["a", "d"]},
    {"op": "is_null", "value": "true"},
]


def _uses(column: str, table: str, tools: tuple[str, ...]) -> Iterator[tuple[str, Ask]]:
    """Yield every use that a call can make of *column* of *table*."""
    for tool, given in [(each, {"table": table} if each.endswith("rows") else {}) for each in tools]:
        yield f"{tool} shows", calling(tool, **given, columns=[column])
        for order in (column, f"{column} desc", f"-{column}"):
            yield f"{tool} order {order}", calling(tool, **given, order_by=[order])
        for condition in OPERATORS:
            where = [{"column": column, **condition}]
            yield f"{tool} {condition['op']}", calling(tool, **given, where=where)
            yield f"{tool} any {condition['op']}", calling(tool, **given, where=where, match="any")
    count = [{"function": "count", "name": "n"}]
    yield "group", calling("aggregate_rows", table=table, group_by=[column], measures=count)
    yield "bucket", calling("aggregate_rows", table=table, group_by=[f"{column}:month"], measures=count)
    for function in ("count", "count_distinct", "sum", "avg", "min", "max"):
        measure = [{"function": function, "column": column, "name": "n"}]
        yield f"measure {function}", calling("aggregate_rows", table=table, measures=measure)
    for condition in OPERATORS:
        where = [{"column": column, **condition}]
        yield f"count {condition['op']}", calling("aggregate_rows", table=table, measures=count, where=where)
        yield (
            f"having {condition['op']}",
            calling("aggregate_rows", table=table, measures=count, having=where),
        )
    yield "order", calling("aggregate_rows", table=table, measures=count, order_by=[column])


TYPED = ("list_rows", "list_patients")
#: By the name that is used: what is asked.
HIDDEN_USES: Mapping[str, Mapping[str, Ask]] = {
    "secret": dict(_uses("secret", "patients", TYPED)),
    "doctor_id": dict(_uses("doctor_id", "patients", ("list_patients",))),
    "doctor.name": dict(_uses("doctor.name", "patients", ("list_rows",))),
    "doctor_id.name": dict(_uses("doctor_id.name", "patients", ("list_rows",))),
    "patient.secret": dict(_uses("patient.secret", "visits", ("list_rows", "list_visits"))),
    "patient.doctor.name": dict(_uses("patient.doctor.name", "visits", ("list_rows",))),
    "SECRET": dict(_uses("SECRET", "patients", ("list_rows",))),
    "patients.secret": dict(_uses("patients.secret", "patients", ("list_rows",))),
}
MASKED_USES: Mapping[str, Mapping[str, Ask]] = {
    "email": dict(_uses("email", "patients", TYPED)),
    "height": dict(_uses("height", "patients", ("list_patients",))),
    "patient.email": dict(_uses("patient.email", "visits", ("list_rows", "list_visits"))),
    "EMAIL": dict(_uses("EMAIL", "patients", ("list_rows",))),
    "patients.email": dict(_uses("patients.email", "patients", ("list_rows",))),
}
ID_2 = {"column": "id", "value": "2"}
COUNT = [{"function": "count"}]
REQUESTS: list[tuple[str, Ask]] = [
    ("definitions", listing_tools),
    ("hidden list tool", calling("list_doctors")),
    ("hidden get tool", calling("get_doctors", id=1)),
    ("hidden view's tool", calling("list_burdens")),
    ("hidden table", calling("list_rows", table="doctors")),
    ("hidden table in capitals", calling("list_rows", table="DOCTORS")),
    ("hidden view", calling("list_rows", table="burdens")),
    ("hidden row", calling("get_row", table="doctors", key={"id": "1"})),
    ("hidden table's sum", calling("aggregate_rows", table="doctors", measures=COUNT)),
    ("hidden table's description", calling("describe_tables", tables=["doctors"])),
    ("hidden table nearly named", calling("describe_tables", tables=["doctor"])),
    ("all descriptions", calling("describe_tables", detail="full")),
    ("all summaries", calling("describe_tables")),
    ("all names", calling("describe_tables", detail="names")),
    *((f"search {each}", calling("list_tables", search=each)) for each in ("doctors", "doc*", "secret", "x")),
    ("hidden table's resource", reading("dbtools://row/doctors/1")),
    ("hidden table's cell", reading("dbtools://cell/doctors/1/name")),
    ("completion of a table", completing(ROW_TEMPLATE, "table", "doc")),
    ("completion of all tables", completing(ROW_TEMPLATE, "table", "")),
    ("completion of a hidden table's key", completing(ROW_TEMPLATE, "key", "", table="doctors")),
    ("completion of a hidden column", completing(CELL_TEMPLATE, "column", "sec", table="patients")),
    ("completion of all columns", completing(CELL_TEMPLATE, "column", "", table="patients", key="1")),
    ("hidden column of a row", calling("get_row", table="patients", key={"id": "1"}, columns=["secret"])),
    ("key of a hidden column", calling("get_row", table="patients", key={"secret": "cursed"})),
    ("hidden column's cell", reading("dbtools://cell/patients/1/secret")),
    ("masked cell", reading("dbtools://cell/patients/1/email")),
    ("redacted cell", reading("dbtools://cell/patients/3/height")),
    ("whole table", calling("list_patients")),
    ("row", calling("get_patients", id=1)),
    ("row as a resource", reading("dbtools://row/patients/1")),
    ("hidden row by key", calling("get_patients", id=2)),
    ("hidden row by key of any", calling("get_row", table="patients", key={"id": "2"})),
    ("hidden row by a path", calling("get_row", table="visits", key={"id": "2"}, columns=["patient.name"])),
    ("hidden row's address", reading("dbtools://row/patients/2")),
    ("hidden row's cell", reading("dbtools://cell/patients/2/name")),
    ("hidden row in a list", calling("list_patients", where=[ID_2])),
    ("hidden row after a number", calling("list_patients", where=[{**ID_2, "op": "gte"}], limit=1)),
    ("hidden value", calling("list_patients", where=[{"column": "name", "value": "Bob"}])),
    ("hidden values nearly", calling("list_patients", where=[{"column": "name", "value": "Bobb"}])),
    (
        "hidden values in part",
        calling("list_patients", where=[{"column": "name", "op": "contains", "value": "bo"}]),
    ),
    (
        "hidden values at the end of a path",
        calling("list_visits", where=[{"column": "patient.name", "value": "Bobb"}]),
    ),
    ("two hidden values", calling("list_patients", where=[ID_2, {"column": "name", "value": "Bob"}])),
    ("pages by name", calling("list_patients", order_by=["name desc"], limit=2)),
    ("paths to hidden rows", calling("list_visits", columns=["id", "patient_id", "patient.name"])),
    ("order by a path", calling("list_visits", columns=["id"], order_by=["patient.name", "id"])),
    (
        "nulls of a path",
        calling("list_visits", where=[{"column": "patient.id", "op": "is_null", "value": 1}]),
    ),
    ("number of rows", calling("aggregate_rows", table="patients", measures=COUNT)),
    ("groups", calling("aggregate_rows", table="patients", group_by=["region"], measures=COUNT)),
    (
        "groups by a path",
        calling("aggregate_rows", table="visits", group_by=["patient.region"], measures=COUNT),
    ),
    (
        "greatest at the end of a path",
        calling("aggregate_rows", table="visits", measures=[{"function": "max", "column": "patient.name"}]),
    ),
    ("completion of keys", completing(ROW_TEMPLATE, "key", "", table="patients")),
    ("completion of a hidden key", completing(ROW_TEMPLATE, "key", "2", table="patients")),
]


@pytest.mark.parametrize("ask", [pytest.param(ask, id=name) for name, ask in REQUESTS])
def test_hidden_thing_and_absent_thing_have_the_same_answer(ask: Ask, twins: tuple[Caller, Caller]) -> None:
    rich, poor = twins

    assert rich.outcome(ask) == poor.outcome(ask)


@pytest.mark.parametrize("column", [*HIDDEN_USES, *MASKED_USES])
def test_every_use_of_a_hidden_or_masked_column_has_the_same_answer_whatever_it_holds(
    column: str, twins: tuple[Caller, Caller]
) -> None:
    uses = {**HIDDEN_USES, **MASKED_USES}[column]
    rich, poor = ({name: caller.outcome(ask) for name, ask in uses.items()} for caller in twins)

    assert rich == poor


@pytest.mark.parametrize("column", HIDDEN_USES)
def test_hidden_column_is_unknown_to_every_use(column: str, twins: tuple[Caller, Caller]) -> None:
    codes = {name: twins[0].outcome(ask)[0] for name, ask in HIDDEN_USES[column].items()}

    assert codes == dict.fromkeys(codes, errors.UnknownColumn.code)


@pytest.mark.parametrize("column", MASKED_USES)
def test_masked_column_can_be_shown_and_nothing_else(column: str, twins: tuple[Caller, Caller]) -> None:
    codes = {name: twins[0].outcome(ask)[0] for name, ask in MASKED_USES[column].items()}
    answered = {name for name, code in codes.items() if code == "answer"}

    assert answered == {name for name in codes if name.endswith("shows")}
    refused = {errors.BadOperator.code, errors.BadArgument.code, errors.UnknownColumn.code}
    assert set(codes.values()) <= {"answer", *refused}


def test_masked_cells_are_shown_as_their_masks_say(twins: tuple[Caller, Caller]) -> None:
    found = twins[0].rows("list_patients", columns=["id", "email", "height"])

    assert found == [[1, "a…@example.org", "***"], [3, None, "***"], [5, "e…@example.org", "***"]]


def test_row_that_a_filter_hides_reads_as_null_at_the_end_of_a_path(twins: tuple[Caller, Caller]) -> None:
    found = twins[0].rows("list_visits", columns=["id", "patient.name", "patient.email"])

    assert found == [
        [1, "Ann", "a…@example.org"],
        [2, None, None],
        [3, "Cid", None],
        [4, None, None],
        [5, None, None],
    ]


def test_cursor_of_another_role_shows_no_more(shop: Shop, twins: tuple[Caller, Caller]) -> None:
    wanted = {"columns": ["id", "name"], "order_by": ["name"], "limit": 1}
    with calling_as(shop, {"*": True}) as other:
        page = other.call("list_patients", **wanted)
        cursor = other.call("list_patients", **wanted, cursor=page["next_cursor"])["next_cursor"]

    rest = twins[0].rows("list_patients", columns=["id", "name"], order_by=["name"], cursor=cursor)

    assert rest == [[3, "Cid"], [5, "Eve"]]


def test_cursor_after_a_hidden_order_is_refused(shop: Shop, twins: tuple[Caller, Caller]) -> None:
    with calling_as(shop, {"*": True}) as other:
        cursor = other.call("list_patients", order_by=["secret"], limit=1)["next_cursor"]

    with pytest.raises(errors.BadCursor):
        twins[0].call("list_patients", cursor=cursor)


@pytest.mark.parametrize(
    ("grants", "tables"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"*": False}, [], id="nothing of all"),
        pytest.param({"*": True}, ["burdens", "doctors", "patients", "visits"], id="all"),
        pytest.param({"*": True, "doctors": False}, ["burdens", "patients", "visits"], id="all but one"),
        pytest.param({"*": False, "visits": True}, ["visits"], id="one of none"),
        pytest.param({"p*": True, "pat*": False, "visits": True}, ["visits"], id="two patterns"),
        pytest.param({"*": False, "doc*": True}, ["doctors"], id="longer pattern"),
        pytest.param({"*o*": False, "*s": True}, ["burdens", "patients", "visits"], id="first of equals"),
    ],
)
def test_role_sees_the_tables_that_its_most_precise_rules_grant(
    grants: Grants, tables: list[str], shop: Shop
) -> None:
    with calling_as(shop, grants) as caller:
        described = caller.call("describe_tables", detail="names")
        named = [tool.removeprefix("list_") for tool in caller.tools() if tool.startswith("list_")]

    assert described["tables"] == [{"name": name} for name in tables]
    assert sorted(named) == sorted([*tables, "rows", "tables"])


def test_own_rules_count_before_inherited_ones(shop: Shop) -> None:
    parents = {
        "first": RoleSection(tables={"patients": GrantSection(columns=("id", "name")), "visits": True}),
        "second": RoleSection(
            tables={"patients": GrantSection(columns=("id", "region")), "doctors": True}, inherits=("third",)
        ),
        "third": RoleSection(tables={"burdens": GrantSection(accept_reads=True), "doctors": False}),
    }
    with calling_as(
        shop, {"visits": GrantSection(columns=("id",))}, roles=parents, inherits=("first", "second")
    ) as caller:
        found = caller.call("describe_tables")

    tables = found["tables"]
    assert isinstance(tables, list)
    assert {table["name"]: [column.split()[0] for column in table["columns"]] for table in tables} == {
        "burdens": ["id", "name", "secret"],
        "doctors": ["id", "name"],
        "patients": ["id", "name"],
        "visits": ["id"],
    }


def test_heir_of_a_role_is_filtered_as_the_role_is(shop: Shop) -> None:
    parents = {"parent": RoleSection(tables={"patients": GrantSection(where=FILTER)})}
    with calling_as(shop, {}, NORTH, roles=parents, inherits=("parent",)) as caller:
        assert caller.rows("list_patients", columns=["id"]) == [[1], [3], [5]]


@pytest.mark.parametrize(
    "grant",
    [
        pytest.param(GrantSection(exclude=("secrets",)), id="excluded"),
        pytest.param(GrantSection(columns=("id", "nome")), id="listed"),
        pytest.param(GrantSection(mask={"Email": Mask.NULL}), id="masked"),
        pytest.param(GrantSection(where="reggion = 'north'"), id="unknown column in a filter"),
        pytest.param(GrantSection(where="region = "), id="half a filter"),
        pytest.param(GrantSection(where="region = 'north' group by id"), id="more than a filter"),
    ],
)
def test_table_whose_grant_cannot_be_meant_is_withheld(grant: GrantSection, shop: Shop) -> None:
    with calling_as(shop, {"*": True, "patients": grant}) as caller:
        with pytest.raises(errors.UnknownTable):
            caller.call("list_rows", table="patients")
        problems = caller.problems()

    problem, view = problems
    assert "tables.patients" in problem
    assert "burdens is withheld" in view


def test_table_without_any_visible_column_is_not_there(shop: Shop) -> None:
    nothing = GrantSection(columns=())
    with calling_as(shop, {"patients": nothing, "visits": True}) as caller:
        tools = caller.tools()

        assert not [tool for tool in tools if "patients" in tool]
        with pytest.raises(errors.UnknownTable):
            caller.call("list_rows", table="patients")


@pytest.mark.parametrize(
    ("grants", "relations"),
    [
        pytest.param({"patients": True, "visits": True}, ["patient"], id="seen"),
        pytest.param({"visits": True}, [], id="to a hidden table"),
        pytest.param(
            {"patients": GrantSection(exclude=("id",)), "visits": True}, [], id="to a hidden column"
        ),
        pytest.param(
            {"patients": GrantSection(mask={"id": Mask.HASH}), "visits": True}, [], id="to a masked column"
        ),
        pytest.param(
            {"patients": True, "visits": GrantSection(mask={"patient_id": Mask.HASH})},
            [],
            id="on a masked column",
        ),
        pytest.param(
            {"patients": True, "visits": GrantSection(exclude=("patient_id",))}, [], id="on a hidden column"
        ),
    ],
)
def test_foreign_key_whose_ends_are_not_seen_is_no_path(
    grants: Grants, relations: list[str], shop: Shop
) -> None:
    with calling_as(shop, grants) as caller:
        described = caller.call("describe_tables", tables=["visits"], detail="full")
        tables = described["tables"]
        assert isinstance(tables, list)
        code = caller.outcome(calling("list_rows", table="visits", columns=["patient.name"]))[0]

    assert list(tables[0].get("relations", {})) == relations
    assert ("references" in tables[0]) == bool(relations)
    assert code == ("answer" if relations else errors.UnknownColumn.code)


AGGREGATE_FALSE: Grants = {"patients": GrantSection(aggregate=False), "visits": True}


def test_rows_that_may_not_be_aggregated_are_still_listed(shop: Shop) -> None:
    with calling_as(shop, AGGREGATE_FALSE) as caller:
        with pytest.raises(errors.Denied):
            caller.call("aggregate_rows", table="patients", measures=COUNT)

        assert len(caller.rows("list_patients")) == 5


@pytest.mark.parametrize("function", ["count", "count_distinct", "sum", "avg", "min", "max"])
def test_rows_that_may_not_be_aggregated_are_not_along_a_path(function: str, shop: Shop) -> None:
    measures = [{"function": function, "column": "patient.height"}]
    with calling_as(shop, AGGREGATE_FALSE) as caller, pytest.raises(errors.Denied):
        caller.call("aggregate_rows", table="visits", measures=measures)


READS: list[tuple[str, Ask]] = [
    ("list", calling("list_patients")),
    ("list of any", calling("list_rows", table="patients")),
    ("get", calling("get_patients", id=1)),
    ("get of an absent row", calling("get_patients", id=99)),
    ("aggregate", calling("aggregate_rows", table="patients", measures=COUNT)),
    ("path", calling("list_visits", columns=["patient.name"])),
    ("resource", reading("dbtools://row/patients/1")),
    ("cell", reading("dbtools://cell/patients/1/name")),
]


@pytest.mark.parametrize(
    "claims",
    [
        pytest.param({}, id="missing"),
        pytest.param({"region": None}, id="null"),
        pytest.param({"Region": "north", "claims.region": "north", "claim0": "north"}, id="others"),
    ],
)
@pytest.mark.parametrize("ask", [pytest.param(ask, id=name) for name, ask in READS])
def test_missing_claim_denies(ask: Ask, claims: Mapping[str, object], shop: Shop) -> None:
    with calling_as(shop, RICH_GRANTS, claims) as caller:
        assert caller.outcome(ask)[0] == errors.Denied.code


def test_missing_claim_completes_nothing_and_leaves_other_tables(shop: Shop) -> None:
    with calling_as(shop, RICH_GRANTS) as caller:
        keys = caller.portal.call(
            caller.toolbox.complete, caller.identity, ROW_TEMPLATE, "key", "", {"table": "patients"}
        )

        assert keys.values == ()
        assert len(caller.rows("list_visits")) == 5


@pytest.mark.parametrize(
    ("where", "found"),
    [
        pytest.param("region = :claims.region", [1, 3, 5], id="plain"),
        pytest.param("region = :claims.region -- or true", [1, 3, 5], id="trailing comment"),
        pytest.param("region = :claims.region /* ) or (true */", [1, 3, 5], id="block comment"),
        pytest.param("-- first\nregion = :claims.region\n--", [1, 3, 5], id="lines"),
        pytest.param("region = :claims.region or id = 2", [1, 2, 3, 5], id="or"),
        pytest.param("id = 2 or id = 4 and region = :claims.region", [2], id="or with and"),
        pytest.param("not region = :claims.region", [2, 4], id="not"),
        pytest.param(
            "exists (select 1 from visits v where v.patient_id = patients.id and v.price > 10)"
            " and region = :claims.region",
            [3],
            id="subquery",
        ),
        pytest.param(
            "doctor_id in (select id from doctors where name like 'Dr S%')", [1, 4], id="hidden table"
        ),
        pytest.param("name like 'A%' or name like '%n'", [1, 4], id="percent"),
        pytest.param("name <> '%' and name <> '%s' and id < 2", [1], id="percent s"),
        pytest.param("'%(x)s' = '%' || '(x)s' and id < 2", [1], id="percent and a name"),
        pytest.param("'%(limit)s' = '%' || '(limit)s' and id < 2", [1], id="percent and a parameter"),
        pytest.param("'%(c0_0)s' = '%' || '(c0_0)s' and id < 2", [1], id="percent and a value"),
        pytest.param(
            "'%(claim0)s' = '%' || '(claim0)s' and region = :claims.region", [1, 3, 5], id="its own"
        ),
        pytest.param("'%%' = '%' || '%' and id < 2", [1], id="two percents"),
        pytest.param(
            "'__[POSTCOMPILE_limit]' = '__[' || 'POSTCOMPILE_limit]' and id < 2", [1], id="a later step"
        ),
        pytest.param("':limit' = ':' || 'limit' and id < 2", [1], id="colon in quotes"),
        pytest.param("'?' = '?' || '' and '$1' = '$' || '1' and id < 2", [1], id="marks in quotes"),
        pytest.param("'it''s' = 'it' || '''' || 's' and id < 2", [1], id="quote in quotes"),
        pytest.param("\"region\" = :claims.region and 'a\\' <> ''", [1, 3, 5], id="backslash"),
        pytest.param(
            ":claims.region = region and region in (:claims.region, :claims.region)", [1, 3, 5], id="thrice"
        ),
        pytest.param("id = (select min(id) from patients)", [1], id="its own table"),
        pytest.param("false or id % 2 = 0", [2, 4], id="modulo"),
    ],
)
def test_filter_means_what_is_written(where: str, found: list[int], shop: Shop) -> None:
    condition = [{"column": "id", "op": "lt", "value": "99"}, {"column": "id", "op": "gt", "value": "-1"}]
    with calling_as(shop, {"patients": GrantSection(where=where), "visits": True}, NORTH) as caller:
        assert caller.problems() == ()
        listed = caller.rows("list_patients", columns=["id"])
        searched = caller.rows("list_patients", columns=["id"], where=condition, match="any", limit=100)
        along = caller.rows("list_rows", table="visits", columns=["patient.id"], order_by=["id"])
        count = caller.rows("aggregate_rows", table="patients", measures=COUNT)

    assert [listed, searched] == [[[each] for each in found]] * 2
    assert along == [[each if each in found else None] for each in (1, 2, 3, None, 4)]
    assert count == [[len(found)]]


@pytest.mark.parametrize("dialect", ["postgresql"])
@pytest.mark.parametrize(
    ("where", "found"),
    [
        pytest.param("region::text = :claims.region::text", [1, 3, 5], id="two colons"),
        pytest.param("height::numeric > :claims.least::numeric", [2, 4], id="a claim's cast"),
        pytest.param("height > :claims.least", [2, 4], id="an inferred cast"),
        pytest.param("region = any(string_to_array(:claims.region, ','))", [1, 3, 5], id="an array of parts"),
        pytest.param("region = $$north$$", [1, 3, 5], id="dollars"),
        pytest.param("region = E'no\\x72th'", [1, 3, 5], id="escapes"),
        pytest.param("(array[name, region])[2] = :claims.region", [1, 3, 5], id="index"),
    ],
)
def test_filter_may_be_of_the_databases_own_sort(where: str, found: list[int], shop: Shop) -> None:
    with calling_as(shop, {"patients": GrantSection(where=where)}, {**NORTH, "least": 170}) as caller:
        assert caller.problems() == ()
        assert caller.rows("list_patients", columns=["id"]) == [[each] for each in found]


@pytest.mark.parametrize("least", [pytest.param(170, id="number"), pytest.param("170", id="text")])
@pytest.mark.parametrize(
    "where",
    [
        pytest.param("height > :claims.least", id="column"),
        pytest.param("height + 0 > :claims.least", id="sum"),
        pytest.param("coalesce(height, 0) > :claims.least", id="function"),
        pytest.param("height > :claims.least + 0", id="computed claim"),
        pytest.param("not coalesce(height, 0) <= :claims.least", id="negated"),
        pytest.param("height > 170 and :claims.least >= 100 and :claims.least < 1000", id="constants"),
    ],
)
def test_claim_is_compared_as_a_number_however_it_was_written(where: str, least: object, shop: Shop) -> None:
    with calling_as(shop, {"patients": GrantSection(where=where)}, {"least": least}) as caller:
        assert caller.rows("list_patients", columns=["id"]) == [[2], [4]]


@pytest.mark.parametrize("level", [pytest.param(1, id="number"), pytest.param("1", id="text")])
@pytest.mark.parametrize(
    "where",
    [
        pytest.param(":claims.level >= 3", id="claim and constant"),
        pytest.param("coalesce(height, 999) <= :claims.level", id="function and claim"),
        pytest.param("abs(height) < :claims.level", id="number and claim"),
        pytest.param("length(name) <= :claims.level", id="length and claim"),
    ],
)
def test_claim_that_is_too_low_opens_nothing(where: str, level: object, shop: Shop) -> None:
    with calling_as(shop, {"patients": GrantSection(where=where)}, {"level": level}) as caller:
        assert caller.rows("list_patients", columns=["id"]) == []


BY_SIZE = ["abs(height) <= :claims.level", "height <= :claims.level", "not height > :claims.level"]


@pytest.mark.parametrize("where", BY_SIZE)
@pytest.mark.parametrize("level", ["high", "", "1.5", True, "one", "99999999999999999999", None, " "])
def test_claim_that_is_no_value_of_its_type_denies(where: str, level: object, shop: Shop) -> None:
    with calling_as(shop, {"patients": GrantSection(where=where)}, {"level": level}) as caller:
        assert caller.outcome(calling("list_patients"))[0] == errors.Denied.code


@pytest.mark.parametrize("where", BY_SIZE)
@pytest.mark.parametrize("level", ["160", "0160", "+160", 160])
def test_claim_is_the_same_however_it_is_written(where: str, level: object, shop: Shop) -> None:
    with calling_as(shop, {"patients": GrantSection(where=where)}, {"level": level}) as caller:
        heights = [each for (each,) in caller.rows("list_patients", columns=["height"])]

    assert heights
    assert all(isinstance(each, int) and each <= 160 for each in heights)


@pytest.mark.parametrize("where", [*BY_SIZE, "name between 'a' and :claims.level", "name != :claims.level"])
def test_comparison_by_size_wants_a_type_where_the_database_knows_none(
    where: str, shop: Shop, dialect: str
) -> None:
    grants: Grants = {"patients": GrantSection(where=where), "visits": True}
    with calling_as(shop, grants, {"level": "1"}, declared={}) as caller:
        withheld = "list_patients" not in caller.tools()
        problems = " ".join(caller.problems())

    assert withheld == (dialect == "sqlite")
    assert ("[policy.claims]" in problems) == withheld


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param("south' or '1'='1", id="quotes"),
        pytest.param("north' --", id="comment"),
        pytest.param("%", id="percent"),
        pytest.param("NORTH", id="case"),
        pytest.param("", id="empty"),
        pytest.param(0, id="zero"),
        pytest.param(True, id="boolean"),
        pytest.param(2**70, id="large"),
        pytest.param(1.5, id="fraction"),
        pytest.param("nor\0th", id="NUL"),
        pytest.param("\ud800", id="half a character"),
        pytest.param(["north"], id="list"),
        pytest.param({"region": "north"}, id="object"),
    ],
)
def test_odd_claim_opens_nothing(claim: object, shop: Shop) -> None:
    with calling_as(shop, {"patients": GrantSection(where=FILTER)}, {"region": claim}) as caller:
        kind, told = caller.outcome(calling("list_patients", columns=["id"]))

    assert kind != "answer" or '"rows":[]' in str(told)


CELLS = {
    "sqlite": """
    create table cells (id integer primary key, cell, other text);
    insert into cells values
        (1, null, ''), (2, 'secret', ''), (3, '', ''), (4, 'ann@example.org', ''), (5, 424242, ''),
        (6, x'cafecafe', ''), (7, 42.5, ''), (8, 'secret', ''), (9, '🦉owl', ''),
        (10, 'mail ann@example.org', ''), (11, 'p@ssword', ''), (12, 'https://ann:pw@host.org/?secret', '');
    """,
    "postgresql": """
    create table cells (id integer primary key, cell text, other text);
    insert into cells values
        (1, null, ''), (2, 'secret', ''), (3, '', ''), (4, 'ann@example.org', ''), (5, 424242, ''),
        (6, 'zzz', ''), (7, 42.5, ''), (8, 'secret', ''), (9, '🦉owl', ''),
        (10, 'mail ann@example.org', ''), (11, 'p@ssword', ''), (12, 'https://ann:pw@host.org/?secret', '');
    """,
}


@pytest.fixture(scope="module")
def cells(serve: Serve) -> Iterator[Shops]:
    """Give a table of cells to be masked."""
    with open_shops(serve, CELLS) as shops:
        yield shops


def _masked(cells: Shop, mask: Mask, hash_key: str = KEY) -> dict[object, object]:
    with calling_as(cells, {"cells": GrantSection(mask={"cell": mask})}, hash_key=hash_key) as caller:
        listed = {row[0]: row[1] for row in caller.rows("list_cells", columns=["id", "cell"])}
        got = {}
        for id in listed:
            row = caller.call("get_cells", id=id)["row"]
            assert isinstance(row, dict)
            got[id] = row["cell"]
    assert listed == got
    return listed


@pytest.mark.parametrize(
    ("mask", "shown"),
    [pytest.param(Mask.NULL, None, id="null"), pytest.param(Mask.REDACT, "***", id="redact")],
)
def test_blank_mask_shows_nothing_not_even_nulls(
    mask: Mask, shown: object, cells: Shops, dialect: str
) -> None:
    assert set(_masked(cells(dialect), mask).values()) == {shown}


def test_partial_mask_shows_a_first_character_and_an_addresss_domain(cells: Shops, dialect: str) -> None:
    found = _masked(cells(dialect), Mask.PARTIAL)
    shown = {id: cell for id, cell in found.items() if id not in (6,)}

    assert shown == {
        1: None,
        2: "s…",
        3: "…",
        4: "a…@example.org",
        5: "4…",
        7: "4…",
        8: "s…",
        9: "🦉…",
        10: "m…",
        11: "p…",
        12: "h…",
    }
    assert len(str(found[6])) == 2


def test_hash_mask_is_equal_for_equal_cells_alone_and_keyed(cells: Shops, dialect: str) -> None:
    found = _masked(cells(dialect), Mask.HASH)
    again = _masked(cells(dialect), Mask.HASH)
    other = _masked(cells(dialect), Mask.HASH, hash_key="another")

    assert found == again
    assert found[1] is None
    assert found[2] == found[8]
    digests = [str(each) for id, each in found.items() if id not in (1, 8)]
    assert len(set(digests)) == len(digests)
    assert {len(each) for each in digests} == {16}
    assert not set(digests) & set(other.values())


@pytest.fixture(scope="module")
def long_cells(serve: Serve) -> Iterator[Shops]:
    """Give texts that are as long as is read of a masked cell, and longer."""
    address = "ann@example.org"
    lengths = f"""
    create table cells (id integer primary key, cell text, other text);
    insert into cells values
        (1, '{"é" * 10_000}', ''), (2, '{"é" * 10_000}a', ''), (3, '{"é" * 10_000}b', ''),
        (4, '{address + "x" * 305}', ''), (5, '{address + "x" * 305}y', ''), (6, '{address + " " * 400}', '');
    """
    with open_shops(serve, dict.fromkeys(CELLS, lengths)) as shops:
        yield shops


def test_cell_that_is_too_long_to_be_hashed_is_redacted(long_cells: Shops, dialect: str) -> None:
    """A hash of its beginning would be that of another cell."""
    found = _masked(long_cells(dialect), Mask.HASH)

    assert len(str(found[1])) == 16
    assert [found[2], found[3]] == [REDACTED, REDACTED]


def test_long_cell_shows_no_domain_of_its_beginning(long_cells: Shops, dialect: str) -> None:
    found = _masked(long_cells(dialect), Mask.PARTIAL)

    assert found == {1: "é…", 2: "é…", 3: "é…", 4: "a…", 5: "a…", 6: "a…"}


def test_hash_without_a_key_withholds_its_table(shop: Shop) -> None:
    grants: Grants = {"patients": GrantSection(mask={"email": Mask.HASH}), "visits": True}
    with calling_as(shop, grants, hash_key="") as caller:
        assert "list_visits" in caller.tools()
        assert "list_patients" not in caller.tools()
        assert "hash_key" in " ".join(caller.problems())


PICTURE = "89504e470d0a1a0a" + "ca" * 40
BLOBS = {
    "sqlite": f"""
    create table pictures (id integer primary key, picture blob, note text);
    insert into pictures values (1, x'{PICTURE}', 'n'), (2, null, 'n'), (3, x'', 'n');
    """,
    "postgresql": f"""
    create table pictures (id integer primary key, picture bytea, note text);
    insert into pictures values (1, '\\x{PICTURE}', 'n'), (2, null, 'n'), (3, '', 'n');
    """,
}


@pytest.fixture(scope="module")
def pictures(serve: Serve) -> Iterator[Shops]:
    """Give a table of pictures."""
    with open_shops(serve, BLOBS) as shops:
        yield shops


@pytest.mark.parametrize("mask", Mask)
def test_masked_blob_is_neither_shown_nor_attached(mask: Mask, pictures: Shops, dialect: str) -> None:
    shop = pictures(dialect)
    with calling_as(shop, {"pictures": GrantSection(mask={"picture": mask})}) as caller:
        got = caller.portal.call(caller.toolbox.call, caller.identity, "get_pictures", {"id": 1})
        listed = caller.portal.call(
            caller.toolbox.call, caller.identity, "list_pictures", {"columns": ["picture"]}
        )
        cell = caller.portal.call(caller.toolbox.read, caller.identity, "dbtools://cell/pictures/1/picture")

    assert (got.media, got.links, listed.media, listed.links) == ((), (), (), ())
    assert cell.type in ("text/plain", "application/json")
    for told in (repr(got), repr(listed), repr(cell)):
        assert not any(each in told for each in ("caca", "ysrK", "PNG", "iVBOR", "\\xca"))


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
ROWS = """
    insert into keyed
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 25)
        select i, 'c' || i, 'w' || (i % 3) from n;
    insert into paired
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 25)
        select i % 5, i, 'v' || (i % 2) from n;
"""


@pytest.fixture(scope="module")
def keyed(serve: Serve) -> Iterator[Shops]:
    """Give tables with keys."""
    with open_shops(serve, {dialect: ddl + ROWS for dialect, ddl in KEYED.items()}) as shops:
        yield shops


@pytest.mark.parametrize(
    ("table", "grant", "has_key"),
    [
        pytest.param("keyed", GrantSection(), True, id="seen"),
        pytest.param("keyed", GrantSection(exclude=("id",)), True, id="another key is left"),
        pytest.param("keyed", GrantSection(exclude=("id", "code")), False, id="hidden keys"),
        pytest.param("keyed", GrantSection(columns=("word",)), False, id="equal rows"),
        pytest.param(
            "keyed", GrantSection(mask={"id": Mask.NULL, "code": Mask.PARTIAL}), False, id="masked keys"
        ),
        pytest.param(
            "keyed", GrantSection(mask=dict.fromkeys(("id", "code", "word"), Mask.REDACT)), False, id="x"
        ),
        pytest.param("paired", GrantSection(exclude=("b",)), False, id="half a key"),
        pytest.param("paired", GrantSection(mask={"a": Mask.HASH}), False, id="masked half"),
        pytest.param("paired", GrantSection(where="a <> 1 and b > 0"), True, id="filtered"),
    ],
)
def test_hidden_or_masked_key_gets_nothing_and_pages_run_to_the_end(
    table: str, grant: GrantSection, has_key: bool, keyed: Shops, dialect: str
) -> None:
    with calling_as(keyed(dialect), {table: grant}) as caller:
        tools = caller.tools()
        whole = caller.rows(f"list_{table}", limit=100)
        paged = [row for page in caller.pages(f"list_{table}", limit=4) for row in rows_of(page)]
        code = caller.outcome(reading(f"dbtools://row/{table}/{'1' if table == 'keyed' else '1,1'}"))[0]

    assert (f"get_{table}" in tools) == has_key
    assert paged == whole
    assert len(whole) == (20 if grant.where else 25)
    assert has_key or code == errors.UnknownResource.code


def test_cursor_by_offset_holds_no_value(keyed: Shops, dialect: str) -> None:
    grant = GrantSection(exclude=("id", "code"))
    with calling_as(keyed(dialect), {"keyed": grant}) as caller:
        cursors = {
            caller.call("list_keyed", limit=limit, order_by=["word"])["next_cursor"] for limit in (1, 2, 3)
        }
        values = [_content_of(str(cursor))[2] for cursor in cursors]

    assert values == [None, None, None]


def _content_of(cursor: str) -> list[object]:
    content: list[object] = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    return content


GIANT = {
    "sqlite": """
    create table giants (id integer primary key, region text, cell text, big text, word text);
    insert into giants values
        (1, 'north', 'CANARY-1', replace(hex(zeroblob(8500000)), '00', 'ab'), 'plain'),
        (2, 'south', 'CANARY-2', replace(hex(zeroblob(8500000)), '00', 'CANARY'), 'needle'),
        (3, 'north', 'CANARY-3', 'small', 'plain');
    create table regions (name text primary key, open integer);
    insert into regions values ('north', 1), ('south', 0);
    """,
    "postgresql": """
    create table giants (id integer primary key, region text, cell text, big text, word text);
    insert into giants values
        (1, 'north', 'CANARY-1', repeat('ab', 8500000), 'plain'),
        (2, 'south', 'CANARY-2', repeat('CANARY', 8500000), 'needle'),
        (3, 'north', 'CANARY-3', 'small', 'plain');
    create table regions (name text primary key, open integer);
    insert into regions values ('north', 1), ('south', 0);
    """,
}
CORRELATED = "exists (select 1 from regions r where r.name = region and r.open = 1)"


@pytest.fixture(scope="module")
def giants(serve: Serve) -> Iterator[Shops]:
    """Give a table with cells that one of the databases does not load."""
    with open_shops(serve, GIANT) as shops:
        yield shops


@pytest.mark.parametrize("mask", Mask)
@pytest.mark.parametrize("masked", [["cell"], ["big"], ["cell", "big"]])
def test_giant_cell_does_not_uncover_a_masked_one(
    masked: list[str], mask: Mask, giants: Shops, dialect: str
) -> None:
    grant = GrantSection(where="region = 'north'", mask=dict.fromkeys(masked, mask), exclude=("word",))
    asks = [
        calling("list_giants", columns=["id", *masked]),
        calling("list_giants"),
        calling("get_giants", id=1),
        calling("get_giants", id=2),
        reading("dbtools://row/giants/1"),
        *(reading(f"dbtools://cell/giants/{id}/{column}") for id in (1, 2) for column in masked),
    ]
    with calling_as(giants(dialect), {"giants": grant}) as caller:
        told = "".join(repr(caller.outcome(ask)) for ask in asks)

    for column in masked:
        assert ("CANARY" if column == "cell" else "abab") not in told
    assert "CANARYCANARY" not in told


@pytest.mark.parametrize("where", ["region = 'north'", CORRELATED], ids=["plain", "correlated"])
@pytest.mark.parametrize(
    "doubt",
    [
        {"op": "contains", "value": "zz"},
        {"op": "eq", "value": "zz"},
        {"op": "gt", "value": "a"},
        {"op": "in", "values": ["a", "b"]},
    ],
    ids=lambda doubt: str(doubt["op"]),
)
def test_giant_cell_of_a_hidden_row_answers_no_question_about_it(
    doubt: Mapping[str, object], where: str, giants: Shops, dialect: str
) -> None:
    with calling_as(giants(dialect), {"giants": GrantSection(where=where)}) as caller:
        outcomes = [
            caller.outcome(
                calling(
                    "list_giants",
                    columns=["id"],
                    where=[{"column": "word", "value": word}, {"column": "big", **doubt}],
                )
            )
            for word in ("needle", "noodle")
        ]

    assert outcomes[0] == (outcomes[1][0], str(outcomes[1][1]).replace("noodle", "needle"))


MANY = 20_000
INDEXED = """
    create table owners (id integer primary key, tenant integer not null, code text not null unique);
    create table things (
        id integer primary key, tenant integer not null, owner_id integer references owners(id), name text
    );
    insert into owners
        with recursive n(i) as (select 1 union all select i + 1 from n where i < {many})
        select i, i % 10, 'o' || i from n;
    insert into things
        with recursive n(i) as (select 1 union all select i + 1 from n where i < {many})
        select i, i % 10, i, 'thing ' || i from n;
    create index things_by_name on things (name);
    create index things_by_owner on things (owner_id);
    create table tenants (id integer primary key, open integer);
    insert into tenants values (1, 1), (2, 0);
    analyze;
"""
TENANT = "tenant = :claims.tenant"
OPEN = "exists (select 1 from tenants n where n.id = tenant and n.open = 1)"


@pytest.fixture(scope="module")
def indexed(serve: Serve) -> Iterator[Shops]:
    """Give two tables of twenty thousand rows."""
    with open_shops(serve, dict.fromkeys(KEYED, INDEXED.format(many=MANY))) as shops:
        yield shops


def _plan(shop: Shop, caller: Caller, tool: str, arguments: Mapping[str, object]) -> str:
    """Return how the database runs the statement of a call."""
    view = caller.portal.call(caller.toolbox.view, ROLE)
    statement = view.tools[tool].bind(arguments).statement
    assert statement is not None
    plan = caller.portal.call(caller.database.runner).compile(statement.shape)
    if isinstance(shop.bare, BareSqlite):
        install(shop.bare.connection)
        found = shop.bare.rows(f"explain query plan {plan.sql}", *(1 for _ in plan.parameters))
        return "\n".join(str(row[-1]) for row in found)
    values = {**statement.values, **{name: caller.claims[claim] for name, claim in plan.claims.items()}}
    written = plan.bound(values, statement.limit)
    return "\n".join(str(row[0]) for row in shop.bare.rows(f"explain {plan.sql}", *written))


PATH: Mapping[str, object] = {"where": [{"column": "id", "value": "41"}], "columns": ["id", "owner.code"]}
GROUPED: Mapping[str, object] = {
    "table": "things",
    "where": [{"column": "id", "value": "41"}],
    "group_by": ["owner.code"],
    "measures": COUNT,
}


@pytest.mark.parametrize("where", [TENANT, OPEN, f"{TENANT} -- comment", "tenant = 1 or tenant = 2"])
@pytest.mark.parametrize("mask", [None, Mask.NULL, Mask.HASH])
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        pytest.param("get_things", {"id": 41}, id="get"),
        pytest.param("list_things", {"where": [{"column": "name", "value": "thing 41"}]}, id="lookup"),
        pytest.param("list_things", {"where": [{"column": "id", "op": "lt", "value": "9"}]}, id="range"),
        pytest.param("list_rows", {"table": "things", **PATH}, id="path"),
        pytest.param("aggregate_rows", GROUPED, id="groups along a path"),
    ],
)
def test_filtered_tables_keep_their_indexes(
    tool: str, arguments: Mapping[str, object], mask: Mask | None, where: str, indexed: Shops, dialect: str
) -> None:
    shop = indexed(dialect)
    masks = {} if mask is None else {"owner_id" if tool != "list_rows" else "tenant": mask}
    if tool == "aggregate_rows":
        masks = {} if mask is None else {"tenant": mask}
    grants: Grants = {"things": GrantSection(where=where, mask=masks), "owners": GrantSection(where=where)}
    with calling_as(shop, grants, {"tenant": 1}) as caller:
        plan = _plan(shop, caller, tool, arguments)
        answer = caller.call(tool, **arguments)

    assert "41" in str(answer) or "tenant" in str(answer)
    for table in ("things", "owners"):
        for scan in (f"SCAN {table}", f"Seq Scan on {table}", "MATERIALIZE", "CO-ROUTINE", "AUTOMATIC"):
            assert scan not in plan, plan


NAMED = {"column": "name", "op": "ne", "value": "x"}


@pytest.mark.parametrize("where", [None, TENANT])
@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({"columns": ["id", "count(things)"]}, id="count"),
        pytest.param({"columns": ["id", "sum(things.id + 1)"]}, id="sum that may overflow"),
        pytest.param({"order_by": ["max(things.name) desc"]}, id="order"),
        pytest.param({"where": [{"some": "things"}]}, id="some"),
        pytest.param(
            {"where": [{"none": "things", "where": [{"column": "name", "op": "ne", "value": "x"}]}]},
            id="none",
        ),
    ],
)
def test_related_rows_are_found_by_the_index_of_their_key(
    asked: dict[str, list[object]], where: str | None, indexed: Shops, dialect: str
) -> None:
    shop = indexed(dialect)
    few = {"column": "id", "op": "lte", "value": "21"}
    arguments = {**asked, "where": [few, *asked.get("where", ())]}
    grants: Grants = {name: GrantSection(where=where) if where else True for name in ("things", "owners")}
    with calling_as(shop, grants, {"tenant": 1}) as caller:
        plan = _plan(shop, caller, "list_owners", arguments)

    assert "things_by_owner" in plan, plan
    for scan in ("SCAN things", "Seq Scan on things", "MATERIALIZE", "AUTOMATIC"):
        assert scan not in plan, plan


def test_hidden_rows_are_not_nearest_values_of_a_visible_path(shop: Shop) -> None:
    grants: Grants = {"patients": GrantSection(where=FILTER), "visits": True}
    with calling_as(shop, grants, NORTH) as caller:
        page = caller.call("list_visits", where=[{"column": "patient.name", "value": "Bo"}])

    assert page["rows"] == []
    assert page["note"] == "patient.name has only these values: 'Ann', 'Cid', 'Eve'."


def _note(caller: Caller, tool: str, **arguments: object) -> object:
    page = caller.call(tool, **arguments)
    return page.get("note")


NORTHERN: Grants = {"patients": GrantSection(where=FILTER), "visits": True}
TALL = {"column": "height", "op": "gt", "value": "500"}
FAR = {"column": "patient.height", "op": "gt", "value": "500"}


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("list_patients", {"where": [TALL]}, "height runs from 160 to 170."),
        ("list_visits", {"where": [FAR]}, "patient.height runs from 160 to 170."),
        (
            "list_visits",
            {"where": [{"column": "price", "op": "gt", "value": "500"}]},
            "price runs from 10 to 50.",
        ),
        ("list_patients", {"where": [{"column": "id", "value": "4"}]}, "id runs from 1 to 5."),
        (
            "list_patients",
            {"where": [{"column": "sum(visits.price)", "op": "gt", "value": "500"}]},
            "sum(visits.price) runs from 10 to 30.",
        ),
        (
            "list_patients",
            {"where": [{"some": "visits", "where": [{"column": "price", "op": "gt", "value": "500"}]}]},
            "visits.price runs from 10 to 50.",
        ),
        (
            "aggregate_rows",
            {
                "table": "patients",
                "measures": [{"function": "max", "column": "height"}],
                "where": [{"column": "name", "value": "Eve"}],
            },
            "height is null in the only row.",
        ),
    ],
)
def test_empty_answer_is_explained_by_visible_rows_alone(
    tool: str, arguments: dict[str, object], told: str, shop: Shop
) -> None:
    with calling_as(shop, NORTHERN, NORTH) as caller:
        assert _note(caller, tool, **arguments) == told


def test_table_whose_rows_are_all_hidden_is_like_one_without_rows(serve: Serve, dialect: str) -> None:
    ddl = (
        "create table empty (id integer, height integer); create table full_up (id integer, height integer);"
    )
    grants: Grants = {"empty": True, "full_up": GrantSection(where="height > 1000")}
    calls: Sequence[dict[str, object]] = (
        {},
        {"where": [TALL]},
        {"where": [{"column": "id", "value": "3"}]},
        {"where": [{"column": "id + 1", "op": "ne", "value": "3"}]},
    )
    with (
        open_shops(serve, {dialect: f"{ddl} insert into full_up values (3, 170);"}) as shops,
        calling_as(shops(dialect), grants) as caller,
    ):
        for arguments in calls:
            for name in ("empty", "full_up"):
                assert _note(caller, f"list_{name}", **arguments) == f"{name} has no rows."
                measures = {"measures": [{"function": "max", "column": "height"}]}
                told = _note(caller, "aggregate_rows", table=name, **arguments, **measures)
                assert told == f"{name} has no rows."


def test_rows_that_may_not_be_aggregated_have_no_range(shop: Shop) -> None:
    grants: Grants = {"patients": GrantSection(aggregate=False), "visits": True}
    with calling_as(shop, grants) as caller:
        assert _note(caller, "list_patients", where=[TALL]) is None
        assert _note(caller, "list_visits", where=[FAR]) is None
        assert _note(caller, "list_visits", where=[FAR | {"column": "patient.height + 1"}]) is None
        assert _note(caller, "list_patients", where=[{"column": "name", "value": "ann"}]) == (
            "Stored values of name: 'Ann', …"
        )


STOLEN = "CANARY-stolen"


def _hostile_name(reads: str) -> str:
    """Return a name that would be SQL if what stands for a condition could be imitated."""
    return f"\x01{reads.encode().hex()}\x01"


HOSTILE = {
    "sqlite": _hostile_name('id"||(select v from hidden)||t."id'),
    "postgresql": _hostile_name('id"||(table s)||t."'),
}


def test_name_of_a_column_is_never_sql(serve: Serve, dialect: str) -> None:
    name, short = HOSTILE[dialect], {"sqlite": "hidden", "postgresql": "s"}[dialect]
    ddl = f"""
    create table open (id integer primary key, "{name}" text);
    insert into open values (1, 'plain');
    create table {short} (v text);
    insert into {short} values ('{STOLEN}');
    """
    with open_shops(serve, {dialect: ddl}) as shops, calling_as(shops(dialect), {"open": True}) as caller:
        told = repr(caller.outcome(calling("list_open"))) + repr(caller.outcome(calling("get_open", id=1)))

    assert "plain" in told
    assert STOLEN not in told


@pytest.mark.parametrize(
    "grant",
    [
        GrantSection(exclude=("email",)),
        GrantSection(columns=("id",)),
        GrantSection(where="1 = 0"),
        GrantSection(mask={"email": Mask.NULL}),
        GrantSection(aggregate=False),
        False,
    ],
    ids=["exclude", "columns", "where", "mask", "aggregate", "false"],
)
def test_rule_that_narrows_what_is_not_there_opens_nothing(grant: GrantSection | bool, shop: Shop) -> None:
    with calling_as(shop, {"*": True, "patiens": grant, "visits": True}) as caller:
        tools = caller.tools()

    assert "list_patients" not in tools
    assert "list_visits" in tools


def test_rule_that_only_shows_a_table_that_is_not_there_withholds_none(shop: Shop) -> None:
    with calling_as(shop, {"*": True, "patiens": True}) as caller:
        assert "list_patients" in caller.tools()


TWO_CASES = 'create table a (id integer, ssn text); create table b (id integer, "SSN" text);'


def test_column_of_a_pattern_is_meant_in_any_case(serve: Serve, dialect: str) -> None:
    with (
        open_shops(serve, {dialect: TWO_CASES}) as shops,
        calling_as(shops(dialect), {"*": GrantSection(exclude=("ssn",))}) as caller,
    ):
        assert [each for each in caller.tools() if each.startswith("list_") and each[5:] in "ab"] == []
        assert "'SSN' in b" in " ".join(caller.problems())
