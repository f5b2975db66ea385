"""Behaviour at a real terminal: colours, width, progress and interrupts."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.protocol.client import PATIENCE
from tests.protocol.terminal import ENVIRONMENT, on_terminal, shown_by

ESCAPE = "\x1b"
CURSOR_SHOWN = b"\x1b[?25h"
ERASED = b"\r\x1b[1A\x1b[2K"  #: the line above
QUERY = "-- name: one\n-- description: One.\nselect 1 as one\n"


@pytest.fixture
def folder(path: Path, tmp_path: Path) -> Path:
    """Return a folder with a database, one of whose views never ends."""
    (tmp_path / "shop.db").symlink_to(path)
    (tmp_path / "patient.toml").write_text('[database]\nurl = "shop.db"\n[limits]\ntimeout = "1500ms"\n')
    (tmp_path / "one.sql").write_text(QUERY)
    return tmp_path


@pytest.fixture
def silent_url() -> Iterator[str]:
    """Yield the URL of a server that accepts connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"postgresql://somebody:sekret@127.0.0.1:{server.getsockname()[1]}/shop"


GET = ("call", "shop.db", "get_person", "id=2")


def test_terminal_has_colours(folder: Path) -> None:
    assert ESCAPE in shown_by(*GET, folder=folder)


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        pytest.param(GET, {"NO_COLOR": "1"}, id="NO_COLOR"),
        pytest.param(("tools", "shop.db"), {"NO_COLOR": "1", "FORCE_COLOR": "1"}, id="beside FORCE_COLOR"),
        pytest.param(("call", "shop.db", "list_tables"), {"TERM": "dumb"}, id="dumb terminal"),
    ],
)
def test_terminal_without_colours_shows_no_escape_sequence(
    folder: Path, words: tuple[str, ...], environment: dict[str, str]
) -> None:
    shown = shown_by(*words, folder=folder, environment=environment)

    assert "person" in shown or "Bo" in shown
    assert ESCAPE not in shown


def test_pipe_has_no_colours(folder: Path) -> None:
    with on_terminal(*GET, folder=folder, environment={"FORCE_COLOR": "1"}) as screen:
        status, printed = screen.end()

    assert status == 0
    assert "Bo" in printed
    assert ESCAPE not in printed


ROWS = ("call", "shop.db", "list_person", 'columns=["id", "name", "salary"]', "limit=2")


def test_rows_that_fit_stand_side_by_side_and_no_text_is_broken(folder: Path) -> None:
    """A cursor that is copied from a terminal is complete."""
    shown = shown_by(*ROWS, folder=folder, columns=30, environment={"NO_COLOR": "1"}).splitlines()
    [cursor] = [line for line in shown if line.startswith("next_cursor: ")]
    called = shown_by(*ROWS, f"cursor={cursor.split()[1]}", "--json", folder=folder)

    assert [line.split() for line in shown[2:4]] == [["1", "Ada", "10.5"], ["2", "Bo", "null"]]
    assert len(cursor) > 30
    assert json.loads(called)["rows"] == [[3, "Cy", 7]]


def test_rows_that_are_too_wide_have_one_field_on_each_line(folder: Path) -> None:
    lines = shown_by(*ROWS, folder=folder, columns=17, environment={"NO_COLOR": "1"}).splitlines()

    assert [line.split() for line in lines if line.strip("─")][:7] == [
        ["row", "1"],
        ["id", "1"],
        ["name", "Ada"],
        ["salary", "10.5"],
        ["row", "2"],
        ["id", "2"],
        ["name", "Bo"],
    ]


def test_call_that_takes_long_shows_progress_and_ends_quietly_when_interrupted(folder: Path) -> None:
    with on_terminal("call", "shop.db", "list_slow", "--json", folder=folder) as screen:
        screen.wait_for("Calling list_slow")
        screen.interrupt()
        status, printed = screen.end()

    assert (status, printed) == (130, "")
    assert b"Traceback" not in screen.shown
    assert CURSOR_SHOWN in screen.shown


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("tools {url}", "Reading the database"),
        ("explain {url} list_person", "Reading the database"),
        ("check {url} --json", "Checking"),
        ("check shop.db --against {url}", "Checking"),
        ("query add {url} one.sql", "Reading the database"),
        ("registry upgrade {url}", "Upgrading the registry"),
    ],
)
def test_waiting_for_a_database_shows_progress_and_ends_quietly_when_interrupted(
    folder: Path, silent_url: str, text: str, title: str
) -> None:
    with on_terminal(*text.format(url=silent_url).split(), folder=folder) as screen:
        screen.wait_for(title)
        screen.interrupt()
        status, printed = screen.end()

    assert (status, printed) == (130, "")
    assert b"Traceback" not in screen.shown
    assert CURSOR_SHOWN in screen.shown


