"""On which line of a TOML file a key is written."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dbtools.errors import ConfigurationError
from dbtools.settings import load
from dbtools.settings.toml_file import TomlFile

WRITTEN = """\
# [roles.support.tables]
title = "customers = 1"  # where = 2

[roles.support]
tables."*" = false
tables.customers = { columns = ["id", "name"], where = "region = :claims.region" }
  tables . "order lines"  =  { exclude = [
  "margin",
  "cost = high",
] }
tables.'a.b' = true
inherits = [
  "reader",
]

[roles.support.limits]
max_rows = 3

[roles."the boss".tables]
text = '''
[roles.nobody]
customers = true
'''
other = \"\"\"
customers = false\"\"\"
customers = true

[[auth.tokens]]
role = "support"
[[auth.tokens]]
role = "boss"

[ policy ]
hash_key = "x"
"""


def line_of(text: str, path: tuple[str, ...]) -> int | None:
    """Return the line on which the key *path* is written."""
    return TomlFile(file="dbtools.toml", text=text).source(path).line


def test_document_of_these_tests_is_toml() -> None:
    assert tomllib.loads(WRITTEN)["roles"]["the boss"]["tables"]["customers"] is True


@pytest.mark.parametrize(
    ("path", "line"),
    [
        pytest.param(("title",), 2, id="plain"),
        pytest.param(("roles", "support"), 4, id="header"),
        pytest.param(("roles", "support", "tables", "*"), 5, id="quoted"),
        pytest.param(("roles", "support", "tables", "customers"), 6, id="dotted"),
        pytest.param(("roles", "support", "tables", "order lines"), 7, id="blanks around dots"),
        pytest.param(("roles", "support", "tables", "a.b"), 11, id="dot within quotes"),
        pytest.param(("roles", "support", "inherits"), 12, id="array of lines"),
        pytest.param(("roles", "support", "limits"), 16, id="header below another"),
        pytest.param(("roles", "support", "limits", "max_rows"), 17, id="key below a header"),
        pytest.param(("roles", "the boss", "tables"), 19, id="quoted part of a header"),
        pytest.param(("roles", "the boss", "tables", "text"), 20, id="multi-line string"),
        pytest.param(("roles", "the boss", "tables", "other"), 24, id="end of a string behind its text"),
        pytest.param(("roles", "the boss", "tables", "customers"), 26, id="key behind multi-line strings"),
        pytest.param(("auth", "tokens"), 28, id="first of an array of tables"),
        pytest.param(("policy",), 33, id="blanks in a header"),
        pytest.param(("policy", "hash_key"), 34, id="key below a header with blanks"),
    ],
)
def test_key_is_found_at_its_line(path: tuple[str, ...], line: int) -> None:
    assert line_of(WRITTEN, path) == line


@pytest.mark.parametrize(
    ("path", "line"),
    [
        pytest.param(("roles", "support", "tables", "customers", "where"), 6, id="inline table"),
        pytest.param(("roles", "support", "tables", "order lines", "exclude"), 7, id="inline over lines"),
        pytest.param(("roles", "support", "tables"), 5, id="first of dotted keys"),
        pytest.param(("roles", "support", "limits", "timeout"), 16, id="header above"),
        pytest.param(("roles", "the boss", "tables", "orders"), 19, id="header of the table"),
        pytest.param(("roles", "nobody"), 4, id="only written within a string"),
        pytest.param(("policy", "salt", "of", "hashes"), 33, id="several missing"),
    ],
)
def test_key_that_is_not_there_is_found_at_the_nearest_above_it(path: tuple[str, ...], line: int) -> None:
    assert line_of(WRITTEN, path) == line


@pytest.mark.parametrize("path", [(), ("where",), ("customers",), ("nobody", "customers")])
def test_key_of_which_nothing_is_written_is_on_the_first_line(path: tuple[str, ...]) -> None:
    assert line_of(WRITTEN, path) == 1


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        pytest.param('# a """ in a comment\na = 1\n', ("a",), 2, id="marks in a comment"),
        pytest.param('a = 1 # """\nb = 2\n', ("b",), 2, id="marks in a comment behind a value"),
        pytest.param("a = \"'''\"\nb = 2\n", ("b",), 2, id="marks within another string"),
        pytest.param("a = '''x\"\"\"\nc = 1\n'''\nb = 2\n", ("b",), 4, id="marks within another long string"),
        pytest.param('a = """x\n\\"""\nb = 1\n"""\nc = 2\n', ("c",), 5, id="marks that are escaped"),
        pytest.param('a = """x\n\\"""\nb = 1\n"""\nc = 2\n', ("b",), 1, id="key behind escaped marks"),
        pytest.param('a = """x""""\nb = 2\n', ("b",), 2, id="four marks"),
        pytest.param('a = [\n"""x\n""", """y\nb = 3\n"""]\nb = 2\n', ("b",), 6, id="string behind a string"),
        pytest.param('a = [\n["x"],\n]\nb = 2\n', ("b",), 4, id="array of arrays"),
        pytest.param('[t]\na = [\n["x"],\n]\nb = 2\n', ("t", "b"), 5, id="array of arrays in a table"),
        pytest.param(
            '# \u2028 \u0085 \u2029\na = "\u2028"\nb = 2\n', ("b",), 3, id="Unicode's ends of lines"
        ),
        pytest.param("a = 1\r\nb = 2\r\n", ("b",), 2, id="lines that end as on Windows"),
        pytest.param('"a\\"b" = 1\n', ('a"b',), 1, id="escaped quote in a key"),
        pytest.param('"caf\\u00e9" = 1\n', ("café",), 1, id="escaped letter in a key"),
        pytest.param("'a\\b' = 1\n", ("a\\b",), 1, id="backslash in a literal key"),
        pytest.param("[a.b.c]\nd = 1\n[a.b]\ne = 2\n", ("a", "b"), 3, id="table below its child"),
        pytest.param("[a]\n[b]\nc.d = 1\nc.e = 2\n", ("b", "c", "e"), 4, id="empty table above"),
        pytest.param("\n\n\na = 1", ("a",), 4, id="no end of the last line"),
        pytest.param('"" = 1\n', ("",), 1, id="empty key"),
        pytest.param("[[a]]\nb = 1\n[[a]]\nb = 2\n", ("a", "1", "b"), 4, id="second of an array of tables"),
        pytest.param("[[a]]\n[a.b]\nc = 1\n", ("a", "0", "b", "c"), 3, id="table in an array of tables"),
    ],
)
def test_corners_of_toml_are_read_as_its_parser_does(text: str, path: tuple[str, ...], line: int) -> None:
    tomllib.loads(text)

    assert line_of(text, path) == line


