"""No answer to any request holds what its role must not see.

Random calls find no canary in one database, and no difference to another that hides nothing.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence

from hypothesis import HealthCheck, given, settings, strategies as st

from dbtools.terms import Bucket, Function
from dbtools.types import Operator
from dbtools.uris import CELL_TEMPLATE, ROW_TEMPLATE
from tests.database.cages import ORDERS, VALUES, Cage, cage as cage, poor_shops as poor_shops, shops as shops
from tests.database.role_callers import (
    Caller,
    Outcome,
    calling,
    calling_as,
    completing,
    listing_tools,
    reading,
)
from tests.database.shop import Shops

CALLS = 8  #: in one example at the most
#: In any case of letters; the last ones are "CANARY" in base64, by the place at which it begins, and in hex.
CANARY = re.compile("canary|424242|1942|Q0FOQVJZ|NBTkFSW|DQU5BUl|43414e415259", re.IGNORECASE)
TABLES = (
    "people",
    "teams",
    "People",
    "CANARY_vault",
    "CANARY_view",
    "canary_schema.people",
    "canary_nested",
    "canary_count",
    "canary_text",
    "vault",
    "CANA",
    "t",
)
SEEN = (
    *("id", "name", "region", "amount", "born", "boss_id", "team_id", "vault_id", "team_code", "%(limit)s"),
    *("amount.title", "boss.amount.founded"),
    *("team.title", "team.id", "team.region", "team.founded", "boss.name", "boss.born", "boss.team.title"),
)
MASKS = ("blank", "redacted", "mail", "tag", "boss.mail", "boss.tag")
ODD = (
    *("title", "founded", "boss.boss.boss.name", "team_id.title", "people.name", "TEAM.TITLE", "CANA", "*"),
    *("",),
    *("CANARY_word", "canary_number", "canary_date", "canary_id", "canary.CANARY_memo", "canary_blob"),
    *("canary_computed", "CANARY_mood", "canary_list", "$1", "?", "code", "team.code", "team.CANARY_motto"),
    *("word",),
    *("boss.CANARY_word", "vault.CANARY_memo", "vault.id", "vault_id.id", "teams_by_team_code.title"),
    *("team_code.title", "boss.canary.CANARY_memo", "CANARY_vault.id", "number", "rowid", "_rowid_"),
    *("ctid", "oid", "tableoid", "xmin", "people_by_boss_id.name", "team.people.name", "born.month"),
)

#: What refers to people or teams; some of it only where nothing is hidden.
RELATIONS = (
    *("people", "people_by_amount", "people_by_boss_id", "people_by_team_id", "people_by_team_code"),
    *("canary_people", "CANARY_vault", "team", "teams", "vault", "people.vault", "people.team"),
)
NUMBERS = (
    *("id", "amount", "boss_id", "amount", "born - team.founded", "boss.amount", "424242", "1", "0"),
    "canary_number",
)

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
#: A tool, a resource or a variable; a name of it; arguments.
Request = tuple[str, str, Arguments]


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
) -> st.SearchStrategy[Request]:
    """Return calls of *tool*."""
    tools = st.just(tool) if isinstance(tool, str) else tool
    return st.tuples(
        st.just("call"), tools, st.fixed_dictionaries(dict(given), optional=dict(optional or {}))
    )


people: Strategies = {"table": st.just("people")}
counting: Strategies = {"measures": st.just([count])}
measuring: Strategies = {"measures": st.lists(measures, min_size=1, max_size=2)}
ordering: Strategies = {"order_by": st.lists(ordered, min_size=1, max_size=2), "limit": st.integers(1, 3)}
grouping: Strategies = {"group_by": st.lists(shown, min_size=1, max_size=2), "where": condition}
#: Those that would be answered if masked columns were no different from others.
plain_requests: st.SearchStrategy[Request] = st.one_of(
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
completed = {"name": st.sampled_from(["table", "key", "column"]), "value": values | tables | names}
odd_requests: st.SearchStrategy[Request] = st.one_of(
    _call(typed, {}, {**listing, "cursor": cursors}),
    _call("list_rows", {"table": tables}, {**listing, "cursor": cursors}),
    _call("list_rows", {**people, "order_by": st.sampled_from([[each] for each in ORDERS if each])}, paging),
    _call("aggregate_rows", {"table": tables}, aggregating),
    _call(st.sampled_from(["get_people", "get_teams"]), {"id": values}),
    st.tuples(st.just("call"), st.sampled_from(["get_people", "get_canary_vault"]), keys),
    _call("get_row", {"table": tables, "key": keys}, {"columns": _some(names, 3)}),
    _call(
        "describe_tables",
        {},
        {"tables": _some(tables), "detail": st.sampled_from(["names", "summary", "full"])},
    ),
    _call("list_tables", {}, {"search": tables | names | st.just("*"), "limit": st.just(1)}),
    st.tuples(st.just("read"), rows | cells, st.just(Arguments())),
    st.tuples(
        st.just("complete"),
        st.sampled_from([ROW_TEMPLATE, CELL_TEMPLATE]),
        st.fixed_dictionaries(completed, optional={"table": tables, "key": values}),
    ),
)

requests = st.one_of(plain_requests, plain_requests, odd_requests)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(asked=st.lists(requests, min_size=1, max_size=CALLS))
def test_no_answer_holds_what_is_hidden_or_depends_on_it(asked: list[Request], cage: Cage) -> None:
    written = [_written(request, cage.cursors) for request in asked]
    rich, poor = (caller.portal.call(_outcomes, caller, written) for caller in (cage.rich, cage.poor))

    for request, outcome in zip(written, rich, strict=True):
        assert not CANARY.search(_without_echoes(outcome, request)), (request, outcome)
    assert rich == poor


def test_no_definition_holds_what_is_hidden_or_depends_on_it(cage: Cage) -> None:
    rich, poor = cage.rich.outcome(listing_tools), cage.poor.outcome(listing_tools)

    assert not CANARY.search(repr(rich))
    assert rich == poor


def test_canaries_are_there_for_those_who_may_see_them(shops: Shops, dialect: str) -> None:
    with calling_as(shops(dialect), {"*": True}) as other:
        told = [
            repr(other.outcome(calling("describe_tables", detail="full"))),
            repr(other.outcome(calling("list_people"))),
            repr(other.outcome(calling("list_teams"))),
            repr(other.outcome(listing_tools)),
        ]

    assert all(CANARY.search(each) for each in told)


def _written(request: Request, cursors: Sequence[str]) -> Request:
    """Return *request* with a cursor for what was drawn of one."""
    kind, name, arguments = request
    drawn = arguments.get("cursor")
    if not isinstance(drawn, tuple):
        return request
    at, forged = drawn
    cursor = cursors[at % len(cursors)]
    if forged is not None:
        mark, skip, _ = json.loads(_decoded(cursor))
        cursor = base64.urlsafe_b64encode(json.dumps([mark, skip, forged]).encode()).decode().rstrip("=")
    return kind, name, {**arguments, "cursor": cursor}


def _decoded(cursor: str) -> str:
    return base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()


async def _outcomes(caller: Caller, asked: Sequence[Request]) -> list[Outcome]:
    return [await _outcome(caller, request) for request in asked]


async def _outcome(caller: Caller, request: Request) -> Outcome:
    match request:
        case "call", tool, arguments:
            outcome: Outcome = await calling(tool, **arguments)(caller)
        case "read", uri, _:
            outcome = await reading(uri)(caller)
        case _, template, arguments:
            given = {name: str(value) for name, value in arguments.items() if name not in ("name", "value")}
            asked = completing(template, str(arguments["name"]), str(arguments["value"]), **given)
            outcome = await asked(caller)
    return outcome


def _without_echoes(outcome: Outcome, request: Request) -> str:
    """Return all that *outcome* tells, cursors as what is in them, but for what the *request* itself said."""
    told = str(outcome[1])
    if outcome[0] == "answer":
        told += "".join(map(_decoded, re.findall(r'"next_cursor":"([\w-]+)"', told)))
    said = [each for each in _texts(request) if CANARY.search(each)]
    for each in sorted(said, key=len, reverse=True):
        told = told.replace(each, "")
    return told


def _texts(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
            # Errors name parts of a path, of an expression and of an address as well.
            yield from re.split(r"[.:/ (),*+'-]", value)
        case Mapping():
            yield from (text for each in value.items() for text in _texts(each))
        case list() | tuple():
            yield from (text for each in value for text in _texts(each))
        case _:
            return
