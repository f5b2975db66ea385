"""Shell completion: what is offered for commands, options and files."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from dbtools.cli import main
from tests.protocol.client import PATIENCE, ROOT

DDL = "create table person (id integer primary key, name text)"


@pytest.fixture
def folder(sqlite_database: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with a database in it."""
    (tmp_path / "shop.db").symlink_to(sqlite_database(DDL))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DBTOOLS_ROLE", raising=False)
    return tmp_path


def completed(*words: str) -> list[tuple[str, str]]:
    """Return type and value of what is offered for the last of *words*."""
    found = ShellComplete(main, {}, "dbtools", "_DBTOOLS_COMPLETE").get_completions([*words[:-1]], words[-1])
    return [(each.type, each.value) for each in found]


FILE = ("file", "sh")


OFFERED = {
    "con": ("plain", "connect"),
    "query en": ("plain", "enable"),
    "log --outcome de": ("plain", "denied"),
    "check --ag": ("plain", "--against"),
    **dict.fromkeys(
        ("serve sh", "check --json sh", "query add shop.db sh", "registry upgrade sh", "call sh"), FILE
    ),
}


def test_word_is_completed(folder: Path) -> None:
    assert {words: completed(*words.split()) for words in OFFERED} == {
        words: [each] for words, each in OFFERED.items()
    }


BASH = """
eval "$(_DBTOOLS_COMPLETE=bash_source dbtools)"
COMP_WORDS=(dbtools query en) COMP_CWORD=2
_dbtools_completion dbtools
echo "${COMPREPLY[@]}"
"""


def test_bash_completes_with_the_script(folder: Path) -> None:
    program = folder / "dbtools"
    # As an installer writes it where the path may contain a space.
    shell = f"#!/bin/sh\n'''exec' \"{sys.executable}\" \"$0\" \"$@\"\n' '''\n"
    program.write_text(f"{shell}from dbtools.__main__ import main\nmain()\n")
    program.chmod(0o755)

    ended = subprocess.run(
        ("bash", "-c", BASH),
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": f"{folder}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "enable\n"
