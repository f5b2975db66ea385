"""A TOML file: what it says, and where each key is written, which its parser does not tell."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dbtools import errors
from dbtools.cells import one_line
from dbtools.policy import Source

LONGEST = 200  #: characters that are quoted of the file
TOML_ERROR = re.compile(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", re.DOTALL)
DEEPEST = 50  #: levels of keys
#: What a statement may hold that a line ends in, and what ends it.
TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'{3}.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[{\]}\n]', re.DOTALL
)


Key = Sequence[int | str]


@dataclass(frozen=True, kw_only=True)
class TomlFile:
    """A file as it was read."""

    path: str = ""
    file: str = ""  #: as it opens from the current folder, and as complaints call it; none: there is no file
    text: str = ""

    def content(self) -> dict[str, Any]:
        """Return what the text says, or raise ConfigurationError."""
        try:
            return tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as exc:
            found = TOML_ERROR.fullmatch(str(exc))
            problem, line = (found[1], found[2]) if found else (str(exc), None)
            source = Source(file=self.file, line=int(line or self.text.count("\n") + 1))
            raise file_error(source, f"not TOML: {_cut(problem)}.") from exc
        except (ValueError, RecursionError) as exc:
            source = Source(file=self.file, line=line_of_unreadable(self.text))
            is_deep = isinstance(exc, RecursionError)
            problem = "too many brackets are open." if is_deep else "a number has too many digits."
            raise file_error(source, problem) from exc

    def source(self, key: Key) -> Source:
        """Return where *key* is written."""
        line = line_of(self.text, [str(part) for part in key]) or 1
        return Source(file=self.file, line=line) if self.file else Source()

    def error(self, key: Key, problem: str, *, hint: str = "") -> errors.ConfigurationError:
        """Return the error that *key* has a *problem*."""
        name = _cut(".".join(map(str, key)))
        return file_error(self.source(key), f"{name}: {problem}", hint=hint)


def file_error(source: Source, problem: str, *, hint: str = "") -> errors.ConfigurationError:
    """Return the error that what is written at *source* cannot be used."""
    return errors.ConfigurationError(one_line(problem), hint=one_line(hint), place=source)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def line_of(text: str, path: Sequence[str]) -> int | None:
    """Return the number of the line on which the key *path*, or else the nearest key above it, is written."""
    lines = _lines(text)
    keys = (tuple(path[:end]) for end in range(len(path), 0, -1))
    return next((lines[key] for key in keys if key in lines), None)


def line_of_unreadable(text: str) -> int:
    """Return the line on which the statement of *text* begins that is too long or too deep for the parser."""
    for line, statement in _statements(text):
        try:
            tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        except (ValueError, RecursionError):
            return line
    return 1


@lru_cache(maxsize=4)
def _lines(text: str) -> Mapping[tuple[str, ...], int]:
    """Return where each key of *text* is written, or else the first one below it."""
    above: dict[tuple[str, ...], int] = {}
    written: dict[tuple[str, ...], int] = {}
    for line, path in _keys(text):
        written.setdefault(path, line)
        for end in range(1, len(path)):
            above.setdefault(path[:end], line)
    return {**above, **written}


def _keys(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield each line that begins a table or a key, with the path of the key.

    The tables of an array have their number in it.
    """
    table: tuple[str, ...] = ()
    numbers: dict[tuple[str, ...], int] = {}
    for start, statement in _statements(text):
        try:
            read = tomllib.loads(statement)
        except (ValueError, RecursionError):
            continue
        is_header = statement.lstrip().startswith("[")
        for path in _paths(read):
            if statement.lstrip().startswith("[["):
                inside = [each for each in numbers if len(each) > len(path) and each[: len(path)] == path]
                numbers = {**numbers, path: numbers.get(path, -1) + 1, **dict.fromkeys(inside, -1)}
            table = _numbered(path, numbers) if is_header else table
            yield start, table if is_header else (*table, *path)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield each header and each key with its value, as it is written, and the line on which it begins."""
    line = lines = 1
    begin = depth = 0
    for token in TOKEN.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        lines += token[0].count("\n")
        if token[0] == "\n" and depth <= 0:
            yield line, text[begin : token.end()]
            line, begin, depth = lines, token.end(), 0
    yield line, text[begin:]


def _numbered(path: tuple[str, ...], numbers: Mapping[tuple[str, ...], int]) -> tuple[str, ...]:
    """Return *path* with the number of the table behind the name of each array of tables."""
    whole: list[str] = []
    for end, name in enumerate(path, start=1):
        number = numbers.get(path[:end])
        whole += [name] if number is None else [name, str(number)]
    return tuple(whole)


def _paths(content: Mapping[str, object], depth: int = 1) -> Iterator[tuple[str, ...]]:
    """Yield the path of each key that leads to a value, or to an empty table."""
    for name, value in content.items():
        while isinstance(value, list) and len(value) == 1 and value[0] == {}:
            value = value[0]
        if isinstance(value, dict) and value and depth < DEEPEST:
            yield from ((name, *path) for path in _paths(value, depth + 1))
        else:
            yield (name,)
