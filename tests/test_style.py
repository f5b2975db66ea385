"""The package, its tests and its migrations pass the linter and the type checker, and read well."""

import shutil
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plain_words import STUMBLES

ROOT = Path(__file__).parents[1]
TOP_LEVEL = {
    *("dbtools", "migrations", "tests", "docs", ".ci"),
    *("pyproject.toml", "alembic.ini", "sample.db", ".gitignore"),
    *("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"),
}


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("ruff", "check", "--quiet", "--output-format=concise"), id="lint"),
        pytest.param(("ruff", "format", "--quiet", "--check", "--diff"), id="format"),
        pytest.param(("mypy", "--no-error-summary"), id="types"),
    ],
)
def test_code_passes_the_checker(arguments: tuple[str, ...]) -> None:
    command = (sys.executable, "-m", *arguments)

    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_source_is_written_in_plain_words() -> None:
    texts = {path: [(1, path.read_text())] for path in (ROOT / "dbtools").rglob("*.py")}
    tests = (path for path in (ROOT / "tests").rglob("*.py") if "node_modules" not in path.parts)
    texts |= {path: list(_prose(path)) for path in tests}
    found = {
        f"{path.relative_to(ROOT)}:{line + text.count(chr(10), 0, stumble.start())}: {stumble[0]}"
        for path, parts in texts.items()
        for line, text in parts
        for stumble in STUMBLES.finditer(text)
    }

    assert sorted(found) == []


def _prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the comments and docstrings in *path*, each with its line: other texts of a test are data."""
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            is_docstring = token.type == tokenize.STRING and token.line.lstrip().startswith('"""')
            if token.type == tokenize.COMMENT or is_docstring:
                yield token.start[0], token.string


def test_top_level_holds_what_the_design_lists() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a clone: git does not know which files belong here")
    command = ("git", "-c", f"safe.directory={ROOT}", "ls-files", "-z")

    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = {path.split("/")[0] for path in answer.stdout.split("\0") if path}

    assert names - TOP_LEVEL == set()
