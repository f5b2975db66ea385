"""Run the conformance suite. The URL of a server and its requirements in, the failed checks out."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import anyio
import anyio.abc

from tests.clients.node import PACKAGES, run_node
from tests.protocol.client import PATIENCE, ROOT

SUITE = PACKAGES / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
FOLDER = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
ENTRY = re.compile(r"^ *- *(?P<name>[^\s#]+)", re.MULTILINE)
UNMET = ("FAILURE", "WARNING")  #: as the suite has it where failures are expected
#: Scenarios of what is optional and not offered, which count for no requirement: tasks, streams to resume.
OPTIONAL = ("tasks-*", "server-sse-polling")

#: What to run, by protocol version. There are no requirements for versions before these two.
RUNS: Mapping[str, tuple[str, ...]] = {
    "2026-07-28": ("--requirements", "2026-07-28"),
    "2025-11-25": ("--requirements", "2025-11-25"),
    "2025-06-18": ("--suite", "all", "--spec-version", "2025-06-18"),
    "2025-03-26": ("--suite", "all", "--spec-version", "2025-03-26"),
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the suite says of a server."""

    status: int  #: with which it ends
    said: str
    scenarios: Collection[str]
    unmet: Mapping[str, str]  #: what is wrong, by `scenario:check`

    def against(self, expected: Collection[str]) -> str:
        """Return on lines what is wrong and not among *expected*, and what is among them and not wrong."""
        scenarios = {check: check.partition(":")[0] for check in self.unmet}
        wrong = [
            f"{check}: {message}"
            for check, message in self.unmet.items()
            if not {check, scenarios[check]} & set(expected)
        ]
        passed = set(expected) - self.unmet.keys() - set(scenarios.values())
        stale = [f"{name}: expected to fail, and passes" for name in sorted(passed)]
        return "\n".join(wrong + stale)


async def examine(url: str, version: str, expected: Path, folder: Path) -> Verdict:
    """Run what is required at *version* against the server at *url*; *folder* is for what comes of it.

    The file *expected* names what may fail, and has to.
    """
    results = folder / "results"
    options = ("--url", url, *RUNS[version], "--expected-failures", str(expected), "-o", str(results))
    async with run_node(folder, str(SUITE), "server", *options) as process:
        said, _ = await process.communicate()
    assert process.returncode is not None
    found = {_scenario(path): path for path in sorted(results.glob("*/checks.json"))}
    unmet: dict[str, str] = {}
    for scenario, path in found.items():
        if not any(fnmatchcase(scenario, pattern) for pattern in OPTIONAL):
            unmet |= _unmet(scenario, path)
    return Verdict(status=process.returncode, said=said.decode(), scenarios=found.keys(), unmet=unmet)


def entries(expected: Path) -> set[str]:
    """Return what the file *expected* names: scenarios, or single checks as `scenario:check`."""
    return {found["name"] for found in ENTRY.finditer(expected.read_text(encoding="utf-8"))}


def _scenario(path: Path) -> str:
    found = FOLDER.fullmatch(path.parent.name)
    assert found is not None, path
    return found["scenario"]


def _unmet(scenario: str, path: Path) -> dict[str, str]:
    """Return what went wrong in *scenario*, by check."""
    checks = json.loads(path.read_text(encoding="utf-8"))
    return {
        f"{scenario}:{check['id']}": f"{check['status']}: {check.get('errorMessage')}"
        for check in checks
        if check["status"] in UNMET
    }


@asynccontextmanager
async def fixture_server(path: Path, log: Path) -> AsyncIterator[str]:
    """Serve the database file at *path* and the fixtures, with what the server says in *log*; give the URL.

    It is given a socket that listens already: who connects before it is ready waits for it.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=64) as bound, log.open("wb") as errors:
        process = await anyio.open_process(
            (sys.executable, "-m", "tests.clients.conformance_server", str(path), str(bound.fileno())),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd=ROOT,
            pass_fds=(bound.fileno(),),
        )
        port = bound.getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)


async def _end(process: anyio.abc.Process) -> None:
    if process.returncode is None:
        os.kill(process.pid, signal.SIGTERM)
    with anyio.move_on_after(PATIENCE):
        await process.wait()
    if process.returncode is None:
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
