"""Edit the JSON and TOML files of clients: one entry changes, and the rest stays."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, MutableMapping
from itertools import count
from pathlib import Path
from typing import Any

from dbtools.errors import ConfigurationError

Entry = Mapping[str, object]  #: of one server
INDENT = "  "
OWNER = 0o700  #: the permissions of a file whose entry holds a secret


class ClientFile:
    """A client's file, whose *section* holds the servers by name."""

    def __init__(self, path: Path, section: str) -> None:
        """Read the file, or raise ConfigurationError."""
        # The file may be a link to one elsewhere.
        self.path = path.resolve()
        self._suffix = path.suffix
        self._section = section
        try:
            text = self.path.read_bytes().decode("utf-8") if self.path.exists() else ""
            # Line endings and a byte order mark are put back when the file is written.
            self._mark = "\ufeff" if text.startswith("\ufeff") else ""
            self._ending = "\r\n" if "\r\n" in text else "\n"
            self._text = text.removeprefix("\ufeff").replace("\r\n", "\n")
            servers = read(self._text, self._suffix).get(section, {})
            if not isinstance(servers, dict):
                raise ValueError(f"{section} is not an object")
        except ValueError as exc:
            raise self._fault(exc) from exc
        self.servers: Mapping[str, object] = servers  #: the entries by name

    def write(self, name: str, entry: Entry | None) -> str:
        """Set the server *name* to *entry*, or remove it, and return a note about the backup."""
        try:
            text = edit(self._text, self._suffix, self._section, name, entry)
        except ValueError as exc:
            raise self._fault(exc) from exc
        copy = self._replace(text, is_secret=bool(entry and entry.get("env")))
        return f" (backup: {copy.name})" if copy else ""

    def _fault(self, problem: ValueError) -> ConfigurationError:
        hint = "Add the entry yourself: `dbtools connect` prints it without --write."
        return ConfigurationError(f"{self.path}: {problem}.", hint=hint)

    def _replace(self, text: str, *, is_secret: bool) -> Path | None:
        """Replace the file atomically, and return its backup."""
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


def read(text: str, suffix: str) -> dict[str, Any]:
    """Return the content of *text*, TOML or JSON by *suffix*, or raise ValueError."""
    if suffix == ".toml":
        import tomlkit
        from tomlkit.exceptions import TOMLKitError

        try:
            return tomlkit.parse(text).unwrap()
        except TOMLKitError as exc:
            raise ValueError(f"not TOML: {exc}") from exc
    try:
        content = json.loads(text if text.strip() else "{}")
    except json.JSONDecodeError as exc:
        # To keep comments, and commas behind last members, would take another parser.
        raise ValueError(f"line {exc.lineno}: not plain JSON: {exc.msg}") from exc
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content


def edit(text: str, suffix: str, section: str, name: str, entry: Entry | None) -> str:
    """Return *text* with *entry* as the member *name* of *section*, or without this member.

    Raise ValueError if that would change anything else.
    """
    content = read(text, suffix)
    _put(content, section, name, entry)
    if suffix == ".toml":
        import tomlkit

        document = tomlkit.parse(text)
        _put(document, section, name, entry)
        if read(document.as_string(), suffix) != content:
            raise ValueError("editing it would change more than the entry")
        return document.as_string()
    unit = re.search(r"\n([ \t]+)\S", text)
    is_escaped = bool(text) and text.isascii()
    return json.dumps(content, indent=unit[1] if unit else INDENT, ensure_ascii=is_escaped) + "\n"


def _put(content: MutableMapping[str, Any], section: str, name: str, entry: Entry | None) -> None:
    if entry is None:
        del content[section][name]
    else:
        content.setdefault(section, {})[name] = dict(entry)
