"""Query files: what their headers and clauses say, and complaints that name the line and what is expected."""

from itertools import chain, combinations

import pytest
from hypothesis import given, strategies as st

from dbtools.backends.postgresql import types as postgresql
from dbtools.backends.sqlite import syntax as sqlite
from dbtools.policy import Finding, Source
from dbtools.queries import Query, QueryParameter, Returns, read_queries
from dbtools.queries.bodies import Body, Stretch
from dbtools.queries.headers import LINE_WANTED, WANTED
from dbtools.sql import Fragment, Kind, Lexis, Parameter, SqlError, scan, tokenize
from dbtools.types import PARAMETERS, quoted

NAME_WANTED = "a name of at most 40 characters a-z, 0-9 and _, a letter first"
LEXES = [
    pytest.param(sqlite.lexis, id="sqlite"),
    pytest.param(postgresql.lexis, id="postgresql"),
]
either = pytest.mark.parametrize("lexis", LEXES)

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


def _read(text: str, lexis: Lexis = sqlite.lexis, file: str = "shop.sql") -> tuple[Query, ...]:
    """Return the queries of *text*, in which nothing is wrong."""
    queries, findings = read_queries(text, file, lexis)
    assert findings == ()
    return queries


def _complaints(text: str, lexis: Lexis = sqlite.lexis, file: str = "shop.sql") -> list[tuple[int, str]]:
    """Return what is wrong with *text*: the lines, and the messages without the name of the query."""
    _, findings = read_queries(text, file, lexis)
    assert all((each.code, each.level, each.source.file) == ("bad_query", "error", file) for each in findings)
    return [(each.source.line or 0, each.message.removeprefix("query q: ")) for each in findings]


def _body(sql: str, lexis: Lexis, *optional: str) -> Body:
    """Return the body of *sql*, whose parameters may be absent where they are among *optional*."""
    names = {each.name for each in _parameters(sql, lexis) if each.claim is None}
    header = "".join(
        f"-- param {name}: text{'?' if name in optional else ''}\n" for name in sorted({*names, *optional})
    )
    (query,) = _read(f"-- name: q\n{header}{sql}", lexis)
    return query.body


def _parameters(sql: str, lexis: Lexis) -> set[Parameter]:
    opened = sql.replace("/*?", "   ").replace("?*/", "   ")
    return {Parameter(each.text[1:]) for each in tokenize(opened, lexis) if each.kind is Kind.PARAMETER}


def _parameter(line: str) -> QueryParameter:
    place = "/*? , :a ?*/" if "[]? " in line else ", :a"
    (query,) = _read(f"-- name: q\n-- param {line}\nselect 1 {place}")
    return query.parameters[0]


def _problem(line: str) -> str:
    """Return what is wrong with the parameter *line*: one thing, on the second line."""
    ((number, message),) = _complaints(f"-- name: q\n-- param {line}\nselect :a")
    assert number == 2
    return message


def _near(line: str) -> str:
    """Return what is said of a *line* that is nearly a header line."""
    return f"'{line}' is not a header line. {LINE_WANTED}."


def _undeclared(name: str, meant: str = "") -> str:
    """Return what is said of a parameter *name* that only the SQL has."""
    form = f"Write -- param {name}: TYPE  text, or :claims.NAME for a claim of the caller."
    return f":{name} is not declared. {meant}{form}"


@either
def test_query_is_read_whole(lexis: Lexis) -> None:
    assert _read(TOP_CUSTOMERS, lexis) == (
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
                    Stretch(
                        pieces=(
                            "select c.id, c.name, sum(o.total) as revenue\n"
                            "from customers c join orders o on o.customer_id = c.id\n"
                            "where o.ordered_on >= ",
                            *(Parameter("since"), "\n  "),
                        )
                    ),
                    Stretch(pieces=(" and c.country = ", Parameter("country"), " "), needs=("country",)),
                    Stretch(pieces=("\ngroup by c.id, c.name\norder by revenue desc",)),
                )
            ),
            source=Source(file="shop.sql", line=1),
            sql_source=Source(file="shop.sql", line=5),
        ),
    )


def test_every_key_is_read() -> None:
    (query,) = _read(
        "-- name: one_2\n-- title: Of one:  thing\n"
        "-- description:\n--   The first line,\n--\t\t the second: it.\n"
        "-- returns: one\n-- max_rows: 50\n-- timeout: 500ms\nselect 1"
    )

    assert (query.name, query.title, query.description) == (
        *("one_2", "Of one:  thing"),
        "The first line, the second: it.",
    )
    assert (query.returns, query.max_rows, query.timeout) == (Returns.ONE, 50, 0.5)


@pytest.mark.parametrize("more", ["--  with two blanks", "--   name and title of it", "--\tcurrency: euro"])
def test_description_goes_on_with_any_words(more: str) -> None:
    (query,) = _read(f"-- name: q\n-- description: D,\n{more}\nselect 1")

    assert query.description == f"D, {more.removeprefix('--').strip()}"


def test_what_is_not_written_is_not_limited() -> None:
    (query,) = _read("-- name: q\nselect 1")

    assert (query.title, query.description, query.returns) == ("", "", Returns.MANY)
    assert (query.max_rows, query.timeout, query.parameters) == (None, None, ())


