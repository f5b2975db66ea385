"""An upsert by a unique index of some rows finds what the index does, or the key is not offered."""

import re
from typing import Any

import pytest

from dbtools.settings.sections import GrantSection
from tests.database.role_callers import Caller
from tests.database.written_shop import Opens, refused, stored

EVERYTHING = GrantSection(insert=True, update=True)
BY_EMAIL = {"on_conflict": "update", "conflict_key": ["email"]}
NUMBER = {"sqlite": "integer primary key", "postgresql": "serial primary key"}
USERS = """
    create table users (
        id {number}, email text, region text not null default 'north', gone date, name text
    );
    create unique index live on users (email) where gone is null;
    insert into users (email, region, gone, name) values
        ('a', 'north', '2024-01-01', 'old a'), ('a', 'north', null, 'a'), ('s', 'south', null, 's');
"""


def users(dialect: str) -> str:
    return USERS.format(number=NUMBER[dialect])


WITHOUT_INDEX = USERS.replace("create unique index live", "create index live")


@pytest.mark.parametrize(
    "grant",
    [
        pytest.param({"exclude": ("gone",)}, id="hidden predicate"),
        pytest.param({"mask": {"gone": "redact"}}, id="masked predicate"),
        pytest.param({"mask": {"email": "redact"}}, id="masked key"),
    ],
)
def test_index_over_what_the_role_does_not_see_is_like_none(
    grant: dict[str, Any], opened: Opens, dialect: str
) -> None:
    """The definitions, and the answers to upserts, are those of a table without the index."""
    found = []
    for ddl in (USERS, WITHOUT_INDEX):
        section = GrantSection(insert=True, update=True, **grant)
        with opened(dialect, {"users": section}, ddl=ddl.format(number=NUMBER[dialect])) as (caller, _):
            row = {"email": "x", "name": "x"}
            refusal = refused(caller, "insert_users", rows=[row], **BY_EMAIL)
            found.append((str(refusal), _definition(caller), _described(caller, "users")))

    assert found[0] == found[1]


def test_condition_says_which_rows_a_key_is_about(opened: Opens, dialect: str) -> None:
    with opened(dialect, {"users": EVERYTHING}, ddl=users(dialect)) as (caller, _):
        properties = _definition(caller)["properties"]

    assert properties["conflict_key"]["description"] == "id or email (some rows)"


#: Conditions of an index over `k`, and whether the key is offered, by dialect.
PREDICATES = {
    "v is null": "both",
    "v IS NOT NULL": "both",
    "n = 1": "both",
    "n <> 1 and v is null": "both",
    "n > 1 or (n < 0 and not (v = 'it''s'))": "both",
    "n in (1, 2, 3)": "both",
    "v in ('a', 'b')": "both",
    "n between 1 and 3": "both",
    "lower(v) = 'open'": "both",
    "length(v) > 3": "both",
    "v = 'a -- b'": "both",
    "n + 1 > 2 * n": "both",
    "n = -1": "both",
    '"n" = 1': "both",
    "coalesce(n, 0) = 0": "both",
    "v = 'a' /* c */ -- d": "both",
    "flag": "both",
    "not flag": "both",
    "flag is true": "both",
    "v = 'back\\slash'": "sqlite",
    "v like 'a%'": "both",
    "v::varchar(3) = 'abc'": "postgresql",
    "day > date '2024-01-01'": "postgresql",
    "at >= timestamp '2024-01-01 10:00'": "postgresql",
    "mood = 'good'": "postgresql",
    "mood in ('good', 'bad')": "postgresql",
    "v is distinct from 'a'": "",
    "v collate \"C\" > 'a'": "",
    "case when n = 1 then true else false end": "",
    "public.odd(n)": "",
    "v ~* 'a'": "postgresql",
    "rowid > 5": "",
    "v collate nocase = 'a'": "",
    'v = "literal"': "",
    "v = x'61'": "",
    "p.n = 1": "postgresql",
}
ONLY = {
    "postgresql": ("::", "date '", "timestamp '", "mood", "distinct", '"C"', "public.", "~*"),
    "sqlite": ("rowid", "nocase", '"literal"', "x'61'"),
}
COLUMNS = {
    "sqlite": "id integer primary key, k text, v text, n int, flag boolean, w text",
    "postgresql": "id serial primary key, k text, v text, n int, flag boolean, w text, "
    "day date, at timestamp, mood mood",
}
TYPES = {
    "sqlite": "",
    "postgresql": """
        create type mood as enum ('good', 'bad');
        create function odd(integer) returns boolean language sql immutable as 'select $1 % 2 = 1';
    """,
}


