"""The optional clauses of a permitted query: `/*? … ?*/`."""

import pytest

from dbtools.backends.postgresql.schema import types as postgresql
from dbtools.backends.sqlite.schema import syntax as sqlite
from dbtools.queries.bodies import Body
from dbtools.schema.sql import Lexis, Parameter, TokenKind, scan, tokenize
from tests.unit.query_files import complaints, either, read


def _body(sql: str, lexis: Lexis, *optional: str) -> Body:
    """Return the body of *sql*, whose parameters may be absent where they are among *optional*."""
    names = {each.name for each in _parameters(sql, lexis) if each.claim is None}
    header = "".join(
        f"-- param {name}: text{'?' if name in optional else ''}\n" for name in sorted({*names, *optional})
    )
    (query,) = read(f"-- name: q\n{header}{sql}", lexis)
    return query.body


def _parameters(sql: str, lexis: Lexis) -> set[Parameter]:
    opened = sql.replace("/*?", "   ").replace("?*/", "   ")
    return {Parameter(each.text[1:]) for each in tokenize(opened, lexis) if each.kind is TokenKind.PARAMETER}


@either
@pytest.mark.parametrize(
    ("sql", "optional", "variants"),
    [
        pytest.param("select 1", "", {"": "select 1"}, id="no clause"),
        ("select 1 /*? , :a ?*/ ;", "a", {"": "select 1 ", "a": "select 1  , :a ", "b": "select 1 "}),
        pytest.param(
            "select :r /*? , :a ?*/ /*? , :b ?*/ from t",
            "a b",
            {
                "": "select :r   from t",
                "a": "select :r  , :a   from t",
                "b": "select :r   , :b  from t",
                "r b a": "select :r  , :a   , :b  from t",
            },
            id="two",
        ),
        pytest.param(
            "select 1 /*? , :a + :b ?*/",
            "a b",
            {"a": "select 1 ", "b": "select 1 ", "a b": "select 1  , :a + :b "},
            id="two parameters",
        ),
        ("select 1 /*? , :a + :r ?*/", "a", {"": "select 1 ", "a": "select 1  , :a + :r "}),
        ("select :a /*? , :a ?*/", "a", {"": "select :a ", "a": "select :a  , :a "}),
        ("select 1/*?+:a?*/from t", "a", {"": "select 1 from t", "a": "select 1 +:a from t"}),
        ("select 1/*?+:a?*//*?+:b?*/", "a b", {"a b": "select 1 +:a +:b ", "b": "select 1 +:b "}),
        ("select 1 /*? , :a -- why ?*/ , 2", "a", {"": "select 1  , 2", "a": "select 1  , :a  , 2"}),
        pytest.param(
            "/*? with x as (select :a) ?*/ select 1",
            "a",
            {"": " select 1", "a": " with x as (select :a)  select 1"},
            id="first",
        ),
        pytest.param(
            "select (1 /*? + :a ?*/)", "a", {"": "select (1 )", "a": "select (1  + :a )"}, id="in parentheses"
        ),
        pytest.param(
            "select '/*? :x ?*/' /*? , ':y', :a, '?' -- :z\n ?*/, \"/*?\"",
            "a",
            {"": "select '/*? :x ?*/' \n, \"/*?\"", "a": "select '/*? :x ?*/'  , ':y', :a, '?'\n, \"/*?\""},
            id="quotes and comments",
        ),
    ],
)
def test_variants_are_written(lexis: Lexis, sql: str, optional: str, variants: dict[str, str]) -> None:
    body = _body(sql, lexis, *optional.split())

    assert {present: body.variant(present.split()).text for present in variants} == variants
    for present in variants:
        assert body.variant(present.split()) == scan(variants[present], lexis)


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("select 1 /*? , /* :x /* */ */ :a ?*/", "select 1  , /* :x /* */ */ :a "),
        ("select $$ /*? $$ /*? , $q$ :x $q$, :a ?*/", None),
        ("select E'\\' /*? :x' /*? , e'it\\'s :y', :a ?*/", None),
        ("select :b::int /*? + :a::int ?*/ + 1", None),
        ("select a->>'x' /*? #>> :a ?*/ ? 'y'", None),
        ("select x[1:2] /*? , y[:a:n] ?*/, z[:b]", None),
    ],
)
def test_variants_are_written_on_postgresql(sql: str, text: str | None) -> None:
    body = _body(sql, postgresql.lexis, "a")
    wanted = text or sql.replace("/*? ,", " ,").replace("/*? +", " +").replace("/*? #", " #").replace(
        "?*/", ""
    )

    assert body.variant(["a"]).text == wanted
    assert len(body.clauses) == 1
    assert body.clauses[0].needs == ("a",)


@pytest.mark.parametrize(
    "sql",
    [
        "select [/*? :x] /*? , :a, [:y'] ?*/",
        "select `/*?` /*? , :a, `:y` ?*/",
        "select '\\' /*? , :a, e'\\' ?*/",
    ],
)
def test_variants_are_written_on_sqlite(sql: str) -> None:
    body = _body(sql, sqlite.lexis, "a")

    assert body.variant(["a"]).text == sql.replace("/*? ,", " ,").replace("?*/", "")
    assert body.parameters == (Parameter("a"),)


