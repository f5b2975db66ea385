"""What one process that serves HTTP has of the machine: descriptors enough, and an end with its parent."""

import os
import signal
import sys

import anyio

if sys.platform != "win32":
    import resource

RESERVED = 100  #: descriptors for the database, files and the log
LOOK = 1.0  #: seconds between two looks for the parent


def most_connections(wanted: int) -> int:
    """Return how many connections can be open, at most *wanted*, with as many descriptors as are allowed."""
    if sys.platform == "win32":
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, wanted + RESERVED)
    needed = min(hard, max(soft, wanted + RESERVED))
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    return max(1, min(wanted, needed - RESERVED))


async def end_with_parent() -> None:
    """End this process when whoever has started it is gone: nobody would end it or start it again."""
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110 (nobody tells)
        await anyio.sleep(LOOK)
    os.kill(os.getpid(), signal.SIGTERM)
