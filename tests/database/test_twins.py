"""Hidden and absent objects get the same answer: two databases that look the same to a role."""

from collections.abc import Iterator, Mapping, Sequence

import pytest

from dbtools import errors
from dbtools.settings.sections import GrantSection
from dbtools.uris import CELL_TEMPLATE, ROW_TEMPLATE
from tests.database.role_callers import (
    COUNT,
    FILTER,
    MASKS,
    NORTH,
    RICH_GRANTS,
    SEEN_PATIENTS,
    UNCHECKED,
    Ask,
    Caller,
    Grants,
    calling,
    calling_as,
    completing,
    listing_tools,
    reading,
    shops as shops,
)
from tests.database.shop import Serve, Shop, Shops, open_shops

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
POOR_GRANTS: Grants = {"patients": GrantSection(where=FILTER, mask=MASKS), "visits": True}


@pytest.fixture(scope="module")
def poor_shops(serve: Serve) -> Iterator[Shops]:
    """Give the poor database."""
    with open_shops(serve, {each: POOR.format(unchecked=UNCHECKED[each]) for each in UNCHECKED}) as shops:
        yield shops


@pytest.fixture(scope="module")
def twins(dialect: str, shops: Shops, poor_shops: Shops) -> Iterator[tuple[Caller, Caller]]:
    """Return a caller to whom the rich and the poor database look the same."""
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
    "remark": dict(_uses("remark", "patients", TYPED)),
    "doctor_id": dict(_uses("doctor_id", "patients", ("list_patients",))),
    "doctor.name": dict(_uses("doctor.name", "patients", ("list_rows",))),
    "doctor_id.name": dict(_uses("doctor_id.name", "patients", ("list_rows",))),
    "patient.remark": dict(_uses("patient.remark", "visits", ("list_rows", "list_visits"))),
    "patient.doctor.name": dict(_uses("patient.doctor.name", "visits", ("list_rows",))),
    "SECRET": dict(_uses("SECRET", "patients", ("list_rows",))),
    "patients.remark": dict(_uses("patients.remark", "patients", ("list_rows",))),
}
MASKED_USES: Mapping[str, Mapping[str, Ask]] = {
    "email": dict(_uses("email", "patients", TYPED)),
    "height": dict(_uses("height", "patients", ("list_patients",))),
    "patient.email": dict(_uses("patient.email", "visits", ("list_rows", "list_visits"))),
    "EMAIL": dict(_uses("EMAIL", "patients", ("list_rows",))),
    "patients.email": dict(_uses("patients.email", "patients", ("list_rows",))),
}
ID_2 = {"column": "id", "value": "2"}
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
    *((f"search {each}", calling("list_tables", search=each)) for each in ("doctors", "doc*", "remark", "x")),
    ("hidden table's resource", reading("dbtools://row/doctors/1")),
    ("hidden table's cell", reading("dbtools://cell/doctors/1/name")),
    ("completion of a table", completing(ROW_TEMPLATE, "table", "doc")),
    ("completion of all tables", completing(ROW_TEMPLATE, "table", "")),
    ("completion of a hidden table's key", completing(ROW_TEMPLATE, "key", "", table="doctors")),
    ("completion of a hidden column", completing(CELL_TEMPLATE, "column", "sec", table="patients")),
    ("completion of all columns", completing(CELL_TEMPLATE, "column", "", table="patients", key="1")),
    ("hidden column of a row", calling("get_row", table="patients", key={"id": "1"}, columns=["remark"])),
    ("key of a hidden column", calling("get_row", table="patients", key={"remark": "cursed"})),
    ("hidden column's cell", reading("dbtools://cell/patients/1/remark")),
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

#: Mistakes and empty answers, and what their hints and reasons say of what is seen.
EXPLAINED: list[tuple[str, Mapping[str, object], str]] = [
    ("list_patients", {"where": [{"column": "visits.price", "value": "10"}]}, "or some and none in where"),
    ("list_patients", {"columns": ["visit.price"]}, "max(visits.…)"),
    ("list_patients", {"columns": ["sum(visits.price * height)"]}, "begin with visits, not 'height'"),
    ("list_patients", {"columns": ["sum(visits.price * remark)"]}, "begin with visits, not 'remark'"),
    ("list_patients", {"columns": ["doctors.name"]}, "Columns: id, name, region, email, height."),
    ("list_patients", {"columns": ["length(sec-ret)"]}, "Columns: id, name, region, email, height."),
    ("list_patients", {"where": [{"some": "doctors"}]}, "Related rows: visits."),
    ("list_patients", {"where": [{"column": "doctor_id", "value": "Dr Who"}]}, "Columns: id"),
    (
        "list_patients",
        {"where": [{"column": "name", "op": "matches", "value": "x"}]},
        "does not support matches",
    ),
    ("list_visits", {"columns": ["patient.doctors.name"]}, "Columns: id, name, region, email, height."),
    ("list_visits", {"columns": ["patient"]}, "such as patient.name."),
    ("list_visits", {"where": [{"column": "patient_id", "value": "Bob"}]}, "is not an integer"),
    ("list_patients", {"where": [{"column": "name", "op": "is_null", "value": "true"}]}, "never null"),
    (
        "list_patients",
        {"where": [{"none": "visits"}, {"column": "name", "op": "eq", "value_column": "region"}]},
        "No row meets where[1].",
    ),
    ("list_patients", {"where": [{"some": "visits", "where": [{**ID_2, "value": "9"}]}]}, "from 1 to 5"),
    ("list_patients", {"where": [{"some": "visits", "where": [ID_2]}]}, '"rows":[]}'),
    (
        "list_patients",
        {
            "where": [
                {
                    "some": "visits",
                    "where": [
                        {**ID_2, "op": "lt"},
                        {"column": "price", "op": "gt", "value": "20"},
                    ],
                }
            ]
        },
        "No row of visits meets the conditions in some.",
    ),
    (
        "list_visits",
        {"where": [{"column": "patient.region", "value": "south"}]},
        "patient.region has only these values",
    ),
    (
        "list_visits",
        {
            "where": [
                {"column": "price", "op": "gt", "value": "30"},
                {"column": "patient.name", "op": "is_null", "value": "false"},
            ]
        },
        "Each condition asks",
    ),
    ("list_visits", {"columns": ["length(patient.name)"], "where": [ID_2]}, "patient.name is null in these"),
]


@pytest.mark.parametrize(("tool", "arguments", "told"), EXPLAINED)
def test_hints_and_reasons_are_about_what_is_seen(
    tool: str, arguments: Mapping[str, object], told: str, twins: tuple[Caller, Caller]
) -> None:
    rich, poor = (caller.outcome(calling(tool, **arguments)) for caller in twins)

    assert rich == poor
    assert told in str(rich[1])


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
    with calling_as(shop, {"patients": GrantSection(columns=("id", "name", "remark"))}) as other:
        cursor = other.call("list_patients", order_by=["remark"], limit=1)["next_cursor"]

    with pytest.raises(errors.BadCursor):
        twins[0].call("list_patients", cursor=cursor)