@pytest.mark.parametrize(
    ("line", "parameter"),
    [
        *(
            pytest.param(f"a: {name}", QueryParameter(name="a", type=type), id=name)
            for name, type in PARAMETERS.items()
        ),
        pytest.param(
            "a: text?", QueryParameter(name="a", type=PARAMETERS["text"], optional=True), id="optional"
        ),
        pytest.param("a: text[]", QueryParameter(name="a", type=PARAMETERS["text"], array=True), id="array"),
        pytest.param(
            "a: text[]?  X",
            QueryParameter(name="a", type=PARAMETERS["text"], array=True, optional=True, description="X"),
            id="optional array",
        ),
        pytest.param(
            "a: text\tX  Y ",
            QueryParameter(name="a", type=PARAMETERS["text"], description="X  Y"),
            id="text after a tab",
        ),
        pytest.param(
            "a: text = it''s",
            QueryParameter(name="a", type=PARAMETERS["text"], default="it''s"),
            id="token with quotes",
        ),
        pytest.param(
            "a: text ='it''s  so'  Why",
            QueryParameter(name="a", type=PARAMETERS["text"], default="it's  so", description="Why"),
            id="quoted default",
        ),
        pytest.param(
            'a: text in (5", 6", What?) = What?',
            QueryParameter(name="a", type=PARAMETERS["text"], choices=('5"', '6"', "What?"), default="What?"),
            id="marks that end a value",
        ),
        pytest.param(
            "a: text = ''", QueryParameter(name="a", type=PARAMETERS["text"], default=""), id="empty default"
        ),
        pytest.param(
            "a: text = 'null'",
            QueryParameter(name="a", type=PARAMETERS["text"], default="null"),
            id="text that is null",
        ),
        pytest.param(
            "a: text in (x, 'b c' ,'it''s', 'd,)') = 'b c'  Which",
            QueryParameter(
                *(),
                name="a",
                type=PARAMETERS["text"],
                choices=("x", "b c", "it's", "d,)"),
                default="b c",
                description="Which",
            ),
            id="choices",
        ),
        pytest.param(
            "a: integer max 9 min -3 = 4",
            QueryParameter(name="a", type=PARAMETERS["integer"], minimum="-3", maximum="9", default="4"),
            id="bounds in any order",
        ),
        pytest.param(
            "a: timestamp min '2024-01-01 00:00' = 2024-01-01T00:00:00.5",
            QueryParameter(
                name="a",
                type=PARAMETERS["timestamp"],
                minimum="2024-01-01 00:00",
                default="2024-01-01T00:00:00.5",
            ),
            id="quoted bound",
        ),
        pytest.param(
            "a: text? pattern '^it''s  [A-Z]$'  Text",
            QueryParameter(
                name="a",
                type=PARAMETERS["text"],
                optional=True,
                pattern="^it's  [A-Z]$",
                description="Text",
            ),
            id="pattern",
        ),
        pytest.param(
            """a: text[] in (a, '"b"', 'c d') = '["a", "c d"]'""",
            QueryParameter(
                name="a",
                type=PARAMETERS["text"],
                array=True,
                choices=("a", '"b"', "c d"),
                default='["a", "c d"]',
            ),
            id="array with a default",
        ),
        pytest.param(
            "a: integer[] min 1 = [1,2]",
            QueryParameter(name="a", type=PARAMETERS["integer"], array=True, minimum="1", default="[1,2]"),
            id="array without quotes",
        ),
        pytest.param(
            "a: text  Of the min 5 things, = in general",
            QueryParameter(
                name="a", type=PARAMETERS["text"], description="Of the min 5 things, = in general"
            ),
            id="options in the text",
        ),
    ],
)
def test_parameter_is_read(line: str, parameter: QueryParameter) -> None:
    found = _parameter(line)

    assert found.source == Source(file="shop.sql", line=2)
    assert {**vars(found), "source": None} == {**vars(parameter), "source": None}


@pytest.mark.parametrize(
    ("line", "required", "may_be_absent"),
    [("a: text", True, False), ("a: text?", False, True), ("a: text = x", False, False)],
)
def test_parameter_tells_whether_it_is_needed(line: str, required: bool, may_be_absent: bool) -> None:
    parameter = _parameter(line)

    assert (parameter.required, parameter.may_be_absent) == (required, may_be_absent)
    assert _parameter("a: text? = x").may_be_absent is False


VALUES = {
    "integer": (
        "0 -1 +7 1.0 9223372036854775807 -9223372036854775808",
        "1e3 9223372036854775808 x 0x1 1_0 ٣",
    ),
    "number": ("0 -1.5 .5 1. 1e300", "x 1e999 nan inf 1_0 ٣ 1e"),
    "decimal": ("0 19.90 -1e99", "x nan 1,5 Infinity"),
    "boolean": ("true false TRUE yes 1 t", "maybe 2"),
    "date": ("2024-02-29 0001-01-01", "2023-02-29 20240101 2024-1-1 0000-01-01 2024-W01-1 ٢٠٢٤-01-01"),
    "time": (
        "00:00 23:59:59.999999999 12:30Z 12:30:00+05:30 12:30-08 12:30z",
        "24:01 12 12:60 12:00:60 1:00 12:00+16 12:00+01:60",
    ),
    "timestamp": (
        "2024-01-01 2024-01-01T00:00 2024-01-01t12:30:00.5Z 2024-01-01T12:30:00-08:00",
        "2024-13-01T00:00 2024-01-01T25:00 2024-01-01x12:00 2024-01-01T 12:00",
    ),
    "uuid": (
        "3f2b8c1e-0d4a-4b6e-9c55-1a2b3c4d5e6f 3F2B8C1E-0D4A-4B6E-9C55-1A2B3C4D5E6F "
        "3f2b8c1e0d4a4b6e9c551a2b3c4d5e6f",
        "x",
    ),
    "json": ('{"a":[1,null]} 1 "x" false', "{a:1} nan NaN x [1"),
    "text": ("x 1", ""),
}


