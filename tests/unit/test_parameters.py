"""The tokenizer of operators' SQL: which texts are parameters, and which are rejected."""

import re
from string import ascii_letters, digits

import pytest
from hypothesis import given, strategies as st

from dbtools.backends.postgresql.schema import types as postgresql
from dbtools.backends.sqlite.schema import syntax as sqlite
from dbtools.schema.sql import (
    CHARACTER,
    LETTER,
    Fragment,
    Lexis,
    Parameter,
    SqlError,
    TokenKind,
    scan,
    tokenize,
)

LEXES = [pytest.param(sqlite.lexis, id="sqlite"), pytest.param(postgresql.lexis, id="postgresql")]
either = pytest.mark.parametrize("lexis", LEXES)

#: Where databases, or careless scanners, take text for something else.
SCRAPS = (
    *("'", '"', "`", "''", "[", "]", "(", ")", ";", "\\", "$", "$$", "$t$", "$1", "--", "/*", "*/", "/", "*"),
    *(":", "::", ":=", ":a", ":b.c", ":claims", ":claims.x", ":é", "?", "@", "#", "-", "\n", "\r", " ", "\t"),
    *("E'", "e", "U&'", "x'", "1", "1.5e", "a", "é", "\u00a0", "\ufeff", ".", "_", "select", "or", "\0"),
)
TEXTS = st.lists(st.sampled_from(SCRAPS), max_size=12).map("".join) | st.text(max_size=20)


def _names(sql: str, lexis: Lexis) -> list[str]:
    """Return the names of all parameters of *sql*, in order and as often as they stand there."""
    return [piece.name for piece in scan(sql, lexis).pieces if isinstance(piece, Parameter)]


