"""Clients' files: one entry comes or goes, and nothing else changes."""

import json

import pytest
from hypothesis import given, strategies as st

from dbtools.cli.documents import edit, read

ENTRY = {"command": "/bin/dbtools", "args": ["serve", "shop.db"]}
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

names = st.sampled_from(["servers", "shop", "old", 'a"b', "//", "é"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(names, values, max_size=3),
    st.dictionaries(names, values, max_size=3),
    st.sampled_from([None, 1, 4, "\t"]),
)
def test_nothing_but_the_entry_changes(
    content: dict[str, object], servers: dict[str, object], indent: int | str | None
) -> None:
    text = json.dumps(content | {"servers": servers}, indent=indent)
    others = {name: value for name, value in servers.items() if name != "shop"}

    added = edit(text, ".json", "servers", "shop", ENTRY)
    removed = edit(added, ".json", "servers", "shop", None)

    assert read(added, ".json") == content | {"servers": others | {"shop": ENTRY}}
    assert read(removed, ".json") == content | {"servers": others}
    assert list(read(removed, ".json")) == list(read(text, ".json"))


@pytest.mark.parametrize("indent", [1, 2, 4, "\t"])
def test_indent_is_that_of_the_file(indent: int | str) -> None:
    before = json.dumps({"theme": "dark", "servers": {"old": {"on": [1, 2]}}}, indent=indent)
    after = json.dumps({"theme": "dark", "servers": {"old": {"on": [1, 2]}, "shop": ENTRY}}, indent=indent)

    assert edit(before, ".json", "servers", "shop", ENTRY) == f"{after}\n"


@pytest.mark.parametrize("text", ["", "\n", "{}", "{ }\n"])
def test_empty_file_gets_the_section(text: str) -> None:
    assert edit(text, ".json", "servers", "shop", ENTRY).strip() == json.dumps(
        {"servers": {"shop": ENTRY}}, indent=2
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("{\n  'a': 1}", "line 2", id="other quotes"),
        pytest.param("{\n\n", "line 3", id="cut off"),
        pytest.param('{\n// mine\n"a": 1}', "line 2: not plain JSON", id="a comment"),
        pytest.param('{"a": [1,]}', "line 1: not plain JSON", id="a comma behind the last item"),
        pytest.param("[]", "object", id="an array"),
    ],
)
def test_what_is_not_json_is_refused_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read(text, ".json")


def test_toml_keeps_its_comments() -> None:
    added = edit(TOML, ".toml", "servers", "shop", ENTRY)

    assert added == TOML_ADDED
    assert edit(added, ".toml", "servers", "shop", None).strip() == TOML.strip()


def test_toml_gets_the_section() -> None:
    assert edit("", ".toml", "servers", "shop", {"url": "x"}) == '[servers.shop]\nurl = "x"\n'


def test_what_is_not_toml_is_refused_with_its_line() -> None:
    with pytest.raises(ValueError, match="line 2"):
        read("a = 1\nb =\n", ".toml")
