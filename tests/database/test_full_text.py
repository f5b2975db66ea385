"""Full-text search: `matches`, and ordering by rank, reveal nothing about hidden rows and columns."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dbtools.errors import CallError
from dbtools.settings.sections import GrantSection
from dbtools.values.types import Mask
from tests.database.role_callers import Caller, Grants, calling, calling_as, listing_tools
from tests.database.shop import DIALECTS, Serve, Shops
from tests.database.twins import Side, open_twins

TABLES = """
create table posts (
    id integer primary key, title text, body text, note text, remark text, region text not null
);
create table likes (id integer primary key, post_id integer references posts (id));
insert into posts values
    (1, 'Shoes', 'red shoes are red', 'n', 'canary', 'north'),
    (2, 'Boots', 'RED boots, and shoes', 'n', 'x', 'north'),
    (3, 'Hats', 'blue hats: "tall" ones', 'n', 'red shoes', 'north'),
    (4, null, null, null, null, 'north'),
    (5, 'Hidden', 'red red red shoes', 'n', 'canary', 'south');
insert into likes values (1, 1), (2, 5), (3, 3), (4, null);
"""
INDEXES = {
    "sqlite": """
    create virtual table posts_text using fts5(title, body, remark, content = 'posts', content_rowid = 'id');
    insert into posts_text (posts_text) values ('rebuild');
    """,
    "postgresql": """
    create index on posts using gin (to_tsvector('simple', title));
    create index on posts using gin (to_tsvector('simple', body));
    create index on posts using gin (to_tsvector('simple', remark));
    """,
}
DDL = {dialect: TABLES + INDEXES[dialect] for dialect in DIALECTS}
NORTH = GrantSection(where="region = 'north'", exclude=("remark",))


@pytest.fixture(scope="module")
def callers(shops: Shops) -> Iterator[Mapping[str, Caller]]:
    """Return a caller who sees everything, of each dialect."""
    with ExitStack() as stack:
        yield {each: stack.enter_context(calling_as(shops(each), {"*": True})) for each in DIALECTS}


@pytest.fixture
def caller(callers: Mapping[str, Caller], dialect: str) -> Caller:
    """Return a caller of this dialect who sees everything."""
    return callers[dialect]


def matching(value: str, column: str = "body", **others: object) -> dict[str, object]:
    """Return the arguments that list the posts of which *column* matches *value*."""
    where = [{"column": column, "op": "matches", "value": value}]
    return {"table": "posts", "columns": ["id"], "where": where, **others}


def found(caller: Caller, value: str, column: str = "body", **others: object) -> list[object]:
    """Return the keys of the posts of which *column* matches *value*."""
    return [row[0] for row in caller.rows("list_rows", **matching(value, column, **others))]


@pytest.mark.parametrize(
    ("search", "keys"),
    [
        ("red", [1, 2, 5]),
        ("shoes red", [1, 2, 5]),
        ('"red shoes"', [1, 5]),
        ('"red shoes', [1, 5]),
        ("boots or hats", [2, 3]),
        ("red boots OR blue", [2, 3]),
        ("red -boots", [1, 5]),
        ('red -"red shoes"', [2]),
        ("red -boots -are", [5]),
        ("tall", [3]),
        ("redder", []),
        ("title : shoes", []),
        ("red & ( shoes | !", [1, 2, 5]),
    ],
)
def test_words_are_found(caller: Caller, search: str, keys: list[int]) -> None:
    assert found(caller, search) == keys


@pytest.mark.parametrize("search", ["red AND shoes", "red NOT shoes", "re*", "red | hats", "red & shoes"])
def test_signs_of_other_searches_are_explained(caller: Caller, search: str) -> None:
    plain, signed = (caller.call("list_rows", **matching(each)) for each in ("red shoes", search))

    assert "note" not in plain
    assert str(signed["note"]).startswith("matches has no AND, NOT, NEAR, &, | or *. Write words,")


@pytest.mark.parametrize("search", ["", "-red", "red or -shoes", "or"])
def test_search_for_nothing_is_refused(caller: Caller, search: str) -> None:
    with pytest.raises(CallError) as caught:
        found(caller, search)

    assert caught.value.code == "bad_value"


SYNTAX = ['"', "(", ")", "*", "^", ":", "{", "}", "+", "-", ",", "'", "&", "|", "!", "<->", "\\", "NEAR("]
WORDS = [
    "red",
    "shoes",
    "AND",
    "OR",
    "NOT",
    "NEAR",
    "title",
    "body:",
    "blåbær",
    "a.b",
    "$1",
    "?",
    "%s",
    ":c0_0",
]


@settings(max_examples=75, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.sampled_from([*SYNTAX, *WORDS, " "]) | st.text(max_size=3), max_size=12).map(" ".join))
def test_no_search_is_an_error_of_the_database(caller: Caller, search: str) -> None:
    asked = matching(search, order_by=["rank(body)"])

    assert caller.outcome(calling("list_rows", **asked))[0] in ("answer", "bad_value", "bad_argument")


phrases = st.sampled_from(
    ["red", "shoes", "boots", "hats", '"red shoes"', '"shoes red"', "blue", "and", "tall"]
)
groups = st.builds(
    lambda wanted, without: " ".join([*wanted, *(f"-{each}" for each in without)]),
    st.lists(phrases, min_size=1, max_size=3),
    st.lists(phrases, max_size=2),
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(groups, min_size=1, max_size=3).map(" or ".join))
def test_databases_find_the_same(callers: Mapping[str, Caller], search: str) -> None:
    assert found(callers["sqlite"], search) == found(callers["postgresql"], search)


def test_best_comes_first_and_pages_agree(caller: Caller) -> None:
    asked = matching("red or boots", order_by=["rank(body)"])
    whole = [row[0] for row in caller.rows("list_rows", **asked)]
    pages = list(caller.pages("list_rows", **asked, limit=1))

    assert {*whole} == {1, 2, 5}
    assert [page["rows"] for page in pages] == [[[key]] for key in whole]
    assert found(caller, "red", order_by=["rank(body)"])[0] == 5


@pytest.mark.parametrize(
    "arguments",
    [
        matching("red", order_by=["rank(body) desc"]),
        matching("red", order_by=["rank(title)"]),
        matching("red", order_by=["rank(region)"]),
        matching("red") | {"columns": ["rank(body)"]},
        {"table": "posts", "order_by": ["rank(body)"]},
        {"table": "posts", "where": [{"column": "rank(body)", "value": "0"}]},
    ],
    ids=str,
)
def test_rank_is_an_order_of_a_search_alone(caller: Caller, arguments: dict[str, object]) -> None:
    with pytest.raises(CallError) as caught:
        caller.rows("list_rows", **arguments)

    assert caught.value.code == "bad_argument"


def test_column_keeps_the_name_of_a_rank(serve: Serve, dialect: str) -> None:
    ddl = """
    create table posts (id integer primary key, "rank(id)" integer);
    insert into posts values (1, 2), (2, 1);
    """
    with serve(dialect, ddl) as shop, calling_as(shop, {"*": True}) as caller:
        assert caller.rows("list_rows", table="posts", columns=["id"], order_by=["rank(id)"]) == [[2], [1]]


RED = {"column": "body", "op": "matches", "value": "red"}
HATS = {"column": "title", "op": "matches", "value": "hats"}


@pytest.mark.parametrize(
    ("asked", "keys"),
    [
        ({"where": [{"any": [RED, HATS]}, {"some": "likes"}]}, [1, 3, 5]),
        ({"where": [RED, HATS], "match": "any"}, [1, 2, 3, 5]),
        ({"where": [RED, HATS], "match": "any", "order_by": ["rank(title)"]}, [3, 1, 2, 5]),
        ({"where": [RED], "order_by": ["rank(body)"], "offset": 1}, None),
    ],
)
def test_conditions_combine_with_a_search(caller: Caller, asked: dict[str, object], keys: list[int]) -> None:
    rows = caller.rows("list_rows", table="posts", columns=["id"], **asked)

    assert rows == [[key] for key in keys] if keys else len(rows) == 2


def test_search_counts(caller: Caller) -> None:
    count = {"table": "posts", "where": [RED], "measures": [{"function": "count"}]}
    of_likes = {
        "table": "likes",
        "where": [{**RED, "column": "post.body"}],
        "measures": [{"function": "count"}],
    }

    assert caller.rows("aggregate_rows", **count) == [[3]]
    assert caller.rows("aggregate_rows", **of_likes) == [[2]]


def test_search_goes_along_a_path(caller: Caller) -> None:
    asked = {"table": "likes", "columns": ["id", "post.id"], "where": [{**RED, "column": "post.body"}]}

    assert caller.rows("list_rows", **asked) == [[1, 1], [2, 5]]
    assert caller.rows("list_rows", **asked, order_by=["rank(post.body)"]) == [[2, 5], [1, 1]]


def test_search_is_within_related_rows(serve: Serve, dialect: str) -> None:
    index = {
        "sqlite": "create virtual table t using fts5(body, content=posts, content_rowid=id);"
        "insert into t (t) values ('rebuild');",
        "postgresql": "create index on posts using gin (to_tsvector('simple', body));",
    }
    ddl = f"""
    create table authors (id integer primary key);
    create table posts (id integer primary key, author_id integer references authors (id), body text);
    insert into authors values (1), (2), (3);
    insert into posts values (1, 1, 'red'), (2, 2, 'blue'), (3, 2, 'red hidden');
    {index[dialect]}
    """
    grants: Grants = {"authors": True, "posts": GrantSection(where="id < 3")}
    with serve(dialect, ddl) as shop, calling_as(shop, grants) as caller:
        some = caller.rows("list_rows", table="authors", where=[{"some": "posts", "where": [RED]}])
        none = caller.rows("list_rows", table="authors", where=[{"none": "posts", "where": [RED]}])

    assert (some, none) == ([[1]], [[2], [3]])


@pytest.mark.parametrize("column", ["region", "lower(body)", "id"])
def test_column_without_an_index_does_not_support_matches(caller: Caller, column: str) -> None:
    with pytest.raises(CallError) as caught:
        found(caller, "red", column)

    assert caught.value.code == "bad_operator"
    assert "does not support matches. Operators: eq, ne," in str(caught.value)


def test_hidden_rows_and_columns_change_nothing(serve: Serve, dialect: str) -> None:
    with open_twins(serve, dialect, *_sides(dialect)) as twins:
        for arguments in _asked():
            twins.outcome(calling("list_rows", **arguments))
        twins.outcome(listing_tools)

        assert found(twins.rich, "red") == [1, 2]
        assert found(twins.rich, "canary") == []


def _sides(dialect: str) -> tuple[Side, Side]:
    """Return the posts, and the same without what is hidden: the row, and the words of the column."""
    blank = TABLES.replace("'canary'", "''").replace("'red shoes', 'north'", "'', 'north'")
    gone = "update likes set post_id = null where id = 2; delete from posts where id = 5;"
    grants: Grants = {"posts": NORTH, "likes": True}
    return (
        Side(ddl=DDL[dialect], grants=grants),
        Side(ddl=blank + gone + INDEXES[dialect], grants=grants),
    )


def _asked() -> Iterator[dict[str, object]]:
    for search in ("red", "canary", '"red shoes" or canary', "shoes -boots", "red or hats"):
        for column in ("title", "body", "remark", "region"):
            yield matching(search, column)
            yield matching(search, column, order_by=[f"rank({column})"])
            yield matching(search, column, order_by=[f"rank({column})"], limit=1)
            path = {"column": f"post.{column}", "op": "matches", "value": search}
            yield {"table": "likes", "where": [path]}
            yield {"table": "likes", "where": [path], "order_by": [f"rank(post.{column})"]}


@pytest.mark.parametrize(
    ("grant", "ranked"),
    [
        pytest.param(GrantSection(), {"sqlite", "postgresql"}, id="all"),
        pytest.param(GrantSection(exclude=("note",)), {"sqlite", "postgresql"}, id="no other column"),
        pytest.param(GrantSection(where="id < 9"), {"postgresql"}, id="some rows"),
        pytest.param(GrantSection(exclude=("remark",)), {"postgresql"}, id="some columns"),
        pytest.param(GrantSection(mask={"remark": Mask.NULL}), {"postgresql"}, id="a mask"),
    ],
)
def test_rank_depends_on_nothing_that_is_hidden(
    shops: Shops, dialect: str, grant: GrantSection, ranked: set[str]
) -> None:
    asked = calling("list_rows", **matching("red", order_by=["rank(body)"]))
    with calling_as(shops(dialect), {"posts": grant}) as caller:
        assert caller.outcome(asked)[0] == ("answer" if dialect in ranked else "bad_argument")
        assert ('"rank(' in definitions_of(caller)["list_posts"].replace("\\", "")) is (dialect in ranked)


def test_masked_column_cannot_be_searched(shops: Shops, dialect: str) -> None:
    for mask in Mask:
        grants = {"posts": GrantSection(mask={"body": mask})}
        with calling_as(shops(dialect), grants) as caller, pytest.raises(CallError, match="is masked"):
            found(caller, "red")


@pytest.mark.parametrize("mask", [Mask.NULL, Mask.PARTIAL])
def test_other_columns_are_searched_beside_a_mask(shops: Shops, dialect: str, mask: Mask) -> None:
    grants = {"posts": GrantSection(mask={"remark": mask, "title": mask})}
    with calling_as(shops(dialect), grants) as caller:
        assert found(caller, "red") == [1, 2, 5]
        assert found(caller, "canary") == []


def test_key_of_the_index_may_be_hidden(shops: Shops, dialect: str) -> None:
    grants = {"posts": GrantSection(columns=("body",), where="id < 5")}
    with calling_as(shops(dialect), grants) as caller:
        assert found(caller, "boots", columns=["body"]) == ["RED boots, and shoes"]


def test_filter_that_may_fail_is_asked_first(shops: Shops, dialect: str) -> None:
    # SQLite takes abs(-2^63) for an error, and both take a division by zero of an unknown function so.
    condition = "abs(id) < 5 and 10 / (6 - id) > 0"
    with calling_as(shops(dialect), {"posts": GrantSection(where=condition)}) as caller:
        assert found(caller, "red") == [1, 2]


def test_definitions_mention_what_can_be_searched(shops: Shops, dialect: str) -> None:
    with calling_as(shops(dialect), {"posts": NORTH, "likes": True}) as caller:
        text = definitions_of(caller)

    assert "matches searches title, body: words" in text["list_posts"]
    advertised = {name for name, each in text.items() if '"matches"' in each}
    assert advertised == {"aggregate_rows", "list_rows", "list_posts"}


def test_definitions_without_an_index_stay_as_they_are(shops: Shops, dialect: str) -> None:
    with calling_as(shops(dialect), {"posts": GrantSection(columns=("id", "region"))}) as caller:
        assert not any("matches" in text for text in definitions_of(caller).values())


def definitions_of(caller: Caller) -> Mapping[str, str]:
    """Return the definitions of all tools, by name."""
    tools = caller.portal.call(caller.toolbox.view, caller.role).tools
    return {name: tool.definition.json.decode() for name, tool in tools.items()}
