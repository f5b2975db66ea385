"""The package, its tests and its migrations pass the linter and the type checker, and read well."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.plain_words import STUMBLES

ROOT = Path(__file__).parents[1]


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
    texts = {path: path.read_text() for path in (ROOT / "dbtools").rglob("*.py")}
    found = {
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, stumble.start()) + 1}: {stumble[0]}"
        for path, text in texts.items()
        for stumble in STUMBLES.finditer(text)
    }

    assert sorted(found) == []
