"""Which columns have a full-text index, and that a search uses it, whatever the table's name and rules."""

from collections.abc import Mapping, Sequence

import pytest

from dbtools.errors import BadOperator, CallError
from dbtools.settings.sections import GrantSection
from dbtools.statements.select import Select
from dbtools.values.types import Mask
from tests.calls import statement_of
from tests.database.role_callers import Caller, calling, calling_as
from tests.database.shop import Serve, Shop

POSTS = """
create table posts (
    id integer primary key, title text, body text, remark text, lang text, region text, number integer
);
"""
SQLITE: Mapping[str, tuple[str, Mapping[str, Sequence[str]]]] = {
    "itself": (
        "create virtual table notes using fts5(body, Lang UnIndexed, tokenize = 'porter')",
        {"notes": ["body"], "posts": []},
    ),
    "content": (
        "create virtual table t using fts5(BODY, title, content = 'Posts', content_rowid = 'ID')",
        {"posts": ["body", "title"]},
    ),
    "abbreviated content": (
        "create virtual table t using fts5(body, con = posts, content_r = number)",
        {"posts": ["body"]},
    ),
    "rowid": ("create virtual table t using fts5(body, content = posts)", {"posts": ["body"]}),
    "no content": (
        "create virtual table t using fts5(body, content = '')",
        {"t": ["body"], "posts": []},
    ),
    "no phrases": (
        "create virtual table t using fts5(body, content = posts, detail = column)",
        {"t": [], "posts": []},
    ),
    "view": (
        "create view shown as select number, body from posts;"
        "create virtual table t using fts5(body, content = shown, content_rowid = number)",
        {"shown": ["body"]},
    ),
    "view without a key": (
        "create view shown as select body from posts;"
        "create virtual table t using fts5(body, content = shown)",
        {"shown": []},
    ),
    "other module": ('create virtual table t using fts4(body, content="posts")', {"t": [], "posts": []}),
}
POSTGRESQL: Mapping[str, tuple[str, Mapping[str, Sequence[str]]]] = {
    "column": (
        "alter table posts add words tsvector, add made tsvector generated always as"
        " (to_tsvector('simple', body)) stored",
        {"posts": ["made", "words"]},
    ),
    "expression": (
        "create index on posts using gin (to_tsvector('simple', title || coalesce(body, '')))",
        {"posts": ["body", "title"]},
    ),
    "materialized view": (
        "create materialized view shown as select body from posts;"
        "create index on shown using gin (to_tsvector('simple', body))",
        {"shown": ["body"]},
    ),
    "partitions": (
        "create table parts (id integer, body text) partition by range (id);"
        "create index on parts using gin (to_tsvector('simple', body))",
        {"parts": ["body"]},
    ),
    "partial": ("create index on posts using gin (to_tsvector('simple', body)) where id > 1", {"posts": []}),
    "no constant": ("create index on posts using gin (to_tsvector(lang_of(lang), body))", {"posts": []}),
    "users' function": ("create index on posts using gin (to_tsvector('simple', own(body)))", {"posts": []}),
    "other index": ("create index on posts using gist (to_tsvector('simple', body))", {"posts": []}),
    "inherited": (
        "create table more () inherits (posts);create index on posts using gin (to_tsvector('simple', body))",
        {"posts": [], "more": []},
    ),
}
FUNCTIONS = """
create function own(text) returns text language sql immutable as 'select $1';
create function lang_of(text) returns regconfig language sql immutable as 'select $1::regconfig';
"""
CASES = [
    *(pytest.param("sqlite", *case, id=f"sqlite {name}") for name, case in SQLITE.items()),
    *(
        pytest.param("postgresql", FUNCTIONS + ddl, indexed, id=f"postgresql {name}")
        for name, (ddl, indexed) in POSTGRESQL.items()
    ),
]


