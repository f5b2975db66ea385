"""Read a TOML file. A text in; its content, and the line of each key, out."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from dbtools import errors
from dbtools.findings import Source
from dbtools.values.cells import one_line

LONGEST_QUOTE = 200  #: characters of the file that a message quotes
UNQUOTED = "Write text in double quotes, and true and false in lower case."
TOML_ERROR = re.compile(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", re.DOTALL)
#: More digits than int() reads (sys.get_int_max_str_digits), outside of quotes.
LONG_NUMBER = re.compile(r"(?<![\w.\"'])[-+]?(?:[0-9]_?){4300,}")
DEEPEST_KEYS = 50  #: levels of keys
#: The tokens that may contain a line end within a statement, and those that end a statement.
TOML_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'{3}.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[{\]}\n]', re.DOTALL
)


KeyPath = Sequence[int | str]


class FileStamp(NamedTuple):
    """Identity, time and size of a file, which differ after a change."""

    number: int
    written: int  #: nanoseconds
    size: int


def stamp_of(path: str) -> FileStamp | None:
    """Return the stamp of the file at *path*, or None if there is none."""
    try:
        found = os.stat(path) if path else None
    except (OSError, ValueError):
        return None
    return found and FileStamp(number=found.st_ino, written=found.st_mtime_ns, size=found.st_size)


@dataclass(frozen=True, kw_only=True)
class TomlFile:
    """A configuration file as it was read."""

    path: str = ""
    file: str = ""  #: its path as given, for messages; empty: there is no file
    text: str = ""
    stamp: FileStamp | None = None

    def content(self) -> dict[str, Any]:
        """Return the parsed text, or raise ConfigurationError."""
        try:
            return tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as exc:
            found = TOML_ERROR.fullmatch(str(exc))
            problem, line = (found[1], found[2]) if found else (str(exc), None)
            source = Source(file=self.file, line=int(line or self.text.count("\n") + 1))
            hint = UNQUOTED if problem == "Invalid value" else ""
            raise file_error(source, f"not TOML: {_cut(problem)}.", hint=hint) from exc
        except (ValueError, RecursionError) as exc:
            much = "brackets" if isinstance(exc, RecursionError) else "digits in a number"
            source = Source(file=self.file, line=_line_beyond_limits(self.text))
            raise file_error(source, f"there are too many {much}.") from exc

    def source(self, key: KeyPath) -> Source:
        """Return the place of *key*, or of the nearest key above it."""
        path = tuple(map(str, key))
        lines = (self._lines.get(path[:end]) for end in range(len(path), 0, -1))
        return Source(file=self.file, line=next(filter(None, lines), 1)) if self.file else Source()

    @cached_property
    def _lines(self) -> Mapping[tuple[str, ...], int]:
        """The line of each key, and of the first key below each table without a header."""
        above: dict[tuple[str, ...], int] = {}
        written: dict[tuple[str, ...], int] = {}
        for line, path in _keys(self.text):
            written.setdefault(path, line)
            for end in range(1, len(path)):
                above.setdefault(path[:end], line)
        return {**above, **written}

    def error(self, key: KeyPath, problem: str, *, hint: str = "") -> errors.ConfigurationError:
        """Return the error that *key* has a *problem*."""
        name = _cut(".".join(map(str, key)))
        return file_error(self.source(key), f"{name}: {problem}", hint=hint)


def file_error(source: Source, problem: str, *, hint: str = "") -> errors.ConfigurationError:
    """Return the error about the text at *source*."""
    return errors.ConfigurationError(one_line(problem), hint=one_line(hint), place=source)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"


def _line_beyond_limits(text: str) -> int:
    """Return the line of the first statement that is TOML, but that this Python does not read."""
    for line, statement in _statements(text):
        try:
            tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        except (ValueError, RecursionError):
            number = LONG_NUMBER.search(statement)
            return line + statement.count("\n", 0, number.start() if number else 0)
    return 1


def _keys(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the line and the path of each table and key; the path of a table in an array has its number."""
    table: tuple[str, ...] = ()
    numbers: dict[tuple[str, ...], int] = {}
    for line, statement in _statements(text):
        try:
            read = tomllib.loads(statement)
        except (ValueError, RecursionError):
            continue
        header = statement.lstrip()[:2]
        for path in _paths(read):
            if header == "[[":
                numbers[path] = numbers.get(path, -1) + 1
            if header.startswith("["):
                table = _numbered_path(path, numbers)
            yield line, table if header.startswith("[") else (*table, *path)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield each header and each key with its value as text, and its first line."""
    line = lines = 1
    begin = depth = 0
    for token in TOML_TOKEN.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        lines += token[0].count("\n")
        if token[0] == "\n" and depth <= 0:
            yield line, text[begin : token.end()]
            line, begin, depth = lines, token.end(), 0
    yield line, text[begin:]


def _numbered_path(path: tuple[str, ...], numbers: Mapping[tuple[str, ...], int]) -> tuple[str, ...]:
    """Return *path* with the number of the table after the name of each array of tables."""
    whole: list[str] = []
    for end, name in enumerate(path, start=1):
        number = numbers.get(path[:end])
        whole += [name] if number is None else [name, str(number)]
    return tuple(whole)


def _paths(content: Mapping[str, object], depth: int = 1) -> Iterator[tuple[str, ...]]:
    """Yield the path of each key that leads to a value or an empty table."""
    for name, value in content.items():
        while isinstance(value, list) and len(value) == 1 and value[0] == {}:
            value = value[0]
        if isinstance(value, dict) and value and depth < DEEPEST_KEYS:
            yield from ((name, *path) for path in _paths(value, depth + 1))
        else:
            yield (name,)
