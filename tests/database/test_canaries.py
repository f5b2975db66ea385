"""Whatever is asked in whatever way, nothing that a role must not see is in the answer.

In one database everything that is hidden holds a canary; in the other there is nothing hidden at all. Random
calls find no canary, and no difference.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dbtools.links import CELL_TEMPLATE, ROW_TEMPLATE
from dbtools.settings.sections import GrantSection, TableSection
from dbtools.terms import Bucket, Function
from dbtools.types import Mask, Operator
from tests.database.conftest import Serve, Shops, open_shops
from tests.database.test_policies import (
    NORTH,
    UNCHECKED,
    Caller,
    Grants,
    Outcome,
    calling,
    calling_as,
    completing,
    listing_tools,
    reading,
)

EXAMPLES = 500
CALLS = 8  #: in one example at the most
#: In any case of letters; the last ones are "CANARY" in base64, by the place at which it begins, and in hex.
CANARY = re.compile("canary|424242|1942|Q0FOQVJZ|NBTkFSW|DQU5BUl|43414e415259", re.IGNORECASE)
SEEN_PEOPLE = """
    id integer primary key, name text not null, region text not null, amount integer, born date,
    blank text, redacted text, mail text, tag text, "%(limit)s" text default 'plain',
    boss_id integer references people(id), team_id integer references teams(id), vault_id integer,
    team_code integer
"""
SEEN_TEAMS = "id integer primary key, title text not null, region text not null, founded date, code integer"
#: Called as parameters are where a statement is compiled: a visible column is called as one is before.
ODD_COLUMNS = ", ".join(f"\"{name}\" text default 'CANARY'" for name in ("$1", "$2", "$3", "$4", "?"))
VISIBLE_PEOPLE: Sequence[tuple[str, str]] = (
    ("1, 'Ann', 'north', 10, '2001-02-03'", "null, 1, 3, 5"),
    ("2, 'Bea', 'north', 20, '2002-03-04'", "1, 1, 4, 6"),
    ("3, 'Cid', 'north', null, null", "9, 2, null, null"),
    ("4, 'Dan', 'north', 40, '2004-05-06'", "2, 7, 5, 7"),
)
VISIBLE_TEAMS = (
    "1, 'Red', 'north', '1990-01-01'",
    "2, 'Blue', 'north', '1991-01-01'",
)
#: Of the visible people: cells that show alike, and yet have another order and other groups.
MASKED = tuple(
    f"'CANARY-blank{9 - id}', 'CANARY-redacted{id}', 'CANARY{9 - id}@shown.example', 'CANARY-tag{id % 2}'"
    for id in range(1, 5)
)
ALIKE = tuple(f"null, '', 'C@shown.example', 'CANARY-tag{id % 2}'" for id in range(1, 5))
#: Each shows hidden rows or cells of people or teams.
VIEWS = """
    create view "CANARY_view" as select * from people;
    create view canary_nested as select id, name from "CANARY_view";
    create view canary_count as select region, count(*) as n from people group by region;
    create view canary_joined as select t.id, p.name from teams t join people p on p.team_id = t.id;
    create view canary_shared as select t.id from teams t join people p using (region, id);
