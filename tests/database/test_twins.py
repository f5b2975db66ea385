"""Hidden and absent things get the same answer, in each use that a request can make of them."""

from collections.abc import Iterator, Mapping, Sequence

import pytest

from dbtools import errors
from dbtools.schema.uris import CELL_TEMPLATE, ROW_TEMPLATE
from tests.database.cages import open_cage
from tests.database.role_callers import Ask, calling, completing, listing_tools, reading
from tests.database.shop import Serve
from tests.database.twins import Twins


@pytest.fixture(scope="module")
def twins(serve: Serve, dialect: str) -> Iterator[Twins]:
    with open_cage(serve, dialect, starred=False) as twins:
        yield twins


OPERATORS: Sequence[Mapping[str, object]] = [
    {"op": "eq", "value": "CANARY word"},
    {"op": "ne", "value": "CANARY word"},
    {"op": "lt", "value": "CANARY word"},
    {"op": "lte", "value": "CANARY word"},
    {"op": "gt", "value": "CANARY word"},
    {"op": "gte", "value": "CANARY word"},
    {"op": "contains", "value": "C"},
    {"op": "starts_with", "value": "C"},
    {"op": "ends_with", "value": "d"},
    {"op": "in", "values": ["CANARY word"]},
    {"op": "not_in", "values": ["CANARY word"]},
    {"op": "between", "values": ["A", "D"]},
    {"op": "is_null", "value": "true"},
]
COUNT = [{"function": "count", "name": "n"}]
#: Names that mean nothing to the role, or what is hidden from it.
HIDDEN = (
    "CANARY_word",
    "canary_id",
    "canary.CANARY_memo",
    "canary_id.CANARY_memo",
    "boss.CANARY_word",
    "boss.canary.CANARY_memo",
    "people.CANARY_word",
    "CANARY_WORD",
)
MASKED = ("mail", "redacted", "boss.mail", "MAIL", "people.mail")


def _uses(column: str) -> Iterator[tuple[str, Ask]]:
    """Yield every use that a call can make of *column* of people."""
    for tool, table in (("list_people", {}), ("list_rows", {"table": "people"})):
        yield f"{tool} shows", calling(tool, **table, columns=[column])
        for order in (column, f"{column} desc", f"-{column}"):
            yield f"{tool} order {order}", calling(tool, **table, order_by=[order])
        for condition in OPERATORS:
            where = [{"column": column, **condition}]
            yield f"{tool} {condition['op']}", calling(tool, **table, where=where)
            yield f"{tool} any {condition['op']}", calling(tool, **table, where=where, match="any")
    for name, arguments in _aggregates(column):
        yield name, calling("aggregate_rows", table="people", **{"measures": COUNT, **arguments})


def _aggregates(column: str) -> Iterator[tuple[str, Mapping[str, object]]]:
    yield "group", {"group_by": [column]}
    yield "bucket", {"group_by": [f"{column}:month"]}
    yield "order", {"order_by": [column]}
    for function in ("count", "count_distinct", "sum", "avg", "min", "max"):
        measure = [{"function": function, "column": column, "name": "n"}]
        yield f"measure {function}", {"measures": measure}
    for condition in OPERATORS:
        where = [{"column": column, **condition}]
        yield f"count {condition['op']}", {"where": where}
        yield f"having {condition['op']}", {"having": where}


@pytest.mark.parametrize("column", HIDDEN)
def test_hidden_column_is_unknown_to_every_use(column: str, twins: Twins) -> None:
    codes = {name: twins.outcome(ask)[0] for name, ask in _uses(column)}

    assert codes == dict.fromkeys(codes, errors.UnknownColumn.code)


@pytest.mark.parametrize("column", MASKED)
def test_masked_column_can_be_shown_and_nothing_else(column: str, twins: Twins) -> None:
    codes = {name: twins.outcome(ask)[0] for name, ask in _uses(column)}
    answered = {name for name, code in codes.items() if code == "answer"}

    assert answered == {name for name in codes if name.endswith("shows")}
    refused = {errors.BadOperator.code, errors.BadArgument.code, errors.UnknownColumn.code}
    assert set(codes.values()) <= {"answer", *refused}