@pytest.mark.parametrize(
    ("type", "value"), [(type, value) for type, (good, _) in VALUES.items() for value in good.split()]
)
def test_value_of_the_type_is_taken(type: str, value: str) -> None:
    assert _parameter(f"a: {type} = {value}").default == value


@pytest.mark.parametrize(
    ("type", "value"), [(type, value) for type, (_, bad) in VALUES.items() for value in bad.split()]
)
def test_value_of_another_type_is_refused(type: str, value: str) -> None:
    message = _problem(f"a: {type} = {value}")

    assert message.startswith(f"param a: default: '{value}' is not ")


@pytest.mark.parametrize(
    "line",
    [
        *("a", "a text", "a : text", "a:", "a: text ?", "a: text in (G, PG)?", "a: date max '2024-12-31'?"),
        *("a: text = x ?  T", "a: text?[]", "a: text The text", "a: text foo 1", "a: integer min"),
        *("a: integer max  5", "a: text in a, b", "a: text in ()", "a: text in (a,)", "a: text in (a b)"),
        *(
            "a: text in (a",
            "a: text pattern x",
            "a: text = 'x",
            "a: text = 'x'y",
            "a: text = ",
            "a: text = x y",
        ),
        *("a: integer[] = [1, 2]  Ids.", "a: integer[] = (1, 2)", 'a: json = {"a": 1}', "a: text = null"),
        *('a: text in (Rock, "R&B/Soul")', 'a: text = "x y"  T', 'a: date min "2024-01-01"'),
        *('a: text pattern "x"', "a: integer = 5 min 1", "a: integer min 1 min 2", "a: integer  min 1"),
        *("a: text  = x", "a: text  in (a, b)", "a: text  pattern 'x'"),
    ],
)
def test_declaration_that_cannot_be_read_gets_the_right_form(line: str) -> None:
    ((number, message),) = _complaints(f"-- name: q\n-- param {line}\nselect :a")

    assert (number, message) == (2, f"param {quoted(line.strip())} cannot be read. {WANTED}.")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        pytest.param("a: txt", "param a: 'txt' is not a type. Did you mean text? Types: integer,", id="typo"),
        pytest.param("a: Text", "param a: 'Text' is not a type. Did you mean text? Types:", id="capital"),
        pytest.param("a: jsonb[]", "param a: 'jsonb' is not a type. Did you mean json? Types:", id="array"),
        pytest.param('a: text = "x"', 'param a: "x" is in double quotes. Write --', id="double quotes"),
        pytest.param("a: date max 2024-12-31?", "param a: max: '2024-12-31?' is not a date", id="late ?"),
        pytest.param(
            "a: text min 1", "param a: a parameter of type text has no min or max.", id="min of text"
        ),
        pytest.param(
            "a: uuid max 1", "param a: a parameter of type uuid has no min or max.", id="max of uuid"
        ),
        pytest.param("a: integer min x", "param a: min: 'x' is not an integer such as 42", id="bad min"),
        pytest.param("a: date max x", "param a: max: 'x' is not a date such as 2024-03-05.", id="bad max"),
        pytest.param("a: integer min 10 max 9", "param a: min 10 is above max 9.", id="bounds"),
        pytest.param("a: integer min 10 = 9", "param a: default 9 is below min 10.", id="default too low"),
        pytest.param("a: decimal max 1.0 = 1.01", "param a: default 1.01 is above max 1.0.", id="too high"),
        pytest.param(
            "a: timestamp max 2024-01-01T00:00Z = 2024-01-01T00:30+00:15",
            "param a: default 2024-01-01T00:30+00:15 is above max 2024-01-01T00:00Z.",
            id="moment too late",
        ),
        pytest.param(
            "a: timestamp max 2024-01-01T00:00Z = 2023-12-31T16:30-08:00",
            "param a: default 2023-12-31T16:30-08:00 is above max 2024-01-01T00:00Z.",
            id="moment too late in the west",
        ),
        pytest.param(
            "a: time min 10:00 max 12:00Z",
            "param a: min 10:00 and max 12:00Z: one has a zone, and the other has none.",
            id="zones",
        ),
        pytest.param("a: integer in (1, x)", "param a: in: 'x' is not an integer", id="bad choice"),
        pytest.param("a: number in (1, 1.0)", "param a: in lists a value twice.", id="choice twice"),
        pytest.param("a: json in (1)", "param a: a parameter of type json has no in.", id="choice of json"),
        pytest.param("a: integer in (1, 5) max 4", "param a: in 5 is above max 4.", id="choice too high"),
        pytest.param("a: text in (a, b) = c", "param a: default: 'c' is not among a, b.", id="no choice"),
        pytest.param(
            "a: integer pattern 'x'", "param a: a parameter of type integer has no pattern.", id="type"
        ),
        pytest.param(
            "a: text pattern '('", "param a: pattern: '(' cannot be used: unclosed group", id="regex"
        ),
        pytest.param(
            "a: text pattern '[[a]'", "param a: pattern: '[[a]' cannot be used: unclosed", id="odd regex"
        ),
        pytest.param("a: text pattern 'a{9999999999999}'", "param a: pattern: 'a{99", id="large regex"),
        pytest.param(
            "a: text pattern '(?=a)b'",
            "param a: pattern: '(?=a)b' cannot be used: look-around, including",
            id="look-around",
        ),
        pytest.param(r"a: text pattern '(a)\1'", "param a: pattern: ", id="backreference"),
        pytest.param("a: text pattern '^b' = ab", "param a: default: 'ab' does not match the", id="match"),
        pytest.param("a: integer[] = 5", "param a: default: '5' is not a JSON array such as", id="item"),
        pytest.param("a: integer[] = [1", "param a: default: '[1' is not a JSON array such", id="no JSON"),
        pytest.param("a: integer[] = [1.5]", "param a: default: '1.5' is not an integer", id="bad item"),
        pytest.param("a: integer[] = [true]", "param a: default: 'true' is not an integer", id="boolean"),
        pytest.param("a: text[] = [null]", "param a: default: '[null]' is not a JSON array", id="null item"),
        pytest.param(
            'a: text[] = ["\\u0000"]', "param a: default: '\\u0000' is not a text", id="null character"
        ),
        pytest.param("a: integer[] max 1 = [1,2]", "param a: default 2 is above max 1.", id="item too high"),
        pytest.param(
            "claims: text", "param claims: this name is reserved for the caller's claims", id="claims"
        ),
        pytest.param("é: text", "param 'é: text' cannot be read. Write -- param NAME", id="letter"),
    ],
)
def test_mistake_in_a_parameter_is_told(line: str, problem: str) -> None:
    (first, *more) = _complaints(f"-- name: q\n-- param {line}\nselect :a")

    assert first[0] == 2
    assert first[1].startswith(problem)
    assert [each[0] for each in more] == ([3] if line.startswith(("claims", "é")) else [])