"""
RICH = {
    "sqlite": f"""
    create table "CANARY_vault" (id integer primary key, "CANARY_secret" text default 'CANARY_default');
    insert into "CANARY_vault" values (3, 'CANARY a'), (4, 'CANARY b'), (5, 'CANARY c');
    create table teams (
        {SEEN_TEAMS} unique, "CANARY_motto" text default 'CANARY_motto_default'
            check ("CANARY_motto" in ('CANARY_check', 'CANARY_choice'))
    );
    create table people (
        {SEEN_PEOPLE} references teams(code), "CANARY_word" text, canary_number integer, canary_date date,
        canary_id integer references "CANARY_vault"(id), canary_blob blob,
        canary_computed text generated always as ('CANARY' || name), {ODD_COLUMNS}
    );
    {VIEWS}
    create virtual table canary_text using fts5(name, mail, content='people', content_rowid='id');
    insert into canary_text (canary_text) values ('rebuild');
    create virtual table canary_words using fts5vocab('canary_text', 'row');
    """,
    "postgresql": f"""
    create schema canary_schema;
    create type canary_mood as enum ('CANARY_label', 'CANARY_mood');
    create table canary_schema.people (id integer primary key, "CANARY_other" text);
    create table "CANARY_vault" (id integer primary key, "CANARY_secret" text default 'CANARY_default');
    comment on table "CANARY_vault" is 'CANARY comment';
    insert into "CANARY_vault" values (3, 'CANARY a'), (4, 'CANARY b'), (5, 'CANARY c');
    create table teams (
        {SEEN_TEAMS} unique, "CANARY_motto" text default 'CANARY_motto_default'
            check ("CANARY_motto" in ('CANARY_check', 'CANARY_choice'))
    );
    comment on column teams."CANARY_motto" is 'CANARY_motto comment';
    create table people (
        {SEEN_PEOPLE}, "CANARY_word" text, canary_number integer, canary_date date,
        canary_id integer references "CANARY_vault"(id), canary_blob bytea,
        canary_computed text generated always as ('CANARY' || name) stored,
        "CANARY_mood" canary_mood default 'CANARY_mood', canary_list text[], {ODD_COLUMNS}
    );
    comment on column people."CANARY_word" is 'CANARY_word comment';
    {VIEWS}
    create materialized view canary_copy as select id, name from people;
    create function canary_name(integer) returns text language sql stable
        as 'select name from people where id = $1';
    create view canary_called as select canary_name(9) as name;
    create schema other_schema;
    create table other_schema.teams (id integer primary key, "CANARY_word" text);
    """,
}
POOR = f"create table teams ({SEEN_TEAMS}); create table people ({SEEN_PEOPLE});"
HIDDEN_PEOPLE = ", ".join(
    f"({id}, 'CANARY {name}', 'CANARY south', 424242, '1942-04-24', {MASKED[0]}, null, 7, 3, 8,"
    " 'CANARY', 424242, '1942-04-24', 3)"
    for id, name in ((9, "Eve"), (10, "Ann"), (424242, "Annn"))
)
HIDDEN_TEAMS = "(7, 'CANARY team', 'CANARY south', '1942-04-24', 8, 'CANARY_check')"
COLUMNS = "id, name, region, amount, born, blank, redacted, mail, tag, boss_id, team_id, vault_id, team_code"
PEOPLE = GrantSection(
    columns=(*COLUMNS.split(", "), "%(limit)s"),
    where="region = :claims.region",
    mask={"blank": Mask.NULL, "redacted": Mask.REDACT, "mail": Mask.PARTIAL, "tag": Mask.HASH},
)
TEAMS = GrantSection(columns=("id", "title", "region", "founded"), where="region = :claims.region")
#: In one database the bare names mean two tables each.
SCHEMAS = {"sqlite": "", "postgresql": "public."}


#: What a role that sees everything else does not see.
DENIED: Mapping[str, Grants] = {
    "sqlite": {"CANARY_vault": False},
    "postgresql": {"CANARY_vault": False, "canary_schema.people": False, "other_schema.teams": False},
}


#: What [tables] declares: one leads to a table that is seen, and one to a hidden one.
SEEN_REFERENCE = {"amount": "teams.id"}
HIDDEN_REFERENCE = {"vault_id": "CANARY_vault.id"}


def _referring(references: Mapping[str, str]) -> Mapping[str, TableSection]:
    return {"people": TableSection(references=dict(references))}


def _grants(dialect: str) -> Grants:
    schema = SCHEMAS[dialect]
    return {f"{schema}people": PEOPLE, f"{schema}teams": TEAMS}


def _people(masked: Sequence[str]) -> str:
    rows = zip(VISIBLE_PEOPLE, masked, strict=True)
    values = ", ".join(f"({before}, {cells}, {after})" for (before, after), cells in rows)
    return f"insert into people ({COLUMNS}) values {values};"


def _rich(dialect: str) -> str:
    hidden = f'{COLUMNS}, "CANARY_word", canary_number, canary_date, canary_id'
    blob = "x'43414e415259'" if dialect == "sqlite" else "'CANARY'::bytea"
    teams = ", ".join(f"({team}, {5 + at}, 'CANARY_choice')" for at, team in enumerate(VISIBLE_TEAMS))
    return f"""
    {RICH[dialect]}
    {UNCHECKED[dialect]}
    insert into teams values {teams}, {HIDDEN_TEAMS};
    {_people(MASKED)}
    insert into people ({hidden}) values {HIDDEN_PEOPLE};
    update people set "CANARY_word" = 'CANARY word', canary_number = 424242, canary_date = '1942-04-24',
        canary_id = 4, canary_blob = {blob};
    """


def _poor(dialect: str) -> str:
    teams = ", ".join(f"({team}, {5 + at})" for at, team in enumerate(VISIBLE_TEAMS))
    return f"""
    {POOR}
    {UNCHECKED[dialect]}
    insert into teams values {teams};
    {_people(ALIKE)}
    """


@dataclass(frozen=True, kw_only=True)
class Cage:
    """Those who see the same of two databases, and cursors of those who see all of them."""

    rich: Caller
    poor: Caller
    cursors: tuple[str, ...]


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    """Give the database with the canaries."""
    with open_shops(serve, {dialect: _rich(dialect) for dialect in RICH}) as shops:
        yield shops


@pytest.fixture(scope="module")
def poor_shops(serve: Serve) -> Iterator[Shops]:
    """Give the database without them."""
    with open_shops(serve, {dialect: _poor(dialect) for dialect in RICH}) as shops:
        yield shops


@pytest.fixture(scope="module", params=["what is granted", "all but what is denied"])
def cage(request: pytest.FixtureRequest, dialect: str, shops: Shops, poor_shops: Shops) -> Iterator[Cage]:
    """Give those who see the same of both."""
    starred = request.param == "all but what is denied"
    grants = _grants(dialect)
    some = {"*": True, **DENIED[dialect], **grants} if starred else grants
    every = {"*": True, **grants} if starred else grants
    with (
        calling_as(shops(dialect), {"*": True}) as other,
        calling_as(shops(dialect), some, NORTH, tables=_referring(SEEN_REFERENCE | HIDDEN_REFERENCE)) as rich,
        calling_as(poor_shops(dialect), every, NORTH, tables=_referring(SEEN_REFERENCE)) as poor,
    ):
        assert [each for each in rich.problems() if " is withheld" not in each] == []
        assert poor.problems() == ()
        cursors = [*_cursors(other, COLUMNS_OF_OTHERS), *_cursors(rich, ORDERS), *_cursors(poor, ORDERS)]
        yield Cage(rich=rich, poor=poor, cursors=tuple(cursors))


def _cursors(caller: Caller, orders: Sequence[str]) -> Iterator[str]:
    for order in orders:
        for limit in (1, 3):
            wanted = [order] if order else []
            page = caller.call("list_rows", table="people", order_by=wanted, limit=limit)
            yield str(page["next_cursor"])
    yield str(caller.call("list_rows", table="teams", limit=1)["next_cursor"])


ORDERS = ("", "name", "name desc", "amount", "born desc", "team.title", "boss.name desc")
COLUMNS_OF_OTHERS = (*ORDERS, "CANARY_word", "canary_number desc", "canary.CANARY_secret", "tag")
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
    *(
        "title",
        "founded",
        "boss.boss.boss.name",
        "team_id.title",
        "people.name",
        "TEAM.TITLE",
        "CANA",
        "*",
        "",
    ),
    *("CANARY_word", "canary_number", "canary_date", "canary_id", "canary.CANARY_secret", "canary_blob"),
    *(
        "canary_computed",
        "CANARY_mood",
        "canary_list",
        "$1",
        "?",
        "code",
        "team.code",
        "team.CANARY_motto",
        "word",
    ),
    *("boss.CANARY_word", "vault.CANARY_secret", "vault.id", "vault_id.id", "teams_by_team_code.title"),
    *("team_code.title", "boss.canary.CANARY_secret", "CANARY_vault.id", "number", "rowid", "_rowid_"),
    *("ctid", "oid", "tableoid", "xmin"),
)
VALUES = (
    *(
        "1",
        "2",
        "3",
        "5",
        "7",
        "9",
        "10",
        "20",
        "424242",
        "424241",
        "0",
        "-1",
        "1e3",
        "x",
        "",
        "north",
        "south",
    ),
    *(
        "CANARY",
        "CANARY south",
        "CANARY Eve",
        "CANA",
        "canary eve",
        "Ann",
        "ann",
        "Annn",
        "A",
        "%",
        "_",
        "Red",
    ),
    *(
        "2001-02-03",
        "1942-04-24",
        "1942-04-25",
        "1990-01-01",
        "true",
        "false",
        "C",
        "CANARY-tag",
        "***",
        "Rec",
    ),
)

#: What refers to people or teams; some of it only where nothing is hidden.
RELATIONS = (
    *(
        "people",
        "people_by_amount",
        "people_by_boss_id",
        "people_by_team_id",
        "people_by_team_code",
        "canary_people",
    ),
    "CANARY_vault",
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
directed = st.builds("{}{}".format, names, st.sampled_from(["", " desc", " asc"]))
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
#: Those that would be answered if masked columns were no different from others.
plain_requests: st.SearchStrategy[Request] = st.one_of(
    st.tuples(
        st.just("call"),
        st.just("list_people"),
        st.fixed_dictionaries({"columns": st.just(["id", "name"]), "where": condition}),
    ),
    st.tuples(
        st.just("call"),
        st.just("list_rows"),
        st.fixed_dictionaries(
            {
                "table": st.just("people"),
                "columns": st.just(["id", "tag"]),
                "order_by": st.lists(ordered, min_size=1, max_size=2),
                "limit": st.integers(1, 3),
            },
        ),
    ),
    st.tuples(
        st.just("call"),
        st.just("aggregate_rows"),
        st.fixed_dictionaries(
            {"table": st.just("people"), "measures": st.just([count])},
            optional={"group_by": st.lists(shown, min_size=1, max_size=2), "where": condition},
        ),
    ),
    st.tuples(
        st.just("call"),
        st.just("aggregate_rows"),
        st.fixed_dictionaries(
            {"table": st.just("people"), "measures": st.lists(measures, min_size=1, max_size=2)},
            optional={"where": condition},
        ),
    ),
)
odd_requests: st.SearchStrategy[Request] = st.one_of(
    st.tuples(st.just("call"), typed, st.fixed_dictionaries({}, optional={**listing, "cursor": cursors})),
    st.tuples(
        st.just("call"),
        st.just("list_rows"),
        st.fixed_dictionaries({"table": tables}, optional={**listing, "cursor": cursors}),
    ),
    st.tuples(
        st.just("call"),
        st.just("list_rows"),
        st.fixed_dictionaries(
            {"table": st.just("people"), "order_by": st.sampled_from([[each] for each in ORDERS if each])},
            optional={"cursor": cursors, "limit": st.integers(1, 3)},
        ),
    ),
    st.tuples(
        st.just("call"),
        st.just("aggregate_rows"),
        st.fixed_dictionaries(
            {"table": tables},
            optional={
                "measures": st.lists(measures, max_size=2),
                "offset": st.integers(0, 3),
                "group_by": _some(names | buckets),
                "where": _some(_where()),
                "having": _some(_where(st.sampled_from([*MEASURES, "CANARY_word", "count"]))),
                "order_by": _some(directed | st.sampled_from(MEASURES)),
                "limit": st.integers(1, 6),
            },
        ),
    ),
    st.tuples(
        st.just("call"), st.sampled_from(["get_people", "get_teams"]), st.fixed_dictionaries({"id": values})
    ),
    st.tuples(st.just("call"), st.sampled_from(["get_people", "get_canary_vault"]), keys),
    st.tuples(
        st.just("call"),
        st.just("get_row"),
        st.fixed_dictionaries({"table": tables, "key": keys}, optional={"columns": _some(names, 3)}),
    ),
    st.tuples(
        st.just("call"),
        st.just("describe_tables"),
        st.fixed_dictionaries(
            {}, optional={"tables": _some(tables), "detail": st.sampled_from(["names", "summary", "full"])}
        ),
    ),
    st.tuples(
        st.just("call"),
        st.just("list_tables"),
        st.fixed_dictionaries({}, optional={"search": tables | names | st.just("*"), "limit": st.just(1)}),
    ),
    st.tuples(st.just("read"), st.builds("dbtools://row/{}/{}".format, tables, values), st.just(Arguments())),
    st.tuples(
        st.just("read"),
        st.builds("dbtools://cell/{}/{}/{}".format, tables, values, names),
        st.just(Arguments()),
    ),
    st.tuples(
        st.just("complete"),
        st.sampled_from([ROW_TEMPLATE, CELL_TEMPLATE]),
        st.fixed_dictionaries(
            {"name": st.sampled_from(["table", "key", "column"]), "value": values | tables | names},
            optional={"table": tables, "key": values},
        ),
    ),
)

requests = st.one_of(plain_requests, plain_requests, odd_requests)


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
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
