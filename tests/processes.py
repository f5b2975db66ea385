"""The words that start dbtools: as a new process, or forked from one that has imported it."""

import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
FORK_SERVER = Path(__file__).with_name("fork_server.py")
#: What depends on the start, on a terminal or on the process itself needs a new one.
FRESH = (sys.executable, "-m", "dbtools")
MAIN = "import sys; del sys.argv[0]; from dbtools.__main__ import main; main()"


def forked(name: str = "dbtools") -> tuple[str, ...]:
    """Return the words that start dbtools in a fraction of a second, called by the *name*."""
    if not hasattr(os, "pidfd_open"):  # not Linux
        return (sys.executable, "-c", MAIN, name)
    # It reads no variables of Python, and passes them on.
    return (sys.executable, "-I", "-S", str(FORK_SERVER), _started(), name)


def started_by(environment: Mapping[str, str] | None) -> tuple[str, ...]:
    """Return the words that start dbtools: a fork has no *environment* during its imports."""
    return FRESH if environment else forked()


@cache
def _started() -> str:
    """Start the fork server of this process, and return the path of its socket."""
    folder = tempfile.mkdtemp()
    path = f"{folder}/socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(socket.SOMAXCONN)
        server = subprocess.Popen(
            (sys.executable, str(FORK_SERVER), str(listener.fileno())),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )

    def end() -> None:
        server.communicate()
        shutil.rmtree(folder)

    atexit.register(end)
    return path
