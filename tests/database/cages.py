"""Two databases that look the same to a role; one of them holds a canary in everything that is hidden."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from dbtools.settings.sections import GrantSection, TableSection
from dbtools.values.types import Mask
from tests.database.role_callers import UNCHECKED, Grants
from tests.database.shop import Serve
from tests.database.twins import Side, Twins, open_twins

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
VISIBLE_TEAMS = ("1, 'Red', 'north', '1990-01-01'", "2, 'Blue', 'north', '1991-01-01'")
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
    create table "CANARY_vault" (id integer primary key, "CANARY_memo" text default 'CANARY_default');
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
    create virtual table canary_words using fts5vocab('canary_text', 'row');
    """,
    "postgresql": f"""
    create schema canary_schema;
    create type canary_mood as enum ('CANARY_label', 'CANARY_mood');
    create table canary_schema.people (id integer primary key, "CANARY_other" text);
    create table "CANARY_vault" (id integer primary key, "CANARY_memo" text default 'CANARY_default');
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
    create index on people using gin (to_tsvector('simple', name));
    create index on people using gin (to_tsvector('simple', region || "CANARY_word"));
    create schema other_schema;
    create table other_schema.teams (id integer primary key, "CANARY_word" text);
    """,
}
REBUILD = {"sqlite": "insert into canary_text (canary_text) values ('rebuild');", "postgresql": ""}
POOR = f"create table teams ({SEEN_TEAMS}); create table people ({SEEN_PEOPLE});"
#: The names are searched in both databases, and in the other one what is hidden besides.
POOR_INDEXES = {
    "sqlite": """
    create virtual table canary_text using fts5(name, content='people', content_rowid='id');
    """
    + REBUILD["sqlite"],
    "postgresql": "create index on people using gin (to_tsvector('simple', name));",
}
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


def granted_on(dialect: str) -> Grants:
    schema = SCHEMAS[dialect]
    return {f"{schema}people": PEOPLE, f"{schema}teams": TEAMS}


def people(masked: Sequence[str]) -> str:
    rows = zip(VISIBLE_PEOPLE, masked, strict=True)
    values = ", ".join(f"({before}, {cells}, {after})" for (before, after), cells in rows)
    return f"insert into people ({COLUMNS}) values {values};"


def rich_ddl(dialect: str) -> str:
    hidden = f'{COLUMNS}, "CANARY_word", canary_number, canary_date, canary_id'
    blob = "x'43414e415259'" if dialect == "sqlite" else "'CANARY'::bytea"
    teams = ", ".join(f"({team}, {5 + at}, 'CANARY_choice')" for at, team in enumerate(VISIBLE_TEAMS))
    return f"""
    {RICH[dialect]}
    {UNCHECKED[dialect]}
    insert into teams values {teams}, {HIDDEN_TEAMS};
    {people(MASKED)}
    insert into people ({hidden}) values {HIDDEN_PEOPLE};
    {REBUILD[dialect]}
    update people set "CANARY_word" = 'CANARY word', canary_number = 424242, canary_date = '1942-04-24',
        canary_id = 4, canary_blob = {blob};
    """


def poor_ddl(dialect: str) -> str:
    teams = ", ".join(f"({team}, {5 + at})" for at, team in enumerate(VISIBLE_TEAMS))
    return f"""
    {POOR}
    {UNCHECKED[dialect]}
    insert into teams values {teams};
    {people(ALIKE)}
    {POOR_INDEXES[dialect]}
    """


@contextmanager
def open_cage(serve: Serve, dialect: str, *, starred: bool) -> Iterator[Twins]:
    """Serve both databases to a role that sees what is granted, or, if *starred*, all but what is denied."""
    grants = granted_on(dialect)
    everything: Grants = {"*": True} if starred else {}
    denied = DENIED[dialect] if starred else {}
    rich = Side(
        ddl=rich_ddl(dialect),
        grants={**everything, **denied, **grants},
        tables=_referring(SEEN_REFERENCE | HIDDEN_REFERENCE),
    )
    poor = Side(ddl=poor_ddl(dialect), grants={**everything, **grants}, tables=_referring(SEEN_REFERENCE))
    with open_twins(serve, dialect, rich, poor) as twins:
        for caller in (twins.rich, twins.poor):
            assert [each for each in caller.problems() if " is withheld" not in each] == []
        yield twins
