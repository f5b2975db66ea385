"""Where in the text of a TOML file a key is written, which its parser does not tell."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache


def line_of(text: str, path: Sequence[str]) -> int | None:
    """Return the number of the line on which the key *path*, or else the nearest key above it, is written."""
    best: tuple[tuple[int, bool], int] | None = None
    for line, written in _places(text):
        shared = 0
        while shared < min(len(path), len(written)) and path[shared] == written[shared]:
            shared += 1
        nearness = (shared, shared == len(written))
        if shared and (best is None or nearness > best[0]):
            best = (nearness, line)
    return best[1] if best else None


@lru_cache(maxsize=4)
def _places(text: str) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """Return the keys of *text*, which is read once for all that are looked up in it."""
    return tuple(_keys(text))


def _keys(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield each line that begins a table or a key, with the path of the key.

    Lines are given to the parser until it has read something: as many as belong together.
    """
    table: tuple[str, ...] = ()
    start, part = 1, ""
    for number, line in enumerate(text.split("\n"), start=1):
        part += line + "\n"
        try:
            read = tomllib.loads(part)
        except tomllib.TOMLDecodeError:
            continue
        is_header = part.lstrip().startswith("[")
        for path in _paths(read):
            table = path if is_header else table
            yield start, path if is_header else (*table, *path)
        start, part = number + 1, ""


def _paths(content: Mapping[str, object]) -> Iterator[tuple[str, ...]]:
    """Yield the path of each key that leads to a value, or to an empty table."""
    for name, value in content.items():
        while isinstance(value, list) and len(value) == 1 and value[0] == {}:
            value = value[0]
        if isinstance(value, dict) and value:
            yield from ((name, *path) for path in _paths(value))
        else:
            yield (name,)
