"""`dbtools log`: which calls it prints, those that arrive later, and its exit statuses."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dbtools.cli import main
from dbtools.cli.log import OUTCOMES
from dbtools.records import Outcome
from tests.processes import forked
from tests.protocol.client import PATIENCE, ROOT

NOW = datetime.now(UTC)
CONFIGURATION = """
[database]
url = "shop.db"
[log]
file = "calls.jsonl"
"""


def _line(tool: str, *, ago: float = 0.0, **more: object) -> str:
    """Return the line of a call of *tool* that came *ago* seconds before the tests began."""
    content = {
        "time": (NOW - timedelta(seconds=ago)).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "identity": None,
        "role": "default",
        "tool": tool,
        "arguments": {"limit": 5},
        "rows": 5,
        "bytes": 300,
        "truncated": False,
        **dict.fromkeys(("affected", "dry_run", "changes", "confirmed")),
        "duration": 0.0125,
        "outcome": "ok",
        "code": None,
        "protocol": "2025-11-25",
        "client": "raw/1",
    }
    return json.dumps({**content, **more}, separators=(",", ":"), ensure_ascii=False) + "\n"


OLDEST = _line("list_orders", ago=200_000, role="support", identity="ann", rows=200, truncated=True)
OLD = _line("get_order", ago=14_400, outcome="denied", code="denied", rows=None, truncated=None)
NEW = _line("list_customers", ago=600, outcome="error", code="bad_value", role="support")
NEWEST = _line("list_orders", ago=10, outcome="timeout", code="timeout", duration=10.0)
ALL = [OLDEST, OLD, NEW, NEWEST]
CHANGE = {"key": {"id": 1}, "old": {"total": 1.5}, "new": {"total": 2.5}}
CHANGED = _line("update_orders", affected=2, dry_run=False, changes=[CHANGE], rows=1, truncated=True)
TRIED = _line("delete_orders", affected=1, dry_run=True)
REFUSED = _line("update_rows", dry_run=True, outcome="error", code="no_row", rows=None, truncated=None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the current folder: a configuration and a log."""
    (tmp_path / "dbtools.toml").write_text(CONFIGURATION)
    (tmp_path / "calls.jsonl").write_text("".join(ALL))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> Result:
    """Run `dbtools log` in this process."""
    result = CliRunner().invoke(main, ("log", *words))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_json_prints_the_lines_as_they_are_stored(folder: Path) -> None:
    spaced = '{ "tool":  "ä\\u202e" , "a": 1, "a": 2}\n'
    with (folder / "calls.jsonl").open("a") as file:
        file.write(spaced)
    result = run("dbtools.toml", "--json")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "".join([*ALL, spaced]), "")


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        pytest.param((), ALL, id="all"),
        pytest.param(("--tool", "list_orders"), [OLDEST, NEWEST], id="tool"),
        pytest.param(("--tool", "list"), [], id="part of a tool"),
        pytest.param(("--tool", "list_*"), [OLDEST, NEW, NEWEST], id="pattern of tools"),
        pytest.param(("--tool", "get_order", "--tool", "*_customers"), [OLD, NEW], id="tools"),
        pytest.param(("--role", "support"), [OLDEST, NEW], id="role"),
        pytest.param(("--role", "supp*"), [], id="no pattern of roles"),
        pytest.param(("--outcome", "denied"), [OLD], id="outcome"),
        pytest.param(("--outcome", "error", "--outcome", "timeout"), [NEW, NEWEST], id="outcomes"),
        pytest.param(("--since", "90000s"), [OLD, NEW, NEWEST], id="seconds"),
        pytest.param(("--since", "90m"), [NEW, NEWEST], id="minutes"),
        pytest.param(("--since", "6.5h"), [OLD, NEW, NEWEST], id="hours"),
        pytest.param(("--since", "2d"), [OLD, NEW, NEWEST], id="days"),
        pytest.param(("--since", "3d"), ALL, id="more days"),
        pytest.param(("--since", "2020-03-01T12:00:00Z"), ALL, id="time"),
        pytest.param(("--since", "2999-03-01T12:00:00+02:00"), [], id="time to come"),
        pytest.param(("--since", (NOW - timedelta(seconds=700)).isoformat()), [NEW, NEWEST], id="time now"),
        pytest.param(("--since", "1h", "--role", "support", "--tool", "list_*"), [NEW], id="all of them"),
    ],
)
def test_filters(folder: Path, options: tuple[str, ...], lines: list[str]) -> None:
    result = run("--json", *options)

    assert (result.exit_code, result.stdout.splitlines(keepends=True)) == (0, lines)


