"""Mistakes in query files: each is reported with its line and the right form."""

import pytest

from dbtools.queries.headers import LINE_WANTED
from tests.unit.query_files import complaints, read

NAME_WANTED = "a name of at most 40 characters a-z, 0-9 and _, a letter first"


def _near(line: str) -> str:
    """Return the message about a *line* that looks like a header line."""
    return f"'{line}' is not a header line. {LINE_WANTED}."


def _undeclared(name: str, meant: str = "") -> str:
    """Return the message about a parameter *name* that only the SQL has."""
    form = f"Write -- param {name}: TYPE  text, or :claims.NAME for a claim of the caller."
    return f":{name} is not declared. {meant}{form}"


@pytest.mark.parametrize(
    "line",
    [
        *(
            *("-- note: x", "-- note:", "-- tittle: x", "-- Title: x", "--title: x", "--  title: x"),
            "-- title : x",
        ),
        *("-- descripton: x", "-- maxrows: 5", "-- max-rows: 5", "-- max rows: 5", "-- max_rows 5"),
        *("-- Timeout : 5s", " -- timeout: 5s", "-- returns many", "-- title::x"),
        *("-- param: a text", "--param a: text", "-- Param a: text", " -- param a: text"),
        pytest.param("-- description: x\n--    title: y", id="in a description"),
        pytest.param("-- description: x\n--    param a: text", id="param in a description"),
    ],
)
def test_misspelt_header_line_gets_the_right_form(line: str) -> None:
    ((number, message),) = complaints(f"-- name: q\n-- An ordinary comment.\n{line}\nselect 1")

    assert number == 3 + line.count("\n")
    assert message == _near(line.splitlines()[-1].strip())


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("-- writes: 0", "writes: must be a number of rows from 1 to 1,000, not '0'."),
        ("-- writes: 1001", "writes: must be a number of rows from 1 to 1,000, not '1001'."),
        ("-- writes: yes", "writes: must be a number of rows from 1 to 1,000, not 'yes'."),
        ("-- confirm: yes", "confirm: must be true or false, not 'yes'."),
        ("-- returns: some", "returns: must be one or many, not 'some'."),
        ("-- returns: One", "returns: must be one or many, not 'One'."),
        ("-- max_rows: 0", "max_rows: must be a number of rows such as 50, not '0'."),
        ("-- max_rows: x", "max_rows: must be a number of rows such as 50, not 'x'."),
        ("-- max_rows: ٣", "max_rows: must be a number of rows such as 50, not"),
        ("-- timeout: soon", "timeout: must be a duration such as 10s, 500ms or 2m, not"),
        ('-- timeout: "2s"', "timeout: must be a duration such as 10s, 500ms or"),
        ("-- timeout: 0s", "timeout: must be more than 0 seconds and at most an hour"),
        ("-- timeout: 2h", "timeout: must be more than 0 seconds and at most an hour"),
        (f"-- timeout: {'9' * 999}", "timeout: must be more than 0 seconds and at"),
    ],
)
def test_mistake_in_a_header_line_is_named(line: str, problem: str) -> None:
    ((number, message),) = complaints(f"-- name: q\n-- An ordinary comment.\n{line}\nselect 1")

    assert number == 3
    assert message.startswith(problem)


@pytest.mark.parametrize(
    "comment",
    [
        *("--", "--  ", "-- like this one", "-- Note: this is one", "-- https://example.com/a", "-- a::int"),
        *("-- see below: it is so", "-- Names of customers", "-- Parameters come next", "-- Returns one row"),
        *("--   three blanks", "-- e.g.: so", "--------", "-- /* -- */", "-- it's", "-- 1: one"),
        *(
            *("-- a:b", "-- Max two: so", " -- indented", "-- :a", "-- the name: is so", "-- Time: so"),
            "-- Part one: so",
        ),
    ],
)
def test_ordinary_comment_is_free(comment: str) -> None:
    (query,) = read(f"-- name: q\n-- description: D.\n\n{comment}\n-- title: T\n{comment}\nselect 1")

    assert (query.description, query.title, query.parameters) == ("D.", "T", ())
    assert query.body.variant(()).pieces[0] in ("select 1", f"{comment}\nselect 1")


@pytest.mark.parametrize("key", ["title", "description", "returns", "max_rows", "timeout"])
def test_key_may_be_given_once(key: str) -> None:
    value = {"returns": "one", "max_rows": "5", "timeout": "5s"}.get(key, "x")

    assert complaints(f"-- name: q\n-- {key}: {value}\n-- {key}: {value}\nselect 1") == [
        (3, f"{key} is given twice.")
    ]


