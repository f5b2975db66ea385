"""Pages of the documents, and a reader who follows them. A page in; the output of its commands out.

A block with a name behind its language, as in "```toml dbtools.toml", is a file that the reader writes;
"```toml >> dbtools.toml" goes to the end of that file.
Commands of a "```console" block are run in order, in one folder for the whole page; `...` in their output
stands for any text. A command that serves runs in the background at a terminal, on a free port.

`python -m tests.pages docs/tutorial.md` writes the output of each command into a page.
"""

import doctest
import os
import pty
import re
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from anyio.from_thread import start_blocking_portal

from dbtools.records.log import WINDOW
from tests.postgresql_server import PostgresqlServer, open_server
from tests.processes import forked

ROOT = Path(__file__).parents[1]
PATIENCE = 60  #: seconds for one command, which a busy machine may need
FENCE = re.compile(r"^```(\w*) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ", re.MULTILINE)
END = re.compile(r"(?<!\\)\n")  #: of a command: a line that no backslash continues
STATE = ("export ", "cd ")  #: the commands that the next ones depend on
HASH = re.compile(r"\b[0-9a-f]{64}\b")
TOKEN = re.compile(r"\bdbt_[\w-]{20,}")
#: What pages call the reader's folder, port, token and its hash, and the sample in PostgreSQL.
HOME, PORT, THEIR_TOKEN = "/home/ada", "127.0.0.1:8000", "dbt_…"
SHOP = "postgresql://owner@db.example.com/shop"
THEIR_HASH = "15c414979fcec467a9c6ba73ff7c981ec2df518962920cc5a5ec587306fc5881"
PROGRAMS: Mapping[str, str] = {"python": '"$@"', "alembic": '-m alembic "$@"'}


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    line: int
    start: int  #: of its text, in the page
    language: str
    name: str  #: of the file that it is, or nothing
    adds: bool  #: whether it goes behind what the file holds already
    text: str


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command of a console block, and what it prints."""

    text: str
    output: str
    span: tuple[int, int]  #: of the output, in the page


def blocks_of(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of the page *text*."""
    for fence in FENCE.finditer(text):
        line = text.count("\n", 0, fence.start()) + 1
        name = fence[2].removeprefix(">> ")
        adds = name != fence[2]
        yield Block(line=line, start=fence.start(3), language=fence[1], name=name, adds=adds, text=fence[3])


def commands_of(block: Block) -> Iterator[Command]:
    """Yield the commands of a console *block*."""
    starts = [found.end() for found in COMMAND.finditer(block.text)]
    for start, end in zip(starts, [*(start - 2 for start in starts[1:]), len(block.text)], strict=True):
        text, output = END.split(block.text[start:end], maxsplit=1)
        spread = block.start + start + len(text) + 1
        yield Command(text=text, output=output, span=(spread, block.start + end))


def resembles(printed: str, expected: str) -> bool:
    """Return whether *printed* is what a page *expected*; blanks at the ends of lines do not count."""
    return doctest.OutputChecker().check_output(_trim(expected), _trim(printed), doctest.ELLIPSIS)