def test_writes_are_calls_that_were_to_change_rows(folder: Path) -> None:
    (folder / "calls.jsonl").write_text("".join([OLD, CHANGED, NEW, TRIED, REFUSED]))

    assert run("--json", "--writes").stdout.splitlines(keepends=True) == [CHANGED, TRIED, REFUSED]
    assert run("--json", "--writes", "--outcome", "error").stdout == REFUSED
    assert run("--writes", "--role", "nobody").stderr == "No calls match.\n"


def test_people_see_how_many_rows_a_call_changed_and_dry_runs(folder: Path) -> None:
    (folder / "calls.jsonl").write_text("".join([CHANGED, TRIED, REFUSED]))
    lines = run().stdout.splitlines()

    assert [line.split()[2:-3] for line in lines] == [
        ["update_orders", "ok", "2"],
        ["delete_orders", "ok", "(dry", "run)", "1"],
        ["update_rows", "error", "(no_row,", "dry", "run)", "-"],
    ]
    assert lines[0].endswith('[{"key":{"id":1},"old":{"total":1.5},"new":{"total":2.5}}]')
    assert lines[1].endswith('{"limit":5}')


def test_call_without_a_time_is_not_since(folder: Path) -> None:
    (folder / "calls.jsonl").write_text('{"tool":"a"}\n{"time":5}\n{"time":"soon"}\n' + NEW)

    assert run("--json", "--since", "1h").stdout == NEW


def test_role_of_the_environment_is_no_filter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBTOOLS_ROLE", "support")

    assert run("--json").stdout == "".join(ALL)


def test_people_see_a_line_of_each_call(folder: Path) -> None:
    result = run()

    lines = result.stdout.splitlines()
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split()[1:] for line in lines] == [
        ["support", "(ann)", "list_orders", "ok", "200+", "12.5", "ms", '{"limit":5}'],
        ["default", "get_order", "denied", "-", "12.5", "ms", '{"limit":5}'],
        ["support", "list_customers", "error", "(bad_value)", "5", "12.5", "ms", '{"limit":5}'],
        ["default", "list_orders", "timeout", "5", "10000.0", "ms", '{"limit":5}'],
    ]
    assert len({line.index("{") for line in lines}) == 1
    assert lines[0].startswith(json.loads(OLDEST)["time"])
    assert "\x1b" not in result.stdout


def test_no_call_breaks_a_line_or_moves_the_cursor(folder: Path) -> None:
    evil = "a\nb\r\t\x1b[2J\u202e\u0085\u2028"
    line = _line(evil, role=evil, identity=evil, outcome=evil, code=evil, rows=evil, arguments={evil: evil})
    (folder / "calls.jsonl").write_text(line)
    result = run("--since", "1h")

    assert result.stdout.count("\n") == len(result.stdout.splitlines()) == 1
    assert not {*"\r\t\x1b\u202e"} & {*result.stdout}


@pytest.mark.parametrize("line", ["{}", '{"duration":"x","arguments":null,"rows":[],"truncated":7}'])
def test_strange_calls_are_shown(folder: Path, line: str) -> None:
    (folder / "calls.jsonl").write_text(f"{line}\n")
    result = run("--tool", "None")

    assert result.exit_code == 0
    assert run().stdout.count("\n") == 1


def test_lines_that_hold_no_call_are_counted(folder: Path) -> None:
    with (folder / "calls.jsonl").open("a") as file:
        file.write('{"torn\n[1]\n' + NEW + '{"not yet')
    result = run("--json")

    assert (result.exit_code, result.stdout) == (0, "".join([*ALL, NEW]))
    assert result.stderr == "dbtools: skipped 2 lines that are not a call.\n"