@dataclass
class Document:
    """TOML text as it is written, with the line of each key."""

    lines: list[str] = field(default_factory=list)
    written: dict[tuple[str, ...], int] = field(default_factory=dict)

    def write(self, text: str, path: tuple[str, ...] = ()) -> None:
        if path:
            self.written[path] = len(self.lines) + 1
        self.lines += text.split("\n")

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


NAMES = st.sampled_from(["a", "b-2", "order lines", "*", "x.y", "ä", "it's", "=", "[t]", "#1", ""])
VALUES = st.sampled_from(
    [
        *("1", "true", "'a = 1'", '"[t]" # b-2 = 3', '[\n  "a",\n  "b-2 = 1", # *\n]'),
        *("'''\na = 1\n[t]\n'''", '"""\na = 1 \\\n  "x.y" = 2"""', "{ c = 1, d.e = 'x = 2' }"),
    ]
)
BETWEEN = st.sampled_from(["", "# a = 1", "  # [t]", "\t"])


def _spelled(name: str) -> str:
    if name and name.isascii() and name.replace("-", "").replace("_", "").isalnum():
        return name
    return f'"{name}"' if "'" in name else f"'{name}'"


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """Draw a document of tables, keys, comments and values over several lines."""
    document = Document()
    keys = st.lists(st.tuples(NAMES, st.none() | NAMES), unique_by=lambda key: key[0], max_size=4)
    tables = draw(st.lists(st.lists(NAMES, min_size=1, max_size=2).map(tuple), unique=True, max_size=4))
    # A name that begins a longer header is no key of the table above it as well.
    taken = {path[:end] for path in tables for end in range(1, len(path) + 1)}
    for table in [(), *sorted(tables, key=len)]:
        if table:
            dots = draw(st.sampled_from([".", " . "]))
            document.write(f"[{dots.join(map(_spelled, table))}]", table)
        for first, second in draw(keys):
            path = (*table, first, *(() if second is None else (second,)))
            if (*table, first) in taken:
                continue
            document.write(draw(BETWEEN))
            spelled = ".".join(map(_spelled, path[len(table) :]))
            document.write(f"{draw(st.sampled_from(['', '  ']))}{spelled} = {draw(VALUES)}", path)
    return document


