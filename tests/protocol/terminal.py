"""A real terminal of a command: what it shows, and what the command prints beside it."""

import os
import pty
import select
import signal
import subprocess
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, Literal

from tests.processes import forked
from tests.protocol.client import PATIENCE, ROOT

#: Nothing of the machine that the tests run on.
ENVIRONMENT = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "TERM": "xterm-256color"}

NOTHING: Mapping[str, str] = MappingProxyType({})


class Screen:
    """What the terminal of a *process* shows, which has another of its streams in a *pipe*."""

    def __init__(self, process: "subprocess.Popen[bytes]", pipe: IO[bytes], terminal: int) -> None:
        self.shown = b""
        self._process = process
        self._pipe = pipe
        self._terminal = terminal

    def wait_for(self, text: str) -> None:
        """Read until *text* is shown."""
        while text.encode() not in self.shown:
            assert self._read(), f"{text!r} is not shown: {self.shown!r}"

    def type(self, text: str) -> None:
        """Type *text*."""
        os.write(self._terminal, text.encode())

    def interrupt(self) -> None:
        """Send what Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str]:
        """Read all that is shown until the process ends; return its status, and what is in the pipe."""
        while self._read():
            pass
        written = self._pipe.read().decode()
        return self._process.wait(timeout=PATIENCE), written

    def _read(self) -> bool:
        """Read what is shown next, and return whether there is anything."""
        ready, _, _ = select.select([self._terminal], [], [], PATIENCE)
        assert ready, f"nothing more is shown: {self.shown!r}"
        try:
            chunk = os.read(self._terminal, 65_536)
        except OSError:
            # On Linux, this means that the other end is closed.
            return False
        self.shown += chunk
        return bool(chunk)


@contextmanager
def on_terminal(
    *words: str,
    folder: Path,
    columns: int = 100,
    piped: Literal["stdout", "stderr"] = "stdout",
    program: Sequence[str] = (),
    environment: Mapping[str, str] = NOTHING,
) -> Iterator[Screen]:
    """Run *program*, or dbtools, with *words* at a terminal of as many *columns*, with one stream *piped*."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    process = subprocess.Popen(
        (*(program or forked()), *words),
        cwd=folder,
        env={**ENVIRONMENT, **environment},
        stdin=theirs,
        stdout=subprocess.PIPE if piped == "stdout" else theirs,
        stderr=subprocess.PIPE if piped == "stderr" else theirs,
    )
    os.close(theirs)
    pipe = process.stdout or process.stderr
    assert pipe is not None
    try:
        with process:
            try:
                yield Screen(process, pipe, ours)
            finally:
                process.kill()
    finally:
        os.close(ours)


def shown_by(*words: str, folder: Path, columns: int = 100, environment: Mapping[str, str] = NOTHING) -> str:
    """Return what a terminal shows of the standard output of dbtools with *words*, which must succeed."""
    with on_terminal(
        *words, folder=folder, columns=columns, piped="stderr", environment=environment
    ) as screen:
        assert screen.end() == (0, "")
        return screen.shown.decode().replace("\r\n", "\n")