@pytest.mark.parametrize(
    ("options", "said"), [((), "No calls yet.\n"), (("--json",), "")], ids=["people", "scripts"]
)
def test_log_that_is_not_there_yet_holds_no_calls(folder: Path, options: tuple[str, ...], said: str) -> None:
    for path in folder.glob("calls*"):
        path.unlink()
    result = run(*options)

    assert (result.exit_code, result.stdout, result.stderr) == (0, "", said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("missing.toml",), "missing.toml", id="no such configuration"),
        pytest.param(("stderr.toml",), "[log] file", id="log on stderr"),
        pytest.param(("shop.db",), "[log] file", id="no configuration"),
        pytest.param(("folder.toml",), "regular file", id="folder"),
        pytest.param(("nul.toml",), "nul.toml:4: log.file", id="NUL"),
        pytest.param(("--since", "yesterday"), "yesterday", id="word"),
        pytest.param(("--since", "1"), "1", id="no unit"),
        pytest.param(("--since", "-1h"), "-1h", id="negative"),
        pytest.param(("--since", "9" * 400 + "d"), "999", id="endless"),
        pytest.param(("--since", "9999999d"), "9999999d", id="before all time"),
        pytest.param(("--since", ""), "''", id="nothing"),
        pytest.param(("--outcome", "fine"), "cancelled", id="outcome"),
    ],
)
def test_wrong_use_ends_with_2(folder: Path, words: tuple[str, ...], said: str) -> None:
    (folder / "shop.db").touch()
    for name, file in [("stderr", ""), ("folder", "."), ("nul", "a\\u0000b")]:
        text = f'[database]\nurl = "shop.db"\n[log]\nfile = "{file}"\n'
        (folder / f"{name}.toml").write_text(text)
    result = run(*words)

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert result.stderr.count("\n") <= 5
    assert "internal error" not in result.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads any file")
def test_log_that_cannot_be_read_ends_with_2(folder: Path) -> None:
    (folder / "calls.jsonl").chmod(0)
    result = run()

    assert (result.exit_code, result.stdout) == (2, "")
    assert "Permission denied" in result.stderr


def test_help_ends_with_an_example() -> None:
    *_, heading, example = run("--help").stdout.rstrip().splitlines()

    assert (heading.strip(), example.split()[:2]) == ("Example:", ["dbtools", "log"])


def test_outcomes_are_those_of_the_log() -> None:
    assert list(OUTCOMES) == [str(outcome) for outcome in Outcome]


@pytest.fixture
def following(folder: Path) -> "Iterator[subprocess.Popen[str]]":
    """Run `dbtools log --json --follow` in a separate process."""
    with following_in(folder, "--json", "--follow", "--role", "support") as process:
        yield process
        process.kill()


def test_follow_prints_writes_alone(folder: Path) -> None:
    with following_in(folder, "--json", "--follow", "--writes") as process:
        with (folder / "calls.jsonl").open("a") as file:
            file.write(OLD + TRIED + NEW + CHANGED)
        found = read_lines(process, 2)
        process.kill()

    assert found == [TRIED, CHANGED]


def following_in(folder: Path, *options: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        (*forked(), "log", *options),
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_lines(process: "subprocess.Popen[str]", count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def test_follow_prints_calls_as_they_come_until_interrupted(
    folder: Path, following: "subprocess.Popen[str]"
) -> None:
    path = folder / "calls.jsonl"
    found = read_lines(following, 2)
    added = [_line(f"tool_{number}", role="support") for number in range(3)]
    with path.open("a") as file:
        file.write(added[0] + "no call\n" + _line("other", role="other"))
    found += read_lines(following, 1)
    with path.open("a") as file:
        file.write(added[1])
    path.rename(folder / "calls.jsonl.1")
    path.write_text(added[2])
    found += read_lines(following, 2)
    following.send_signal(signal.SIGINT)
    rest, complaint = following.communicate(timeout=PATIENCE)

    assert found == [OLDEST, NEW, *added]
    assert (rest, complaint) == ("", "dbtools: skipped 1 line that is not a call.\n")
    assert following.returncode == 130


def test_reader_that_has_seen_enough_is_no_error(folder: Path) -> None:
    (folder / "calls.jsonl").write_text(NEW * 10_000)
    with following_in(folder) as process:
        read_lines(process, 1)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()

        assert process.wait(timeout=PATIENCE) == 0
        assert process.stderr.read() == ""


def _on_a_terminal(folder: Path, **environment: str) -> str:
    """Return what is printed on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        (sys.executable, "-m", "dbtools", "log"),
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "COLUMNS": "80", **environment},
        stdout=theirs,
    ):
        os.close(theirs)
        printed = b""
        while True:
            try:
                chunk = os.read(ours, 4096)
            except OSError:
                break
            if not chunk:
                break
            printed += chunk
    os.close(ours)
    return printed.decode()


def test_terminal_has_colours_and_lines_as_wide_as_it_is(folder: Path) -> None:
    (folder / "calls.jsonl").write_text(_line("list_orders", outcome="error", arguments={"where": "x" * 200}))
    coloured, plain = _on_a_terminal(folder), _on_a_terminal(folder, NO_COLOR="1")

    assert "\x1b[31m" in coloured
    assert "\x1b" not in plain
    assert max(map(len, plain.splitlines())) == 80
    assert plain.splitlines()[-1].endswith("…")