def test_moments_are_compared_across_zones() -> None:
    line = "a: timestamp max 2024-01-01T00:00Z = 2024-01-01T00:10+00:15"

    assert _parameter(line).default == "2024-01-01T00:10+00:15"


def test_deep_json_is_no_value() -> None:
    assert _problem(f"a: json = {'[' * 200_000}").startswith("param a: default: '[[[[")


@pytest.mark.parametrize(
    "line",
    [
        *(
            "-- note: x",
            "-- note:",
            "-- tittle: x",
            "-- Title: x",
            "--title: x",
            "--  title: x",
            "-- title : x",
        ),
        *("-- descripton: x", "-- maxrows: 5", "-- max-rows: 5", "-- max rows: 5", "-- max_rows 5"),
        *("-- Timeout : 5s", " -- timeout: 5s", "-- returns many", "-- title::x"),
        *("-- param: a text", "--param a: text", "-- Param a: text", " -- param a: text"),
        pytest.param("-- description: x\n--    title: y", id="in a description"),
        pytest.param("-- description: x\n--    param a: text", id="param in a description"),
    ],
)
def test_line_that_is_nearly_a_header_line_gets_the_right_form(line: str) -> None:
    ((number, message),) = _complaints(f"-- name: q\n-- An ordinary comment.\n{line}\nselect 1")

    assert number == 3 + line.count("\n")
    assert message == _near(line.splitlines()[-1].strip())


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        pytest.param("-- returns: some", "returns: must be one or many, not 'some'.", id="some"),
        pytest.param("-- returns: One", "returns: must be one or many, not 'One'.", id="One"),
        pytest.param(
            "-- max_rows: 0", "max_rows: must be a number of rows such as 50, not '0'.", id="no rows"
        ),
        pytest.param(
            "-- max_rows: x", "max_rows: must be a number of rows such as 50, not 'x'.", id="rows: x"
        ),
        pytest.param(
            "-- max_rows: ٣", "max_rows: must be a number of rows such as 50, not", id="foreign digit"
        ),
        pytest.param(
            "-- timeout: soon", "timeout: must be a duration such as 10s, 500ms or 2m, not", id="soon"
        ),
        pytest.param('-- timeout: "2s"', "timeout: must be a duration such as 10s, 500ms or", id="quotes"),
        pytest.param(
            "-- timeout: 0s", "timeout: must be more than 0 seconds and at most an hour", id="no time"
        ),
        pytest.param(
            "-- timeout: 2h", "timeout: must be more than 0 seconds and at most an hour", id="two hours"
        ),
        pytest.param(f"-- timeout: {'9' * 999}", "timeout: must be more than 0 seconds and at", id="endless"),
    ],
)
def test_mistake_in_a_header_line_is_told(line: str, problem: str) -> None:
    ((number, message),) = _complaints(f"-- name: q\n-- An ordinary comment.\n{line}\nselect 1")

    assert number == 3
    assert message.startswith(problem)


@pytest.mark.parametrize(
    "comment",
    [
        *("--", "--  ", "-- like this one", "-- Note: this is one", "-- https://example.com/a", "-- a::int"),
        *("-- see below: it is so", "-- Names of customers", "-- Parameters come next", "-- Returns one row"),
        *(
            "--   three blanks",
            "-- e.g.: so",
            "--------",
            "-- /* -- */",
            "-- it's",
            "-- 1: one",
        ),
        *(
            "-- a:b",
            "-- Max two: so",
            " -- indented",
            "-- :a",
            "-- the name: is so",
            "-- Time: so",
            "-- Part one: so",
        ),
    ],
)
def test_ordinary_comment_is_free(comment: str) -> None:
    (query,) = _read(f"-- name: q\n-- description: D.\n\n{comment}\n-- title: T\n{comment}\nselect 1")

    assert (query.description, query.title, query.parameters) == ("D.", "T", ())
    assert query.body.written(()).pieces[0] in ("select 1", f"{comment}\nselect 1")


@pytest.mark.parametrize("key", ["title", "description", "returns", "max_rows", "timeout"])
def test_key_is_there_once(key: str) -> None:
    value = {"returns": "one", "max_rows": "5", "timeout": "5s"}.get(key, "x")

    assert _complaints(f"-- name: q\n-- {key}: {value}\n-- {key}: {value}\nselect 1") == [
        (3, f"{key} is given twice.")
    ]