@pytest.mark.parametrize(("dialect", "ddl", "indexed"), CASES)
def test_indexed_columns_are_known(
    serve: Serve, dialect: str, ddl: str, indexed: Mapping[str, Sequence[str]]
) -> None:
    with serve(dialect, f"{POSTS} {ddl};") as shop:
        tables = {each.name: each for each in shop.portal.call(shop.toolbox.snapshot).catalog.tables}

        assert {name: sorted(tables[name].searchable) for name in indexed} == indexed


ODD = """
create table "po ""sts'(" ("i""d" integer primary key, "bo""dy'{" text, "%(limit)s" text);
insert into "po ""sts'(" values (1, 'red', 'blue'), (2, 'blue', 'red');
"""
ODD_INDEX = {
    "sqlite": """
    create virtual table "te""xt'" using fts5(
        "bo""dy'{", "%(limit)s", content = "po ""sts'(", content_rowid = "i""d"
    );
    insert into "te""xt'" ("te""xt'") values ('rebuild');
    """,
    "postgresql": """
    create index on "po ""sts'(" using gin (to_tsvector('simple', "bo""dy'{"));
    create index on "po ""sts'(" using gin (to_tsvector('simple', "%(limit)s"));
    """,
}


@pytest.mark.parametrize(("column", "key"), [("bo\"dy'{", 1), ("%(limit)s", 2)])
def test_names_may_be_odd(serve: Serve, dialect: str, column: str, key: int) -> None:
    with serve(dialect, ODD + ODD_INDEX[dialect]) as shop, calling_as(shop, {"*": True}) as caller:
        where = [{"column": column, "op": "matches", "value": "red"}]
        asked = {"table": "po \"sts'(", "where": where, "order_by": [f"rank({column})"]}

        assert [row[0] for row in caller.rows("list_rows", **asked)] == [key]


MANY = {
    "sqlite": """
    with recursive n (i) as (select 1 union all select i + 1 from n where i < 2000)
    insert into posts select i, 'title', 'words ' || i, '', '', case i % 2 when 0 then 'north' end, i from n;
    create virtual table t using fts5(body, content = posts, content_rowid = number);
    create unique index numbers on posts (number);
    insert into t (t) values ('rebuild');
    """,
    "postgresql": """
    insert into posts select i, 'title', 'words ' || i, '', '', case i % 2 when 0 then 'north' end, i
    from generate_series(1, 2000) as i;
    create index texts on posts using gin (to_tsvector('simple', coalesce(body, '')));
    analyze posts;
    """,
}
USED = {
    "sqlite": ("VIRTUAL TABLE INDEX", "INDEX numbers (number=?)"),
    "postgresql": ("Bitmap Index Scan on texts",),
}
EXPLAIN = {"sqlite": "explain query plan", "postgresql": "explain"}


@pytest.mark.parametrize(
    "grant", [GrantSection(), GrantSection(where="region = 'north'")], ids=["all", "some"]
)
@pytest.mark.parametrize("order", [[], ["rank(body)"]], ids=["key", "rank"])
def test_search_uses_the_index(serve: Serve, dialect: str, grant: GrantSection, order: list[str]) -> None:
    if dialect == "sqlite" and grant.where and order:
        pytest.skip("its rank depends on rows that are hidden")
    where = [{"column": "body", "op": "matches", "value": "700 or 800"}]
    asked = {"table": "posts", "columns": ["id"], "where": where, "order_by": order}
    with serve(dialect, POSTS + MANY[dialect]) as shop, calling_as(shop, {"posts": grant}) as caller:
        plan = plan_of(shop, caller, asked)

        assert caller.rows("list_rows", **asked) == [[700], [800]]
        assert all(each in plan for each in USED[dialect]), plan


def test_number_that_rows_share_finds_no_words_of_hidden_rows(serve: Serve) -> None:
    ddl = """
    insert into posts values (1, '', 'plain', '', '', 'north', 7), (2, '', 'remark', '', '', 'south', 7);
    create virtual table t using fts5(body, content = posts, content_rowid = number);
    insert into t (t) values ('rebuild');
    """
    asked = {"table": "posts", "where": [{"column": "body", "op": "matches", "value": "remark"}]}
    grants = {"posts": GrantSection(where="region = 'north'")}
    with serve("sqlite", POSTS + ddl) as shop:
        with calling_as(shop, {"posts": True}) as caller:
            assert {row[0] for row in caller.rows("list_rows", columns=["id"], **asked)} == {1, 2}
        with calling_as(shop, grants) as caller, pytest.raises(BadOperator):
            caller.call("list_rows", **asked)


