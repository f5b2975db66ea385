"""The command line: exit statuses, what is on stdout and what on stderr, and never a traceback."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import click
import jsonschema
import pytest
from click.testing import CliRunner, Result

from dbtools import __version__
from dbtools.cli import main
from dbtools.server.identity import hash_of
from tests.protocol.client import PATIENCE, ROOT

NOWHERE = "postgresql://somebody:sekret@127.0.0.1:1/shop"
FILES = {
    "text.db": "This is no database, and it is longer than the header of one would have to be. " * 20,
    "empty.toml": "",
    "broken.toml": "[database\n",
    "unknown.toml": '[database]\nurl = "shop.db"\ncolour = "red"\n',
    "unset.toml": '[database]\nurl = "${DBTOOLS_TEST_UNSET}"\n',
    "nowhere.toml": f'[database]\nurl = "{NOWHERE}"\n',
    "table.toml": '[database]\nurl = "shop.db"\n[tables.persons]\ndescription = "x"\n',
    "short.toml": '[database]\nurl = "shop.db"\n[limits]\ntimeout = "500ms"\n',
}
PostgresqlDatabase = Callable[[str], AbstractContextManager[str]]


@pytest.fixture
def folder(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the current folder: a database, and files that cannot be served."""
    (tmp_path / "shop.db").symlink_to(path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DBTOOLS_ROLE", raising=False)
    return tmp_path


def run(*words: str) -> Result:
    """Run the command line in this process."""
    result = CliRunner().invoke(main, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.stderr
    return result


@pytest.mark.parametrize("command", ["tools", "call"])
@pytest.mark.parametrize(
    ("target", "said"),
    [
        pytest.param("missing.toml", "missing.toml", id="no such configuration"),
        pytest.param("text.db", "not a SQLite database", id="not a database"),
        pytest.param("sqlite:///missing.db", "does not exist", id="no such file"),
        pytest.param("sqlite://", "names no database file", id="URL without a file"),
        pytest.param("mysql://localhost/shop", "mysql", id="unknown scheme"),
        pytest.param("://", "''", id="no scheme"),
        pytest.param(NOWHERE, "cannot be reached", id="unreachable"),
        pytest.param("nowhere.toml", "cannot be reached", id="configuration of the unreachable"),
        pytest.param("empty.toml", "[database] url", id="empty configuration"),
        pytest.param("broken.toml", "broken.toml", id="not TOML"),
        pytest.param("unknown.toml", "colour", id="unknown key"),
        pytest.param("unset.toml", "DBTOOLS_TEST_UNSET", id="unset variable"),
    ],
)
def test_target_that_cannot_be_served_ends_with_2(folder: Path, command: str, target: str, said: str) -> None:
    words = (command, target, "list_person") if command == "call" else (command, target)
    result = run(*words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert_one_complaint(result.stderr, said)


def assert_one_complaint(stderr: str, said: str) -> None:
    """Assert that *stderr* is a short complaint that says *said*, and tells no secret."""
    assert said in stderr
    assert "sekret" not in stderr
    assert stderr.startswith("dbtools: ")
    assert stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("target", "said"),
    [
        pytest.param("missing.toml", "missing.toml", id="no such configuration"),
        pytest.param("text.db", "not a SQLite database", id="not a database"),
        pytest.param(NOWHERE, "cannot be reached", id="unreachable"),
    ],
)
def test_what_cannot_be_served_ends_the_server_with_2(folder: Path, target: str, said: str) -> None:
    ended = _process("serve", target, folder=folder)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert_one_complaint(ended.stderr, said)


def _process(*words: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        (sys.executable, "-m", "dbtools", *words),
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("tools",), "dbtools.toml", id="no target"),
        pytest.param(("tools", "missing.db"), "missing.db", id="unknown file"),
        pytest.param(("tools", "."), "'.'", id="folder"),
        pytest.param(("tools", "shop.db", "--role", "boss"), "default", id="unknown role"),
        pytest.param(("tools", "shop.db", "more"), "more", id="too many words"),
        pytest.param(("tools", "shop.db", "--colour"), "--colour", id="unknown option"),
        pytest.param(("toolz",), "toolz", id="unknown command"),
        pytest.param(("call", "shop.db"), "TOOL", id="no tool"),
        pytest.param(("call",), "TOOL", id="nothing to call"),
        pytest.param(("call", "shop.db", "list_persn"), "list_person", id="unknown tool"),
        pytest.param(
            ("call", "shop.db", "describe_tables", 'tables=["persn"]'), "person", id="unknown table"
        ),
        pytest.param(
            ("call", "shop.db", "list_person", "--role", "boss"), "default", id="unknown role of a call"
        ),
        pytest.param(("call", "shop.db", "list_person", "limit"), "key=value", id="no key=value"),
        pytest.param(("call", "shop.db", "list_person", "=1"), "key=value", id="no key"),
        pytest.param(("call", "shop.db", "list_person", "{limit: 1}"), "JSON", id="not JSON"),
        pytest.param(("call", "shop.db", "list_person", "{" * 100_000), "JSON", id="deep JSON"),
    ],
)
def test_wrong_use_ends_with_2(folder: Path, words: tuple[str, ...], said: str) -> None:
    result = run(*words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert result.stderr.count("\n") <= 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("list_person", "limit=0"), "limit", id="bad argument"),
        pytest.param(("list_person", "colour=red"), "colour", id="unknown argument"),
        pytest.param(("list_person", 'columns=["age"]'), "age", id="unknown column"),
        pytest.param(("list_person", "cursor=forged"), "cursor", id="forged cursor"),
        pytest.param(("list_person", "limit=" + "9" * 5_000), "limit", id="endless integer"),
        pytest.param(("list_person", "cursor=\udc80"), "cursor", id="bytes that are no UTF-8"),
        pytest.param(("get_person", "id=99"), "no row", id="no row"),
        pytest.param(("get_person",), "id", id="missing key"),
        pytest.param(("get_person", '{"id": {}}'), "id", id="key of the wrong type"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_refused_call_ends_with_1(
    folder: Path, words: tuple[str, ...], options: tuple[str, ...], said: str
) -> None:
    result = run("call", "shop.db", *words, *options)

    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_call_that_takes_too_long_ends_with_1(folder: Path) -> None:
    result = run("call", "short.toml", "list_slow")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "timeout" in result.stderr


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


def test_absolute_url_names_the_same_file(folder: Path) -> None:
    result = run("call", f"sqlite:///{folder / 'shop.db'}", "list_person", "--json")

    assert json.loads(result.stdout)["row_count"] == 3


@pytest.mark.parametrize(
    ("word", "rows"),
    [
        pytest.param('columns=["name"]', [["Ada"], ["Bo"], ["Cy"]], id="JSON array"),
        pytest.param("limit=1", [[1, "Ada"]], id="JSON number"),
        pytest.param("order_by=id desc", [[3, "Cy"], [2, "Bo"], [1, "Ada"]], id="text for an array of it"),
        pytest.param("where=id", None, id="text where an object is wanted"),
        pytest.param('order_by=["id desc"]', [[3, "Cy"], [2, "Bo"], [1, "Ada"]], id="JSON text in an array"),
        pytest.param("match=any", [[1, "Ada"], [2, "Bo"], [3, "Cy"]], id="text"),
        pytest.param("cursor=", [[1, "Ada"], [2, "Bo"], [3, "Cy"]], id="nothing"),
        pytest.param('where=[{"column": "name", "value": "a=b"}]', [], id="equals sign within"),
    ],
)
def test_value_that_parses_as_json_is_json_else_a_string(
    folder: Path, word: str, rows: list[list[object]] | None
) -> None:
    columns = () if word.startswith("columns") else ('columns=["id", "name"]',)
    result = run("call", "shop.db", "list_person", *columns, word, "--json")

    assert (json.loads(result.stdout)["rows"] if result.exit_code == 0 else None) == rows


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


def test_configuration_in_the_current_folder_is_used(folder: Path) -> None:
    (folder / "dbtools.toml").write_text('[database]\nurl = "shop.db"\n')
    listed = run("tools", "--json")
    called = run("call", "list_person", "limit=1", "--json")

    assert "list_person" in [tool["name"] for tool in json.loads(listed.stdout)]
    assert json.loads(called.stdout)["row_count"] == 1


def test_path_in_a_configuration_is_relative_to_its_file(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    result = run("tools", str(folder / "short.toml"), "--json")

    assert result.exit_code == 0


@pytest.mark.parametrize(
    "words", [("shop.db", "--json"), ("--json", "shop.db"), ("--role", "default", "shop.db", "--json")]
)
def test_tools_prints_the_array_of_tools_list_with_tokens(folder: Path, words: tuple[str, ...]) -> None:
    result = run("tools", *words)

    tools = json.loads(result.stdout)
    assert (result.exit_code, result.stderr) == (0, "")
    assert [tool["name"] for tool in tools][:3] == ["describe_tables", "aggregate_rows", "list_album"]
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


def test_role_may_come_from_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBTOOLS_ROLE", "boss")
    refused = run("tools", "shop.db")
    allowed = run("tools", "shop.db", "--role", "default")

    assert (refused.exit_code, allowed.exit_code) == (2, 0)
    assert "boss" in refused.stderr


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


def test_misspelt_command_is_told_what_is_meant() -> None:
    result = run("serv", "sample.db")

    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        2,
        "Error: No such command 'serv'. Did you mean 'serve'?",
    )


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


def test_postgresql_is_a_target(postgresql_database: PostgresqlDatabase) -> None:
    with postgresql_database("create table thing (id integer primary key)") as url:
        called = run("call", url, "list_thing", "--json")
        missing = run("tools", url.rpartition("/")[0] + "/there_is_none")

    assert json.loads(called.stdout)["rows"] == []
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert missing.stderr.count("\n") == 1


def test_unknown_table_in_the_configuration_is_told_with_its_line(folder: Path) -> None:
    checked = run("check", "table.toml")
    called = run("call", "table.toml", "list_person", "limit=1")

    assert checked.exit_code == 1
    assert (
        "table.toml:3: error: [tables]: 'persons' is not a table of the database. Did you mean person?"
        in (checked.stdout)
    )
    assert called.exit_code == 0
