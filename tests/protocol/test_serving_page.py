"""Follow docs/serving.md as a reader would: from the first server to telemetry, block by block."""

import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.protocol.client import PATIENCE, ROOT
from tests.protocol.test_exporting import Collector, open_collector
from tests.test_docs import Block, Command, Shell, blocks_of, commands_of, resembles

PAGE = blocks_of((ROOT / "docs/serving.md").read_text())
HASH = re.compile(r"[0-9a-f]{64}")
PORT, COLLECTED_AT = ":8000", ":4318"  #: on the page
PROGRAMS = {
    "dbtools": f'exec {sys.executable} -m dbtools "$@"',
    "python": f'exec {sys.executable} "$@"',
    "claude": f'exec {sys.executable} claude.py "$@"',
}
#: Takes the options that Claude Code documents, and connects as it does.
CLAUDE = """
import argparse, asyncio, httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

parser = argparse.ArgumentParser()
parser.add_argument("words", nargs=2)
parser.add_argument("--transport", required=True, choices=["http"])
parser.add_argument("name")
parser.add_argument("url")
parser.add_argument("--header", action="append", required=True)
given = parser.parse_args()
assert given.words == ["mcp", "add"]

async def main():
    headers = dict(each.split(": ", 1) for each in given.header)
    async with httpx2.AsyncClient(headers=headers) as http:
        async with Client(streamable_http_client(given.url, http_client=http)) as client:
            assert (await client.list_tools()).tools

asyncio.run(main())
"""


class Reader:
    """Somebody who does what the page says, with free ports and a token of their own."""

    def __init__(self, shell: Shell, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
        self._shell = shell
        self._monkeypatch = monkeypatch
        collected_at = collector.environment.pop("OTEL_EXPORTER_OTLP_ENDPOINT").rpartition(":")[2]
        self._ports = {PORT: f":{_free_port()}", COLLECTED_AT: f":{collected_at}"}
        for name, value in collector.environment.items():
            monkeypatch.setenv(name, value)
        self._hash = ""
        self._server: subprocess.Popen[bytes] | None = None
        self._terminal = -1  #: of the server
        self.done: list[str] = []  #: the first words of commands, and names of files
        self.calls: list[Command | Block] = []  #: what needs a token

    def _mine(self, text: str) -> str:
        for theirs, ours in self._ports.items():
            text = text.replace(theirs, ours)
        return HASH.sub(self._hash, text) if self._hash else text

    def follow(self, block: Block) -> None:
        """Do what *block* says."""
        match block.language:
            case "toml":
                if "[database]" in block.text:
                    (self._shell.folder / "dbtools.toml").write_text(self._mine(block.text))
            case "json":
                (self._shell.folder / "count.json").write_text(block.text)
            case "python" if block.text.startswith("# "):
                name = block.text.partition("\n")[0].removeprefix("# ")
                (self._shell.folder / name).write_text(block.text)
            case "python":
                self.calls.append(block)
                self.call(block)
            case "console":
                for command in commands_of(block):
                    self._obey(command)
            case language:
                raise AssertionError(f"line {block.line}: nobody follows {language}")

    def _obey(self, command: Command) -> None:
        self.done.append(command.text.split(" dbtools ")[-1].removeprefix("dbtools ").split()[0])
        if " serve " in f" {command.text}":
            self.leave()
            self._serve(command)
        elif "DBTOOLS_TOKEN" in command.text:
            self.calls.append(command)
            self.call(command)
        else:
            printed = self._shell.run(self._mine(command.text))
            assert resembles(printed, command.output), printed
            if "token new" in command.text:
                self._hash = HASH.findall(printed)[0]
                self._monkeypatch.setenv("DBTOOLS_TOKEN", printed.split()[1])
            if "token.txt" in command.text:
                token = (self._shell.folder / "token.txt").read_text().strip()
                self._monkeypatch.setenv("DBTOOLS_TOKEN", token)

    def call(self, how: Command | Block) -> None:
        """Make a call with the token."""
        if isinstance(how, Block):
            (self._shell.folder / "count.py").write_text(self._mine(how.text))
            assert self._shell.run("python count.py") == "[[325]]\n"
        else:
            printed = self._shell.run(self._mine(how.text))
            assert resembles(printed, how.output), printed

    def _serve(self, command: Command) -> None:
        """Start a server at a terminal, and compare what it shows."""
        self._terminal, theirs = pty.openpty()
        environment = os.environ | {
            "PATH": f"{self._shell.programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }
        self._server = subprocess.Popen(
            f"exec env {self._mine(command.text)}",
            shell=True,
            cwd=self._shell.folder,
            env=environment,
            stderr=theirs,
        )
        os.close(theirs)
        expected = self._mine(command.output)
        shown = _shown(self._terminal, max(2, expected.count("\n")))
        assert resembles(shown.replace("\r\n", "\n"), expected) or not expected, shown

    def leave(self) -> None:
        """End the server, if there is one."""
        if self._server is not None:
            self._server.send_signal(signal.SIGTERM)
            status = self._server.wait(PATIENCE)
            os.close(self._terminal)
            self._server = None
            assert status == 0


def _shown(terminal: int, lines: int) -> str:
    """Return what *terminal* shows, once it is as many *lines*."""
    text = ""
    while text.count("\n") < lines:
        readable, _, _ = select.select([terminal], [], [], PATIENCE)
        assert readable, text
        text += os.read(terminal, 65_536).decode()
    return text


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Give a collector of telemetry."""
    with open_collector() as collector:
        yield collector


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Give a shell in a folder with the sample, and the programs that the page names."""
    programs, folder = tmp_path / "bin", tmp_path / "folder"
    programs.mkdir()
    folder.mkdir()
    for name, command in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{command}\n")
        (programs / name).chmod(0o755)
    (folder / "claude.py").write_text(CLAUDE)
    shutil.copy(ROOT / "sample.db", folder)
    return Shell(programs=programs, folder=folder)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_page_can_be_followed(shell: Shell, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(shell, collector, monkeypatch)
    try:
        for block in PAGE:
            reader.follow(block)
            if reader.done[-2:] == ["python", "serve"]:
                # "The calls above work with it."
                for each in reader.calls:
                    reader.call(each)
                reader.done.append("again")
        for each in reader.calls:
            reader.call(each)
    finally:
        reader.leave()

    assert reader.done == ["serve", "token", "serve", "curl", "claude", "python", "serve", "again", "serve"]
    assert len(reader.calls) == 3
    assert collector.spans["tools/call aggregate_rows"] == collector.measured["dbtools.call.duration"] == 2