def plan_of(shop: Shop, caller: Caller, asked: Mapping[str, object]) -> str:
    """Return the plan of the statement that *asked* makes."""
    tools = caller.portal.call(caller.toolbox.view, caller.role).tools
    statement = statement_of(tools["list_rows"].bind(asked))
    assert statement is not None
    assert isinstance(statement.shape, Select)
    plan = caller.portal.call(caller.database.runner).compile(statement.shape)
    values = plan.bind_values(statement.values, statement.limit)
    return "\n".join(str(row) for row in shop.bare.rows(f"{EXPLAIN[shop.dialect]} {plan.sql}", *values))


def test_configuration_is_that_of_the_index(serve: Serve) -> None:
    ddl = """
    create text search configuration "Mi'ne" (copy = english);
    create table posts (
        id integer primary key, body text,
        made tsvector generated always as (to_tsvector('english', body)) stored
    );
    insert into posts values (1, 'running');
    create index on posts using gin (to_tsvector('"Mi''ne"', body));
    """
    with serve("postgresql", ddl) as shop:
        for column in ("body", "made"):
            where = [{"column": column, "op": "matches", "value": "runs"}]
            page = shop.call("list_rows", {"table": "posts", "where": where, "columns": ["id"]})
            assert page.structured["rows"] == [[1]]


@pytest.mark.parametrize("op", ["contains", "starts_with", "ends_with", "eq", "ne", "in", "gt"])
def test_stems_are_no_text(serve: Serve, op: str) -> None:
    ddl = f"{POSTS} alter table posts add made tsvector;"
    where = [{"column": "made", "op": op, "values" if op == "in" else "value": "running"}]
    with serve("postgresql", ddl) as shop, pytest.raises(CallError) as raised:
        shop.call("list_rows", {"table": "posts", "where": where})

    assert raised.value.hint == "Operators: is_null, matches."


def test_expression_needs_all_of_its_columns(serve: Serve) -> None:
    ddl = f"{POSTS} create index on posts using gin (to_tsvector('simple', title || ' ' || remark));"
    for grant in (GrantSection(exclude=("remark",)), GrantSection(mask={"remark": Mask.PARTIAL})):
        with serve("postgresql", ddl) as shop, calling_as(shop, {"posts": grant}) as caller:
            where = [{"column": "title", "op": "matches", "value": "canary"}]
            asked = calling("list_rows", table="posts", where=where)

            assert caller.outcome(asked)[0] == "bad_operator"


def test_index_serves_a_table_without_its_own_being_granted(serve: Serve) -> None:
    with serve("sqlite", POSTS + MANY["sqlite"]) as shop:
        for grants, excluded in (({"posts": True}, ["t"]), ({"*": True, "t": False}, [])):
            with calling_as(shop, grants, excluded=excluded) as caller:
                where = [{"column": "body", "op": "matches", "value": "700"}]

                assert caller.rows("list_rows", table="posts", columns=["id"], where=where) == [[700]]


def test_rows_with_large_cells_are_searched(serve: Serve) -> None:
    ddl = f"""
    {POSTS}
    insert into posts (id, title, body) values (1, 'red', hex(zeroblob(9000000))), (2, 'blue', '');
    create virtual table t using fts5(title, content = posts, content_rowid = id);
    insert into t (t) values ('rebuild');
    """
    asked = {"table": "posts", "where": [{"column": "title", "op": "matches", "value": "red"}]}
    with serve("sqlite", ddl) as shop:
        for grant in (True, GrantSection(where="id < 9")):
            with calling_as(shop, {"posts": grant}) as caller:
                assert caller.rows("list_rows", **asked, columns=["id", "title"]) == [[1, "red"]]
