"""Commands in a process and at PostgreSQL, odd arguments, and names that a terminal would obey."""

import json
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from click.testing import CliRunner

from dbtools.cli import main
from tests.processes import forked
from tests.protocol.client import PATIENCE, ROOT
from tests.protocol.command_line import assert_one_complaint, folder as folder, run

PostgresqlDatabase = Callable[[str], AbstractContextManager[str]]
DEEP = "{" * 100_000


def test_what_cannot_be_served_ends_the_process_with_2(folder: Path) -> None:
    ended = subprocess.run(
        (*forked(), "serve", "text.db"),
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (2, "")
    assert_one_complaint(ended.stderr, "not a SQLite database")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        pytest.param(("list_person", DEEP), 2, "JSON", id="deep JSON"),
        pytest.param(("list_person", f"where={'[' * 100_000}"), 1, "it is too large", id="deep value"),
        pytest.param(("list_person", "limit=" + "9" * 5_000), 1, "limit", id="endless integer"),
        pytest.param(("list_person", "cursor=\udc80"), 1, "cursor", id="bytes that are no UTF-8"),
    ],
)
def test_odd_argument_is_refused(folder: Path, words: tuple[str, ...], status: int, said: str) -> None:
    result = run("call", "shop.db", *words)

    assert (result.exit_code, result.stdout) == (status, "")
    assert said in result.stderr
    assert result.stderr.count("\n") <= 5


def test_deep_claims_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBTOOLS_CLAIMS", '{"a":' * 20_000)
    result = run("tools", "shop.db")

    assert (result.exit_code, "DBTOOLS_CLAIMS must be" in result.stderr) == (2, True)


def test_postgresql_is_a_target(postgresql_database: PostgresqlDatabase) -> None:
    with postgresql_database("create table thing (id integer primary key)") as url:
        called = run("call", url, "list_thing", "--json")
        missing = run("tools", url.rpartition("/")[0] + "/there_is_none")

    assert json.loads(called.stdout)["rows"] == []
    assert (missing.exit_code, missing.stdout) == (2, "")
    assert missing.stderr.count("\n") == 1


#: Escape sequences, a carriage return, and characters that turn the direction of text.
ODD = """
create table "evil\x1b[31m\rname" (id integer primary key, "co\x1b[2Jl\x9b\u202e" text);
insert into "evil\x1b[31m\rname" values (1, '\x1b[31m\r');
"""
COMMANDS = [
    *(
        "explain list_evil__31m_name",
        "explain list_evil__31m_name columns=nope",
        "explain list_rows table=evil",
    ),
    *("explain list_evil__31m_name --json", "call list_evil__31m_name", "call list_evil__31m_name --json"),
    *("call list_evil__31m_name columns=nope", "call describe_tables", "tools", "check", "check --json"),
]


def test_names_print_nothing_that_a_terminal_obeys(url_of: Callable[[str], str]) -> None:
    url = url_of(ODD)
    for text in COMMANDS:
        command, *rest = text.split()
        # With color=False, click would remove escape sequences, since there is no terminal.
        result = CliRunner().invoke(main, (command, url, *rest), color=True)

        assert not set("\x1b\r\x9b\u202e") & set(result.output), text
        assert "31m" in result.output or command == "check"


#: The declared type of a column on both databases, and a value of a condition.
TYPES: list[tuple[str, object]] = [
    ("integer", 7),
    ("bigint", 9007199254740993),
    ("real", 0.5),
    ("boolean", True),
    ("text", "a"),
    ("varchar(3)", "'"),
    ("numeric(30, 4)", "12345678901234567890.1234"),
    ("date", "2024-02-29"),
    ("time", "10:30:00"),
    ("timestamp", "2024-02-29T10:30:00"),
]
OWN: dict[str, list[tuple[str, object]]] = {
    "sqlite": [("blob", "YWJj"), ("datetime", "2024-02-29T10:30:00Z"), ("json", "{}")],
    "postgresql": [
        ("bytea", "YWJj"),
        ("timestamptz", "2024-02-29T10:30:00Z"),
        ("timetz", "10:30:00+02"),
        ("interval", "1 day"),
        ("uuid", "6f2b1f0e-0000-4000-8000-000000000001"),
        ("inet", "10.0.0.1"),
        ("money", "1.00"),
        ("float8", 1e300),
        ("jsonb", "{}"),
        ("integer[]", [1, 2]),
        ("text[]", ["a"]),
        ("int4range", "[1,2)"),
        ("point", "(1,2)"),
    ],
}


def test_condition_on_a_column_of_every_type_is_explained(url_of: Callable[[dict[str, str]], str]) -> None:
    types = {dialect: dict([*TYPES, *own]) for dialect, own in OWN.items()}
    url = url_of({dialect: _ddl(each) for dialect, each in types.items()})
    values, outcomes = types[url.partition(":")[0]], {}
    for number, (type, value) in enumerate(values.items()):
        conditions = [{"column": f"c{number}", "op": op, "value": value} for op in ("eq", "ne")]
        conditions.append({"column": f"c{number}", "op": "in", "values": [value]})
        words = ("explain", url, "list_t", f"where={json.dumps(conditions)}")
        shown, encoded = run(*words), run(*words, "--json")
        assert (shown.exit_code, encoded.exit_code) == (0, 0), (type, shown.stderr, encoded.stderr)
        outcomes[type] = json.loads(encoded.stdout)

    allowed = [each for each in outcomes.values() if each["allowed"]]
    assert len(allowed) > len(values) * 3 // 4
    assert all(each["parameters"] for each in allowed)
    if "blob" in values:
        assert {"base64": "YWJj"} in outcomes["blob"]["parameters"]


def _ddl(types: dict[str, object]) -> str:
    columns = (f"c{number} {type}" for number, type in enumerate(types))
    return f"create table t (id integer primary key, {', '.join(columns)})"
