"""Comments and constraints in SQLite's CREATE statements."""

import pytest
from hypothesis import given, strategies as st

from dbtools.backends.sqlite.schema.syntax import Definition, fold, module_of, read_definition


@pytest.mark.parametrize(
    "ddl",
    [
        pytest.param("create table t -- All of it\n(a int)", id="before the parenthesis"),
        pytest.param("create table t ( -- All of it\n  a int\n)", id="after the parenthesis"),
        pytest.param("create table t /* All\n * of it */ (a int)", id="block"),
        pytest.param("create table t -- All\n( -- of it\na int)", id="two places"),
        pytest.param(
            "create table t ( -- All of it\n                -- and more\n  a int\n)", id="continued"
        ),
        pytest.param("create table t -- All of it\n(\n  -- not this\n\n  a int\n)", id="over an empty line"),
        pytest.param('create table "t (" -- All of it\n(a int)', id="name with a parenthesis"),
        pytest.param("create virtual table t -- All of it\nusing fts5(a)", id="virtual table"),
    ],
)
def test_comment_is_the_tables(ddl: str) -> None:
    assert read_definition(ddl) == Definition(comment="All of it")


@pytest.mark.parametrize(
    "ddl",
    [
        pytest.param("create view v as -- All of it\nselect a, -- not this\n b from t", id="after as"),
        pytest.param("create view v -- All of it\nas select count(a -- not this\n) from t", id="before as"),
        "create view v as\n-- All\n/* of it */\nselect\n -- not this\n a from t",
    ],
)
def test_comment_is_the_views(ddl: str) -> None:
    assert read_definition(ddl) == Definition(comment="All of it")


@pytest.mark.parametrize(
    ("body", "comments"),
    [
        pytest.param("\n  a int, -- the a\n  b int -- the b\n", {"a": "the a", "b": "the b"}, id="trailing"),
        ("\n  -- the a\n  a int,\n  -- the b\n  b int\n", {"a": "the a", "b": "the b"}),
        ("\n    a int -- the a\n  , b int -- the b\n", {"a": "the a", "b": "the b"}),
        pytest.param("\n    a int\n  -- the b\n  , b int\n", {"b": "the b"}, id="above a leading comma"),
        pytest.param("a int /* the a */, /* the b */ b int", {"a": "the a", "b": "the b"}, id="in one line"),
        ("/* the a */ a int, b int /* the b */", {"a": "the a", "b": "the b"}),
        ("\n  -- the\n  -- a\n  a int, -- as it\n         -- was\n  b int\n", {"a": "the a as it"}),
        pytest.param(
            "\n  a text -- the a\n    check (a in ('x', -- or\n 'y')), -- well\n  b int\n",
            {"a": "the a or well"},
            id="within",
        ),
        ("\n  a text\n    -- the a\n    not null,\n  b int\n", {"a": "the a"}),
        pytest.param("\n  a int, b int, -- whose?\n  c int -- the c\n", {"c": "the c"}, id="two in a line"),
        ("a int, -- the a\n  b int,\n\n  -- What follows\n\n  c int", {"a": "the a"}),
        pytest.param("\n  a int,\n  -- both\n  primary key (a)\n", {}, id="of a constraint"),
        pytest.param("\n  a int\n  -- no more\n", {}, id="at the end"),
        ('\n  a int,\n  -- primary\n  "primary" int\n', {"primary": "primary"}),
        ('\n  "A ""b" int, -- 1\n  [c d], -- 2\n  `É``f` int -- 3\n', {'a "b': "1", "c d": "2", "É`f": "3"}),
        ("\n  a text default '-- no, (' , -- the a\n  b text default \"/*\"\n", {"a": "the a"}),
        pytest.param("\n  a int default -1, -- -1: unknown\n  b int\n", {"a": "-1: unknown"}, id="minus"),
        pytest.param("\n  --------\n  -- the a\n  --------\n  a int\n", {"a": "the a"}, id="framed"),
        pytest.param("\n  /**\n   * The\n   * a\n   */\n  a int\n", {"a": "The a"}, id="block with stars"),
    ],
)
def test_comment_is_a_columns(body: str, comments: dict[str, str]) -> None:
    definition = read_definition(f"create table t ({body})")

    assert (definition.comment, definition.comments) == ("", comments)


