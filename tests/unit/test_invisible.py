"""No invisible character of a database reaches a model as it is, wherever its text goes."""

import json
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from dbtools.answers.styles import Text
from dbtools.schema.catalog import Catalog, ForeignKey
from dbtools.tools import define
from dbtools.tools.definition import ToolContext, Toolset
from dbtools.tools.resources import define_resources
from dbtools.values.cells import INVISIBLE, csv_line, escape, json_of, one_line
from dbtools.values.types import Family, quote
from tests.provider_rules import nodes_of
from tests.unit.permitted_queries import permitted_query
from tests.unit.shop import ID, answer, column, table

#: Default_Ignorable_Code_Point, as in DerivedCoreProperties.txt of Unicode 14.0.
DEFAULT_IGNORABLE = (
    (0xAD, 0xAD),
    (0x34F, 0x34F),
    (0x61C, 0x61C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)
IGNORABLE = {chr(code) for first, last in DEFAULT_IGNORABLE for code in range(first, last + 1)}
EVERYTHING = "".join(map(chr, (*range(0xD800), *range(0xE000, sys.maxunicode + 1))))
SHOWN = {"\t", "\n", "\r"}
#: Everything that no reader sees, but NUL, which no database holds.
UNSEEN = "".join(INVISIBLE.findall(EVERYTHING)).replace("\0", "")
ESCAPE = re.compile(r"(?:\\u[0-9a-f]{4}){1,2}")


def test_characters_are_those_of_the_categories_and_of_the_property() -> None:
    hidden = {each for each in EVERYTHING if unicodedata.category(each) in ("Cc", "Cf", "Zl", "Zp")}
    matched = set(INVISIBLE.findall(EVERYTHING))
    # This Python may have the data of an older version.
    unassigned = {each for each in matched - IGNORABLE if unicodedata.category(each) == "Cn"}

    assert hidden - SHOWN | IGNORABLE == matched - unassigned
    assert unassigned <= set(map(chr, range(0x13439, 0x13440)))


def test_every_character_is_escaped_or_kept() -> None:
    for each in INVISIBLE.findall(EVERYTHING):
        shown = escape(f"a{each}b")
        assert ESCAPE.fullmatch(shown[1:-1])
        assert json.loads(f'"{shown}"') == f"a{each}b"
    kept = INVISIBLE.sub("", EVERYTHING)
    assert escape(kept) == kept


@pytest.mark.parametrize("show", [escape, one_line, json_of, quote, lambda text: csv_line([text])])
def test_no_form_of_a_text_has_an_unseen_character(show: Any) -> None:
    for each in UNSEEN:
        shown = show(f"a{each}b")
        assert not INVISIBLE.search(shown) or show is quote, hex(ord(each))
        # What quotes a text is shown through `escape`.
        assert not INVISIBLE.search(escape(shown))


def test_emoji_keep_their_parts_as_escapes() -> None:
    assert escape("👩\u200d🔬❤\ufe0f") == "👩\\u200d🔬❤\\ufe0f"


SOME = "".join(UNSEEN[:: len(UNSEEN) // 40]) + "\U0001d173\U0001bca0\U00013430\u3164"
PARENT = table(
    ID,
    column(f"name{SOME}", comment=f"of{SOME}", choices=(f"l{SOME}", "m"), default=f"'d{SOME}'"),
    column(f"long{SOME}", comment=UNSEEN),
    name=f"parent{SOME}",
    comment=f"a table{UNSEEN}",
    row_estimate=3,
    definition=f"select 'x{SOME}'",
)
CHILD = table(
    column(f"key{SOME}"),
    column("parent_id", Family.INTEGER),
    name=f"child{SOME}",
    key=(f"key{SOME}",),
    foreign_keys=(
        ForeignKey(columns=("parent_id",), target_schema="", target=PARENT.name, target_columns=("id",)),
    ),
)
QUERY = permitted_query(f"n: integer  how{SOME}many", header=f"-- title: t{SOME}\n", name="q")


def _toolset(text: Text = Text.JSON) -> tuple[ToolContext, Toolset]:
    catalog = Catalog(tables=(PARENT, CHILD))
    context = ToolContext(catalog=catalog, queries=(QUERY,), text=text, server="SQL")
    return context, define(context)


def _described(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a model reads of a definition: not the values that it must give as they are."""
    yield from (content["name"], content["title"], content["description"])
    for node in nodes_of(content["inputSchema"]):
        yield from (node.get("description", ""), *node.get("properties", {}))


def test_definitions_and_resources_show_nothing_unseen() -> None:
    context, toolset = _toolset()
    texts = [text for tool in toolset.values() for text in _described(json.loads(tool.definition.json))]
    resources = [json.loads(json_of(each.content())) for each in define_resources(context)]
    texts += [each[part] for each in resources for part in ("title", "description", "uri") if part in each]

    assert [text for text in texts if INVISIBLE.search(text)] == []


CALLS: Mapping[str, tuple[str, Mapping[str, object], list[list[object]]]] = {
    "tables": ("list_tables", {}, []),
    "summary": ("describe_tables", {}, []),
    "names": ("describe_tables", {"detail": "names"}, []),
    "full": ("describe_tables", {"detail": "full"}, []),
    "queries": ("find_queries", {}, []),
    "rows": ("list_rows", {"table": PARENT.name}, [[1, f"x{SOME}", SOME]]),
    "row": ("get_row", {"table": PARENT.name, "key": {"id": 1}}, [[1, f"x{SOME}", SOME]]),
    "no rows": ("list_rows", {"table": PARENT.name}, []),
}


@pytest.mark.parametrize("text", Text)
@pytest.mark.parametrize("call", CALLS)
def test_text_of_answers_shows_nothing_unseen(call: str, text: Text) -> None:
    _, toolset = _toolset(text=text)
    name, arguments, rows = CALLS[call]

    assert not INVISIBLE.search(answer(toolset, name, arguments, *rows).text)


def test_structured_content_keeps_the_data() -> None:
    _, toolset = _toolset()
    cells = [1, f"x{SOME}", "y"]

    assert answer(toolset, "list_rows", {"table": PARENT.name}, cells).structured["rows"] == [cells]
