"""Follow docs/how-to/serve-a-team.md as a reader would, from the first server to telemetry."""

import shutil
from pathlib import Path

import pytest

from tests.pages import PROGRAMS, ROOT, Command, Reader, Shell, blocks_of, resembles
from tests.protocol.test_exporting import open_collector

PAGE = (ROOT / "docs/how-to/serve-a-team.md").read_text()
COLLECTOR = "127.0.0.1:4318"  #: on the page
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


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_page_can_be_followed(tmp_path: Path) -> None:
    shell = Shell(tmp_path, {**PROGRAMS, "claude": 'claude.py "$@"'})
    (shell.folder / "claude.py").write_text(CLAUDE)
    done = []

    def compare(command: Command, printed: str) -> None:
        assert resembles(printed, command.output), printed
        done.append(command.text.split(" dbtools ")[-1].removeprefix("dbtools ").split()[0])

    with open_collector() as collector:
        address = collector.environment.pop("OTEL_EXPORTER_OTLP_ENDPOINT").removeprefix("http://")
        shell.environment |= collector.environment
        reader = Reader(shell, {COLLECTOR: address})
        try:
            for block in blocks_of(PAGE):
                reader.follow(block, compare)
        finally:
            reader.leave()

        assert done == [
            *("serve", "token", "serve", "export", "curl", "python", "claude"),
            *("python", "serve", "export", "python", "serve", "python"),
        ]
        assert collector.spans["tools/call aggregate_rows"] == 1
        assert collector.measured["dbtools.call.duration"] == 1
