"""`dbtools connect`: what is printed, what is written into clients' files, and that it starts a server."""

import json
import stat
import tomllib
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from mcp import Client, StdioServerParameters

from dbtools.cli import main
from dbtools.cli.connecting import CLIENTS
from tests.protocol.client import ROOT
from tests.protocol.transcripts import PERSONAL

URL = "postgresql://ann:p%40ss@db.invalid:5433/shop?sslmode=require"
SHARED = "postgresql://ann@db.invalid:5433/shop?sslmode=require"
every_client = pytest.mark.parametrize("client", CLIENTS)


class Home:
    """A home folder with a database in it, and the command line there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *words: str, status: int = 0, **environment: str) -> Result:
        """Run `dbtools connect` with *words*."""
        env = {**dict.fromkeys(PERSONAL), "HOME": str(self.folder), **environment}
        with chdir(self.folder):
            done = CliRunner().invoke(main, ("connect", *words), env=env)
        assert done.exit_code == status, done.stderr
        return done

    def entry(self, *words: str, **environment: str) -> dict[str, Any]:
        """Return the entry that `--json` prints."""
        entry: dict[str, Any] = json.loads(self.run(*words, "--json", status=0, **environment).stdout)[
            "entry"
        ]
        return entry

    def file(self, client: str, content: bytes | None = None) -> Path:
        """Return the client's file, which has this *content*, if any."""
        file = Path(json.loads(self.run(client, "shop.db", "--json").stdout)["file"])
        if content is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return file


@pytest.fixture
def home(path: Path, tmp_path: Path) -> Home:
    (tmp_path / "shop.db").symlink_to(path)
    return Home(tmp_path)


def _content(file: Path) -> Any:
    return tomllib.loads(file.read_text()) if file.suffix == ".toml" else json.loads(file.read_text())


@every_client
def test_entry_is_written_beside_others_and_removed_again(home: Home, client: str) -> None:
    section = CLIENTS[client].section
    is_toml = home.file(client).suffix == ".toml"
    toml, other = f'# mine\n[{section}.old]\ncommand = "old"\n', f'{{"{section}": {{"old": {{}}}}, "x": 1}}\n'
    before = toml if is_toml else other
    file = home.file(client, before.encode())
    file.chmod(0o640)

    home.run(client, "shop.db", "--write")
    written, mode = _content(file), stat.S_IMODE(file.stat().st_mode)
    backup = file.with_name(f"{file.name}.bak").read_text()
    home.run(client, "shop.db", "--remove")
    kept = _content(file)
    file.unlink()
    home.run(client, URL, "--write")

    entry = home.entry(client, "shop.db")
    assert written[section].pop("shop") == entry
    assert entry["args"][-2:] == ["serve", str(home.folder / "shop.db")]
    assert Path(entry["command"]).is_absolute()
    assert (backup, mode, kept) == (before, 0o640, written)
    # A new file holds the password, and is for its owner alone.
    shared = _content(file)[section]["shop"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (shared["args"][-1], shared["env"]) == (SHARED, {"PGPASSWORD": "p@ss"})


async def test_client_starts_the_server_from_another_folder(home: Home, tmp_path: Path) -> None:
    (home.folder / "dbtools.toml").write_text(
        '[database]\nurl = "${SHOP}"\n[roles.clerk]\ntables."*" = true\n'
    )
    entry = home.entry("mcp.json", "--role", "clerk", SHOP="shop.db")
    parameters = StdioServerParameters(
        command=entry["command"], args=entry["args"], env={**entry["env"], "PYTHONPATH": str(ROOT)}, cwd="/"
    )

    async with Client(parameters) as client:
        called = await client.call_tool("get_person", {"id": 1})

    assert entry["env"] == {"SHOP": "shop.db"}
    assert called.structured_content is not None
    assert called.structured_content["row"]["name"] == "Ada"


@pytest.mark.parametrize(
    ("client", "text", "said"),
    [
        pytest.param("cursor", '{"mcpServers": ', "line 1", id="cut off"),
        pytest.param("cursor", '{"mcpServers": []}', "mcpServers", id="no object"),
        # What edits TOML would put `model` into the new table.
        pytest.param(
            "codex", 'mcp_servers.old.command = "x"\nmodel = "large"\n', "more than the entry", id="lost key"
        ),
    ],
)
def test_file_that_cannot_be_edited_stays_as_it_is(home: Home, client: str, text: str, said: str) -> None:
    file = home.file(client, text.encode())

    done = home.run(client, "shop.db", "--write", status=2)

    assert (file.read_text(), done.stdout) == (text, "")
    assert said in done.stderr


def test_linked_file_stays_a_link(home: Home) -> None:
    file, kept = home.file("cursor", b""), home.folder / "dotfiles.json"
    kept.write_text("{}")
    file.unlink()
    file.symlink_to(kept)

    home.run("cursor", "shop.db", "--write")

    assert file.is_symlink()
    assert "shop" in _content(kept)["mcpServers"]


def test_file_with_a_password_is_for_its_owner_alone(home: Home) -> None:
    file = home.file("cursor", b"{}")
    file.chmod(0o644)

    done = home.run("cursor", URL, "--write")

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "do not commit it" in done.stdout
    assert "p@ss" not in done.stdout + done.stderr


def test_earlier_copies_of_the_file_are_kept(home: Home) -> None:
    file = home.file("cursor", b'{"first": 1}')

    home.run("cursor", "shop.db", "--write", "--name", "one")
    home.run("cursor", "shop.db", "--write", "--name", "two")

    assert file.with_name("mcp.json.bak").read_text() == '{"first": 1}'
    assert set(_content(file.with_name("mcp.json.bak1"))["mcpServers"]) == {"one"}


@pytest.mark.parametrize("words", [("gone.db",), ("--name", "gone")])
def test_server_is_removed_when_its_database_is_gone(home: Home, words: tuple[str, ...]) -> None:
    (home.folder / "gone.db").symlink_to(home.folder / "shop.db")
    home.run("cursor", "gone.db", "--write")
    (home.folder / "gone.db").unlink()

    home.run("cursor", *words, "--remove")

    assert _content(home.file("cursor")) == {"mcpServers": {}}


def test_ends_of_lines_and_the_mark_of_utf_8_stay(home: Home) -> None:
    file = home.file("cursor", b'\xef\xbb\xbf{\r\n  "x": 1\r\n}\r\n')

    home.run("cursor", "shop.db", "--write")

    written = file.read_bytes()
    assert written.startswith(b"\xef\xbb\xbf{\r\n")
    assert written.count(b"\n") == written.count(b"\r\n")


def test_help_and_the_readme_name_every_client(home: Home) -> None:
    texts = (home.run("--help").stdout, (ROOT / "README.md").read_text())

    assert [[each for each in CLIENTS if each not in text] for text in texts] == [[], []]


def test_environment_of_the_same_server_is_updated(home: Home) -> None:
    home.run("cursor", SHARED, "--write")
    home.run("cursor", SHARED, "--write", PGPASSWORD="sekret")

    assert _content(home.file("cursor"))["mcpServers"]["shop"]["env"] == {"PGPASSWORD": "sekret"}
