"""What the commands print: answers, tables of tools, help and versions."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import click
import jsonschema
import pytest
from click.testing import CliRunner

from dbtools.cli import main
from tests.protocol.client import PATIENCE, ROOT
from tests.protocol.command_line import folder as folder, run


def test_tools_prints_the_array_of_tools_list_with_tokens(folder: Path) -> None:
    result = run("tools", "shop.db", "--json")

    tools = json.loads(result.stdout)
    assert (result.exit_code, result.stderr) == (0, "")
    assert [tool["name"] for tool in tools][:3] == ["describe_tables", "aggregate_rows", "run_sql"]
    assert all(tool["tokens"] > 0 and tool["inputSchema"] and tool["outputSchema"] for tool in tools)


def test_schema_describes_configurations() -> None:
    schema = json.loads(run("schema").stdout)

    assert json.loads(run("schema", "--json").stdout) == schema
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate({"database": {"url": "shop.db"}, "limits": {"timeout": "10s"}}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"databse": {}}, schema)


def _commands(command: click.Command, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield *command*, whose *names* are given, and all below it, each with its names."""
    yield names, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            each = command.get_command(context, name)
            assert each is not None
            yield from _commands(each, *names, name)


COMMANDS = dict(_commands(main))
GROUPS = [names for names, each in COMMANDS.items() if isinstance(each, click.Group)]
#: Those that print something, and so can print JSON; a script and messages of the protocol are none.
PRINTING = COMMANDS.keys() - {*GROUPS, ("serve",), ("completion",)}


def test_help_ends_with_an_example_and_names_the_option_for_json() -> None:
    for command, option in product(COMMANDS, ("--help", "-h")):
        result = run(*command, option)

        *_, heading, example = result.stdout.rstrip().splitlines()
        assert (result.exit_code, heading.strip()) == (0, "Example:")
        assert example.strip().startswith(" ".join(("dbtools", *command)))
        assert ("--json" in result.stdout) >= (command in PRINTING)


def test_help_has_one_full_line_for_each_command() -> None:
    for command in GROUPS:
        told = (
            CliRunner().invoke(main, [*command, "--help"], terminal_width=80).stdout.partition("Commands:\n")
        )
        lines = told[2].partition("\n\n")[0].splitlines()
        group = COMMANDS[command]

        assert isinstance(group, click.Group)
        assert [line.split()[0] for line in lines] == group.list_commands(click.Context(group))
        assert [
            line for line in lines if not line.endswith(".") or line.endswith("..") or len(line) > 80
        ] == []


def test_reader_that_has_seen_enough_is_no_error(folder: Path) -> None:
    """As in `dbtools tools --json | head -c 1`."""
    script = (
        f"{shlex.quote(sys.executable)} -m dbtools tools shop.db --json | head -c 1; exit ${{PIPESTATUS[0]}}"
    )
    ended = subprocess.run(
        ("bash", "-c", script),
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[", "")