def test_comment_within_a_view_belongs_to_no_column() -> None:
    ddl = "create view v as with x as (select 1) -- not this\nselect * from x /* nor this */ where true"

    assert read_definition(ddl) == Definition()


def test_columns_that_a_view_lists_have_comments() -> None:
    ddl = "create view v (a, -- the a\n  b -- the b\n) as -- All of it\nselect 1, 2"

    assert read_definition(ddl) == Definition(comment="All of it", comments={"a": "the a", "b": "the b"})


@pytest.mark.parametrize(
    ("body", "checks"),
    [
        pytest.param("a int check (a > 0)", ("(a > 0)",), id="of a column"),
        pytest.param("a int CHECK(a > (0)) not null", ("(a > (0))",), id="nested"),
        ("a int not null default (1) constraint x check (a > 0) check (a < 9)", ("(a > 0)", "(a < 9)")),
        ('a int, check (a > 0), constraint "x" check (a < 9)', ("(a > 0)", "(a < 9)")),
        pytest.param("a int check -- positive\n (a > 0)", ("(a > 0)",), id="after a comment"),
        pytest.param("a text default 'check (a > 0)'", (), id="in a string"),
        pytest.param('a text default (1), "check" (2)', (), id="quoted"),
        pytest.param("recheck (1)", (), id="end of a word"),
    ],
)
def test_check_constraints_are_found(body: str, checks: tuple[str, ...]) -> None:
    assert read_definition(f"create table t ({body})").checks == checks


@pytest.mark.parametrize(
    ("column", "collations"),
    [
        pytest.param("A text collate NoCase", {"a": "nocase"}, id="nocase"),
        pytest.param('a text collate "RTrim"', {"a": "rtrim"}, id="quoted"),
        pytest.param("a text collate binary", {"a": "binary"}, id="binary"),
        pytest.param("a text collate/* as */ nocase unique", {"a": "nocase"}, id="after a comment"),
        pytest.param("a text collate nocase collate rtrim", {"a": "rtrim"}, id="the last counts"),
        pytest.param("a text default 'collate nocase'", {}, id="in a string"),
        pytest.param("a text check (a collate nocase <> 'b')", {}, id="in a check"),
        pytest.param("a text, unique (a collate nocase)", {}, id="of an index"),
    ],
)
def test_collations_are_found(column: str, collations: dict[str, str]) -> None:
    definition = read_definition(f"create table t ({column}, check (a <> ''))")

    assert definition.collations == collations


@pytest.mark.parametrize(
    ("ddl", "module"),
    [
        ("create virtual table t using FTS5(a)", "fts5"),
        ("create virtual table 'my using x' /* using y */ using\nrtree (a)", "rtree"),
        ("create virtual table t using", ""),
        ("create table t (a)", ""),
    ],
)
def test_module_of_a_virtual_table_is_found(ddl: str, module: str) -> None:
    assert module_of(ddl).name == module


def test_names_are_folded_as_in_ascii() -> None:
    assert fold("AÉZ") == "aÉz"


@pytest.mark.parametrize(
    "ddl",
    [
        *("", "--", "create table t (a int -- the a", "create table t -- x", "create table t (, -- x\n)"),
        *("create table t (a 'unterminated -- x", "create table t (a /* unterminated"),
        *("create table t (((((a -- x\n))))))))", "create view v -- x", "create view v as -- x", "check"),
    ],
)
def test_odd_text_is_read_without_an_error(ddl: str) -> None:
    assert isinstance(read_definition(ddl), Definition)


FRAGMENTS = st.sampled_from(
    [
        *("create table t (", "create view v as ", "(", ")", ",", "--", "\n", "/*", "*/", "'", '"', "[", "`"),
        *("a int", "check (", "collate", "select", " ", "é", "\ud800", "-", "/"),
    ]
)


@given(st.lists(FRAGMENTS, max_size=30))
def test_any_fragments_are_read_without_an_error(fragments: list[str]) -> None:
    assert isinstance(read_definition("".join(fragments)), Definition)
