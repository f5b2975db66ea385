"""The package, its tests and its migrations pass the linter, the formatter and the type checker."""

import subprocess
import sys
from pathlib import Path

import pytest

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