@either
@pytest.mark.parametrize(
    ("sql", "names"),
    [
        pytest.param("", [], id="empty"),
        pytest.param(" \n\t", [], id="blank"),
        pytest.param(":a", ["a"], id="nothing else"),
        pytest.param("select * from t where a = :a and b<:b", ["a", "b"], id="comparisons"),
        pytest.param(":a + :b - :a", ["a", "b", "a"], id="twice"),
        pytest.param("f(:a,:b)", ["a", "b"], id="arguments"),
        pytest.param("(:a)", ["a"], id="parentheses"),
        pytest.param("a in :ids", ["ids"], id="list"),
        pytest.param("-:a*:b/:c||:d%:e", ["a", "b", "c", "d", "e"], id="after operators"),
        pytest.param("a->:b and a->>:c", ["b", "c"], id="after arrows"),
        pytest.param("/**/:a/**/", ["a"], id="between comments"),
        pytest.param("--x\n:a--:b", ["a"], id="between comments of one line"),
        pytest.param("\n:a\r\n:b\t:c\f:d", ["a", "b", "c", "d"], id="between blanks"),
        pytest.param(":a1 :_b :Ab :a_b", ["a1", "_b", "Ab", "a_b"], id="letters of names"),
        pytest.param(":été :имя :名 :ñ1", ["été", "имя", "名", "ñ1"], id="letters beyond ASCII"),
        pytest.param(":select", ["select"], id="keyword"),
        pytest.param(":a.b", ["a"], id="field of a parameter"),
        pytest.param(":claims.region", ["claims.region"], id="claim"),
        pytest.param(":claims.a.b", ["claims.a"], id="field of a claim"),
        pytest.param(":claims.rôle", ["claims.rôle"], id="claim beyond ASCII"),
        pytest.param(":claimsx :claims1.x :Claims.x", ["claimsx", "claims1", "Claims"], id="like a claim"),
        pytest.param(":a::int", ["a"], id="cast of a parameter"),
        pytest.param("a::int + :b::numeric(9,2)", ["b"], id="cast"),
        pytest.param("a :: int", [], id="cast with blanks"),
        pytest.param("f(a := :b, c:=:d)", ["b", "d"], id="named argument"),
        pytest.param("f(a => :b, c=>:d)", ["b", "d"], id="named argument, arrow"),
        pytest.param("'12:30' '2024-01-01T12:30:00' ':a'", [], id="quotes"),
        pytest.param("'it''s :a' || :b", ["b"], id="doubled quote"),
        pytest.param("''':a''' || :b", ["b"], id="doubled quotes at the ends"),
        pytest.param("'' || :a || ''", ["a"], id="empty quotes"),
        pytest.param('":a" = :b and """:c" = :d', ["b", "d"], id="quoted names"),
        pytest.param("'\":a' || :b || '\"'", ["b"], id="quotes in quotes"),
        pytest.param("'--' || :a /* ' */ || :b -- '", ["a", "b"], id="quotes and comments"),
        pytest.param("'/*' || :a || '*/'", ["a"], id="comments in quotes"),
        pytest.param("'\\' || :a", ["a"], id="backslash in quotes"),
        pytest.param("U&'\\' || :a || U&'d\\0061t :b'", ["a"], id="string of code points"),
        pytest.param("b'01' || x'1F' || :a || B'0''1' || N':b'", ["a"], id="strings of bits"),
        pytest.param("date'2024-01-01' < :a", ["a"], id="date"),
        pytest.param("jsonb_path_exists(a, '$.a ? (@.b == :c)') = :d", ["d"], id="jsonpath"),
        pytest.param("a->>'$.a[0].b' = :c", ["c"], id="path"),
        pytest.param('\'{"a":1.10, "b":true}\' = :a', ["a"], id="JSON"),
        pytest.param("-- :a\n:b -- :c", ["b"], id="comments of one line"),
        pytest.param("/* :a */ :b /* :c\n*/", ["b"], id="comments"),
        pytest.param("/*/ :a */ :b", ["b"], id="comment that begins like its end"),
        pytest.param("/***/ :a /*:b**/", ["a"], id="comments of stars"),
        pytest.param("/*? and a = :a ?*/ :b", ["b"], id="optional clause"),
        pytest.param("/* it's */ :a /* isn't */", ["a"], id="apostrophes in comments"),
        pytest.param("-- /*\n:a -- */", ["a"], id="comment marks in comments"),
        pytest.param("4 - -:a - - :b", ["a", "b"], id="minus, no comment"),
        pytest.param("5 */*:a*/ :b", ["b"], id="comment after an operator"),
        pytest.param("1.5e-3 < :a and 0x1F < :b and 1_000 < :c", ["a", "b", "c"], id="numbers"),
        pytest.param("a$1 a$b$ :c d$d$b", ["c"], id="names with dollars"),
        pytest.param("ae'\\' || :a", ["a"], id="name that ends in e"),
        pytest.param(":a;", ["a"], id="semicolon"),
        pytest.param("\\:a \\d :b", ["a", "b"], id="backslashes"),
    ],
)
def test_parameters_are_found_on_either(sql: str, names: list[str], lexis: Lexis) -> None:
    assert _names(sql, lexis) == names


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        pytest.param("a[1:2]", [], id="slice"),
        pytest.param("a[:n]", ["n"], id="index"),
        pytest.param("a[1:n]", [], id="slice up to a column"),
        pytest.param("a[lo:hi] a[f(1):n] a[b[1]:n] a['1':n] a[\"b\":n]", [], id="slice after a value"),
        pytest.param("a[:a:b]", ["a"], id="slice from a parameter to a column"),
        pytest.param("a[:a: :b]", ["a", "b"], id="slice between parameters"),
        pytest.param("a[1: :b][ :c][2 : 3]", ["b", "c"], id="slices with blanks"),
        pytest.param("a[:a::int: :b::int]", ["a", "b"], id="slice between casts"),
        pytest.param("array[:a,:b] || array[[:c],[:d]]", ["a", "b", "c", "d"], id="array"),
        pytest.param("a[':b'] || :c", ["c"], id="quote in an index"),
        pytest.param("json_object('a':b, 'c' : d, 'e': :f)", ["f"], id="key and value"),
        pytest.param("a ? :a and a ?| :b and a ?& :c and a?:d", ["a", "b", "c", "d"], id="question marks"),
        pytest.param("a @> :a and a <@ :b and a @@ :c and a @? :d", ["a", "b", "c", "d"], id="at signs"),
        pytest.param("@a + @ :b + @:c", ["b", "c"], id="absolute value"),
        pytest.param("a #> :a and a #>> :b and a #- :c and a # b", ["a", "b", "c"], id="hashes"),
        pytest.param("a ? 'b' and a @? '$.c ? (@ > 1)' and d = :d", ["d"], id="jsonpath"),
        pytest.param("$$ :a ' -- /* $$ || :b", ["b"], id="dollar quote"),
        pytest.param("$t$ :a $$ $u$ $t$ || :b", ["b"], id="dollar quote with a tag"),
        pytest.param("$é1$ :a $é1$ || :b", ["b"], id="dollar quote with a tag beyond ASCII"),
        pytest.param("$t$$T$ :a $t$ || :b || $a$b$a$", ["b"], id="tags are told apart by case"),
        pytest.param("$a$ $b$a$ || :b", ["b"], id="end within another tag"),
        pytest.param("1$$ :a $$ || :b", ["b"], id="dollar quote after a number"),
        pytest.param("E'it\\'s :a' || :b", ["b"], id="escaped quote"),
        pytest.param("e'it''s \\\\' || :b", ["b"], id="escaped backslash"),
        pytest.param("E'a''\\' :b' || e'\\' :c' || :d", ["d"], id="doubled and escaped quotes"),
        pytest.param("E'a'\n'\\' :b' || :c", ["c"], id="string that goes on"),
        pytest.param("E'a' -- it's\n \t-- :x\n'\\' :b' || :c", ["c"], id="string that goes on below"),
        pytest.param("E'a' '\\' || :c", ["c"], id="string that does not go on"),
        pytest.param("E'a' --\\\n || :c", ["c"], id="string, comment and operator"),
        pytest.param("U&\":a\" = :b and U&'\\' = :c", ["b", "c"], id="code points"),
        pytest.param("/* /* :a */ :b */ :c", ["c"], id="nested comment"),
        pytest.param("/*/*/ :a */*/ :b", ["b"], id="nested comment without blanks"),
        pytest.param("-- :a\r:b", ["b"], id="comment that a carriage return ends"),
        pytest.param("a ` :b ` :c", ["b", "c"], id="backtick operator"),
    ],
)
def test_parameters_are_found_on_postgresql(sql: str, names: list[str]) -> None:
    assert _names(sql, postgresql.lexis) == names


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        pytest.param("[:a] = :b", ["b"], id="name in brackets"),
        pytest.param("[it's ( :a] = :b and [c] = ':d'", ["b"], id="name in brackets with marks"),
        pytest.param("`:a` = :b and ```:c` = :d", ["b", "d"], id="name in backticks"),
        pytest.param("/* /* :a */ :b", ["b"], id="comments do not nest"),
        pytest.param("/*/*/ :a /*/**/ :b", ["a", "b"], id="comments do not nest where they touch"),
        pytest.param("E'\\' || :a", ["a"], id="no escapes"),
        pytest.param("E'a'\n'\\' || :a", ["a"], id="no escapes on the next line"),
        pytest.param("-- :a\r:b\n:c", ["c"], id="comment that no carriage return ends"),
    ],
)
def test_parameters_are_found_on_sqlite(sql: str, names: list[str]) -> None:
    assert _names(sql, sqlite.lexis) == names


