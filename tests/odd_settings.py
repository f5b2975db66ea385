"""The keys of dbtools.toml, and values that few of them accept."""

import types
from collections.abc import Iterator
from typing import Any, Union, get_args, get_origin

from dbtools.settings import Settings

#: Values that few keys or none accept, as TOML.
ODD = (
    *("0", "-1", "true", "nan", "-inf", "1e400", "9" * 30, "9" * 4_300, "0x" + "f" * 5_000),
    *("[]", "[[]]", "[1]", "['x']", "[{}]", "[" * 200 + "]" * 200, "{}", "{ x = 1 }"),
    *("{ a = { a = { a = { a = 1 } } } }", "1979-05-27T07:32:00Z", "07:32:00", "'${NOBODY}'", "'${'"),
    *("''", "' '", "'/'", "'x'", "'x\\u0000'", '"\\u0000"', '"\\u001b[2J\\n"', "'''\nx\n'''"),
    *('"' + "x" * 5_000 + '"', '"' + "../" * 2_000 + '"', "'://'", "'postgresql://h:x/d'", "'1e9h'"),
)
NAMES = ('""', "nope", "x", '"a.b"', '"\\n\\u001b"', '"\\u0000"', '"*"', "a.b.c")


def _keys(model: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each key of *model*; R is the name of whatever an operator names."""
    for name, field in model.model_fields.items():
        yield (*path, name)
        yield from _below(field.annotation, (*path, name))


def _below(annotation: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if hasattr(annotation, "model_fields"):
        yield from _keys(annotation, path)
    elif get_origin(annotation) is dict:
        yield (*path, "R")
        yield from _below(get_args(annotation)[1], (*path, "R"))
    elif get_origin(annotation) in (Union, types.UnionType, tuple):
        for each in get_args(annotation):
            yield from _below(each, path)


KEYS = sorted(set(_keys(Settings)))
