"""Answer requests in a process that can be killed. A line of JSON in, a line of JSON out.

The server starts this file as a script, without a secret. The first argument names a module of dbtools, whose
function `start` prepares the process and whose function `answer` answers a request; the others are folders of
packages that it imports. Packages of dbtools stand for their folders only: what they import of the server,
such as drivers, is not loaded.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from types import ModuleType

MEMORY = 384 * 2**20  #: bytes of the address space
RETIRES = 128 * 2**10  #: kilobytes after which the process is replaced, since it may not return them
LATE = 1.0  #: seconds after its deadline when the process ends, if the server is gone


def main(name: str, folders: Sequence[str]) -> None:
    """Say that the process has started, and answer requests until the server closes the pipe."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    module = _load_module(name, folders)
    module.start()
    os.nice(5)  # callers of other tools go first
    # Linux counts the memory of the server as the process's own, up to here.
    most = max(RETIRES, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    _send({})
    for line in sys.stdin:
        request = json.loads(line)
        # Ends the process, even inside of one call of C code, if the server does not.
        signal.setitimer(signal.ITIMER_REAL, request["timeout"] + LATE)
        try:
            answer = dict(module.answer(request))
        except MemoryError:
            answer = {"error": "memory"}
        signal.setitimer(signal.ITIMER_REAL, 0)
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        answer["last"] = used > most or answer.get("error") == "memory"
        _send(answer)
        if answer["last"]:
            return


def _load_module(name: str, folders: Sequence[str]) -> ModuleType:
    """Return the module *name*, which may import packages from *folders*."""
    sys.path += folders
    root = Path(__file__).parents[2]
    packages = name.split(".")[:-1]
    for package in accumulate(packages, "{}.{}".format):
        sys.modules[package] = found = ModuleType(package)
        found.__path__ = [str(root.joinpath(*package.split(".")))]
    return import_module(name)


def _send(answer: Mapping[str, object]) -> None:
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
