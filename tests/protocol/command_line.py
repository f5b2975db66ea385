"""The command line, run in this process."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dbtools.cli import main

FILES = {
    "text.db": "This is no database, and it is longer than the header of one would have to be. " * 20,
    "short.toml": '[database]\nurl = "shop.db"\n[limits]\ntimeout = "3s"\n',
}


@pytest.fixture
def folder(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder: a database, and files that cannot be served."""
    (tmp_path / "shop.db").symlink_to(path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DBTOOLS_ROLE", raising=False)
    return tmp_path


def run(*words: str) -> Result:
    """Run the command line in this process."""
    result = CliRunner().invoke(main, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.stderr
    return result


def assert_one_complaint(stderr: str, said: str) -> None:
    """Assert that *stderr* is a short complaint that says *said*, and tells no secret."""
    assert said in stderr
    assert "sekret" not in stderr
    assert stderr.startswith("dbtools: ")
    assert stderr.count("\n") == 1