@either
@pytest.mark.parametrize(
    ("sql", "problem", "line", "column"),
    [
        pytest.param("a = 'b", "' is not closed", 1, 5, id="quote"),
        pytest.param("a = 'b''", "' is not closed", 1, 5, id="doubled quote"),
        pytest.param("a =\n\n  'b\n", "' is not closed", 3, 3, id="quote on a later line"),
        pytest.param("a = 'b' or '", "' is not closed", 1, 12, id="second quote"),
        pytest.param('a = "b', '" is not closed', 1, 5, id="quoted name"),
        pytest.param("a /* b", "/* is not closed", 1, 3, id="comment"),
        pytest.param("a /*/", "/* is not closed", 1, 3, id="comment that is short of a star"),
        pytest.param("a /*", "/* is not closed", 1, 3, id="comment at the end"),
        pytest.param("a = (b", "( is not closed", 1, 5, id="parenthesis"),
        pytest.param("((a) = (b", "( is not closed", 1, 8, id="inner parenthesis"),
        pytest.param("(a -- )", "( is not closed", 1, 1, id="parenthesis that is closed in a comment"),
        pytest.param("(a;)", "( is not closed", 1, 1, id="semicolon in parentheses"),
        pytest.param("1=1) or (1=1", ") closes nothing", 1, 4, id="parenthesis of somebody else"),
        pytest.param("a ']' ]", "] closes nothing", 1, 7, id="bracket"),
        pytest.param("select 1; select 2", "there is a second statement", 1, 11, id="statements"),
        pytest.param("a;\n-- b\n;\n:a", "there is a second statement", 4, 1, id="parameter after the end"),
        pytest.param("; a", "there is a second statement", 1, 3, id="statement after an empty one"),
        pytest.param("a = $1", "$1 is not a parameter: write :name", 1, 5, id="number"),
        pytest.param("a = $b", "$b is not a parameter: write :name", 1, 5, id="dollar"),
        pytest.param("1$1", "$1 is not a parameter: write :name", 1, 2, id="number after a number"),
        pytest.param("a = :claims", ":claims must name a claim, as in :claims.region", 1, 5, id="claims"),
        pytest.param(":claims .a", ":claims must name a claim, as in :claims.region", 1, 1, id="torn claim"),
        (":claims.1", ":claims must name a claim, as in :claims.region", 1, 1),
        pytest.param(":a$b", ":a$b is not a parameter: write :name", 1, 1, id="name with a dollar"),
        (":claims.a\u00a0= 1", ":claims.a\u00a0 is not a parameter: write :name", *(1, 1)),
        pytest.param(
            "a = 1 and\ndue > 2025-01-31",
            "2025-01-31 is a calculation: write a date in single quotes, '2025-01-31'",
            *(2, 7),
            id="date without quotes",
        ),
        ("(2025/01/31)", "2025/01/31 is a calculation: write a date in single quotes, '2025/01/31'", *(1, 2)),
        pytest.param("a\n\0", "no database reads this character", 2, 1, id="null character"),
        pytest.param("'\ud800'", "no database reads this character", 1, 2, id="half a character"),
    ],
)
def test_sql_is_refused_on_either(sql: str, problem: str, line: int, column: int, lexis: Lexis) -> None:
    with pytest.raises(SqlError) as caught:
        scan(sql, lexis)

    assert (caught.value.problem, caught.value.line, caught.value.column) == (problem, line, column)


