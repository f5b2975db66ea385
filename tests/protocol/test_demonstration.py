"""The demonstration of the documents: a migration of the sample while it is served at a terminal."""

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from tests.protocol.client import PATIENCE, ROOT

PAGE = "docs/how-to/follow-migrations.md"


def _migrate(path: Path, *command: str) -> None:
    subprocess.run(
        (sys.executable, "-m", "alembic", "-x", f"url=sqlite:///{path}", *command),
        cwd=ROOT,
        check=True,
        capture_output=True,
    )


async def _lines(terminal: int, number: int) -> list[str]:
    """Return the next *number* lines that *terminal* shows."""
    text = ""
    with anyio.fail_after(PATIENCE):
        while text.count("\n") < number:
            await anyio.wait_readable(terminal)
            text += os.read(terminal, 65_536).decode()
    return text.splitlines()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no terminals of this sort")
async def test_page_says_what_a_terminal_shows(tmp_path: Path) -> None:
    path = tmp_path / "sample.db"
    shutil.copy(ROOT / "sample.db", path)
    ours, theirs = pty.openpty()
    process = await anyio.open_process(
        (sys.executable, "-m", "dbtools", "serve", str(path)), stderr=theirs, cwd=ROOT
    )
    try:
        await _lines(ours, 3)
        await anyio.to_thread.run_sync(_migrate, path, "downgrade", "sample@-1")
        without = await _lines(ours, 2)
        await anyio.to_thread.run_sync(_migrate, path, "upgrade", "heads")
        again = await _lines(ours, 2)
    finally:
        process.kill()
        await process.aclose()
        os.close(ours)
        os.close(theirs)

    told = "\n".join([*without, *again])
    assert f"```text\n{told}\n```" in (ROOT / PAGE).read_text()