@either
def test_variants_to_check_are_none_all_and_each_alone(lexis: Lexis) -> None:
    body = _body("select 1 /*? , :a ?*/ /*? , :b, :c ?*/ /*? , :a, :r ?*/", lexis, "a", "b", "c")

    assert body.variants() == (frozenset(), frozenset("abc"), frozenset("a"), frozenset("bc"))
    assert _body("select 1", lexis).variants() == (frozenset(),)


@either
def test_equal_variants_are_one_key(lexis: Lexis) -> None:
    body = _body("select 1 /*? , :a ?*/ /*? , :b ?*/", lexis, "a", "b")

    assert len({body.variant(("a", "b")), body.variant({"b", "a", "c"}), body.variant({"a": 1, "b": 2})}) == 1
    assert len({body.variant(each) for each in ((), ("a",), ("b",), ("a", "b"), ("c",))}) == 4


@either
@pytest.mark.parametrize(
    ("sql", "line", "problem"),
    [
        ("/*? , 1 ?*/", 5, "the clause is always used: it needs a parameter with ? and"),
        ("/*? , ':a' ?*/, :a", 5, "the clause is always used: it needs a parameter with ? and"),
        ("/*??*/, :a", 5, "an optional clause is written /*? … ?*/ and must not contain"),
        ("/*?*/, :a", 5, "an optional clause is written /*? … ?*/ and must not contain"),
        ("/*? , :a\n, :claims.x ?*/", 5, ":claims.x is in an optional clause: a claim must"),
        ("/*? , :r, :d ?*/", 5, "the clause is always used: it needs a parameter with ? and"),
        ("/*? , :a */", 5, "an optional clause is written /*? … ?*/ and must not contain"),
        ("/*? , :a", 5, "/* is not closed"),
        ("/* , :a ?*/", 5, "an optional clause is written /*? … ?*/ and must not contain"),
        ("/* ? , :a */", 5, "an optional clause is written /*? … ?*/ and must not contain"),
        ("/*? , :a\n\n, ( ?*/ )", 7, ") closes nothing"),
        ("( /*? , :a\n ) ?*/", 5, "( is not closed"),
        ("/*? , :a\n\n, ' ?*/ '", 7, "' is not closed"),
        ("/*? , :a; ?*/", 5, "the clause contains a semicolon"),
        ("/*? , :a;\n:b ?*/", 6, "there is a second statement"),
        (";\n/*? , :a ?*/", 6, "the clause is after the end of the statement"),
        ("/*? , :a\n, $1 ?*/", 6, "$1 is not a parameter: write :name"),
        ("\n".join(["/*? , :a ?*/"] * 9), 13, "there are 9 optional clauses; at most 8 are allowed"),
    ],
)
def test_mistake_in_a_clause_is_named(lexis: Lexis, sql: str, line: int, problem: str) -> None:
    text = f"-- name: q\n-- param a: text?\n-- param r: text\n-- param d: text = x\nselect :r, :d {sql}"

    ((number, message),) = complaints(text, lexis)

    assert number == line
    assert message.startswith(problem)


@either
@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("/*? select :a ?*/", "there is no SQL outside of comments."),
        (
            "select 1 /*? , :a /*? , :a ?*/ , :a ?*/",
            "an optional clause is written /*? … ?*/ and must not contain a clause or comment.",
        ),
    ],
)
def test_clauses_stand_side_by_side_in_sql(lexis: Lexis, sql: str, problem: str) -> None:
    assert complaints(f"-- name: q\n-- param a: text?\n{sql}", lexis) == [(3, problem)]


def test_comment_in_a_clause_ends_it_where_comments_do_not_nest() -> None:
    text = "-- name: q\n-- param a: text?\nselect 1 /*? , /* c */ :a ?*/"

    assert complaints(text, sqlite.lexis) == [
        (3, "an optional clause is written /*? … ?*/ and must not contain a clause or comment.")
    ]
    assert complaints(text, postgresql.lexis) == []


def test_string_that_would_go_on_without_the_clause_is_refused() -> None:
    header = "-- name: q\n-- param a: text?\n-- param b: text\n"
    text = header + "select E'x'\n/*? || :a ?*/ '\\' , :b , E'\\''"

    assert complaints(text, postgresql.lexis) == [
        (5, "a quote, comment or bracket crosses the edge of the clause.")
    ]


@either
def test_eight_clauses_are_allowed(lexis: Lexis) -> None:
    body = _body("select 1" + " /*? , :a ?*/" * 8, lexis, "a")

    assert len(body.clauses) == 8
    assert body.variant(["a"]).text == "select 1" + "  , :a " * 8


def test_clause_of_an_undeclared_or_broken_parameter_is_not_complained_of_twice() -> None:
    text = "-- name: q\n-- param a: txt\nselect 1 /*? , :a ?*/ /*? , :b ?*/"

    assert [line for line, _ in complaints(text)] == [2, 3]