@pytest.mark.parametrize("lexis", [sqlite.lexis, postgresql.lexis], ids=["sqlite", "postgresql"])
@pytest.mark.parametrize(
    "sql",
    [
        *("a = '2025-01-31'", 'a = "2025-01-31"', "a -- 2025-01-31", "/* 2025-01-31 */ a", "x2025-01-31"),
        *("2025-1-31", "2025 - 01 - 31", "2025-01", "2025-01/31", "12025-01-31", "2025-01-311", "1.2025-01"),
    ],
)
def test_other_texts_are_no_dates(sql: str, lexis: Lexis) -> None:
    assert scan(sql, lexis).text == sql


@pytest.mark.parametrize(
    ("sql", "problem", "offset"),
    [
        pytest.param("a[1", "[ is not closed", 1, id="bracket"),
        pytest.param("a[(1]", "] closes nothing", 4, id="brackets that cross"),
        pytest.param("(a[1)]", ") closes nothing", 4, id="parentheses that cross"),
        pytest.param("a $$ b $", "$$ is not closed", 2, id="dollar quote"),
        pytest.param("$a$ b $A$", "$a$ is not closed", 0, id="dollar quote with a tag"),
        pytest.param("E'a\\' || :b", "E' is not closed", 0, id="escaped quote"),
        pytest.param("E'a'\n'b\\' || :b", "E' is not closed", 0, id="string that goes on"),
        pytest.param("/* /* */", "/* is not closed", 0, id="nested comment"),
    ],
)
def test_sql_is_refused_on_postgresql(sql: str, problem: str, offset: int) -> None:
    with pytest.raises(SqlError) as caught:
        scan(sql, postgresql.lexis)

    assert (caught.value.problem, caught.value.offset) == (problem, offset)


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        pytest.param("a = `b", "` is not closed", id="backtick"),
        pytest.param("a = [b", "[ is not closed", id="bracket"),
        pytest.param("a = [b]]", "] closes nothing", id="bracket cannot be doubled"),
        *(
            pytest.param(f"a = {each}", f"{each} is not a parameter: write :name", id=each)
            for each in ("?", "?1", "@b", "@é", "#b", "$b", "$", "$$")
        ),
        *(
            pytest.param(
                f"a = {before}{each}", f"{each} is not a parameter: write :name", id=f"{before}{each}"
            )
            for before, each in [
                ("", ":1"),
                ("", ":"),
                ("b", ":b"),
                ("1", ":b"),
                ("[b]", ":b"),
                ("`b`", ":b"),
            ]
        ),
    ],
)
def test_sql_is_refused_on_sqlite(sql: str, problem: str) -> None:
    with pytest.raises(SqlError) as caught:
        scan(sql, sqlite.lexis)

    assert caught.value.problem == problem


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        pytest.param(LETTER, f"{ascii_letters}_", id="first"),
        pytest.param(CHARACTER, f"{ascii_letters}{digits}_$", id="further"),
    ],
)
def test_all_beyond_ascii_are_letters(pattern: str, expected: str) -> None:
    characters = [*map(chr, range(0x300)), "\ud800", "\uffff", "\U0010ffff"]

    found = re.findall(pattern, "".join(characters))

    assert found == [each for each in characters if each in expected or not each.isascii()]


