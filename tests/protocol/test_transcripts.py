"""Commands print what the pages of `commands/` show."""

from pathlib import Path

import pytest

from tests.pages import Command, blocks_of, resembles
from tests.protocol.transcripts import PAGES, Typist


@pytest.mark.parametrize("page", sorted(path.stem for path in PAGES.glob("*.md")))
def test_commands_print_what_the_page_shows(page: str, tmp_path: Path) -> None:
    others: list[str] = []

    def compare(command: Command, printed: str) -> None:
        if not resembles(printed, command.output):
            others.append(f"$ {command.text}\n{printed}")

    typist = Typist(tmp_path)
    for block in blocks_of((PAGES / f"{page}.md").read_text()):
        typist.follow(block, compare)

    assert not others, "\n".join(others)