def test_all_mistakes_of_a_query_are_told_together() -> None:
    text = "-- name: q\n-- titel: x\n-- param a: txt\n-- param b: text\n-- param b: text\nselect :c,\n :d"

    assert [line for line, _ in _complaints(text)] == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        pytest.param(
            "-- name: q\n-- param country: text\nselect :country,\n :contry",
            [(4, _undeclared("contry", "Did you mean country? "))],
            id="undeclared",
        ),
        pytest.param(
            "-- name: q\n-- param a: text?\nselect 1 /*? + :a\n + :b ?*/",
            [(4, _undeclared("b"))],
            id="undeclared in a clause",
        ),
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
        pytest.param(
            "-- name: q\n-- like this one\nselect :this",
            [(3, _undeclared("this"))],
            id="undeclared, of a comment",
        ),
        pytest.param(
            "-- name:\nselect 1;\n-- name:\nselect 1",
            [(line, f"name: must be {NAME_WANTED}, not ''.") for line in (1, 3)],
            id="two without a name",
        ),
        pytest.param(
            "-- name: q\n-- param w: text?\nselect 1 /*? and '%:w%' = :v ?*/",
            [
                (2, "param w: the SQL has no :w outside quotes."),
                (
                    3,
                    _undeclared("v"),
                ),
            ],
            id="within quotes in a clause",
        ),
        pytest.param(
            "-- name: q\n-- param a: text\nselect ':a' -- :a\n /* :a */",
            [(2, "param a: the SQL has no :a outside quotes.")],
            id="unused",
        ),
        pytest.param(
            "-- name: q\n-- param a: text\nselect :a\nwhere rep = :claim.rep",
            [(4, _undeclared("claim"))],
            id="nearly a claim",
        ),
        pytest.param("-- name: q\n-- Nothing.", [(2, "there is no SQL outside of comments.")], id="no SQL"),
        pytest.param("-- name: q\n;", [(2, "there is no SQL outside of comments.")], id="semicolon"),
        pytest.param("", [(1, "query shop: there is no SQL outside of comments.")], id="empty"),
        pytest.param("-- name: q\nselect 1;\nselect 2", [(3, "there is a second statement.")], id="two"),
        pytest.param("-- name: q\nselect (\n1", [(2, "( is not closed.")], id="parenthesis"),
        pytest.param("-- name: q\nselect 1\n)", [(3, ") closes nothing.")], id="closing"),
        pytest.param("-- name: q\nselect\n'a", [(3, "' is not closed.")], id="quote"),
        pytest.param("-- name: q\nselect\n\0", [(3, "no database reads this character.")], id="null"),
        pytest.param(
            "-- name: q\nselect\n/* a",
            [(3, "/* is not closed.")],
            id="comment",
        ),
        pytest.param("-- name: q\nselect $1", [(2, "$1 is no parameter here, only :name is.")], id="number"),
        pytest.param(
            "-- name: q\nselect 1\n-- max_rows: 5\nfrom t",
            [(3, _near("-- max_rows: 5"))],
            id="late header",
        ),
        pytest.param(
            "-- name: q\nselect 1;\n\n-- param a: text\n-- name: r\nselect 2",
            [(4, _near("-- param a: text"))],
            id="header above its name",
        ),
        pytest.param(
            "-- title: x\n-- name: q\nselect 1",
            [(1, _near("-- title: x"))],
            id="header before the first name",
        ),
        pytest.param(
            "-- One.\nselect 0;\n-- name: q\nselect 1",
            [(2, "there is SQL before the first -- name.")],
            id="SQL before the first name",
        ),
        pytest.param(
            "-- name: q\nselect 1\n  --Name: r\nselect 2",
            [(3, _near("--Name: r"))],
            id="nearly a name",
        ),
        pytest.param(
            "-- name:\nselect 1",
            [(1, f"name: must be {NAME_WANTED}, not ''.")],
            id="no name",
        ),
        *(
            pytest.param(
                f"-- name: {name}\nselect 1",
                [
                    (
                        1,
                        f"name: must be {NAME_WANTED}, not '{name}'.",
                    )
                ],
                id=name,
            )
            for name in ("Top", "1st", "_a", "top customers", "top-customers", "a" * 41, "é")
        ),
        pytest.param(
            "-- name: q\nselect 1;\n-- name: r\nselect 2;\n-- name: q\nselect 3;",
            [(5, "line 1 has the same name; neither query is used.")],
            id="two of a name",
        ),
    ],
)
def test_mistake_in_a_query_is_told(text: str, complaints: list[tuple[int, str]]) -> None:
    assert _complaints(text) == complaints


def test_of_two_queries_of_a_name_neither_is_used() -> None:
    queries, findings = read_queries(
        "-- name: q\nselect 1;\n-- name: r\nselect 2;\n-- name: q\nselect 3;", "shop.sql", sqlite.lexis
    )

    assert [each.name for each in queries] == ["r"]
    assert [each.source.line for each in findings] == [5]


def test_finding_names_its_place_and_query() -> None:
    _, findings = read_queries("\n-- name: top\n-- returns: x\nselect 1", "queries/shop.sql", sqlite.lexis)

    assert findings == (
        Finding(
            code="bad_query",
            message="query top: returns: must be one or many, not 'x'.",
            source=Source(file="queries/shop.sql", line=3),
        ),
    )
    assert str(findings[0]) == "queries/shop.sql:3: error: query top: returns: must be one or many, not 'x'."


@pytest.mark.parametrize(
    ("file", "name"), [("x.sql", "x"), ("/srv/q/top_5.sql", "top_5"), ("queries/a", "a")]
)
def test_file_without_a_name_gives_its_own(file: str, name: str) -> None:
    (query,) = _read("-- description: D.\n-- param a: text\nselect :a;", file=file)

    assert (query.name, query.description, query.source) == (name, "D.", Source(file=file, line=1))