@given(document=documents())
def test_every_key_of_a_document_is_found_at_its_line(document: Document) -> None:
    tomllib.loads(document.text)
    found = {path: line_of(document.text, path) for path in document.written}

    assert found == document.written


LONG = "9" * 5_000
BEFORE = "# a comment\n[limits]\n"


@pytest.mark.parametrize(
    ("lines", "line", "says"),
    [
        pytest.param(f"max_rows = {LONG}", 3, "digits", id="number"),
        pytest.param(f"max_rows = -{LONG[:4_400]}", 3, "digits", id="negative number"),
        pytest.param(f"max_rows = {'9_' * 4_400}9", 3, "digits", id="number with underscores"),
        pytest.param(
            f"timeout = '''\n{LONG}'''\nmax_rows = [\n  1,\n  {LONG},\n]", 7, "digits", id="in an array"
        ),
        pytest.param(f"max_rows = {{ a = '{LONG}', b = {LONG} }}", 3, "digits", id="in an inline table"),
        pytest.param(f"a = 1\n[roles.x]\nb = {{ c = [ [ {LONG} ] ] }}", 5, "digits", id="nested"),
        pytest.param("a = 1\nb = " + "[" * 5_000 + "]" * 5_000, 4, "brackets", id="brackets"),
        pytest.param("a = 1\nb = " + "{c=" * 5_000 + "1" + "}" * 5_000, 4, "brackets", id="braces"),
        pytest.param("a = 1\nb = 2024-13-45", 4, "not TOML", id="date"),
        pytest.param("a = 1\nb = 25:61:61", 4, "not TOML", id="time"),
        pytest.param("a = 1\na = 2", 4, "Cannot overwrite", id="key twice"),
        pytest.param("a = 1\n[limits]\nb = 1", 4, "Cannot declare", id="table twice"),
        pytest.param("a = 1\nb = 'x\0y'", 4, "not TOML", id="NUL"),
        pytest.param("a = 1\nb = 1e", 4, "not TOML", id="number without exponent"),
        pytest.param("a = 1\nb = [1,\n2,\n3", 6, "not TOML", id="end"),
        pytest.param("a = 1\n\ufeffb = 1", 4, "not TOML", id="byte order mark"),
    ],
)
def test_problem_of_the_text_has_its_line(lines: str, line: int, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as raised:
        TomlFile(file="dbtools.toml", text=BEFORE + lines).content()

    assert str(raised.value).startswith(f"dbtools.toml:{line}: ")


@pytest.mark.parametrize(
    "number", ["1e999999", "-1e-999999", "0x" + "f" * 5_000, f"1.{LONG}", f"0.{LONG}e{LONG[:9]}"]
)
def test_number_of_any_size_that_python_reads_is_read(number: str) -> None:
    assert TomlFile(file="dbtools.toml", text=f"a = {number}").content().keys() == {"a"}


def test_byte_order_mark_of_an_editor_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "dbtools.toml"
    path.write_text('\ufeff[database]\nurl = "shop.db"\n', encoding="utf-8")

    assert load(path).database.url.endswith("/shop.db")
