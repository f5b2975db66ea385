"""The files in which clients keep their servers, as JSON or TOML: one entry changes, and the rest stays."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from dbtools.errors import ConfigurationError

Entry = Mapping[str, object]  #: of one server
#: Strings, comments, punctuation, and whatever else stands between blanks.
TOKEN = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/|[{}\[\],:]|[^\s{}\[\],:"/]+|\S',
    re.DOTALL,
)
BLANKS = re.compile(r"\s*")
COMMENTS = ("//", "/*")
INDENT = "  "
OWNER = 0o700  #: the rights that are left where an entry holds a secret


class ClientFile:
    """A client's file, whose *section* holds the servers by name."""

    def __init__(self, path: Path, section: str) -> None:
        """Read the file, or raise ConfigurationError."""
        # Some people keep such files elsewhere and have a link here.
        self.path = path.resolve()
        self._suffix = path.suffix
        self._section = section
        try:
            content = self.path.read_bytes().decode("utf-8") if self.path.exists() else ""
            # Ends of lines, and the mark of UTF-8 at the beginning, are put back as they were.
            self._mark = "\ufeff" if content.startswith("\ufeff") else ""
            self._ending = "\r\n" if "\r\n" in content else "\n"
            self._text = content.removeprefix("\ufeff").replace("\r\n", "\n")
            self._content = read(self._text, self._suffix)
        except OSError as exc:
            raise self._fault("it cannot be read") from exc
        except ValueError as exc:
            raise self._fault(str(exc)) from exc
        if not isinstance(self._content.get(section, {}), dict):
            raise self._fault(f"{section} is not an object")

    @property
    def servers(self) -> Mapping[str, object]:
        """The entries by name."""
        servers: Mapping[str, object] = self._content.get(self._section, {})
        return servers

    def write(self, name: str, entry: Entry | None) -> str:
        """Set the server *name* to *entry*, or remove it, and return a remark on the copy of the file."""
        servers = {each: value for each, value in self.servers.items() if each != name}
        expected = {**self._content, self._section: servers | ({name: entry} if entry is not None else {})}
        text = edit(self._text, self._suffix, self._section, name, entry)
        # tomlkit puts keys that follow a dotted key into the new table.
        if {self._section: {}, **read(text, self._suffix)} != expected:
            raise self._fault("it cannot be edited without changing more than the entry")
        try:
            copy = self._replace(text, is_secret=bool(entry and entry.get("env")))
        except OSError as exc:
            raise self._fault("it cannot be written") from exc
        return f" (a copy of it as it was: {copy.name})" if copy else ""

    def _replace(self, text: str, *, is_secret: bool) -> Path | None:
        """Replace the file in one step, and return its copy."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        copy, mode = None, 0o600  # a new file is for its owner alone: it may hold a password
        if self.path.exists():
            copies = (self.path.with_name(f"{self.path.name}.bak{number or ''}") for number in count())
            copy = Path(shutil.copy2(self.path, next(each for each in copies if not each.exists())))
            mode = self.path.stat().st_mode & (OWNER if is_secret else 0o7777)
        descriptor, written = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(self._mark + text.replace("\n", self._ending))
        os.chmod(written, mode)
        os.replace(written, self.path)
        return copy

    def _fault(self, problem: str) -> ConfigurationError:
        hint = "Fix the file, or add by hand what `dbtools connect` prints without --write."
        return ConfigurationError(f"{self.path}: {problem}.", hint=hint)


def read(text: str, suffix: str) -> Mapping[str, Any]:
    """Return the content of *text*, TOML or JSON with comments by *suffix*, or raise ValueError."""
    if suffix == ".toml":
        import tomlkit
        from tomlkit.exceptions import TOMLKitError

        try:
            return tomlkit.parse(text).unwrap()
        except TOMLKitError as exc:
            raise ValueError(f"not TOML: {exc}") from exc
    try:
        content = json.loads(_strict(text) if text.strip() else "{}")
    except json.JSONDecodeError as exc:
        raise ValueError(f"line {exc.lineno}: not JSON: {exc.msg}") from exc
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content


def edit(text: str, suffix: str, section: str, name: str, entry: Entry | None) -> str:
    """Return *text* with *entry* as the member *name* of *section*, or without this member."""
    if suffix != ".toml":
        return _edit_json(text if text.strip() else "{}\n", section, name, entry)
    import tomlkit

    document = tomlkit.parse(text)
    if entry is None:
        del document[section][name]
    else:
        document.setdefault(section, tomlkit.table(is_super_table=True))[name] = dict(entry)
    return document.as_string()


def _edit_json(text: str, section: str, name: str, entry: Entry | None) -> str:
    root = _object(text, 0)
    if section not in root.members:
        return _added(text, root, section, {name: entry})
    servers = _object(text, root.members[section].value)
    if name in servers.members:
        text = _removed(text, servers, name)
        return text if entry is None else _edit_json(text, section, name, entry)
    return _added(text, servers, name, entry)


@dataclass(frozen=True, kw_only=True)
class _Member:
    """A member of an object, by offsets in the text."""

    start: int
    value: int  #: where the value begins
    end: int  #: where it ends
    comma: int | None  #: where the comma behind it is


@dataclass(frozen=True, kw_only=True)
class _Object:
    """An object, by offsets in the text."""

    start: int  #: after the opening brace
    end: int  #: before the closing one
    members: Mapping[str, _Member]


def _object(text: str, start: int) -> _Object:
    """Return the object that begins at or after *start*, behind blanks and comments."""
    decode = json.JSONDecoder().raw_decode
    bare, strict = _bare(text), _strict(text)
    members: dict[str, _Member] = {}
    begin = at = _after_blanks(bare, start) + 1
    while bare[at := _after_blanks(bare, at)] != "}":
        name, colon = decode(strict, at)
        value = _after_blanks(bare, _after_blanks(bare, colon) + 1)
        _, end = decode(strict, value)
        after = _after_blanks(bare, end)
        comma = after if bare[after] == "," else None
        # A name that occurs twice counts where it is last, as for a parser.
        members.pop(name, None)
        members[name] = _Member(start=at, value=value, end=end, comma=comma)
        at = after + (comma is not None)
    return _Object(start=begin, end=at, members=members)


def _after_blanks(text: str, at: int) -> int:
    found = BLANKS.match(text, at)
    assert found is not None
    return found.end()


def _bare(text: str) -> str:
    """Return *text* with blanks in place of comments."""
    return TOKEN.sub(lambda found: " " * len(found[0]) if found[0].startswith(COMMENTS) else found[0], text)


def _strict(text: str) -> str:
    """Return *text* with blanks in place of comments and of commas behind last members."""
    bare = _bare(text)
    for left, right in pairwise(TOKEN.finditer(bare)):
        if left[0] == "," and right[0] in ("}", "]"):
            bare = f"{bare[: left.start()]} {bare[left.end() :]}"
    return bare


def _added(text: str, found: _Object, name: str, value: object) -> str:
    """Return *text* with a last member of the object that was *found*, indented as its file is."""
    members = [*found.members.values()]
    unit = re.search(r"\n([ \t]+)\S", text)
    step = unit[1] if unit else INDENT
    outer = _indent(text, found.start)
    has_lines = members and "\n" in text[found.start : members[0].start]
    inner = _indent(text, members[0].start) if has_lines else outer + step
    written = json.dumps(value, indent=step, ensure_ascii=False).replace("\n", f"\n{inner}")
    head = text[: found.end].rstrip()
    closing = text[len(head) : found.end]
    if members and members[-1].comma is None:
        last = members[-1].end
        head = f"{head[:last]},{head[last:]}"
    member = f"\n{inner}{json.dumps(name, ensure_ascii=False)}: {written}"
    return head + member + (closing if "\n" in closing else f"\n{outer}") + text[found.end :]


def _indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip())]


def _removed(text: str, found: _Object, name: str) -> str:
    """Return *text* without the member *name*, its comma, and lines that hold nothing else."""
    member = found.members[name]
    others = [each for each in found.members.values() if each is not member]
    start, end = member.start, member.end if member.comma is None else member.comma + 1
    first, last = text.rfind("\n", 0, start) + 1, text.find("\n", end)
    if first > 0 and last >= 0 and not text[first:start].strip() and not text[end:last].strip():
        start, end = first, last + 1
    text = text[:start] + text[end:]
    if member.comma is None and others and (comma := others[-1].comma) is not None:
        text = text[:comma] + text[comma + 1 :]
    inside = text[found.start :].lstrip()
    return text[: found.start] + inside if inside.startswith("}") else text
