"""`contains` on JSON finds the same rows on both databases, however the JSON is spaced."""

import json
from collections.abc import Mapping, Sequence

import pytest

from dbtools import errors
from tests.database.role_callers import Caller, calling_as
from tests.database.shop import Serve

DOCUMENTS: Sequence[object] = (
    {"a": 1, "b": {"c": "x y"}},
    {"a": 12, "tags": ["red", "Größe", 3]},
    [],
    "a:1",
    None,
)
#: How the same JSON may be written.
SPACINGS: Mapping[str, Mapping[str, object]] = {
    "compact": {"separators": (",", ":")},
    "usual": {},
    "pretty": {"indent": 2},
    "tabs": {"indent": "\t"},
}
#: A value, and the places of the documents that it finds.
SEARCHES: Mapping[str, Sequence[int]] = {
    '"a":1': [0, 1],
    '"a": 1,': [0],
    '"a" :\n1 ,"b"': [0],
    '{"a":1': [0, 1],
    '{"c":"x y"}': [0],
    '{ "c": "xy" }': [0],
    '["red", "GRÖSSE"]': [],
    '["red","größe"': [1],
    "[]": [2],
    "[ ]": [2],
    "a:1": [3],
    "_": [],
    "%": [],
}


def found(caller: Caller, value: object) -> list[object]:
    """Return the keys of the rows that *value* finds."""
    where = [{"column": "doc", "op": "contains", "value": value}]
    return [id for (id,) in caller.rows("list_kept", columns=["id"], where=where)]


@pytest.mark.parametrize("spacing", SPACINGS)
@pytest.mark.parametrize("type", ["json", "jsonb"])
def test_spaces_make_no_difference(spacing: str, type: str, serve: Serve, dialect: str) -> None:
    ddl = f"create table kept (id integer primary key, doc {type});"
    for at, each in enumerate(DOCUMENTS):
        text = json.dumps(each, ensure_ascii=False, **SPACINGS[spacing])  # type: ignore[arg-type]
        ddl += f"insert into kept values ({at}, '{text}');"
    with serve(dialect, ddl) as shop, calling_as(shop, {"kept": True}) as caller:
        answers = {value: found(caller, value) for value in SEARCHES}

    # jsonb has the keys in another order than the texts, but these have the same one.
    assert answers == SEARCHES


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ({"a": 1}, [{"value": '"a":1'}]),
        ({"b": {"c": "x y"}, "a": 1}, [{"value": '"b":{"c":"x y"}'}, {"value": '"a":1'}]),
        (["red", 3], [{"value": "red"}, {"value": 3}]),
    ],
)
def test_object_or_array_as_value_is_refused_as_a_condition_for_each_part_finds_more(
    value: object, meant: Sequence[Mapping[str, object]], serve: Serve, dialect: str
) -> None:
    ddl = "create table kept (id integer primary key, doc json);"
    ddl += "".join(
        f"insert into kept values ({at}, '{json.dumps(each)}');" for at, each in enumerate(DOCUMENTS)
    )
    conditions = [{"column": "doc", "op": "contains", **each} for each in meant]
    with serve(dialect, ddl) as shop, calling_as(shop, {"kept": True}) as caller:
        with pytest.raises(errors.BadArgument) as raised:
            found(caller, value)
        rows = caller.rows("list_kept", columns=["id"], where=conditions)

    assert raised.value.hint.startswith("It is one text: write a condition for each item, or for each member")
    assert rows != []