ID_9 = {"column": "id", "value": "9"}
PEOPLE = {"table": "people"}
REQUESTS = {
    "definitions": listing_tools,
    "hidden list tool": calling("list_canary_vault"),
    "hidden get tool": calling("get_canary_vault", id=3),
    "hidden view's tool": calling("list_canary_view"),
    "hidden table": calling("list_rows", table="CANARY_vault"),
    "hidden table in capitals": calling("list_rows", table="CANARY_VAULT"),
    "hidden view": calling("list_rows", table="CANARY_view"),
    "hidden row of a hidden table": calling("get_row", table="CANARY_vault", key={"id": "3"}),
    "hidden table's sum": calling("aggregate_rows", table="CANARY_vault", measures=COUNT),
    "hidden table's description": calling("describe_tables", tables=["CANARY_vault"]),
    "hidden table nearly named": calling("describe_tables", tables=["CANARY_vaul"]),
    "all descriptions": calling("describe_tables", detail="full"),
    "all summaries": calling("describe_tables"),
    "all names": calling("describe_tables", detail="names"),
    "search of a hidden table": calling("list_tables", search="CANARY_vault"),
    "search of part of its name": calling("list_tables", search="CANA*"),
    "search of a hidden column": calling("list_tables", search="CANARY_word"),
    "search of nothing": calling("list_tables", search="x"),
    "hidden table's resource": reading("dbtools://row/CANARY_vault/3"),
    "hidden table's cell": reading("dbtools://cell/CANARY_vault/3/CANARY_memo"),
    "completion of a table": completing(ROW_TEMPLATE, "table", "CANA"),
    "completion of all tables": completing(ROW_TEMPLATE, "table", ""),
    "completion of a hidden table's key": completing(ROW_TEMPLATE, "key", "", table="CANARY_vault"),
    "completion of a hidden column": completing(CELL_TEMPLATE, "column", "CANA", table="people"),
    "completion of all columns": completing(CELL_TEMPLATE, "column", "", table="people", key="1"),
    "hidden column of a row": calling("get_row", **PEOPLE, key={"id": "1"}, columns=["CANARY_word"]),
    "key of a hidden column": calling("get_row", **PEOPLE, key={"CANARY_word": "CANARY word"}),
    "hidden column's cell": reading("dbtools://cell/people/1/CANARY_word"),
    "masked cell": reading("dbtools://cell/people/1/mail"),
    "redacted cell": reading("dbtools://cell/people/3/redacted"),
    "whole table": calling("list_people"),
    "row": calling("get_people", id=1),
    "row as a resource": reading("dbtools://row/people/1"),
    "hidden row by key": calling("get_people", id=9),
    "hidden row by key of any": calling("get_row", **PEOPLE, key={"id": "9"}),
    "hidden row by a path": calling("get_row", **PEOPLE, key={"id": "3"}, columns=["boss.name"]),
    "hidden row's address": reading("dbtools://row/people/9"),
    "hidden row's cell": reading("dbtools://cell/people/9/name"),
    "hidden row in a list": calling("list_people", where=[ID_9]),
    "hidden row after a number": calling("list_people", where=[{**ID_9, "op": "gte"}], limit=1),
    "hidden value": calling("list_people", where=[{"column": "name", "value": "CANARY Eve"}]),
    "hidden values nearly": calling("list_people", where=[{"column": "name", "value": "CANARY Ev"}]),
    "hidden values in part": calling(
        "list_people", where=[{"column": "name", "op": "contains", "value": "eve"}]
    ),
    "hidden values at the end of a path": calling(
        "list_people", where=[{"column": "boss.name", "value": "CANARY Ev"}]
    ),
    "two hidden values": calling("list_people", where=[ID_9, {"column": "name", "value": "CANARY Eve"}]),
    "pages by name": calling("list_people", order_by=["name desc"], limit=2),
    "paths to hidden rows": calling("list_people", columns=["id", "boss_id", "boss.name", "boss.mail"]),
    "order by a path": calling("list_people", columns=["id"], order_by=["boss.name", "id"]),
    "nulls of a path": calling("list_people", where=[{"column": "boss.id", "op": "is_null", "value": 1}]),
    "number of rows": calling("aggregate_rows", **PEOPLE, measures=COUNT),
    "groups": calling("aggregate_rows", **PEOPLE, group_by=["region"], measures=COUNT),
    "groups by a path": calling("aggregate_rows", **PEOPLE, group_by=["boss.region"], measures=COUNT),
    "greatest at the end of a path": calling(
        "aggregate_rows", **PEOPLE, measures=[{"function": "max", "column": "boss.name"}]
    ),
    "completion of keys": completing(ROW_TEMPLATE, "key", "", table="people"),
    "completion of a hidden key": completing(ROW_TEMPLATE, "key", "9", table="people"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_hidden_thing_and_absent_thing_have_the_same_answer(name: str, twins: Twins) -> None:
    twins.outcome(REQUESTS[name])


COLUMNS = (
    "Columns: id, name, region, amount, born, blank, redacted, mail, tag, %(limit)s, "
    "boss_id, team_id, vault_id, team_code."
)
OF_TEAMS = "people_by_team_id"
FIRST = {"column": "id", "op": "lt", "value": "2"}
#: Mistakes and empty answers, and what their hints and reasons say of what is seen.
EXPLAINED: list[tuple[str, Mapping[str, object], str]] = [
    ("list_teams", {"columns": ["peopl.amount"]}, f"max({OF_TEAMS}.…)"),
    (
        "list_teams",
        {"columns": [f"sum({OF_TEAMS}.amount * founded)"]},
        f"begin with {OF_TEAMS}, not 'founded'",
    ),
    ("list_teams", {"columns": [f"sum({OF_TEAMS}.amount * CANARY_motto)"]}, "not 'CANARY_motto'"),
    ("list_people", {"columns": ["canary.name"]}, COLUMNS),
    ("list_people", {"columns": ["length(sec-ret)"]}, COLUMNS),
    ("list_people", {"columns": ["boss.canary.CANARY_memo"]}, COLUMNS),
    ("list_people", {"columns": ["boss"]}, "such as boss.name."),
]
#: The same of conditions.
EXPLAINED_WHERE: list[tuple[str, list[Mapping[str, object]], str]] = [
    ("list_teams", [{"column": f"{OF_TEAMS}.amount", "value": "10"}], "or some and none in where"),
    ("list_people", [{"some": "CANARY_vault"}], "Related rows: people."),
    ("list_people", [{"column": "canary_id", "value": "CANARY a"}], COLUMNS),
    ("list_people", [{"column": "region", "op": "matches", "value": "x"}], "does not support matches"),
    ("list_people", [{"column": "boss_id", "value": "CANARY Eve"}], "is not an integer"),
    ("list_people", [{"column": "name", "op": "is_null", "value": "true"}], "never null"),
    (
        "list_teams",
        [{"none": OF_TEAMS}, {"column": "title", "op": "eq", "value_column": "region"}],
        "No row meets where[1].",
    ),
    ("list_teams", [{"some": OF_TEAMS, "where": [ID_9]}], f"{OF_TEAMS}.id runs from 1 to 4."),
    ("list_people", [{"some": "people", "where": [{"column": "id", "value": "3"}]}], '"rows":[]}'),
    (
        "list_teams",
        [{"some": OF_TEAMS, "where": [FIRST, {"column": "amount", "op": "gt", "value": "20"}]}],
        "No row of people meets the conditions in some.",
    ),
    ("list_people", [{"column": "amount", "op": "gt", "value": "500"}], "amount runs from 10 to 40."),
    (
        "list_people",
        [{"column": "boss.amount", "op": "gt", "value": "500"}],
        "boss.amount runs from 10 to 40.",
    ),
    (
        "list_teams",
        [{"column": f"sum({OF_TEAMS}.amount)", "op": "gt", "value": "500"}],
        f"sum({OF_TEAMS}.amount) runs from 30 to 30.",
    ),
    ("list_people", [{"column": "boss.name", "value": "Ev"}], "boss.name has only these values"),
    ("list_people", [{"column": "boss.region", "value": "south"}], "has only these values: \\'north\\'."),
    (
        "list_people",
        [{"column": "amount", "value": "10"}, {"column": "boss.name", "op": "is_null", "value": "false"}],
        "Each condition asks",
    ),
]


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [*EXPLAINED, *((tool, {"where": where}, told) for tool, where, told in EXPLAINED_WHERE)],
)
def test_hints_and_reasons_are_about_what_is_seen(
    tool: str, arguments: Mapping[str, object], told: str, twins: Twins
) -> None:
    _, text = twins.outcome(calling(tool, **arguments))

    assert told in str(text)


def test_note_of_nulls_is_about_what_is_seen(twins: Twins) -> None:
    row = [{"column": "id", "value": "3"}]

    _, text = twins.outcome(calling("list_people", columns=["length(boss.name)"], where=row))

    assert "boss.name is null in these rows." in str(text)