def _trim(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


class Shell:
    """A folder with the sample in it, the programs that pages name, and an environment."""

    def __init__(self, place: Path, programs: Mapping[str, str] = PROGRAMS) -> None:
        self.folder = place / "shop"
        self.folder.mkdir()
        shutil.copy(ROOT / "sample.db", self.folder)
        self.environment = {
            "PATH": f"{place / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join((str(ROOT), *filter(None, sys.path))),
            "HOME": str(place),
            "COLUMNS": "100",
            "NO_COLOR": "1",
        }
        (place / ".venv" / "bin").mkdir(parents=True)
        ours = place / ".venv" / "bin" / "dbtools"
        scripts = {name: f"{shlex.quote(sys.executable)} {words}" for name, words in programs.items()}
        scripts["dbtools"] = f'{shlex.join(forked(str(ours)))} "$@"'
        for name, script in scripts.items():
            program = ours.with_name(name)
            program.write_text(f"#!/bin/sh\nexec {script}\n")
            program.chmod(0o755)

    def run(self, command: str) -> str:
        """Return what *command* prints, on either stream."""
        keep = command.startswith(STATE)
        done = subprocess.run(
            ["bash", "-c", f"{command}\n" + ("env -0; printf 'PWD=%s' \"$PWD\"" if keep else "")],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if not keep:
            return done.stdout
        self.environment = dict(each.split("=", 1) for each in done.stdout.split("\0"))
        self.folder = Path(self.environment["PWD"])
        return ""


class Reader:
    """Follows a page, block by block, with free ports and a token in the place of those of the page."""

    def __init__(self, shell: Shell, names: Mapping[str, str] | None = None) -> None:
        self.shell = shell
        self.commands = 0
        self._home = shell.environment["HOME"]
        self._names = {PORT: f"127.0.0.1:{free_port()}", **(names or {})}  #: ours, by those of the page
        self._server: subprocess.Popen[bytes] | None = None
        self._terminal = -1  #: of the server

    def ours(self, text: str) -> str:
        """Return *text* of the page with our names."""
        for theirs, ours in self._names.items():
            text = text.replace(theirs, ours)
        return text

    def theirs(self, text: str) -> str:
        """Return what a command printed with the names of the page."""
        text = text.replace(self._home, HOME).replace("\r\n", "\n")
        for theirs, ours in self._names.items():
            text = text.replace(ours, theirs)
        return text

    def follow(self, block: Block, told: Callable[[Command, str], None]) -> None:
        """Do what *block* says; *told* gets each command and what it printed."""
        if block.name:
            path = self.shell.folder / block.name
            path.parent.mkdir(exist_ok=True)
            before = path.read_text() + "\n" if block.adds else ""
            path.write_text(before + self.ours(block.text))
        if block.language == "console":
            for command in commands_of(block):
                self.commands += 1
                told(command, self.theirs(self._obey(command)))

    def _obey(self, command: Command) -> str:
        if re.search(r"\bdbtools serve\b", command.text):
            return self._serve(command)
        if self._server is not None and re.search(r"\bdbtools log\b", command.text):
            time.sleep(3 * WINDOW)  # as long as a person takes at least, who sees what was called before
        printed = self.shell.run(self.ours(command.text))
        if "token new" in command.text:
            self._names[THEIR_HASH] = HASH.findall(printed)[0]
            self._names[THEIR_TOKEN] = TOKEN.findall(printed)[0]
        return printed

    def _serve(self, command: Command) -> str:
        """Start a server at a terminal, and return what it shows, where the page says something of it."""
        self.leave()
        self._terminal, theirs = pty.openpty()
        self._server = subprocess.Popen(
            ["bash", "-c", f"exec env {self.ours(command.text)}"],
            cwd=self.shell.folder,
            env=self.shell.environment,
            stderr=theirs,
        )
        os.close(theirs)
        shown = shown_at(self._terminal, max(2, command.output.count("\n")))
        return shown if command.output else ""

    def leave(self) -> None:
        """End the server, if there is one."""
        if self._server is not None:
            self._server.send_signal(signal.SIGTERM)
            status = self._server.wait(PATIENCE)
            os.close(self._terminal)
            self._server = None
            assert status == 0


def shown_at(terminal: int, lines: int) -> str:
    """Return what *terminal* shows, once it is as many *lines*."""
    text = ""
    while text.count("\n") < lines:
        readable, _, _ = select.select([terminal], [], [], PATIENCE)
        assert readable, text
        text += os.read(terminal, 65_536).decode()
    return text


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port


class Following(Protocol):
    """Follows a page, block by block."""

    def follow(self, block: Block, told: Callable[[Command, str], None]) -> None:
        """Do what *block* says; *told* gets each command and what it printed."""


def record(page: str, reader: Following) -> str:
    """Return *page* with what its commands print to *reader* now, where it says something else."""
    outputs: list[tuple[Command, str]] = []
    for block in blocks_of(page):
        reader.follow(block, lambda command, printed: outputs.append((command, printed)))
    for command, printed in reversed(outputs):
        if not resembles(printed, command.output):
            start, end = command.span
            blank = "\n" if page[end:].startswith("$ ") else ""
            page = f"{page[:start]}{_updated(command.output, printed)}\n{blank}{page[end:]}"
    return page


def _updated(expected: str, printed: str) -> str:
    """Return what was *printed*, but as *expected* in each line that resembles it."""
    before, after = _trim(expected).splitlines(), _trim(printed).splitlines()
    if len(before) == len(after):
        after = [old if resembles(new, old) else new for old, new in zip(before, after, strict=True)]
    return "\n".join(after)


@contextmanager
def shop_names(server: PostgresqlServer) -> Iterator[Mapping[str, str]]:
    """Create a database with the sample, and give its URL and its name by those on the pages."""
    with server.database() as name:
        url = server.url_of(name)
        migrate = (sys.executable, "-m", "alembic", "-x", f"url={url}", "upgrade", "heads")
        subprocess.run(migrate, cwd=ROOT, check=True, capture_output=True)
        yield {SHOP: url, '"shop"': f'"{name}"'}


def main(paths: Sequence[Path]) -> None:
    """Write what commands print now into the pages at *paths*."""
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal("asyncio"))
        for path in paths:
            page, names = path.read_text(), None
            if SHOP in page:
                names = stack.enter_context(shop_names(stack.enter_context(open_server(portal))))
            reader = Reader(Shell(Path(stack.enter_context(tempfile.TemporaryDirectory()))), names)
            stack.callback(reader.leave)
            path.write_text(record(page, reader))


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
