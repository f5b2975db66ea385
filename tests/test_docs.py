"""The documents are true: commands run, configurations load, tables are current, links resolve."""

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import jsonschema
import pytest

from dbtools.settings import Settings, load
from dbtools.settings.files import VARIABLE
from tests.pages import ROOT, SHOP, Block, Command, Reader, Shell, blocks_of, resembles, shop_names
from tests.plain_words import STUMBLES
from tests.postgresql_server import PostgresqlServer

PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in (*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md")))
}
#: Pages that need more than a shell, and the test that follows each of them.
FOLLOWED_ELSEWHERE = {"docs/how-to/serve-a-team.md": "tests/protocol/test_serving_page.py"}
CONSOLES = sorted(page for page, text in PAGES.items() if "```console" in text)
GENERATED = sorted(page for page, text in PAGES.items() if "[[[cog" in text)
LANGUAGES = {"caddyfile", "console", "json", "python", "sh", "sql", "text", "toml", "yaml"}
#: What a block of `sh` may run: what changes a machine, or what another test follows.
UNTESTED = re.compile(
    r"(cd|docker|echo|git|install|kubectl|npm|pip|psql|ruff|alembic|source|systemctl)\b|\.ci/run$"
    r"|_DBTOOLS_COMPLETE="
    r"|python3? -m (cogapp|pytest|tests.pages|venv)\b|dbtools (serve|connect) "
    r"|dbtools check dbtools.toml --against postgresql:"
)
LINK = re.compile(r"\]\(([^)#:]+)?(?:#([^)]+))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
MOST_LINES = {"README.md": 150}
#: Text of a page that may contain what `STUMBLES` finds: code, and what code generates.
CODE = re.compile(r"```.*?```|`[^`]*`|\[\[\[end\]\]\]|\]\]\] -->.*?<!-- \[\[\[end", re.DOTALL)


def _blocks(language: str) -> list[object]:
    return [
        pytest.param(block, id=f"{page}:{block.line}")
        for page, text in PAGES.items()
        for block in blocks_of(text)
        if block.language == language
    ]


@pytest.mark.parametrize("page", sorted(set(CONSOLES) - FOLLOWED_ELSEWHERE.keys()))
def test_commands_print_what_the_page_says(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if "$ curl " in PAGES[page] and shutil.which("curl") is None:
        pytest.skip("there is no curl")
    reader = Reader(Shell(tmp_path), request.getfixturevalue("shop") if SHOP in PAGES[page] else None)
    try:
        for block in blocks_of(PAGES[page]):
            reader.follow(block, _compare)
    finally:
        reader.leave()

    assert reader.commands > 0


@pytest.fixture(scope="module")
def shop(postgresql_server: PostgresqlServer) -> Iterator[Mapping[str, str]]:
    """Yield the names of the sample in a PostgreSQL database, by those on the pages."""
    with shop_names(postgresql_server) as names:
        yield names


def _compare(command: Command, printed: str) -> None:
    assert resembles(printed, command.output), f"$ {command.text}\n{printed}"


def test_every_block_is_in_a_language_that_is_checked() -> None:
    unknown = {block.language for text in PAGES.values() for block in blocks_of(text)} - LANGUAGES

    assert unknown == set()


@pytest.mark.parametrize("block", _blocks("sh"))
def test_commands_that_do_not_run_here_are_those_that_cannot(block: Block) -> None:
    lines = block.text.replace("\\\n", " ").splitlines()

    assert [line for line in lines if line.strip() and not UNTESTED.match(line.strip())] == []


@pytest.mark.parametrize("block", _blocks("json"))
def test_json_can_be_read(block: Block) -> None:
    assert json.loads(block.text)


@pytest.mark.parametrize("block", _blocks("python"))
def test_python_compiles_and_imports_what_exists(block: Block) -> None:
    tree = ast.parse(block.text)

    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    assert all(
        hasattr(import_module(str(node.module)), each.name) for node in imported for each in node.names
    )


@pytest.mark.parametrize("block", _blocks("toml"))
def test_configuration_can_be_loaded(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schema: dict[str, object]
) -> None:
    for name in VARIABLE.findall(block.text):
        monkeypatch.setenv(name, "secret")
    path = tmp_path / "dbtools.toml"
    path.write_text(
        block.text if "[database]" in block.text else f'{block.text}\n[database]\nurl = "sample.db"\n'
    )

    settings = load(path)

    assert settings.database.url
    jsonschema.validate(settings.origin.content(), schema)


@pytest.fixture(scope="module")
def schema() -> dict[str, object]:
    return Settings.model_json_schema()


def test_generated_tables_are_current() -> None:
    command = (sys.executable, "-m", "cogapp", "--check", "--diff", *GENERATED)

    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_pages_and_headings_that_exist(page: str) -> None:
    missing = [
        f"{path}#{anchor}"
        for path, anchor in LINK.findall(re.sub(r"```.*?```", "", PAGES[page], flags=re.DOTALL))
        if not _exists((ROOT / page).parent / path if path else ROOT / page, anchor)
    ]

    assert missing == []


def _exists(path: Path, anchor: str) -> bool:
    if not path.exists() or not anchor:
        return path.exists()
    headings = HEADING.findall(re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL))
    return anchor in {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


def test_tests_that_pages_name_exist() -> None:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    known = files | {path.rpartition("/")[2] for path in files}
    named = {page: re.findall(r"`([\w/]*test_\w+\.py)`", text) for page, text in PAGES.items()}

    assert {page: unknown for page, names in named.items() if (unknown := set(names) - known)} == {}


def test_security_names_a_layer_and_a_test_for_each_attacker() -> None:
    section = PAGES["docs/security.md"].partition("## What dbtools defends against")[2].partition("\n## ")[0]
    head, _, *rows = [re.findall(r"[^|]+", line) for line in section.splitlines() if line.startswith("|")]
    layers, tests = ([row[at] for row in rows] for at in (-2, -1))

    assert [name.strip() for name in head] == ["attacker", "goal", "example", "layers", "tests"]
    assert len(rows) == 5
    assert [text for text in layers if not re.search(r"\[\d\]\(#", text)] == []
    assert [text for text in tests if "`tests/" not in text] == []


def test_deployment_shows_every_file_that_it_deploys() -> None:
    page, folder = PAGES["docs/deployment.md"], ROOT / "docs/deploy"
    shown = [block.text for block in blocks_of(page) if block.name == "dbtools.toml"]

    assert [path.name for path in folder.iterdir() if f"](deploy/{path.name})" not in page] == []
    assert [(folder / "dbtools.toml").read_text().partition("\n")[2]] == shown


def test_pages_are_as_short_as_promised() -> None:
    assert {page: most for page, most in MOST_LINES.items() if PAGES[page].count("\n") > most} == {}


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_written_in_plain_words(page: str) -> None:
    found = [stumble[0] for stumble in STUMBLES.finditer(" ".join(CODE.sub("", PAGES[page]).split()))]

    assert found == []


def test_changelog_is_one_entry_of_forty_lines() -> None:
    lines = PAGES["CHANGELOG.md"].splitlines()

    assert [line for line in lines if line.startswith("## ")] == ["## 0.1.0"]
    assert len(lines) <= 40