def test_all_mistakes_of_a_query_are_reported_together() -> None:
    text = "-- name: q\n-- titel: x\n-- param a: txt\n-- param b: text\n-- param b: text\nselect :c,\n :d"

    assert [line for line, _ in complaints(text)] == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "-- name: q\n-- param country: text\nselect :country,\n :contry",
            [(4, _undeclared("contry", "Did you mean country? "))],
            id="undeclared",
        ),
        ("-- name: q\n-- param a: text?\nselect 1 /*? + :a\n + :b ?*/", [(4, _undeclared("b"))]),
        pytest.param(
            "-- name: q\n-- param ids: text[]?\n-- param more: text[]?\n-- param a: text[]\n"
            "select :a /*? , :more ?*/ where\n"
            "1 in (:a) and\n1 not in (\n:ids) /*? or 1 in (:ids) ?*/ or 1 in (:more) or :ids is null",
            [
                (
                    8,
                    f":{name} is a list that may be absent: put it in /*? … ?*/, or give it a default such "
                    "as = '[]'.",
                )
                for name in ("ids", "more")
            ],
            id="list that may be absent",
        ),
        ("-- name: q\n-- like this one\nselect :this", [(3, _undeclared("this"))]),
        pytest.param(
            "-- name:\nselect 1;\n-- name:\nselect 1",
            [(line, f"name: must be {NAME_WANTED}, not ''.") for line in (1, 3)],
            id="two without a name",
        ),
        pytest.param(
            "-- name: q\n-- param w: text?\nselect 1 /*? and '%:w%' = :v ?*/",
            [(2, "param w: the SQL has no :w outside quotes."), (3, _undeclared("v"))],
            id="within quotes in a clause",
        ),
        pytest.param(
            "-- name: q\n-- param a: text\nselect ':a' -- :a\n /* :a */",
            [(2, "param a: the SQL has no :a outside quotes.")],
            id="unused",
        ),
        ("-- name: q\n-- param a: text\nselect :a\nwhere rep = :claim.rep", [(4, _undeclared("claim"))]),
        pytest.param("-- name: q\n-- Nothing.", [(2, "there is no SQL outside of comments.")], id="no SQL"),
        pytest.param("-- name: q\n;", [(2, "there is no SQL outside of comments.")], id="semicolon"),
        pytest.param("", [(1, "query shop: there is no SQL outside of comments.")], id="empty"),
        pytest.param("-- name: q\nselect 1;\nselect 2", [(3, "there is a second statement.")], id="two"),
        pytest.param("-- name: q\nselect (\n1", [(2, "( is not closed.")], id="parenthesis"),
        pytest.param("-- name: q\nselect 1\n)", [(3, ") closes nothing.")], id="closing"),
        pytest.param("-- name: q\nselect\n'a", [(3, "' is not closed.")], id="quote"),
        pytest.param("-- name: q\nselect\n\0", [(3, "no database reads this character.")], id="null"),
        pytest.param("-- name: q\nselect\n/* a", [(3, "/* is not closed.")], id="comment"),
        pytest.param("-- name: q\nselect $1", [(2, "$1 is not a parameter: write :name.")], id="number"),
        ("-- name: q\nselect 1\n-- max_rows: 5\nfrom t", [(3, _near("-- max_rows: 5"))]),
        ("-- name: q\nselect 1;\n\n-- param a: text\n-- name: r\nselect 2", [(4, _near("-- param a: text"))]),
        ("-- title: x\n-- name: q\nselect 1", [(1, _near("-- title: x"))]),
        ("-- One.\nselect 0;\n-- name: q\nselect 1", [(2, "there is SQL before the first -- name.")]),
        ("-- name: q\nselect 1\n  --Name: r\nselect 2", [(3, _near("--Name: r"))]),
        pytest.param("-- name:\nselect 1", [(1, f"name: must be {NAME_WANTED}, not ''.")], id="no name"),
        *(
            pytest.param(
                f"-- name: {name}\nselect 1", [(1, f"name: must be {NAME_WANTED}, not '{name}'.")], id=name
            )
            for name in ("Top", "1st", "_a", "top customers", "top-customers", "a" * 41, "é")
        ),
    ],
)
def test_mistake_in_a_query_is_named(text: str, expected: list[tuple[int, str]]) -> None:
    assert complaints(text) == expected


@pytest.mark.parametrize("key", ["returns: one", "returns: many", "max_rows: 5"])
def test_query_that_writes_has_no_limit_of_reading(key: str) -> None:
    found = complaints(f"-- name: q\n-- writes: 1\n-- {key}\ndelete from t")

    problem = f"{key.partition(':')[0]}: a query that writes returns what RETURNING returns."
    assert [message for _, message in found] == [problem]


@pytest.mark.parametrize("name", ["dry_run", "idempotency_key", "confirm"])
def test_arguments_of_changes_are_taken(name: str) -> None:
    text = f"-- name: q\n{{}}-- param {name}: text  X.\ninsert into t values (:{name})"
    reading, writing = complaints(text.format("")), complaints(text.format("-- writes: 1\n"))

    assert reading == []
    assert writing == [(3, f"param {name}: a query that writes has this argument already.")]


@pytest.mark.parametrize("line", ["-- write: 5", "-- Writes: 5", "-- writes 5", "-- confirm true"])
def test_misspelt_key_of_a_query_that_writes_gets_the_right_form(line: str) -> None:
    found = complaints(f"-- name: q\n{line}\ndelete from t")

    assert [message for _, message in found] == [_near(line)]


def test_only_a_query_that_writes_can_be_confirmed() -> None:
    found = complaints("-- name: q\n-- confirm: true\ndelete from t")

    assert found == [(1, "confirm: only a query that writes can be confirmed: add -- writes: N.")]
