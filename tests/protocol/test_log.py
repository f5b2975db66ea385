"""`dbtools log`: which calls it prints, those that arrive later, and its exit statuses."""

import json
import os
import signal
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dbtools.cli import main
from dbtools.cli.log import OUTCOMES
from dbtools.records import Outcome
from tests.processes import forked
from tests.protocol.client import PATIENCE, ROOT
from tests.protocol.terminal import shown_by

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
    """Return the current folder: a configuration and a log."""
    (tmp_path / "dbtools.toml").write_text(CONFIGURATION)
    (tmp_path / "calls.jsonl").write_text("".join(ALL))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> Result:
    """Run `dbtools log` in this process."""
    result = CliRunner().invoke(main, ("log", *words))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.mark.parametrize(
    ("since", "lines"),
    [
        ("90000s", [OLD, NEW, NEWEST]),
        ("90m", [NEW, NEWEST]),
        ("6.5h", [OLD, NEW, NEWEST]),
        ("2d", [OLD, NEW, NEWEST]),
        ("3d", ALL),
        pytest.param((NOW - timedelta(seconds=700)).isoformat(), [NEW, NEWEST], id="moment"),
    ],
)
def test_calls_since_a_while_are_printed(folder: Path, since: str, lines: list[str]) -> None:
    result = run("--json", "--since", since)

    assert (result.exit_code, result.stdout.splitlines(keepends=True)) == (0, lines)


def test_endless_period_ends_with_2(folder: Path) -> None:
    assert run("--since", "9" * 400 + "d").exit_code == 2


def test_no_call_breaks_a_line_or_moves_the_cursor(folder: Path) -> None:
    evil = "a\nb\r\t\x1b[2J\u202e\u0085\u2028"
    line = _line(evil, role=evil, identity=evil, outcome=evil, code=evil, rows=evil, arguments={evil: evil})
    (folder / "calls.jsonl").write_text(line)
    result = run("--since", "1h")

    assert result.stdout.count("\n") == len(result.stdout.splitlines()) == 1
    assert not {*"\r\t\x1b\u202e"} & {*result.stdout}


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads any file")
def test_log_that_cannot_be_read_ends_with_2(folder: Path) -> None:
    (folder / "calls.jsonl").chmod(0)
    result = run()

    assert (result.exit_code, result.stdout) == (2, "")
    assert "Permission denied" in result.stderr


def test_outcomes_are_those_of_the_log() -> None:
    assert list(OUTCOMES) == [str(outcome) for outcome in Outcome]


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


def test_follow_prints_calls_as_they_come_until_interrupted(folder: Path) -> None:
    path = folder / "calls.jsonl"
    added = [_line(f"tool_{number}", role="support") for number in range(3)]
    with following_in(folder, "--json", "--follow", "--role", "support") as following:
        found = read_lines(following, 2)
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


def test_terminal_has_colours_and_lines_as_wide_as_it_is(folder: Path) -> None:
    (folder / "calls.jsonl").write_text(_line("list_orders", outcome="error", arguments={"where": "x" * 200}))
    coloured = shown_by("log", folder=folder, columns=80)
    plain = shown_by("log", folder=folder, columns=80, environment={"NO_COLOR": "1"})

    assert "\x1b[31m" in coloured
    assert "\x1b" not in plain
    assert max(map(len, plain.splitlines())) == 80
    assert plain.splitlines()[-1].endswith("…")
