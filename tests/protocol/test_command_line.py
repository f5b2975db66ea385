"""The command line: targets, options, exit statuses and complaints."""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.protocol.client import PATIENCE, ROOT
from tests.protocol.command_line import NOWHERE, assert_one_complaint, folder as folder, run

PostgresqlDatabase = Callable[[str], AbstractContextManager[str]]


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
        pytest.param(("call", "list_person", "shop.db"), "TOOL: shop.db list_person", id="tool first"),
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


def test_role_may_come_from_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBTOOLS_ROLE", "boss")
    refused = run("tools", "shop.db")
    allowed = run("tools", "shop.db", "--role", "default")

    assert (refused.exit_code, allowed.exit_code) == (2, 0)
    assert "boss" in refused.stderr


def test_misspelt_command_gets_a_suggestion() -> None:
    result = run("serv", "sample.db")

    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        2,
        "Error: No such command 'serv'. Did you mean 'serve'?",
    )


def test_postgresql_is_a_target(postgresql_database: PostgresqlDatabase) -> None:
    with postgresql_database("create table thing (id integer primary key)") as url:
        called = run("call", url, "list_thing", "--json")
        missing = run("tools", url.rpartition("/")[0] + "/there_is_none")

    assert json.loads(called.stdout)["rows"] == []
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert missing.stderr.count("\n") == 1


def test_unknown_table_in_the_configuration_is_reported_with_its_line(folder: Path) -> None:
    checked = run("check", "table.toml")
    called = run("call", "table.toml", "list_person", "limit=1")

    assert checked.exit_code == 1
    assert (
        "table.toml:3: error: [tables]: 'persons' is not a table of the database. Did you mean person?"
        in (checked.stdout)
    )
    assert called.exit_code == 0