def test_name_of_a_file_must_be_one() -> None:
    assert _complaints("select 1", file="Top 5.sql") == [
        (
            1,
            "write -- name: NAME, since 'Top 5', the file's name, is not a name of at most "
            "40 characters a-z, 0-9 and _, a letter first.",
        )
    ]


@either
def test_queries_of_a_file_stand_apart(lexis: Lexis) -> None:
    queries = _read(
        "\ufeff-- All that we have.\n/* Really. */\n\n-- name: a\nselect 1;\n\n-- The next:\n-- name: b\r\n"
        "-- title: B\r\nselect 'x'\r\n\n/*\n-- name: old\nselect 0\n*/\n-- name: c\nselect 3 -- three",
        lexis,
    )

    assert [(each.name, each.title, each.source.line, each.body.written(()).text) for each in queries] == [
        ("a", "", 4, "select 1"),
        ("b", "B", 8, "select 'x'\r\n\n/*\n-- name: old\nselect 0\n*/"),
        ("c", "", 16, "select 3 -- three"),
    ]


@either
@pytest.mark.parametrize(
    "sql",
    [
        *(
            "select 'a",
            'select "a',
            "select (1",
            "select 1)",
            "select 1; select 2",
            "/*? a",
            "/*? a */",
            "\0",
        ),
        *(
            "select 1 /*? and :a\n ?/",
            "select :claims",
            "select $x",
            "-- param",
            "",
            ":x",
            "\ud800",
        ),
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
    queries = _read("-- name: a\nselect 'image/*' as a\n-- name: b\nselect 2 -- or */", lexis)

    assert [each.name for each in queries] == ["a", "b"]


@either
def test_character_that_no_database_reads_spoils_one_query(lexis: Lexis) -> None:
    text = "-- name: a\nselect 1 /*\n-- name: old\n*/\n-- name: b\nselect '\0'\n-- name: c\nselect 3"

    queries, findings = read_queries(text, "shop.sql", lexis)

    assert [each.name for each in queries] == ["a", "c"]
    assert [each.source.line for each in findings] == [6]


@either
def test_comment_behind_sql_is_free(lexis: Lexis) -> None:
    (query,) = _read("-- name: q\nselect 1, -- title: of it\n2 -- name: of it\n-- see that\n, 3", lexis)

    assert query.title == ""


def test_comments_between_header_and_sql_belong_to_the_sql() -> None:
    (query,) = _read("/* a */\n-- name: q\n-- title: T\n\n/*+ hint */ select 1 /* c */ ; -- d\n/* e */")

    assert (query.title, query.body.written(()).text) == ("T", "/*+ hint */ select 1 /* c */")


@either
def test_claims_need_no_declaration(lexis: Lexis) -> None:
    (query,) = _read("-- name: q\nselect :claims.b, ':claims.c', :claims.a, :claims.b", lexis)

    assert [each.claim for each in query.body.parameters] == ["b", "a"]
    assert query.parameters == ()


@either
@pytest.mark.parametrize(
    ("sql", "optional", "variants"),
    [
        pytest.param("select 1", "", {"": "select 1"}, id="no clause"),
        pytest.param(
            "select 1 /*? , :a ?*/ ;",
            "a",
            {"": "select 1 ", "a": "select 1  , :a ", "b": "select 1 "},
            id="one",
        ),
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
        pytest.param(
            "select 1 /*? , :a + :r ?*/",
            "a",
            {"": "select 1 ", "a": "select 1  , :a + :r "},
            id="with a required",
        ),
        pytest.param(
            "select :a /*? , :a ?*/", "a", {"": "select :a ", "a": "select :a  , :a "}, id="outside as well"
        ),
        pytest.param(
            "select 1/*?+:a?*/from t", "a", {"": "select 1 from t", "a": "select 1 +:a\nfrom t"}, id="tight"
        ),
        pytest.param(
            "select 1/*?+:a?*//*?+:b?*/",
            "a b",
            {"a b": "select 1 +:a\n+:b\n", "b": "select 1 +:b\n"},
            id="side by side",
        ),
        pytest.param(
            "select 1 /*? , :a -- why ?*/ , 2",
            "a",
            {"": "select 1  , 2", "a": "select 1  , :a -- why \n , 2"},
            id="comment at the end",
        ),
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
            {
                "": "select '/*? :x ?*/' , \"/*?\"",
                "a": "select '/*? :x ?*/'  , ':y', :a, '?' -- :z\n \n, \"/*?\"",
            },
            id="quotes and comments",
        ),
    ],
)
def test_variants_are_written(lexis: Lexis, sql: str, optional: str, variants: dict[str, str]) -> None:
    body = _body(sql, lexis, *optional.split())

    assert {present: body.written(present.split()).text for present in variants} == variants
    for present in variants:
        assert body.written(present.split()) == scan(variants[present], lexis)


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        pytest.param(
            "select 1 /*? , /* :x /* */ */ :a ?*/", "select 1  , /* :x /* */ */ :a ", id="nested comment"
        ),
        pytest.param("select $$ /*? $$ /*? , $q$ :x $q$, :a ?*/", None, id="dollar quotes"),
        pytest.param("select E'\\' /*? :x' /*? , e'it\\'s :y', :a ?*/", None, id="escape strings"),
        pytest.param("select :b::int /*? + :a::int ?*/ + 1", None, id="casts"),
        pytest.param("select a->>'x' /*? #>> :a ?*/ ? 'y'", None, id="JSON operators"),
        pytest.param("select x[1:2] /*? , y[:a:n] ?*/, z[:b]", None, id="slices"),
    ],
)
def test_variants_are_written_on_postgresql(sql: str, text: str | None) -> None:
    body = _body(sql, postgresql.lexis, "a")
    wanted = text or sql.replace("/*? ,", " ,").replace("/*? +", " +").replace("/*? #", " #").replace(
        "?*/", ""
    )

    assert body.written(["a"]).text == wanted
    assert len(body.clauses) == 1
    assert body.clauses[0].needs == ("a",)


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param("select [/*? :x] /*? , :a, [:y'] ?*/", id="brackets"),
        pytest.param("select `/*?` /*? , :a, `:y` ?*/", id="backticks"),
        pytest.param("select '\\' /*? , :a, e'\\' ?*/", id="backslashes"),
    ],
)
def test_variants_are_written_on_sqlite(sql: str) -> None:
    body = _body(sql, sqlite.lexis, "a")

    assert body.written(["a"]).text == sql.replace("/*? ,", " ,").replace("?*/", "")
    assert body.parameters == (Parameter("a"),)


