"""The README cannot lie: its commands run, its configuration is valid, its tables are current."""

import doctest
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest

from dbtools.settings import load
from dbtools.settings.files import VARIABLE

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ", re.MULTILINE)
CONTINUED = re.compile(r"(?<!\\)\n")  #: the end of a command: a line that no backslash continues
LANGUAGES = {"console", "json", "sql", "text", "toml"}
ELSEWHERE = re.compile(r"\bpip install\b|\bserve\b|\bpytest\b")  #: commands that other tests run

pytestmark = pytest.mark.skipif(not README.exists(), reason="README.md is not written yet")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of the README."""

    line: int
    language: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command of a console block, and what it prints; a line of `...` stands for any lines."""

    text: str
    output: str


def blocks_of(text: str) -> Iterator[Block]:
    for fence in FENCE.finditer(text):
        line = text.count("\n", 0, fence.start()) + 1
        yield Block(line=line, language=fence[2], text=textwrap.dedent(fence[3]))


def commands_of(block: Block) -> Iterator[Command]:
    for part in COMMAND.split(block.text)[1:]:
        text, output = CONTINUED.split(part, maxsplit=1)
        yield Command(text=text, output=output)


BLOCKS = tuple(blocks_of(README.read_text())) if README.exists() else ()


def _blocks_in(language: str) -> list[object]:
    chosen = (block for block in BLOCKS if block.language == language)
    return [pytest.param(block, id=f"line {block.line}") for block in chosen]


@dataclass(frozen=True, kw_only=True)
class Shell:
    """Where the commands of one block are run."""

    programs: Path
    folder: Path

    def run(self, command: str) -> str:
        """Return what *command* prints, on either stream."""
        environment = os.environ | {
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path)),
            "COLUMNS": "100",
            "NO_COLOR": "1",
        }
        answer = subprocess.run(
            command,
            shell=True,
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        return answer.stdout


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Give a shell in a folder that holds a copy of the sample and nothing else."""
    programs, folder = tmp_path / "bin", tmp_path / "folder"
    programs.mkdir()
    folder.mkdir()
    program = programs / "dbtools"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dbtools "$@"\n')
    program.chmod(0o755)
    if (ROOT / "sample.db").exists():
        shutil.copy(ROOT / "sample.db", folder)
    return Shell(programs=programs, folder=folder)


def test_every_block_is_in_a_language_that_is_checked() -> None:
    unknown = [block for block in BLOCKS if block.language not in LANGUAGES]

    assert unknown == []


@pytest.mark.parametrize("block", _blocks_in("console"))
def test_commands_print_what_the_readme_says(block: Block, shell: Shell) -> None:
    for command in commands_of(block):
        if not ELSEWHERE.search(command.text):
            printed = shell.run(command.text)
            assert resembles(printed, command.output), f"$ {command.text}\n{printed}"


def resembles(printed: str, expected: str) -> bool:
    checker = doctest.OutputChecker()
    return checker.check_output(_trim(expected), _trim(printed), doctest.ELLIPSIS)


def _trim(text: str) -> str:
    """Drop what a reader does not see: blanks at the ends of lines and blank lines at the ends."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


@pytest.mark.parametrize("block", _blocks_in("json"))
def test_json_of_the_readme_can_be_read(block: Block) -> None:
    json.loads(block.text)


@pytest.mark.parametrize("block", _blocks_in("toml"))
def test_configuration_of_the_readme_is_valid(block: Block, shell: Shell) -> None:
    configuration = tomllib.loads(block.text)

    jsonschema.validate(configuration, json.loads(shell.run("dbtools schema")))


def _configurations() -> Iterator[object]:
    for page in (README, *sorted((ROOT / "docs").glob("*.md"))):
        for block in blocks_of(page.read_text()):
            if block.language == "toml":
                yield pytest.param(block.text, id=f"{page.name} line {block.line}")


@pytest.mark.parametrize("text", list(_configurations()))
def test_configuration_of_the_documents_can_be_loaded(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLE.findall(text):
        monkeypatch.setenv(name, "secret")
    path = tmp_path / "dbtools.toml"
    path.write_text(text if "[database]" in text else f'{text}\n[database]\nurl = "sample.db"\n')

    assert load(path).database.url


@pytest.mark.parametrize("document", [README.name, "docs/deployment.md"])
def test_generated_tables_are_current(document: str) -> None:
    command = (sys.executable, "-m", "cogapp", "--check", "--diff", document)

    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert answer.returncode == 0, answer.stdout + answer.stderr
