"""The Inspector's command line lists, calls, reads and validates schemas, in both eras."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.clients.node import PACKAGES, needs_node, run_node
from tests.clients.places import EVERYWHERE, Place
from tests.clients.tour import SCHEMA, Seen, expected
from tests.protocol.changing import HANDSHAKE
from tests.protocol.client import MODERN

PROGRAM = PACKAGES / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"
ERAS = {"legacy": HANDSHAKE, "modern": MODERN}
#: Where cells are in the answers.
CELLS = {
    *(f"outputSchema.properties.{each}.items" for each in ("rows", "before")),
    "outputSchema.properties.row",
}
NAMED = "io.modelcontextprotocol/serverInfo"  #: in every result of 2026-07-28, and in none before
DONE, IS_ERROR = 0, 5  #: exit statuses
pytestmark = needs_node


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("place", EVERYWHERE, indirect=True)
async def test_inspector_sees_what_there_is(place: Place, era: str, tmp_path: Path) -> None:
    """The Inspector lists the tools before it calls one; each command on stdio starts a server."""
    inspector = Inspector(place, era, tmp_path)
    seen = {**await inspector.make_mistake(), **await inspector.list_tools()}
    if place.url:
        seen |= {**await inspector.read_rows(), **await inspector.read_resources()}
        status, _, error = await inspector.run("tools/call", "--tool-name", "list_nobody")
        assert (status, json.loads(error)["error"]["code"]) == (IS_ERROR, "tool_not_found")

    assert seen == expected_of(seen, place, era)


def expected_of(seen: Seen, place: Place, era: str) -> Seen:
    """Return what is to be seen of what was looked at."""
    everything = expected(place, ERAS[era])
    return {name: everything[name] for name in seen}


class Inspector:
    """The command line, in an era and at a place."""

    def __init__(self, place: Place, era: str, folder: Path) -> None:
        self._where = ("--server-url", place.url) if place.url else place.command
        self._options = ("--protocol-era", era, "--quiet", "--format", "json")
        self._headers = [f"{name}: {value}" for name, value in place.headers.items()]
        self._folder = folder

    async def run(self, method: str, *arguments: str) -> tuple[int, str, str]:
        """Return the exit status, what is on stdout, and what is on stderr."""
        headers = ("--header", *self._headers) if self._headers else ()
        command = (*self._options, "--method", method, *arguments, *headers, *self._where)
        async with run_node(self._folder, str(PROGRAM), "--cli", *command) as process:
            assert process.stdout is not None
            output = await process.stdout.read()
            status = await process.wait()
        return status, output.decode(), (self._folder / "node.txt").read_text()

    async def result(self, method: str, *arguments: str) -> Any:
        """Return the result of a command that is to succeed."""
        status, output, error = await self.run(method, *arguments)
        assert (status, error) == (DONE, "")
        return json.loads(output)["result"]

    async def call(self, tool: str, arguments: Seen) -> Any:
        """Return the structured content of a call that is to succeed."""
        result = await self.result("tools/call", *_call(tool, arguments))
        return result["structuredContent"]

    async def list_tools(self) -> Seen:
        """List the tools; `--strict` tells on stderr of all that some client may not take in a schema.

        Cells have any type, and no schema says so that it would not warn about.
        """
        status, output, error = await self.run("tools/list", "--strict")
        faults = set(re.findall(r"^  Path: (.*)$", error, re.MULTILINE)) - CELLS
        assert (status, faults) == (DONE, set())
        result = json.loads(output)["result"]
        return {
            "tools": {
                tool["name"]: [tool["inputSchema"]["type"], tool["outputSchema"]["type"]]
                for tool in result["tools"]
            }
        }

    async def make_mistake(self) -> Seen:
        """Call a tool with an argument that it cannot take; the answer tells the era, too."""
        status, output, _ = await self.run("tools/call", *_call("list_person", {"order_by": ["nam"]}))
        result = json.loads(output)["result"]
        return {
            "version": MODERN if NAMED in result.get("_meta", {}) else HANDSHAKE,
            "mistake": {"isError": status == IS_ERROR, "named": "'nam'" in result["content"][0]["text"]},
        }

    async def read_rows(self) -> Seen:
        """Call the tools that read."""
        page = {"where": [{"column": "id", "op": "gte", "value": 2}], "limit": 1}
        first = await self.call("list_person", page)
        second = await self.call("list_person", {**page, "cursor": first["next_cursor"]})
        return {
            "described": await self.call("describe_tables", {}),
            "pages": [{name: page[name] for name in ("rows", "truncated")} for page in (first, second)],
            "row": (await self.call("get_person", {"id": 1}))["row"],
        }

    async def read_resources(self) -> Seen:
        """List the resources and their templates, and read one."""
        listed = await self.result("resources/list")
        templates = await self.result("resources/templates/list")
        read = await self.result("resources/read", "--uri", SCHEMA)
        return {
            "resources": [each["uri"] for each in listed["resources"]],
            "templates": [each["uriTemplate"] for each in templates["resourceTemplates"]],
            "schema": json.loads(read["contents"][0]["text"]),
        }


def _call(tool: str, arguments: Seen) -> tuple[str, ...]:
    return "--tool-name", tool, "--tool-args-json", json.dumps(arguments)