@either
def test_variants_to_check_are_none_all_and_each_alone(lexis: Lexis) -> None:
    body = _body("select 1 /*? , :a ?*/ /*? , :b, :c ?*/ /*? , :a, :r ?*/", lexis, "a", "b", "c")

    assert body.variants() == (
        frozenset(),
        frozenset("abc"),
        frozenset("a"),
        frozenset("bc"),
    )
    assert _body("select 1", lexis).variants() == (frozenset(),)


@either
def test_equal_variants_are_one_key(lexis: Lexis) -> None:
    body = _body("select 1 /*? , :a ?*/ /*? , :b ?*/", lexis, "a", "b")

    assert len({body.written(("a", "b")), body.written({"b", "a", "c"}), body.written({"a": 1, "b": 2})}) == 1
    assert len({body.written(each) for each in ((), ("a",), ("b",), ("a", "b"), ("c",))}) == 4


@either
@pytest.mark.parametrize(
    ("sql", "line", "problem"),
    [
        pytest.param(
            "/*? , 1 ?*/",
            5,
            "the clause is always used: it needs a parameter with ? and",
            id="none",
        ),
        pytest.param(
            "/*? , ':a' ?*/, :a",
            5,
            "the clause is always used: it needs a parameter with ? and",
            id="quoted parameter",
        ),
        pytest.param(
            "/*??*/, :a", 5, "an optional clause is written /*? … ?*/ and must not contain", id="empty"
        ),
        pytest.param(
            "/*?*/, :a", 5, "an optional clause is written /*? … ?*/ and must not contain", id="one mark"
        ),
        pytest.param(
            "/*? , :a\n, :claims.x ?*/", 5, ":claims.x is in an optional clause: a claim must", id="claim"
        ),
        pytest.param(
            "/*? , :r, :d ?*/",
            5,
            "the clause is always used: it needs a parameter with ? and",
            id="required",
        ),
        pytest.param(
            "/*? , :a */",
            5,
            "an optional clause is written /*? … ?*/ and must not contain",
            id="no mark",
        ),
        pytest.param("/*? , :a", 5, "/* is not closed", id="open"),
        pytest.param(
            "/* , :a ?*/",
            5,
            "an optional clause is written /*? … ?*/ and must not contain",
            id="opening",
        ),
        pytest.param(
            "/* ? , :a */", 5, "an optional clause is written /*? … ?*/ and must not contain", id="blank"
        ),
        pytest.param("/*? , :a\n\n, ( ?*/ )", 7, ") closes nothing", id="parenthesis"),
        pytest.param("( /*? , :a\n ) ?*/", 5, "( is not closed", id="parenthesis of the statement"),
        pytest.param("/*? , :a\n\n, ' ?*/ '", 7, "' is not closed", id="quote"),
        pytest.param("/*? , :a; ?*/", 5, "the clause contains a semicolon", id="semicolon"),
        pytest.param("/*? , :a;\n:b ?*/", 6, "there is a second statement", id="statement"),
        pytest.param(";\n/*? , :a ?*/", 6, "the clause is after the end of the statement", id="end"),
        pytest.param("/*? , :a\n, $1 ?*/", 6, "$1 is no parameter here, only :name is", id="number"),
        pytest.param(
            "\n".join(["/*? , :a ?*/"] * 9),
            13,
            "there are 9 optional clauses; at most 8 are allowed",
            id="nine",
        ),
    ],
)
def test_mistake_in_a_clause_is_told(lexis: Lexis, sql: str, line: int, problem: str) -> None:
    text = f"-- name: q\n-- param a: text?\n-- param r: text\n-- param d: text = x\nselect :r, :d {sql}"

    ((number, message),) = _complaints(text, lexis)

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
    assert _complaints(f"-- name: q\n-- param a: text?\n{sql}", lexis) == [(3, problem)]


def test_comment_in_a_clause_ends_it_where_comments_do_not_nest() -> None:
    text = "-- name: q\n-- param a: text?\nselect 1 /*? , /* c */ :a ?*/"

    assert _complaints(text, sqlite.lexis) == [
        (3, "an optional clause is written /*? … ?*/ and must not contain a clause or comment.")
    ]
    assert _complaints(text, postgresql.lexis) == []


def test_string_that_would_go_on_without_the_clause_is_refused() -> None:
    header = "-- name: q\n-- param a: text?\n-- param b: text\n"
    text = header + "select E'x'\n/*? || :a ?*/ '\\' , :b , E'\\''"

    assert _complaints(text, postgresql.lexis) == [
        (5, "a quote, comment or bracket crosses the edge of the clause.")
    ]


