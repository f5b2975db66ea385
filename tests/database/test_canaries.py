"""No answer to a random request shows what its role must not see."""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dbtools.expressions.terms import Bucket, Function
from dbtools.schema.uris import CELL_TEMPLATE, ROW_TEMPLATE
from dbtools.values.types import Operator
from tests.database.cages import open_cage, rich_ddl
from tests.database.role_callers import Ask, Caller, calling, calling_as, completing, listing_tools, reading
from tests.database.shop import Serve
from tests.database.twins import CANARY, Twins, decoded

CALLS = 8  #: in one example at the most
VISIBLE_TABLES = ("people", "teams", "People")
HIDDEN_TABLES = ("CANARY_vault", "CANARY_view", "canary_schema.people", "canary_nested", "canary_text")
TABLES = (*VISIBLE_TABLES, *HIDDEN_TABLES, "canary_count", "vault", "CANA", "t")
SEEN_COLUMNS = ("id", "name", "region", "amount", "born", "boss_id", "team_id", "vault_id", "team_code")
SEEN_OF_TEAMS = (
    "team.title",
    "team.id",
    "team.region",
    "team.founded",
    "amount.title",
    "boss.amount.founded",
)
SEEN = (*SEEN_COLUMNS, *SEEN_OF_TEAMS, "%(limit)s", "boss.name", "boss.born", "boss.team.title")
MASKS = ("blank", "redacted", "mail", "tag", "boss.mail", "boss.tag")
HIDDEN_COLUMNS = ("CANARY_word", "canary_number", "canary_date", "canary_blob", "canary_computed")
OTHER_HIDDEN_COLUMNS = (
    "canary_id",
    "CANARY_mood",
    "canary_list",
    "$1",
    "?",
    "code",
    "team.code",
    "team.CANARY_motto",
)
HIDDEN_PATHS = ("canary.CANARY_memo", "boss.CANARY_word", "vault.CANARY_memo", "vault.id", "vault_id.id")
HIDDEN_STEPS = ("teams_by_team_code.title", "team_code.title", "boss.canary.CANARY_memo", "CANARY_vault.id")
ROW_IDENTIFIERS = ("rowid", "_rowid_", "ctid", "oid", "tableoid", "xmin")
MISTAKES = ("title", "founded", "boss.boss.boss.name", "team_id.title", "people.name", "TEAM.TITLE", "CANA")
OTHER_MISTAKES = ("*", "", "word", "number", "people_by_boss_id.name", "team.people.name", "born.month")
HIDDEN = (*HIDDEN_COLUMNS, *OTHER_HIDDEN_COLUMNS, *HIDDEN_PATHS, *HIDDEN_STEPS)
ODD = (*HIDDEN, *ROW_IDENTIFIERS, *MISTAKES, *OTHER_MISTAKES)
#: What refers to people or teams; some of it only where nothing is hidden.
VISIBLE_RELATIONS = ("people", "people_by_amount", "people_by_boss_id", "people_by_team_id", "team", "teams")
HIDDEN_RELATIONS = ("people_by_team_code", "canary_people", "CANARY_vault", "vault", "people.vault")
RELATIONS = (*VISIBLE_RELATIONS, *HIDDEN_RELATIONS, "people.team")
NUMBERS = (
    "id",
    "amount",
    "boss_id",
    "born - team.founded",
    "boss.amount",
    "canary_number",
    "424242",
    "1",
    "0",
)
VISIBLE_VALUES = ("1", "2", "3", "5", "10", "north", "Ann", "Red", "2001-02-03", "1990-01-01", "C", "***")
HIDDEN_VALUES = ("CANARY", "CANARY south", "CANARY Eve", "7", "9", "424242", "1942-04-24", "CANARY-tag")
CLOSE_VALUES = ("CANA", "canary eve", "Annn", "424241", "1942-04-25", "ann", "A", "Rec", "south", "-1")
ODD_VALUES = ("20", "0", "2024-03", "1e3", "true", "false", "null", "x", "", "%", "_")
VALUES = (*VISIBLE_VALUES, *HIDDEN_VALUES, *CLOSE_VALUES, *ODD_VALUES)
ORDERS = ("", "name", "name desc", "amount", "born desc", "team.title", "boss.name desc")
ORDERS_OF_OTHERS = (*ORDERS, "CANARY_word", "canary_number desc", "canary.CANARY_memo", "tag")

