"""Query files: what their headers mean, and how a file is split into queries."""

import pytest

from dbtools.backends.sqlite.schema import syntax as sqlite
from dbtools.findings import Source
from dbtools.queries import Query, QueryParameter, read_queries
from dbtools.queries.bodies import Body, SqlPart
from dbtools.schema.sql import Lexis, Parameter
from dbtools.values.types import PARAMETERS
from tests.unit.query_files import complaints, either, read

TOP_CUSTOMERS = """\
-- name: top_customers
-- description: Customers by revenue in a period, highest first.
-- param since: date = 2024-01-01   First day of the period.
-- param country: text?             Only customers of this country.
select c.id, c.name, sum(o.total) as revenue
from customers c join orders o on o.customer_id = c.id
where o.ordered_on >= :since
  /*? and c.country = :country ?*/
group by c.id, c.name
order by revenue desc
"""


@either
def test_query_is_read_whole(lexis: Lexis) -> None:
    assert read(TOP_CUSTOMERS, lexis) == (
        Query(
            name="top_customers",
            description="Customers by revenue in a period, highest first.",
            parameters=(
                QueryParameter(
                    name="since",
                    type=PARAMETERS["date"],
                    default="2024-01-01",
                    description="First day of the period.",
                    source=Source(file="shop.sql", line=3),
                ),
                QueryParameter(
                    name="country",
                    type=PARAMETERS["text"],
                    optional=True,
                    description="Only customers of this country.",
                    source=Source(file="shop.sql", line=4),
                ),
            ),
            body=Body(
                parts=(
                    SqlPart(
                        pieces=(
                            "select c.id, c.name, sum(o.total) as revenue\n"
                            "from customers c join orders o on o.customer_id = c.id\n"
                            "where o.ordered_on >= ",
                            *(Parameter("since"), "\n  "),
                        )
                    ),
                    SqlPart(pieces=(" and c.country = ", Parameter("country"), " "), needs=("country",)),
                    SqlPart(pieces=("\ngroup by c.id, c.name\norder by revenue desc",)),
                )
            ),
            source=Source(file="shop.sql", line=1),
            sql_source=Source(file="shop.sql", line=5),
        ),
    )


def test_of_two_queries_of_a_name_neither_is_used() -> None:
    queries, findings = read_queries(
        "-- name: q\nselect 1;\n-- name: r\nselect 2;\n-- name: q\nselect 3;", "shop.sql", sqlite.lexis
    )

    assert [each.name for each in queries] == ["r"]
    assert [str(each) for each in findings] == [
        "shop.sql:5: error: query q: line 1 has the same name; neither query is used."
    ]


@pytest.mark.parametrize(
    ("file", "name"), [("x.sql", "x"), ("/srv/q/top_5.sql", "top_5"), ("queries/a", "a")]
)
def test_file_without_a_name_gives_its_own(file: str, name: str) -> None:
    (query,) = read("-- description: D.\n-- param a: text\nselect :a;", file=file)

    assert (query.name, query.description, query.source) == (name, "D.", Source(file=file, line=1))


def test_file_name_that_is_no_query_name_is_refused() -> None:
    assert complaints("select 1", file="Top 5.sql") == [
        (
            1,
            "write -- name: NAME, since 'Top 5', the file's name, is not a name of at most "
            "40 characters a-z, 0-9 and _, a letter first.",
        )
    ]


@either
def test_file_is_split_into_its_queries(lexis: Lexis) -> None:
    queries = read(
        "\ufeff-- All that we have.\n/* Really. */\n\n-- name: a\nselect 1;\n\n-- The next:\n-- name: b\r\n"
        "-- title: B\r\nselect 'x'\r\n\n/*\n-- name: old\nselect 0\n*/\n-- name: c\nselect 3 -- three",
        lexis,
    )

    assert [(each.name, each.title, each.source.line, each.body.variant(()).text) for each in queries] == [
        ("a", "", 4, "select 1"),
        ("b", "B", 8, "select 'x'\r\n\n/*\n-- name: old\nselect 0\n*/"),
        ("c", "", 16, "select 3 -- three"),
    ]


@either
@pytest.mark.parametrize(
    "sql",
    [
        *(
            *("select 'a", 'select "a', "select (1", "select 1)", "select 1; select 2", "/*? a", "/*? a */"),
            "\0",
        ),
        *("select 1 /*? and :a\n ?/", "select :claims", "select $x", "-- param", "", ":x", "\ud800"),
    ],
)
def test_broken_query_takes_no_other_with_it(lexis: Lexis, sql: str) -> None:
    queries, findings = read_queries(
        f"-- name: a\nselect 1\n-- name: b\n{sql}\n-- name: c\n-- param a: text?\nselect 'b''s' /*?, :a?*/",
        "shop.sql",
        lexis,
    )

    assert [each.name for each in queries] == ["a", "c"]
    assert findings
    assert all(str(each).startswith("shop.sql:") and "query b: " in str(each) for each in findings)


@either
@pytest.mark.parametrize("broken", ["", "$$$1 :: ", "\0 "])
def test_query_that_is_commented_out_is_not_served(lexis: Lexis, broken: str) -> None:
    around = f"-- name: a\nselect 1 {broken}/*\n-- name: old\nselect 0\n"

    closed, _ = read_queries(f"{around}*/\n-- name: b\nselect 2", "shop.sql", lexis)
    unclosed, findings = read_queries(f"{around}-- name: b\nselect 2", "shop.sql", lexis)

    assert [each.name for each in closed] == ([] if broken else ["a"]) + ["b"]
    assert unclosed == ()
    assert [each.source.line for each in findings] == [2]
    assert broken or findings[0].message == "query a: /* is not closed."


@either
def test_text_that_looks_like_a_comment_hides_no_query(lexis: Lexis) -> None:
    queries = read("-- name: a\nselect 'image/*' as a\n-- name: b\nselect 2 -- or */", lexis)

    assert [each.name for each in queries] == ["a", "b"]


@either
def test_comment_behind_sql_is_free(lexis: Lexis) -> None:
    (query,) = read("-- name: q\nselect 1, -- title: of it\n2 -- name: of it\n-- see that\n, 3", lexis)

    assert query.title == ""


def test_comments_between_header_and_sql_belong_to_the_sql() -> None:
    (query,) = read("/* a */\n-- name: q\n-- title: T\n\n/*+ hint */ select 1 /* c */ ; -- d\n/* e */")

    assert (query.title, query.body.variant(()).text) == ("T", "/*+ hint */ select 1 /* c */")