def test_fragment_is_text_and_parameters_in_turn() -> None:
    fragment = scan("a = :a and b = ':b' or :claims.c:: text = :a ; -- d", postgresql.lexis)

    assert fragment == Fragment(
        pieces=(
            *("a = ", Parameter("a"), " and b = ':b' or ", Parameter("claims.c")),
            *(":: text = ", Parameter("a"), " "),
        ),
        ending="; -- d",
    )
    assert fragment.parameters == (Parameter("a"), Parameter("claims.c"))


@pytest.mark.parametrize(
    ("name", "claim"), [("since", None), ("claims.region", "region"), ("claims", None), ("claimsx", None)]
)
def test_claim_differs_from_an_argument(name: str, claim: str | None) -> None:
    assert Parameter(name).claim == claim


@either
@pytest.mark.parametrize(
    ("sql", "empty"),
    [("", True), (" -- a\n/* b */;", True), (";;", True), ("a", False), ("/**/:a", False), ("''", False)],
)
def test_sql_of_nothing_but_comments_is_empty(sql: str, empty: bool, lexis: Lexis) -> None:
    assert scan(sql, lexis).empty is empty


@either
def test_place_of_a_parameter_is_its_first(lexis: Lexis) -> None:
    fragment = scan("':b' = :a or :claims.b = :b or :b", lexis)

    assert [fragment.offset_of(each) for each in fragment.parameters] == [7, 13, 25]


@either
def test_parameters_are_written_as_the_driver_wants_them(lexis: Lexis) -> None:
    fragment = scan("a = :a or :claims.b = :a;", lexis)

    assert fragment.to_sql(lambda each: f"?{fragment.parameters.index(each) + 1}") == "a = ?1 or ?2 = ?1"


@either
def test_long_text_is_scanned_in_no_time(lexis: Lexis) -> None:
    for part in ("'", "''", "E'\n", "/*", "*/", "--", "-- \n", "$a", "$$", "[", "(", ":a ", "\\"):
        try:
            scan("E'a'" + part * 4_000, lexis)
        except SqlError:
            continue


def _scanned(sql: str, lexis: Lexis) -> Fragment | SqlError:
    try:
        return scan(sql, lexis)
    except SqlError as exc:
        return exc


@either
@given(sql=TEXTS)
def test_pieces_make_the_text_again(lexis: Lexis, sql: str) -> None:
    match _scanned(sql, lexis):
        case Fragment() as fragment:
            assert fragment.text == sql
            assert "" not in fragment.pieces
        case SqlError() as complaint:
            assert 0 <= complaint.offset < len(sql)
            assert complaint.line <= len(sql.split("\n"))
            assert 0 < complaint.column <= len(sql.split("\n")[complaint.line - 1]) + 1


@either
@given(sql=TEXTS)
def test_fragment_stays_in_parentheses_that_are_closed_on_a_new_line(lexis: Lexis, sql: str) -> None:
    fragment = _scanned(sql, lexis)
    if isinstance(fragment, SqlError):
        return

    around = scan(f"({fragment.to_sql(str)}\n) or :z", lexis)

    assert set(around.parameters) == {*fragment.parameters, Parameter("z")}


@either
def test_comments_can_be_distinguished(lexis: Lexis) -> None:
    tokens = tokenize("a /*? :b ?*/ '/*' -- c", lexis)

    assert [(each.text, each.offset) for each in tokens if each.kind is TokenKind.COMMENT] == [
        ("/*? :b ?*/", 2),
        ("-- c", 18),
    ]
