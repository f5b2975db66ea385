"""Where in the text of a TOML file a key is written, which its parser does not tell."""

import re
from collections.abc import Iterator, Sequence

KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
DOTTED = rf"{KEY}(?:\s*\.\s*{KEY})*"
HEADER = re.compile(rf"\s*\[\[?\s*({DOTTED})\s*\]")
ASSIGNMENT = re.compile(rf"\s*({DOTTED})\s*=")
LONG_STRINGS = ('"""', "'''")


def line_of(text: str, path: Sequence[str]) -> int | None:
    """Return the number of the line on which the key *path*, or else the nearest key above it, is written."""
    best: tuple[int, int] | None = None
    for line, written in _keys(text):
        shared = 0
        while shared < min(len(path), len(written)) and path[shared] == written[shared]:
            shared += 1
        if shared and (best is None or shared > best[0]):
            best = (shared, line)
    return best[1] if best else None


def _keys(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield each line that writes a key, with the whole path of the key."""
    table: tuple[str, ...] = ()
    within = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if within:
            within = "" if within in line else within
            continue
        if header := HEADER.match(line):
            table = tuple(_parts(header[1]))
            yield number, table
        elif assignment := ASSIGNMENT.match(line):
            yield number, (*table, *_parts(assignment[1]))
        within = next((mark for mark in LONG_STRINGS if line.count(mark) % 2), "")


def _parts(dotted: str) -> Iterator[str]:
    for part in re.findall(KEY, dotted):
        yield part[1:-1] if part[0] in "\"'" else part
