"""Clients' files: one entry is set or removed, and all the rest stays as it is. Text in, text out."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

#: Strings, comments, punctuation, and whatever else stands between blanks.
TOKEN = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/|[{}\[\],:]|[^\s{}\[\],:"/]+|\S',
    re.DOTALL,
)
INDENT = "  "


class Toml:
    """A TOML file, whose comments are kept."""

    def __init__(self, text: str) -> None:
        """Raise ValueError where *text* is no TOML."""
        import tomlkit
        from tomlkit.exceptions import TOMLKitError

        try:
            self._document = tomlkit.parse(text)
        except TOMLKitError as exc:
            raise ValueError(f"not TOML: {exc}") from exc
        self._section = tomlkit.table(is_super_table=True)
        self.content: Mapping[str, Any] = self._document.unwrap()

    def having(self, section: str, name: str, value: Mapping[str, object]) -> str:
        """Return the text with *value* as [section.name]."""
        self._document.setdefault(section, self._section)[name] = dict(value)
        return self._document.as_string()

    def without(self, section: str, name: str) -> str:
        """Return the text without [section.name], which it has."""
        del self._document[section][name]
        return self._document.as_string()


class Json:
    """A JSON file that may have comments, and commas behind last members, which are kept."""

    def __init__(self, text: str) -> None:
        """Raise ValueError where *text* is no JSON, or no object; no text stands for an empty object."""
        self._text = text if text.strip() else "{}\n"
        try:
            content = json.loads(_strict(self._text))
        except json.JSONDecodeError as exc:
            raise ValueError(f"line {exc.lineno}: not JSON: {exc.msg}") from exc
        if not isinstance(content, dict):
            raise ValueError("not a JSON object")
        self.content: Mapping[str, Any] = content

    def having(self, section: str, name: str, value: Mapping[str, object]) -> str:
        """Return the text with *value* as the member *name* of the object *section*."""
        text = self._text
        found = _object(text, 0)
        above = found.member(section)
        if above is None:
            return _added(text, found, section, {name: value})
        servers = _object(text, above.value)
        old = servers.member(name)
        if old is None:
            return _added(text, servers, name, value)
        written = _written(value, _line_indent(text, old.start), _unit(text))
        return text[: old.value] + written + text[old.end :]

    def without(self, section: str, name: str) -> str:
        """Return the text without the member *name* of the object *section*, which it has."""
        above = _object(self._text, 0).member(section)
        assert above is not None
        servers = _object(self._text, above.value)
        old = servers.member(name)
        assert old is not None
        return _removed(self._text, servers, old)


@dataclass(frozen=True, kw_only=True)
class _Member:
    """A member of an object, by offsets in the text."""

    name: str
    start: int
    value: int  #: where the value begins
    end: int  #: where it ends
    comma: int | None  #: where the comma behind it is


@dataclass(frozen=True, kw_only=True)
class _Object:
    """An object, by offsets in the text."""

    start: int  #: after the opening brace
    end: int  #: before the closing one
    members: tuple[_Member, ...]

    def member(self, name: str) -> _Member | None:
        """Return the member *name*: the last one counts, as for a parser."""
        return next((each for each in reversed(self.members) if each.name == name), None)


def _strict(text: str) -> str:
    """Return *text* with blanks in place of comments and of commas behind last members."""
    tokens = [token for token in TOKEN.finditer(text) if not _is_comment(token[0])]
    commas = {left.start() for left, right in pairwise(tokens) if left[0] == "," and right[0] in ("}", "]")}
    kept = [char if char in "\n\r\t" else " " for char in text]
    for token in tokens:
        if token.start() not in commas:
            kept[token.start() : token.end()] = token[0]
    return "".join(kept)


def _added(text: str, found: _Object, name: str, value: object) -> str:
    unit = _unit(text)
    outer = _line_indent(text, found.start)
    inner = _line_indent(text, found.members[0].start) if _has_lines(text, found) else outer + unit
    member = f"\n{inner}{json.dumps(name, ensure_ascii=False)}: {_written(value, inner, unit)}"
    head, tail = text[: found.end].rstrip(), text[found.end :]
    closing = text[len(head) : found.end]
    if found.members and found.members[-1].comma is None:
        last = found.members[-1].end
        head = f"{head[:last]},{head[last:]}"
    return head + member + (closing if "\n" in closing else f"\n{outer}") + tail


def _removed(text: str, found: _Object, member: _Member) -> str:
    others = [each for each in found.members if each is not member]
    # The last one may have no comma: then the one in front of it goes.
    comma = member.comma if member.comma is not None or not others else others[-1].comma
    cuts = [(member.start, member.end)]
    if comma is not None:
        is_next = comma >= member.end and not text[member.end : comma].strip()
        cuts = [(member.start, comma + 1)] if is_next else [*cuts, (comma, comma + 1)]
    cuts[0] = _lines_of(text, *cuts[0])
    for start, end in sorted(cuts, reverse=True):
        text = text[:start] + text[end:]
    inside = text[found.start :].lstrip()
    return text[: found.start] + inside if inside.startswith("}") else text


def _lines_of(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the lines from *start* to *end* where nothing else is on them, else these as they are."""
    first, last = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    is_alone = first > 0 and last >= 0 and not text[first:start].strip() and not text[end:last].strip()
    return (first, last + 1) if is_alone else (start, end)


def _object(text: str, start: int) -> _Object:
    """Return the object that begins at or after *start*, behind blanks and comments."""
    tokens = [token for token in TOKEN.finditer(text, start) if not _is_comment(token[0])]
    members: list[_Member] = []
    at = 1
    while tokens[at][0] != "}":
        after = _end_of_value(tokens, at + 2)
        has_comma = tokens[after][0] == ","
        members.append(
            _Member(
                name=json.loads(tokens[at][0]),
                start=tokens[at].start(),
                value=tokens[at + 2].start(),
                end=tokens[after - 1].end(),
                comma=tokens[after].start() if has_comma else None,
            )
        )
        at = after + has_comma
    return _Object(start=tokens[0].end(), end=tokens[at].start(), members=tuple(members))


def _end_of_value(tokens: Sequence[re.Match[str]], at: int) -> int:
    """Return the number of the token behind the value that begins with the token *at*."""
    depth = 0
    while True:
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(tokens[at][0], 0)
        at += 1
        if depth == 0:
            return at


def _is_comment(token: str) -> bool:
    return token.startswith(("//", "/*"))


def _has_lines(text: str, found: _Object) -> bool:
    """Return whether the first member of *found* has a line of its own."""
    return bool(found.members) and "\n" in text[found.start : found.members[0].start]


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


def _unit(text: str) -> str:
    """Return by how much *text* indents."""
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found else INDENT


def _written(value: object, indent: str, unit: str) -> str:
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", f"\n{indent}")
