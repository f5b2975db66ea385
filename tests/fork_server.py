"""Processes of dbtools without its imports. Words, streams, a folder and an environment in; a process out.

A start of dbtools takes a second of processor time, and the suite starts hundreds. The fork server imports
dbtools once, and forks for each start. The words of `forked` in `tests/processes.py` ask it for a process:
they run this file as well, which stands in for that process, so it imports little.

Over a connection, a process is asked for and its end is reported. If the connection breaks, it is killed.
"""

import atexit
import io
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress

STREAMS = (0, 1, 2)
_status = 0  #: with which this process ends
FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def serve(listener: socket.socket) -> None:
    """Fork a process for each connection of *listener*, until stdin ends; in such a process, return."""
    _import_all()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are not waited for
    while True:
        readable, _, _ = select.select([listener, sys.stdin], [], [])
        if listener not in readable:
            sys.exit()
        connection, _ = listener.accept()
        with connection:
            if os.fork() == 0:
                listener.close()
                return _supervise(connection)


def _import_all() -> None:
    """Import what any command may, and all that it imports on demand."""
    import gc
    import pkgutil
    from importlib import import_module

    import dbtools

    for module in pkgutil.walk_packages(dbtools.__path__, "dbtools."):
        if not module.name.endswith((".__main__", ".worker")):
            import_module(module.name)
    for name in (
        "alembic.command",
        "uvicorn",
        "sqlalchemy.dialects.postgresql",
        "sqlalchemy.dialects.sqlite",
    ):
        import_module(name)
    gc.freeze()


def _supervise(connection: socket.socket) -> None:
    """Fork the process that *connection* asks for, and tell its end; in that process, return."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _, streams, _, _ = socket.recv_fds(connection, 1, len(STREAMS))
    with connection.makefile("rb") as asked:
        wanted = json.loads(asked.readline())
    pid = os.fork()
    if pid == 0:
        connection.close()
        return _become(**wanted, streams=streams)
    for stream in (*STREAMS, *streams):
        os.close(stream)
    connection.sendall(b"%d\n" % pid)
    ended = os.pidfd_open(pid)
    readable, _, _ = select.select([ended, connection.fileno()], [], [])
    if ended not in readable:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):  # it is not waited for
        connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become(words: list[str], folder: str, environment: dict[str, str], streams: list[int]) -> None:
    """Make this process look like a new one with *words* and *streams* in *folder*."""
    for ours, theirs in zip(STREAMS, streams, strict=True):
        os.dup2(theirs, ours)
        os.close(theirs)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = words
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(line_buffering=sys.stdout.isatty())


def stand_in(path: str, words: list[str]) -> None:
    """Ask the fork server at *path* for a process with the streams of this one, and end as it does."""
    wanted = {"words": words, "folder": os.getcwd(), "environment": dict(os.environ)}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [b"."], STREAMS)
        connection.sendall(json.dumps(wanted).encode() + b"\n")
        for stream in STREAMS:
            os.close(stream)
        with connection.makefile("rb") as told:
            pid = int(told.readline())
            for number in FORWARDED:
                signal.signal(number, lambda number, _: os.kill(pid, number))
            status = int(told.readline())
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def run() -> None:
    """Run dbtools, and end without taking apart what was imported, which takes longer than most commands."""
    global _status
    from dbtools.__main__ import main

    try:
        main()
    except SystemExit as exc:
        _status = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
        raise
    except BaseException:
        _status = 1
        raise


def _end() -> None:
    sys.stdout.flush()
    os._exit(_status)


if __name__ == "__main__":
    if sys.argv[1].isdigit():
        atexit.register(_end)  # the first one comes last
        sys.path[0] = os.getcwd()
        with socket.socket(fileno=int(sys.argv[1])) as listener:
            serve(listener)
        run()
    else:
        stand_in(sys.argv[1], sys.argv[2:])