tables = st.sampled_from([*["people"] * len(TABLES), *TABLES])
#: Few calls would have an answer if most names were odd.
plain_names = st.sampled_from([*SEEN * 6, *MASKS * 3, *ODD])
numbers = st.sampled_from(NUMBERS)
relations = st.sampled_from(RELATIONS)
functions = st.sampled_from(["count", "sum", "avg", "min", "max"])
expressions = st.one_of(
    st.builds("{} {} {}".format, numbers, st.sampled_from("+-*/"), numbers | plain_names),
    st.builds(
        "{}({})".format, st.sampled_from(["abs", "round", "length", "lower", "upper"]), numbers | plain_names
    ),
    st.builds("coalesce({}, {})".format, plain_names, plain_names | st.just("'CANA'")),
    st.builds("born + {}".format, numbers),
    st.builds("count({})".format, relations),
    st.builds("{}({}.{})".format, functions, relations, plain_names | numbers),
)
names = st.one_of(*[plain_names] * 4, expressions)
values = st.sampled_from(VALUES)
operators = st.sampled_from([str(each) for each in Operator])
directed = st.builds("{}{}".format, names, st.sampled_from(["", " desc", " asc"])) | st.builds(
    "rank({})".format, plain_names
)
buckets = st.builds("{}:{}".format, names, st.sampled_from([str(each) for each in Bucket]))


@st.composite
def _where(
    draw: st.DrawFn, columns: st.SearchStrategy[str] = names, nested: bool = True
) -> dict[str, object]:
    form = draw(st.integers(0, 9)) if nested else 9
    within = st.lists(_where(columns, nested=False), max_size=2)
    if form == 0:
        return {"any": draw(within)}
    if form < 3:
        asked = {draw(st.sampled_from(["some", "none"])): draw(relations)}
        return asked | ({"where": draw(within)} if draw(st.booleans()) else {})
    operator = draw(operators)
    if form == 3:
        return {"column": draw(columns), "op": operator, "value_column": draw(columns)}
    where: dict[str, object] = {"column": draw(columns), "op": operator}
    if operator in ("in", "not_in"):
        return where | {"values": draw(st.lists(values, max_size=3))}
    if operator == "between":
        return where | {"values": [draw(values), draw(values)]}
    return where | {"value": draw(st.sampled_from(["true", "false"]) if operator == "is_null" else values)}


MEASURES = ("n", "m", "amount")
Arguments = dict[str, object]


def _some(items: st.SearchStrategy[object], most: int = 2) -> st.SearchStrategy[list[object]]:
    return st.lists(items, max_size=most)


measures = st.fixed_dictionaries(
    {"function": st.sampled_from([str(each) for each in Function]), "name": st.sampled_from(MEASURES)},
    optional={"column": names},
)
listing: Mapping[str, st.SearchStrategy[object]] = {
    "where": _some(_where(), 3),
    "columns": _some(names, 3),
    "order_by": _some(directed),
    "match": st.sampled_from(["all", "any"]),
    "limit": st.integers(1, 6),
    "offset": st.integers(0, 6),
}
#: A number of a cursor that was given, or a forged one: values that stand in it instead.
cursors = st.tuples(st.integers(0, 60), st.none() | st.lists(values | st.integers(-5, 424243), max_size=3))
keys = st.dictionaries(st.sampled_from(["id", "CANARY_word", "tag", "code", "ID"]), values, max_size=2)
typed = st.sampled_from(
    ["list_people", "list_teams", "list_canary_vault", "list_canary_view", "list_canary_joined"]
)
shown = st.sampled_from([*SEEN, *MASKS])
count: Arguments = {"function": "count", "name": "n"}
ordered = st.builds("{}{}".format, shown, st.sampled_from(["", " desc"]))
condition = st.lists(_where(shown), min_size=1, max_size=2)
Strategies = Mapping[str, st.SearchStrategy[object]]


def _call(
    tool: str | st.SearchStrategy[str], given: Strategies, optional: Strategies | None = None
) -> st.SearchStrategy[Ask]:
    """Return calls of *tool*."""
    tools = st.just(tool) if isinstance(tool, str) else tool
    arguments = st.fixed_dictionaries(dict(given), optional=dict(optional or {}))
    return st.builds(lambda tool, arguments: calling(tool, **arguments), tools, arguments)