@either
def test_eight_clauses_may_be(lexis: Lexis) -> None:
    body = _body("select 1" + " /*? , :a ?*/" * 8, lexis, "a")

    assert len(body.clauses) == 8
    assert body.written(["a"]).text == "select 1" + "  , :a " * 8


def test_clause_of_an_undeclared_or_broken_parameter_is_not_complained_of_twice() -> None:
    text = "-- name: q\n-- param a: txt\nselect 1 /*? , :a ?*/ /*? , :b ?*/"

    assert [line for line, _ in _complaints(text)] == [2, 3]


#: Where a reader of SQL may lose its way, and parts of headers.
SCRAPS = (
    *("'", '"', "`", "[", "]", "(", ")", ";", "\\", "$$", "$t$", "$1", "--", "/*", "*/", "/*?", "?*/", "?"),
    *(
        ":a",
        ":b",
        ":claims.x",
        "::",
        ":",
        "E'",
        "\n",
        "\n",
        "\r",
        " ",
        "  ",
        "\t",
        "1",
        "x",
        "select 1",
        "\0",
    ),
    *("\n-- name: a\n", "\n-- name: b\n", "\n-- param a: text?\n", "-- param b: integer[] min 1 = [1]\n"),
    *(
        "-- ",
        "name",
        "param",
        "title:",
        "-- description: x\n",
        "--   title:y\n",
        " in (",
        "pattern '",
        "= ",
        "min 1",
        "\ud800",
    ),
)
TEXTS = st.lists(st.sampled_from(SCRAPS), max_size=25).map("".join) | st.text(max_size=30)


@either
@given(text=TEXTS)
def test_every_text_is_read_or_complained_of(lexis: Lexis, text: str) -> None:
    queries, findings = read_queries(text, "shop.sql", lexis)

    assert queries or findings
    assert all(each.source.line and each.source.line <= text.count("\n") + 1 for each in findings)
    assert len({each.name for each in queries}) == len(queries)
    for query in queries:
        for present in query.body.variants():
            assert not scan(query.body.written(present).text, lexis).empty


@either
@given(line=st.lists(st.sampled_from(SCRAPS) | st.text(max_size=5), max_size=12).map("".join))
def test_every_declaration_is_read_or_complained_of(lexis: Lexis, line: str) -> None:
    line = "".join(line.split("\n"))

    queries, findings = read_queries(f"-- name: q\n-- param a: {line}\nselect :a", "shop.sql", lexis)

    assert bool(queries) != bool(findings)


CODE = st.sampled_from(("1", "x", ",", "+", "=", "||", "(x)", "::int", "<", " :a", " :b", "' '"))
HIDING = (("'", "'"), ('"', '"'), ("/* ", " */"), ("--", "\n"))
HIDDEN = st.builds(
    lambda marks, inner: f" {marks[0]}{inner}{marks[1]} ",
    st.sampled_from(HIDING),
    st.lists(st.sampled_from((":h", " :h ", "(", ";", "x", "::", ":claims.h", "-? ", "- ")), max_size=4).map(
        "".join
    ),
)
SQL = st.lists(CODE | HIDDEN, min_size=1, max_size=6).map(" ".join)
CLAUSE = st.lists(CODE | HIDDEN.filter(lambda text: "*/" not in text), max_size=4).map(
    lambda parts: f" /*? {' '.join(parts)} , :a \n ?*/ "
)


@either
@given(
    parts=st.lists(SQL | CLAUSE, min_size=1, max_size=5),
    end=st.sampled_from(("", " ;", ";\n-- :h\n", " -- :h")),
)
def test_variants_are_the_text_without_marks(lexis: Lexis, parts: list[str], end: str) -> None:
    sql = "select " + "\n".join(parts)
    text = f"-- name: q\n-- param a: text?\n-- param b: text?\nselect :a, :b, {sql}{end}"

    (query,) = _read(text, lexis)

    everything = query.body.written(["a", "b"])
    whole = "select :a, :b, " + sql.replace("/*?", "").replace("?*/", "")
    assert "".join(f"{whole}{end}".split()).startswith("".join(everything.text.split()))
    assert set(everything.parameters) <= {Parameter("a"), Parameter("b")}
    for present in chain.from_iterable(combinations("ab", count) for count in range(3)):
        variant = query.body.written(present)
        assert scan(variant.text, lexis) == variant


@either
@given(hidden=st.lists(HIDDEN, min_size=1, max_size=4).map("\n".join))
def test_nothing_in_quotes_and_comments_is_a_parameter(lexis: Lexis, hidden: str) -> None:
    (query,) = _read(f"-- name: q\n-- param a: text?\nselect 1 {hidden} /*? , :a ?*/", lexis)

    assert query.body.parameters == (Parameter("a"),)


def test_text_without_end_is_read_in_no_time() -> None:
    for part in (
        "-- name: a\n",
        "$1 ",
        "/*",
        "/*? :a ?*/",
        "-- x\n",
        "'\n-- name: a\n",
        "(",
        "-- name: a\n/*\n",
        "/*'",
    ):
        for lexis in (sqlite.lexis, postgresql.lexis):
            _, findings = read_queries("-- name: q\nselect 1 " + part * 2_000, "shop.sql", lexis)
            assert findings or part == "-- x\n"


@either
def test_fragment_of_a_variant_is_what_the_scanner_gives(lexis: Lexis) -> None:
    body = _body("select :r /*? , :a ?*/ -- end", lexis, "a")

    assert body.written(["a"]) == Fragment(
        pieces=("select ", Parameter("r"), "  , ", Parameter("a"), "  -- end")
    )
    with pytest.raises(SqlError):
        scan(body.written(["a"]).text + "\n)", lexis)
