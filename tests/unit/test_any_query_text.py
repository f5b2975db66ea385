"""Any text is read as queries or reported, quickly."""

from itertools import chain, combinations

from hypothesis import given, strategies as st

from dbtools.backends.postgresql.schema import types as postgresql
from dbtools.backends.sqlite.schema import syntax as sqlite
from dbtools.queries import Returns, read_queries
from dbtools.schema.sql import Lexis, Parameter, scan
from tests.unit.query_files import either, read


def test_every_key_is_read() -> None:
    (query,) = read(
        "-- name: one_2\n-- title: Of one:  thing\n"
        "-- description:\n--   The first line,\n--\t\t the second: it.\n"
        "-- returns: one\n-- max_rows: 50\n-- timeout: 500ms\nselect 1"
    )

    assert (query.name, query.title, query.description) == (
        *("one_2", "Of one:  thing"),
        "The first line, the second: it.",
    )
    assert (query.returns, query.max_rows, query.timeout) == (Returns.ONE, 50, 0.5)


#: Where a reader of SQL may lose its way, and parts of headers.
SCRAPS = (
    *("'", '"', "`", "[", "]", "(", ")", ";", "\\", "$$", "$t$", "$1", "--", "/*", "*/", "/*?", "?*/", "?"),
    *(
        *(":a", ":b", ":claims.x", "::", ":", "E'", "\n", "\n", "\r", " ", "  ", "\t", "1", "x", "select 1"),
        "\0",
    ),
    *("\n-- name: a\n", "\n-- name: b\n", "\n-- param a: text?\n", "-- param b: integer[] min 1 = [1]\n"),
    *("-- ", "name", "param", "title:", "-- description: x\n", "--   title:y\n", " in (", "pattern '"),
    *("= ", "min 1", "\ud800"),
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
            assert not scan(query.body.variant(present).text, lexis).empty


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

    (query,) = read(text, lexis)

    everything = query.body.variant(["a", "b"])
    whole = "select :a, :b, " + sql.replace("/*?", "").replace("?*/", "")
    assert "".join(f"{whole}{end}".split()).startswith("".join(everything.text.split()))
    assert set(everything.parameters) <= {Parameter("a"), Parameter("b")}
    for present in chain.from_iterable(combinations("ab", count) for count in range(3)):
        variant = query.body.variant(present)
        assert scan(variant.text, lexis) == variant


def test_long_text_is_read_in_linear_time() -> None:
    for part in (
        *("-- name: a\n", "$1 ", "/*", "/*? :a ?*/", "-- x\n", "'\n-- name: a\n", "(", "-- name: a\n/*\n"),
        "/*'",
    ):
        for lexis in (sqlite.lexis, postgresql.lexis):
            _, findings = read_queries("-- name: q\nselect 1 " + part * 500, "shop.sql", lexis)
            assert findings or part == "-- x\n"