people: Strategies = {"table": st.just("people")}
counting: Strategies = {"measures": st.just([count])}
measuring: Strategies = {"measures": st.lists(measures, min_size=1, max_size=2)}
ordering: Strategies = {"order_by": st.lists(ordered, min_size=1, max_size=2), "limit": st.integers(1, 3)}
grouping: Strategies = {"group_by": st.lists(shown, min_size=1, max_size=2), "where": condition}
#: Those that would be answered if masked columns were no different from others.
plain_requests: st.SearchStrategy[Ask] = st.one_of(
    _call("list_people", {"columns": st.just(["id", "name"]), "where": condition}),
    _call("list_rows", {**people, "columns": st.just(["id", "tag"]), **ordering}),
    _call("aggregate_rows", {**people, **counting}, grouping),
    _call("aggregate_rows", {**people, **measuring}, {"where": condition}),
)
paging: Strategies = {"cursor": cursors, "limit": st.integers(1, 3)}
aggregating: Strategies = {
    "measures": st.lists(measures, max_size=2),
    "offset": st.integers(0, 3),
    "group_by": _some(names | buckets),
    "where": _some(_where()),
    "having": _some(_where(st.sampled_from([*MEASURES, "CANARY_word", "count"]))),
    "order_by": _some(directed | st.sampled_from(MEASURES)),
    "limit": st.integers(1, 6),
}
rows = st.builds("dbtools://row/{}/{}".format, tables, values)
cells = st.builds("dbtools://cell/{}/{}/{}".format, tables, values, names)
odd_requests: st.SearchStrategy[Ask] = st.one_of(
    _call(typed, {}, {**listing, "cursor": cursors}),
    _call("list_rows", {"table": tables}, {**listing, "cursor": cursors}),
    _call("list_rows", {**people, "order_by": st.sampled_from([[each] for each in ORDERS if each])}, paging),
    _call("aggregate_rows", {"table": tables}, aggregating),
    _call(st.sampled_from(["get_people", "get_teams"]), {"id": values}),
    st.builds(
        lambda tool, key: calling(tool, **key), st.sampled_from(["get_people", "get_canary_vault"]), keys
    ),
    _call("get_row", {"table": tables, "key": keys}, {"columns": _some(names, 3)}),
    _call(
        "describe_tables",
        {},
        {"tables": _some(tables), "detail": st.sampled_from(["names", "summary", "full"])},
    ),
    _call("list_tables", {}, {"search": tables | names | st.just("*"), "limit": st.just(1)}),
    st.builds(reading, rows | cells),
    st.builds(
        completing,
        st.sampled_from([ROW_TEMPLATE, CELL_TEMPLATE]),
        st.sampled_from(["table", "key", "column"]),
        values | tables | names,
    ),
    st.builds(
        lambda value, given: completing(CELL_TEMPLATE, "column", value, **given),
        values | names,
        st.fixed_dictionaries({"table": tables}, optional={"key": values}),
    ),
)

requests = st.one_of(plain_requests, plain_requests, odd_requests)


@dataclass(frozen=True, kw_only=True)
class Cage:
    """Twins, and cursors that they, or a caller who sees everything, were given."""

    twins: Twins
    cursors: Sequence[str]


@pytest.fixture(scope="module", params=[False, True], ids=["what is granted", "all but what is denied"])
def cage(request: pytest.FixtureRequest, serve: Serve, dialect: str) -> Iterator[Cage]:
    with (
        serve(dialect, rich_ddl(dialect)) as shop,
        calling_as(shop, {"*": True}) as other,
        open_cage(serve, dialect, starred=request.param) as twins,
    ):
        cursors = [
            *_cursors_of(other, ORDERS_OF_OTHERS),
            *_cursors_of(twins.rich, ORDERS),
            *_cursors_of(twins.poor, ORDERS),
        ]
        yield Cage(twins=twins, cursors=cursors)


def _cursors_of(caller: Caller, orders: Sequence[str]) -> Iterator[str]:
    for order in orders:
        for limit in (1, 3):
            wanted = [order] if order else []
            page = caller.call("list_rows", table="people", order_by=wanted, limit=limit)
            yield str(page["next_cursor"])
    yield str(caller.call("list_rows", table="teams", limit=1)["next_cursor"])


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(asks=st.lists(requests, min_size=1, max_size=CALLS))
def test_no_answer_shows_what_is_hidden(asks: list[Ask], cage: Cage) -> None:
    for ask in asks:
        cage.twins.outcome(_with_cursor(ask, cage.cursors))


def test_no_cursor_shows_what_is_hidden(cage: Cage) -> None:
    for order in ORDERS:
        asked = {"table": "people", "columns": ["id"], "order_by": [order] if order else []}
        for cursor in cage.cursors:
            cage.twins.outcome(calling("list_rows", **asked, cursor=cursor))


def test_no_definition_shows_what_is_hidden(cage: Cage) -> None:
    cage.twins.outcome(listing_tools)


def test_canaries_are_there_for_those_who_may_see_them(serve: Serve, dialect: str) -> None:
    with serve(dialect, rich_ddl(dialect)) as shop, calling_as(shop, {"*": True}) as other:
        told = [
            repr(other.outcome(calling("describe_tables", detail="full"))),
            repr(other.outcome(calling("list_people"))),
            repr(other.outcome(calling("list_teams"))),
            repr(other.outcome(listing_tools)),
        ]

    assert all(CANARY.search(each) for each in told)


def _with_cursor(ask: Ask, cursors: Sequence[str]) -> Ask:
    """Return *ask* with a cursor in place of the numbers that were drawn for one."""
    if not any(isinstance(each, Mapping) and "cursor" in each for each in ask.words):
        return ask
    tool, arguments = ask.words
    assert isinstance(arguments, dict)
    at, forged = arguments["cursor"]
    cursor = cursors[at % len(cursors)]
    if forged is not None:
        mark, skip, _ = json.loads(decoded(cursor))
        content = json.dumps([mark, skip, forged])
        cursor = base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")
    return calling(str(tool), **{**arguments, "cursor": cursor})
