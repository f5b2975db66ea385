"""Transcripts of commands. A page of `commands/` in; what dbtools prints in this process out.

A block of SQL makes the database that it names, any other block with a name is a file. A `console` block has
commands, which may begin with variables of the environment, and what they print: lines of stderr have "! " in
front, and a status other than 0 is the last line. `...` stands for any text. `cat` prints a file.

`python -m tests.protocol.transcripts [claims ...]` writes what the commands print into the pages.
"""

import shlex
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import chdir, closing
from pathlib import Path

from click.testing import CliRunner

from dbtools.cli import main as dbtools
from tests.pages import Block, Command, commands_of, record

PAGES = Path(__file__).with_name("commands")
#: What tells commands of the person who runs the tests.
PERSONAL = (
    *("DBTOOLS_ROLE", "DBTOOLS_CLAIMS", "DBTOOLS_TOKEN", "DBTOOLS_TEST_UNSET"),
    *("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PGHOST", "PGPASSWORD", "PGSSLMODE", "XDG_CONFIG_HOME"),
)


class Typist:
    """Follows a page in a *folder*."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def follow(self, block: Block, told: Callable[[Command, str], None]) -> None:
        """Do what *block* says; *told* gets each command and what it printed."""
        path = self._folder / block.name
        if block.name:
            path.parent.mkdir(parents=True, exist_ok=True)
        if block.language == "sql" and path.suffix == ".db":
            with closing(sqlite3.connect(path)) as connection:
                connection.executescript(block.text)
        elif block.name:
            path.write_text(block.text)
        if block.language == "console":
            for command in commands_of(block):
                printed = self._obey(command.text).replace(str(self._folder), "/folder")
                told(command, printed.replace(sys.executable, "/python"))

    def _obey(self, text: str) -> str:
        words = shlex.split(text.replace("/folder", str(self._folder)))
        if words[0] == "cat":
            return (self._folder / words[1]).read_text()
        program = words.index("dbtools")
        environment = {**dict.fromkeys(PERSONAL), "COLUMNS": "100", "HOME": str(self._folder)}
        environment |= dict(word.split("=", 1) for word in words[:program])
        with chdir(self._folder):
            result = CliRunner().invoke(dbtools, words[program + 1 :], prog_name="dbtools", env=environment)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        told = "".join(f"! {line}\n" for line in result.stderr.splitlines())
        return result.stdout + told + (f"{result.exit_code}\n" if result.exit_code else "")


def main(names: Sequence[str]) -> None:
    """Write what commands print now into the pages of these *names*, or into all."""
    for path in [PAGES / f"{name}.md" for name in names] or sorted(PAGES.glob("*.md")):
        with tempfile.TemporaryDirectory() as folder:
            path.write_text(record(path.read_text(), Typist(Path(folder).resolve())))


if __name__ == "__main__":
    main(sys.argv[1:])
