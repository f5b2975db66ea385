"""What the commands print: answers, tables of tools, help and versions."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import jsonschema
import pytest
from click.testing import CliRunner

from dbtools import __version__
from dbtools.cli import main
from dbtools.server.identity import hash_of
from tests.protocol.client import PATIENCE, ROOT
from tests.protocol.command_line import folder as folder, run


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("shop.db", "get_person", "id=2", "--json"), id="options last"),
        pytest.param(("--json", "shop.db", "get_person", "id=2"), id="options first"),
        pytest.param(("shop.db", "--json", "get_person", "--role", "default", "id=2"), id="options between"),
        pytest.param(("shop.db", "get_person", '{"id": 2}', "--json"), id="JSON object"),
        pytest.param(("shop.db", "get_person", ' {"id": "2"}', "--json"), id="JSON object after a blank"),
        pytest.param(("shop.db", "get_person", 'id="2"', "--json"), id="JSON string"),
        pytest.param(("sqlite:///shop.db", "get_person", "id=2", "--json"), id="relative URL"),
        pytest.param(("short.toml", "get_person", "id=2", "--json"), id="configuration"),
    ],
)
def test_call_prints_structured_content(folder: Path, words: tuple[str, ...]) -> None:
    result = run("call", *words)

    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == {"row": {"id": 2, "name": "Bo", "salary": None, "notes": "x"}}
    assert result.stdout.count("\n") == 1


def test_call_prints_a_table(folder: Path) -> None:
    result = run("call", "shop.db", "list_person", 'columns=["id", "name"]', "limit=2")

    assert (result.exit_code, result.stderr) == (0, "")
    heading, _, first, second, *rest = result.stdout.splitlines()
    assert [line.split() for line in (heading, first, second)] == [["id", "name"], ["1", "Ada"], ["2", "Bo"]]
    assert any("2 rows" in line and "more" in line for line in rest)
    assert "\x1b" not in result.stdout


def test_list_tables_prints_a_table(folder: Path) -> None:
    result = run("call", "shop.db", "list_tables", "search=person")

    heading, _, person, count = result.stdout.splitlines()
    assert (result.exit_code, heading.split()) == (0, ["name", "row_estimate", "comment"])
    assert person.split() == ["person", "3", "Somebody."]
    assert count == "1 table"


def test_page_of_list_tables_says_of_how_many(folder: Path) -> None:
    result = run("call", "shop.db", "list_tables", "limit=2")

    _, _, _, _, count, cursor = result.stdout.splitlines()
    assert count == "2 of 5 tables"
    assert cursor.startswith("next_cursor: ")


def test_describe_tables_prints_a_table_of_columns(folder: Path) -> None:
    result = run("call", "shop.db", "describe_tables", 'tables=["person", "tag"]')

    lines = [line for line in result.stdout.splitlines() if line.strip("─")]
    assert (result.exit_code, result.stderr) == (0, "")
    assert lines == [
        "person (table, about 3 rows): Somebody.",
        "column",
        "id integer key",
        "name text 'What they are called'",
        "salary decimal(10,2)",
        "notes text",
        "tag (table, about 1 row)",
        "column",
        "story text key",
        "word text key",
        "2 tables",
    ]


def test_describe_tables_in_full_prints_what_is_said_of_each_column(folder: Path) -> None:
    result = run("call", "shop.db", "describe_tables", "tables=person", "detail=full")

    title, heading, _, *columns, key, _, count = result.stdout.splitlines()
    assert title == "person (table, about 3 rows): Somebody."
    assert heading.split() == ["name", "type", "nullable", "comment"]
    assert [line.split(maxsplit=3) for line in columns] == [
        ["id", "integer", "false"],
        ["name", "text", "false", "What they are called"],
        ["salary", "decimal(10,2)", "true"],
        ["notes", "text", "true"],
    ]
    assert (key, count) == ("key: id", "1 table")


def test_names_of_tables_alone_are_printed_below_each_other(folder: Path) -> None:
    result = run("call", "shop.db", "describe_tables", "detail=names")

    heading, _, *names, count = result.stdout.splitlines()
    assert (heading, names) == ("name", ["album", "person", "slow", "story", "tag"])
    assert count == "5 tables"


@pytest.mark.parametrize(
    "words", [("shop.db", "--json"), ("--json", "shop.db"), ("--role", "default", "shop.db", "--json")]
)
def test_tools_prints_the_array_of_tools_list_with_tokens(folder: Path, words: tuple[str, ...]) -> None:
    result = run("tools", *words)

    tools = json.loads(result.stdout)
    assert (result.exit_code, result.stderr) == (0, "")
    assert [tool["name"] for tool in tools][:4] == [
        "describe_tables",
        "aggregate_rows",
        "run_sql",
        "list_album",
    ]
    assert all(tool["tokens"] > 0 and tool["inputSchema"] and tool["outputSchema"] for tool in tools)


@pytest.mark.parametrize(
    ("options", "headings"),
    [
        pytest.param((), ["name", "title", "tokens"], id="plain"),
        pytest.param(
            ("--tokens",),
            ["name", "title", "description", "inputSchema", "outputSchema", "tokens"],
            id="split",
        ),
    ],
)
def test_tools_prints_what_each_tool_costs(
    folder: Path, options: tuple[str, ...], headings: list[str]
) -> None:
    result = run("tools", "shop.db", *options)

    first, *lines = result.stdout.splitlines()
    tools = json.loads(run("tools", "shop.db", "--json").stdout)
    assert first.split() == headings
    assert lines[-1].split()[:2] == [str(len(tools)), "tools"]
    assert lines[-1].split()[-1] == str(sum(tool["tokens"] for tool in tools))


def test_tools_that_exceed_the_budget_are_reported(folder: Path) -> None:
    Path("small.toml").write_text('[database]\nurl = "shop.db"\n[tools]\nbudget = 800\n')

    last = run("tools", "small.toml").stdout.splitlines()[-1]

    assert last.startswith("list_tables, list_rows, get_row replace list_album and 8 more: ")
    assert last.endswith(
        ", more than the budget of 800. To list them, set [tools] budget or pin in dbtools.toml."
    )


def test_schema_describes_configurations(folder: Path) -> None:
    result = run("schema")

    schema = json.loads(result.stdout)
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


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_ends_with_an_example(command: tuple[str, ...], option: str) -> None:
    result = run(*command, option)

    *_, heading, example = result.stdout.rstrip().splitlines()
    assert result.exit_code == 0
    assert heading.strip() == "Example:"
    assert example.strip().startswith(" ".join(("dbtools", *command)))


@pytest.mark.parametrize("command", GROUPS)
def test_help_has_one_full_line_for_each_command(command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*command, "--help"], terminal_width=80)

    _, _, told = result.stdout.partition("Commands:\n")
    lines = told.partition("\n\n")[0].splitlines()
    group = COMMANDS[command]
    assert isinstance(group, click.Group)
    assert [line.split()[0] for line in lines] == group.list_commands(click.Context(group))
    assert [line for line in lines if not line.endswith(".") or line.endswith("..") or len(line) > 80] == []


@pytest.mark.parametrize("command", sorted(PRINTING))
def test_command_that_prints_something_can_print_json(command: tuple[str, ...]) -> None:
    assert "--json" in {option for each in COMMANDS[command].params for option in each.opts}


def test_schema_is_json_with_and_without_the_option() -> None:
    assert run("schema", "--json").stdout == run("schema").stdout


def test_token_is_printed_as_json() -> None:
    result = run("token", "new", "--json")

    printed = json.loads(result.stdout)
    assert (result.exit_code, [*printed]) == (0, ["token", "sha256"])
    assert hash_of(printed["token"]) == printed["sha256"]


def test_version_is_printed() -> None:
    result = run("--version")

    assert (result.exit_code, result.stdout) == (0, f"dbtools, version {__version__}\n")


def test_reader_that_has_seen_enough_is_no_error(folder: Path) -> None:
    """As in `dbtools tools --json | head -c 1`."""
    script = f"{sys.executable} -m dbtools tools shop.db --json | head -c 1; exit ${{PIPESTATUS[0]}}"
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
