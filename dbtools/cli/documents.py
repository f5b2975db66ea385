"""Edit the JSON and TOML files of clients. A text and an entry in; the text with this entry changed out."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from dbtools.errors import ConfigurationError

Entry = Mapping[str, object]  #: of one server
#: Strings, comments, punctuation, and anything else between spaces.
JSONC = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/|[{}\[\],:]|[^\s{}\[\],:"/]+|\S',
    re.DOTALL,
)
COMMENTS = ("//", "/*")
BLANKS = " \t"
INDENT = "  "
OWNER = 0o700  #: the permissions of a file whose entry holds a secret


class ClientFile:
    """A client's file, whose *section* holds the servers by name."""

    def __init__(self, path: Path, section: str) -> None:
        """Read the file, or raise ConfigurationError."""
        # The file may be a symbolic link.
        self.path = path.resolve()
        self._suffix = path.suffix
        self._section = section
        try:
            text = self.path.read_bytes().decode("utf-8") if self.path.exists() else ""
            # Line endings and a byte order mark are put back when the file is written.
            self._mark = "\ufeff" if text.startswith("\ufeff") else ""
            self._ending = "\r\n" if "\r\n" in text else "\n"
            self._text = text.removeprefix("\ufeff").replace("\r\n", "\n")
            self._content = read(self._text, self._suffix)
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
        """Set the server *name* to *entry*, or remove it, and return a note about the backup."""
        try:
            text = edit(self._text, self._suffix, self._section, name, entry)
        except ValueError as exc:
            raise self._fault(str(exc)) from exc
        copy = self._replace(text, is_secret=bool(entry and entry.get("env")))
        return f" (backup: {copy.name})" if copy else ""

    def _replace(self, text: str, *, is_secret: bool) -> Path | None:
        """Replace the file atomically, and return its backup."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        copy, mode = None, 0o600  # only its owner may read a new file: it may contain a password
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
        hint = "Fix the file, or add the entry yourself: `dbtools connect` prints it without --write."
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
        content = json.loads(_strict_json(text) if text.strip() else "{}")
    except json.JSONDecodeError as exc:
        raise ValueError(f"line {exc.lineno}: not JSON: {exc.msg}") from exc
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content


def edit(text: str, suffix: str, section: str, name: str, entry: Entry | None) -> str:
    """Return *text* with *entry* as the member *name* of *section*, or without this member.

    Each way to edit it is tried until one changes nothing else; ValueError is raised if none does.
    """
    content = read(text, suffix)
    servers = {each: value for each, value in content.get(section, {}).items() if each != name}
    if entry is not None and suffix != ".toml" and name in content.get(section, {}):
        text = edit(text, suffix, section, name, None)
    expected = {**content, section: servers | ({} if entry is None else {name: entry})}
    edits = _edits_of_toml if suffix == ".toml" else _removals if entry is None else _additions
    for edited in edits(text, section, name, entry):
        try:
            if {section: {}, **read(edited, suffix)} == expected:
                return edited
        except ValueError:
            continue
    raise ValueError("editing it would change more than the entry")


def _edits_of_toml(text: str, section: str, name: str, entry: Entry | None) -> Iterator[str]:
    import tomlkit

    document = tomlkit.parse(text)
    if entry is None:
        del document[section][name]
    else:
        document.setdefault(section, tomlkit.table(is_super_table=True))[name] = dict(entry)
    yield document.as_string()


def _additions(text: str, section: str, name: str, entry: Entry | None) -> Iterator[str]:
    """Yield *text* with *entry* first in each object that may be its *section*, or in a new one."""
    text = text if text.strip() else "{}\n"
    strict = _strict_json(text)
    unit = re.search(r"\n([ \t]+)\S", text)
    step = unit[1] if unit else INDENT
    found = re.finditer(rf'"{section}"\s*:\s*{{', strict)
    # A file may have such an object for each project, too: the least indented one is likely the right one.
    ends = sorted((each.end() for each in found), key=lambda end: end - text.rfind("\n", 0, end))
    places = [(end, 2, name, entry) for end in ends]
    for at, depth, key, value in (*places, (strict.index("{") + 1, 1, section, {name: entry})):
        indent = f"\n{step * depth}"
        written = json.dumps(value, indent=step, ensure_ascii=False).replace("\n", indent)
        is_empty = strict[at:].lstrip().startswith("}")
        behind = indent.removesuffix(step) if is_empty else "," if text[at] == "\n" else f",{indent}"
        rest = text[at:] if "\n" in text[at:] and not is_empty else text[at:].lstrip(BLANKS)
        yield f"{text[:at]}{indent}{json.dumps(key)}: {written}{behind}{rest}"


def _removals(text: str, section: str, name: str, entry: Entry | None) -> Iterator[str]:
    """Yield *text* without each member that may be *name*, without its comma, and without an empty line."""
    bare, strict = _without_comments(text), _strict_json(text)
    for found in re.finditer(rf"{re.escape(json.dumps(name))}\s*:\s*", strict):
        try:
            _, end = json.JSONDecoder().raw_decode(strict, found.end())
        except ValueError:
            continue
        head = text[: found.start()].rstrip(BLANKS)
        start = len(head)
        comma = re.compile(r"\s*,").match(bare, end)
        if comma is not None:
            end = comma.end()
        elif (before := len(strict[:start].rstrip())) and strict[before - 1] == ",":
            head = text[: before - 1] + text[before:start]
        tail = text[end:].lstrip(BLANKS)
        yield head + (tail.removeprefix("\n") if head.endswith("\n") else text[end:])


def _without_comments(text: str) -> str:
    """Return *text* with spaces instead of comments."""
    if not any(each in text for each in COMMENTS):
        return text
    return JSONC.sub(lambda found: " " * len(found[0]) if found[0].startswith(COMMENTS) else found[0], text)


def _strict_json(text: str) -> str:
    """Return *text* with spaces instead of comments and of commas after last members."""
    try:
        json.loads(text)
    except ValueError:
        bare = _without_comments(text)
    else:
        return text
    for left, right in pairwise(JSONC.finditer(bare)):
        if left[0] == "," and right[0] in ("}", "]"):
            bare = f"{bare[: left.start()]} {bare[left.end() :]}"
    return bare