WAITING = """
from dbtools.cli.options import waiting
with waiting("Checking"):
    input()
print("Done")
"""


def test_progress_leaves_nothing_behind(folder: Path) -> None:
    with on_terminal(folder=folder, program=(sys.executable, "-c", WAITING)) as screen:
        screen.wait_for("Checking")
        screen.type("\n")
        ended = screen.end()

    assert ended == (0, "Done\n")
    assert screen.shown.endswith(CURSOR_SHOWN + ERASED)


TIMED_OUT = "dbtools: The call reached its timeout of 1.5 seconds"


PATIENT = ("call", "patient.toml", "list_slow")


def test_terminal_whose_cursor_cannot_be_moved_shows_no_progress(folder: Path) -> None:
    with on_terminal(*PATIENT, folder=folder, environment={"TERM": "dumb"}) as screen:
        status, printed = screen.end()

    assert (status, printed) == (1, "")
    assert screen.shown.startswith(TIMED_OUT.encode())
    assert screen.shown.count(b"\n") == 1


def test_pipe_gets_no_progress(folder: Path) -> None:
    with on_terminal(*PATIENT, folder=folder, piped="stderr") as screen:
        status, told = screen.end()

    assert (status, screen.shown) == (1, b"")
    assert told.startswith(TIMED_OUT)
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    "options", [(), ("--http", "127.0.0.1:0"), ("--http", "127.0.0.1:0", "--workers", "2")]
)
def test_interrupt_ends_a_server_quietly(folder: Path, options: tuple[str, ...]) -> None:
    """It says at its start which tools the budget replaces."""
    (folder / "small.toml").write_text('[database]\nurl = "shop.db"\n[tools]\nbudget = 800\n')
    with on_terminal("serve", "small.toml", *options, folder=folder) as screen:
        screen.wait_for("Serving 5 tables")
        screen.wait_for("list_tables, list_rows, get_row replace list_album and 8 more")
        told = screen.shown
        screen.interrupt()
        status, printed = screen.end()

    assert (status, printed) == (130, "")
    assert b"Traceback" not in screen.shown.removeprefix(told)


STALL = "import os, sys\nos.write(2, b'importing')\nsys.stdin.read()\n"


@pytest.mark.parametrize("module", ["click", "rich"])
def test_interrupt_during_imports_ends_quietly(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, module: str
) -> None:
    """A module of the same name, found first, stands for one whose import takes long."""
    shadow = tmp_path_factory.mktemp("shadow")
    (shadow / f"{module}.py").write_text(STALL)
    process = subprocess.Popen(
        (sys.executable, "-m", "dbtools", "tools", "shop.db"),
        cwd=folder,
        env=ENVIRONMENT | {"PYTHONPATH": os.pathsep.join((str(shadow), ENVIRONMENT["PYTHONPATH"]))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stderr is not None
        assert process.stderr.read(len("importing")) == b"importing"
        process.send_signal(signal.SIGINT)
        printed, told = process.communicate(timeout=PATIENCE)

    assert (process.returncode, printed, told) == (130, b"", b"")


RAISING = """
from dbtools import __main__, cli
def main():
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        raise SystemExit(130)
cli.main = main
__main__.main()
"""


def test_interrupt_inside_exec_has_the_same_exit_status(tmp_path: Path) -> None:
    """CPython would end with a signal instead, if it runs a module."""
    (tmp_path / "raising.py").write_text(RAISING)
    environment = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join((str(tmp_path), ENVIRONMENT["PYTHONPATH"]))}
    ended = subprocess.run((sys.executable, "-m", "raising"), env=environment, timeout=PATIENCE, check=False)

    assert ended.returncode == 130