def test_predicate_that_means_the_same_everywhere_makes_a_key(opened: Opens, dialect: str) -> None:
    other = "sqlite" if dialect == "postgresql" else "postgresql"
    predicates = [each for each in PREDICATES if not any(part in each for part in ONLY[other])]
    own = {f"p{at}": re.sub(r"\bp\.", f"p{at}.", each) for at, each in enumerate(predicates)}
    ddl = TYPES[dialect] + "".join(
        f"create table {table} ({COLUMNS[dialect]});"
        f"create unique index i{table} on {table} (k) where {each}\n;"
        for table, each in own.items()
    )
    upsert: Any = {"rows": [{"k": "a", "w": "new"}, {"k": "a", "v": "open", "n": 1, "flag": True, "w": "x"}]}
    upsert |= {"on_conflict": "update", "conflict_key": ["k"]}
    with opened(dialect, {"*": EVERYTHING}, ddl=ddl) as (caller, shop):
        for (table, condition), predicate in zip(own.items(), predicates, strict=True):
            is_offered = PREDICATES[predicate] in ("both", dialect)
            keys = _described(caller, table).get("conflict_keys", [])
            assert (["k"] in keys) is is_offered, predicate
            if is_offered:
                for _ in range(2):
                    caller.call(f"insert_{table}", **upsert)
                counts = stored(shop, f"select count(*) from {table} where {condition}\n")
                assert counts in ([(0,)], [(1,)]), predicate
            else:
                refusal = refused(caller, f"insert_{table}", **upsert)
                assert "k is unique among some rows only" in str(refusal), predicate


#: The system has no operators of exactly these types: its own are for any enum, and for any array.
SHADOWS = """
    create function public.same(state, state) returns boolean language sql as 'select true';
    create operator public.= (leftarg = state, rightarg = state, procedure = public.same);
    create function public.same(text[], text[]) returns boolean language sql as 'select true';
    create operator public.<> (leftarg = text[], rightarg = text[], procedure = public.same);
"""


def test_operator_of_the_search_path_does_not_change_what_the_key_means(opened: Opens) -> None:
    ddl = """
        create type state as enum ('open', 'done');
        create table jobs (
            id serial primary key, name text, state state default 'open', tags text[] default '{a}', note text
        );
        create unique index one on jobs (name) where state = 'open' and tags <> '{}';
        insert into jobs (name, note) values ('x', 'first');
    """
    key = {"on_conflict": "update", "conflict_key": ["name"]}
    with opened("postgresql", {"jobs": EVERYTHING}, ddl=ddl) as (caller, shop):
        shop.bare.execute(SHADOWS)
        caller.call("insert_jobs", rows=[{"name": "x", "state": "done", "note": "done"}], **key)
        caller.call("insert_jobs", rows=[{"name": "x", "note": "second"}], **key)
        found = stored(shop, "select name, note from jobs order by id")

    assert found == [("x", "second"), ("x", "done")]


def _definition(caller: Caller) -> Any:
    tool = caller.portal.call(caller.toolbox.view, caller.role).tools["insert_users"]
    return tool.definition.input_schema


def _described(caller: Caller, table: str) -> Any:
    tables: Any = caller.call("describe_tables", tables=[table])["tables"]
    return tables[0]["changes"]
