"""Clients' files: one entry is added or removed, and nothing else changes."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dbtools.cli.documents import edit, read

ENTRY = {"command": "/bin/dbtools", "args": ["serve", "shop.db"]}
COMMENTED = """\
// Servers of mine.
{
    "theme": "dark", // and no other
    "servers": {
        /* the old one */
        "old": { "url": "http://localhost/mcp", "on": [1, 2,], },
    },
}
"""
ADDED = """\
// Servers of mine.
{
    "theme": "dark", // and no other
    "servers": {
        "shop": {
            "command": "/bin/dbtools",
            "args": [
                "serve",
                "shop.db"
            ]
        },
        /* the old one */
        "old": { "url": "http://localhost/mcp", "on": [1, 2,], },
    },
}
"""
TOML = """\
# Mine.
model = "large"  # the best

[servers.old]
command = "old"
"""
TOML_ADDED = f"""\
{TOML}
[servers.shop]
command = "/bin/dbtools"
args = ["serve", "shop.db"]
"""

blanks = st.sampled_from(["", " ", "\n  ", "\n\t", "\r\n", ' // note, { " \n', '/* a " } */'])
names = st.sampled_from(["servers", "shop", "old", 'a"b', "//", "é"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """Return *value* as JSON with comments, blanks and commas wherever they may be."""
    match value:
        case dict():
            braces = "{}"
            parts = [
                f"{draw(blanks)}{json.dumps(key)}{draw(blanks)}:{draw(written(each))}"
                for key, each in value.items()
            ]
        case list():
            braces = "[]"
            parts = [draw(written(each)) for each in value]
        case _:
            return f"{draw(blanks)}{json.dumps(value)}{draw(blanks)}"
    last = draw(st.sampled_from(["", ","])) if parts else ""
    return f"{draw(blanks)}{braces[0]}{','.join(parts)}{last}{draw(blanks)}{braces[1]}{draw(blanks)}"


@given(st.data())
def test_nothing_but_the_entry_changes(data: st.DataObject) -> None:
    servers = data.draw(st.dictionaries(names, values, max_size=3))
    content = data.draw(st.dictionaries(names, values, max_size=3)) | {"servers": servers}
    text = data.draw(written(content))
    others = {name: value for name, value in servers.items() if name != "shop"}

    added = edit(text, ".json", "servers", "shop", ENTRY)
    removed = edit(added, ".json", "servers", "shop", None)

    assert read(text, ".json") == content
    assert read(added, ".json") == content | {"servers": others | {"shop": ENTRY}}
    assert read(removed, ".json") == content | {"servers": others}
    assert "shop" in servers or removed.count("// note") == text.count("// note")


def test_comments_stay_and_the_indent_is_that_of_the_file() -> None:
    assert edit(COMMENTED, ".json", "servers", "shop", ENTRY) == ADDED
    assert edit(ADDED, ".json", "servers", "shop", None) == COMMENTED


@pytest.mark.parametrize("text", ["", "\n", "{}", "{ }\n"])
def test_empty_file_gets_the_section(text: str) -> None:
    assert edit(text, ".json", "servers", "shop", ENTRY).strip() == json.dumps(
        {"servers": {"shop": ENTRY}}, indent=2
    )


def test_entry_of_the_same_name_is_replaced() -> None:
    changed = edit(ADDED, ".json", "servers", "shop", {"url": "x"})

    assert read(changed, ".json")["servers"]["shop"] == {"url": "x"}
    assert changed.count('"shop"') == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("{\n  'a': 1}", "line 2", id="other quotes"),
        pytest.param("{\n\n", "line 3", id="cut off"),
        pytest.param("[]", "object", id="an array"),
        pytest.param('{"a": "//" // x\n "b": 1}', "line 2", id="no comma"),
    ],
)
def test_what_is_no_json_is_refused_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read(text, ".json")


def test_toml_keeps_its_comments_and_gets_the_section() -> None:
    added = edit(TOML, ".toml", "servers", "shop", ENTRY)

    assert added == TOML_ADDED
    assert edit(added, ".toml", "servers", "shop", None).strip() == TOML.strip()
    assert edit("", ".toml", "servers", "shop", {"url": "x"}) == '[servers.shop]\nurl = "x"\n'
    with pytest.raises(ValueError, match="line 2"):
        read("a = 1\nb =\n", ".toml")


def test_object_of_the_same_name_elsewhere_stays() -> None:
    content = {"projects": {"a": {"servers": {"shop": {}}}}, "x": '"servers": {', "servers": {"old": {}}}
    added = edit(json.dumps(content, indent=2), ".json", "servers", "shop", ENTRY)

    assert read(added, ".json") == content | {"servers": {"shop": ENTRY, "old": {}}}
    assert read(edit(added, ".json", "servers", "shop", None), ".json") == content
