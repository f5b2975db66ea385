"""The file of a client on this machine: read, edited in one step, and kept as it was beside it."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from dbtools.cli.clients import Client, Entry
from dbtools.errors import ConfigurationError

MOST_COPIES = 100  #: of one file; then the first one is replaced
OWNER = 0o700  #: the rights that are left where an entry holds a secret


class ClientFile:
    """The file of *client*."""

    def __init__(self, client: Client) -> None:
        """Read the file, or raise ConfigurationError."""
        self._client = client
        # Some people keep such files elsewhere and have a link here.
        self.path = client.file().resolve()
        try:
            content = self.path.read_bytes().decode("utf-8") if self.path.exists() else ""
        except (OSError, ValueError) as exc:
            raise self._fault("it cannot be read") from exc
        # Ends of lines, and the mark of UTF-8 at the beginning, are put back as they were.
        self._mark = "\ufeff" if content.startswith("\ufeff") else ""
        self._ending = "\r\n" if "\r\n" in content else "\n"
        self._text = content.removeprefix("\ufeff").replace("\r\n", "\n")

    def servers(self) -> Mapping[str, object]:
        """Return the entries of the servers by name, or raise ConfigurationError."""
        try:
            return self._client.servers(self._text)
        except ValueError as exc:
            raise self._fault(str(exc)) from exc

    def write(self, name: str, entry: Entry | None) -> str:
        """Set or remove the server *name*, and return how the copy of the file is called, as a remark."""
        try:
            text = self._client.changed(self._text, name, entry)
        except ValueError as exc:
            raise self._fault(str(exc)) from exc
        try:
            kept = self._replace(text, is_secret=bool(entry and entry.get("env")))
        except (OSError, ValueError) as exc:
            raise self._fault("it cannot be written") from exc
        return f" (a copy of it as it was: {kept.name})" if kept else ""

    def _replace(self, text: str, *, is_secret: bool) -> Path | None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        kept = self._copy() if self.path.exists() else None
        # A new file is for its owner alone: it may hold a password.
        descriptor, written = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(self._mark + text.replace("\n", self._ending))
            if kept is not None:
                mode = self.path.stat().st_mode
                os.chmod(written, mode & OWNER if is_secret else mode)
            os.replace(written, self.path)
        except BaseException:
            os.unlink(written)
            raise
        return kept

    def _copy(self) -> Path:
        """Copy the file beside itself, and leave earlier copies as they are."""
        names = (f"{self.path.name}.bak{number}" for number in ("", *range(2, MOST_COPIES)))
        copies = (self.path.with_name(name) for name in names)
        free = next((each for each in copies if not each.exists()), None)
        copy = free or self.path.with_name(f"{self.path.name}.bak")
        shutil.copy2(self.path, copy)
        return copy

    def _fault(self, problem: str) -> ConfigurationError:
        hint = "Fix the file, or add by hand what `dbtools connect` prints without --write."
        return ConfigurationError(f"{self.path}: {problem}.", hint=hint)
