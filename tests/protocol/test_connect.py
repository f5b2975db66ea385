"""`dbtools connect`: what is printed, what is written into clients' files, and that it starts a server."""

import json
import os
import sqlite3
import stat
import subprocess
import tomllib
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from dbtools.cli.connecting import CLIENTS
from tests.processes import forked
from tests.protocol.client import PATIENCE, ROOT

URL = "postgresql://ann:p%40ss@db.invalid:5433/shop?sslmode=require"
SHARED = "postgresql://ann@db.invalid:5433/shop?sslmode=require"
REMOTE = "https://db.example.com"
TOKEN = "Bearer ${env:DBTOOLS_TOKEN}"
BRIDGED = {
    "command": "npx",
    "args": ["-y", "mcp-remote", f"{REMOTE}/mcp", "--header", "Authorization:${DBTOOLS_AUTHORIZATION}"],
    "env": {"DBTOOLS_AUTHORIZATION": "Bearer sekret"},
}
#: The entry for REMOTE, as each client's documentation has it.
OVER_HTTP: Mapping[str, object] = {
    "claude-code": {
        "type": "http",
        "url": f"{REMOTE}/mcp",
        "headers": {"Authorization": "Bearer ${DBTOOLS_TOKEN}"},
    },
    "claude-desktop": BRIDGED,
    "cursor": {"url": f"{REMOTE}/mcp", "headers": {"Authorization": TOKEN}},
    "vscode": {"type": "http", "url": f"{REMOTE}/mcp", "headers": {"Authorization": TOKEN}},
    "windsurf": {"serverUrl": f"{REMOTE}/mcp", "headers": {"Authorization": TOKEN}},
    "zed": BRIDGED,
    "gemini": {"httpUrl": f"{REMOTE}/mcp", "headers": {"Authorization": "Bearer $DBTOOLS_TOKEN"}},
    "codex": {"url": f"{REMOTE}/mcp", "bearer_token_env_var": "DBTOOLS_TOKEN"},
    "mcp.json": {
        "type": "http",
        "url": f"{REMOTE}/mcp",
        "headers": {"Authorization": "Bearer ${DBTOOLS_TOKEN}"},
    },
}
every_client = pytest.mark.parametrize("client", CLIENTS)


class Home:
    """A home folder with a database in it, and the command line there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *words: str, status: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run `dbtools connect` with *words*."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "XDG"))}
        done = subprocess.run(
            [*forked(), "connect", *words],
            cwd=self.folder,
            env={**kept, "HOME": str(self.folder), "PYTHONPATH": str(ROOT), **environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return done

    def shown(self, *words: str, **environment: str) -> dict[str, Any]:
        """Return what `--json` prints."""
        shown: dict[str, Any] = json.loads(self.run(*words, "--json", status=0, **environment).stdout)
        return shown

    def file(self, client: str) -> Path:
        """Return the client's file."""
        return Path(self.shown(client, "shop.db")["file"])


@pytest.fixture
def home(path: Path, tmp_path: Path) -> Home:
    (tmp_path / "shop.db").symlink_to(path)
    return Home(tmp_path)


def _content(file: Path) -> Any:
    return tomllib.loads(file.read_text()) if file.suffix == ".toml" else json.loads(file.read_text())


@every_client
def test_entry_is_written_beside_others_and_removed_again(home: Home, client: str) -> None:
    file, section = home.file(client), CLIENTS[client].section
    is_toml = file.suffix == ".toml"
    before = (
        f'# mine\n[{section}.old]\ncommand = "old"\n'
        if is_toml
        else f'{{"{section}": {{"old": {{}}}}, "x": 1}}\n'
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(before)
    file.chmod(0o640)

    home.run(client, "shop.db", "--write")
    written = _content(file)
    backup = file.with_name(f"{file.name}.bak").read_text()
    mode = stat.S_IMODE(file.stat().st_mode)
    home.run(client, "shop.db", "--remove")

    entry = home.shown(client, "shop.db")["entry"]
    assert written[section].pop("shop") == entry
    assert entry["args"][-2:] == ["serve", str(home.folder / "shop.db")]
    assert Path(entry["command"]).is_absolute()
    assert (backup, mode) == (before, 0o640)
    assert _content(file) == written


@every_client
def test_new_file_is_for_its_owner_alone_and_holds_the_password(home: Home, client: str) -> None:
    home.run(client, URL, "--write")

    file = home.file(client)
    entry = _content(file)[CLIENTS[client].section]["shop"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (entry["args"][-1], entry["env"]) == (SHARED, {"PGPASSWORD": "p@ss"})


@every_client
def test_server_over_http_has_the_form_of_the_client(home: Home, client: str) -> None:
    assert home.shown(client, "--http", REMOTE, DBTOOLS_TOKEN="sekret")["entry"] == OVER_HTTP[client]


@every_client
def test_snippet_on_stdout_is_what_would_be_written(home: Home, client: str) -> None:
    done = home.run(client, "shop.db")
    entry = home.shown(client, "shop.db")["entry"]

    if client == "claude-code":
        assert done.stdout == f"claude mcp add-json --scope user shop '{json.dumps(entry)}'\n"
    else:
        text = done.stdout
        content = tomllib.loads(text) if home.file(client).suffix == ".toml" else json.loads(text)
        assert content == {CLIENTS[client].section: {"shop": entry}}
    assert "--write" in done.stderr


async def test_client_starts_the_server_from_another_folder(home: Home, tmp_path: Path) -> None:
    (home.folder / "dbtools.toml").write_text(
        '[database]\nurl = "${SHOP}"\n[roles.clerk]\ntables."*" = true\n'
    )
    entry = home.shown("mcp.json", "--role", "clerk", SHOP="shop.db")["entry"]
    parameters = StdioServerParameters(
        command=entry["command"], args=entry["args"], env={**entry["env"], "PYTHONPATH": str(ROOT)}, cwd="/"
    )

    async with Client(parameters) as client:
        called = await client.call_tool("get_person", {"id": 1})

    assert entry["env"] == {"SHOP": "shop.db"}
    assert called.structured_content is not None
    assert called.structured_content["row"]["name"] == "Ada"


def test_local_server_needs_no_token_unless_one_is_named(home: Home) -> None:
    bare = home.shown("cursor", "--http", "http://127.0.0.1:8000")["entry"]
    named = home.shown("cursor", "--http", "http://127.0.0.1:8000", "--token-env", "SHOP")["entry"]

    assert bare == {"url": "http://127.0.0.1:8000/mcp"}
    assert named["headers"] == {"Authorization": "Bearer ${env:SHOP}"}


def test_environment_that_the_driver_reads_is_passed_on(home: Home) -> None:
    entry = home.shown("cursor", "postgresql:///shop", PGHOST="db", PGPASSWORD="sekret")["entry"]

    assert entry["env"] == {"PGHOST": "db", "PGPASSWORD": "sekret"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param('{"mcpServers": ', "line 1", id="cut off"),
        pytest.param('{"mcpServers": []}', "mcpServers", id="no object"),
    ],
)
def test_file_that_cannot_be_edited_stays_as_it_is(home: Home, text: str, said: str) -> None:
    file = home.file("cursor")
    file.parent.mkdir(parents=True)
    file.write_text(text)

    done = home.run("cursor", "shop.db", "--write", status=2)

    assert (file.read_text(), done.stdout) == (text, "")
    assert said in done.stderr


def test_what_is_not_there_cannot_be_removed(home: Home) -> None:
    done = home.run("cursor", "shop.db", "--remove", status=2)

    assert "no server 'shop'" in done.stderr
    assert not home.file("cursor").exists()


def test_linked_file_stays_a_link(home: Home) -> None:
    file = home.file("cursor")
    file.parent.mkdir(parents=True)
    kept = home.folder / "dotfiles.json"
    kept.write_text("{}")
    file.symlink_to(kept)

    home.run("cursor", "shop.db", "--write")

    assert file.is_symlink()
    assert "shop" in _content(kept)["mcpServers"]


@pytest.mark.parametrize(("text", "name"), [("my shop!", "my-shop"), ("…", "database"), ("a" * 60, "a" * 40)])
def test_name_of_the_server_suits_every_client(home: Home, text: str, name: str) -> None:
    (home.folder / f"{text}.db").symlink_to(home.folder / "shop.db")

    assert home.shown("cursor", f"{text}.db")["name"] == name


def test_codex_file_that_would_lose_a_key_is_left_alone(home: Home) -> None:
    """What edits TOML would put `model` into the new table."""
    file = home.file("codex")
    file.parent.mkdir(parents=True)
    text = 'mcp_servers.old.command = "x"\nmodel = "large"\n'
    file.write_text(text)

    done = home.run("codex", "shop.db", "--write", status=2)

    assert file.read_text() == text
    assert "more than the entry" in done.stderr


def test_file_with_a_password_is_for_its_owner_alone(home: Home) -> None:
    file = home.file("cursor")
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    file.chmod(0o644)

    done = home.run("cursor", URL, "--write")

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "do not commit it" in done.stdout
    assert "p@ss" not in done.stdout + done.stderr


def test_earlier_copies_of_the_file_are_kept(home: Home) -> None:
    file = home.file("cursor")
    file.parent.mkdir(parents=True)
    file.write_text('{"first": 1}')

    home.run("cursor", "shop.db", "--write", "--name", "one")
    home.run("cursor", "shop.db", "--write", "--name", "two")

    assert file.with_name("mcp.json.bak").read_text() == '{"first": 1}'
    assert set(_content(file.with_name("mcp.json.bak1"))["mcpServers"]) == {"one"}


def test_another_server_of_the_same_name_is_not_replaced_unasked(home: Home) -> None:
    home.run("cursor", "shop.db", "--write")
    (home.folder / "other").mkdir()
    (home.folder / "other" / "shop.db").symlink_to(home.folder / "shop.db")

    again = home.run("cursor", "shop.db", "--write")
    refused = home.run("cursor", "other/shop.db", "--write", status=2)
    replaced = home.run("cursor", "other/shop.db", "--write", "--name", "shop")

    assert "already has this entry" in again.stdout
    assert "--name NAME" in refused.stderr
    assert "Replaced shop in" in replaced.stdout
    assert _content(home.file("cursor"))["mcpServers"]["shop"]["args"][-1].endswith("other/shop.db")


@pytest.mark.parametrize("words", [("gone.db",), ("--name", "gone")])
def test_server_is_removed_when_its_database_is_gone(home: Home, words: tuple[str, ...]) -> None:
    (home.folder / "gone.db").symlink_to(home.folder / "shop.db")
    home.run("cursor", "gone.db", "--write")
    (home.folder / "gone.db").unlink()

    home.run("cursor", *words, "--remove")

    assert _content(home.file("cursor")) == {"mcpServers": {}}


def test_ends_of_lines_and_the_mark_of_utf_8_stay(home: Home) -> None:
    file = home.file("cursor")
    file.parent.mkdir(parents=True)
    file.write_bytes(b'\xef\xbb\xbf{\r\n  "x": 1\r\n}\r\n')

    home.run("cursor", "shop.db", "--write")

    written = file.read_bytes()
    assert written.startswith(b"\xef\xbb\xbf{\r\n")
    assert written.count(b"\n") == written.count(b"\r\n")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("--http", REMOTE, "--role", "clerk"), id="role of a server that runs"),
        pytest.param(("--http", REMOTE, "--claim", "x=1"), id="claim of a server that runs"),
        pytest.param(("shop.db", "--token-env", "SHOP"), id="token of a server that is started"),
        pytest.param(("--http", REMOTE, "--token-env", "dbt-secret"), id="a token for its variable"),
        pytest.param(("--http", "https://user:pw@db.example.com/mcp"), id="a login in the URL"),
        pytest.param(("--http", "db.example.com"), id="no URL"),
        pytest.param(("shop.db", "--http", REMOTE), id="two servers"),
        pytest.param(("shop.db", "--write", "--remove"), id="there and back"),
    ],
)
def test_options_that_do_not_go_together_are_refused(home: Home, words: tuple[str, ...]) -> None:
    done = home.run("cursor", *words, status=2)

    assert done.stdout == ""
    assert "pw@" not in done.stderr


def test_password_in_a_configuration_stays_there(home: Home) -> None:
    (home.folder / "dbtools.toml").write_text(f'[database]\nurl = "{URL}"\n')

    assert "env" not in home.shown("cursor", "dbtools.toml")["entry"]


def test_help_and_the_readme_name_every_client(home: Home) -> None:
    texts = (home.run("--help").stdout, (ROOT / "README.md").read_text())

    assert [[each for each in CLIENTS if each not in text] for text in texts] == [[], []]


def test_what_a_client_would_not_show_is_printed_at_once(home: Home) -> None:
    with closing(sqlite3.connect(home.folder / "users.db")) as connection:
        connection.execute("create table users (id integer primary key, password_hash text)")

    secrets = home.run("cursor", "users.db", "--write")
    unreached = home.run("cursor", URL, "--write")
    remote = home.run("cursor", "--http", "http://db.example.com", "--write")

    assert "users.password_hash" in secrets.stderr
    assert "The database cannot be read now" in unreached.stderr
    assert "p@ss" not in unreached.stderr
    assert "Set DBTOOLS_TOKEN to the token" in remote.stderr
    assert "unencrypted" in remote.stderr


def test_environment_of_the_same_server_is_updated(home: Home) -> None:
    home.run("cursor", SHARED, "--write")
    home.run("cursor", SHARED, "--write", PGPASSWORD="sekret")

    assert _content(home.file("cursor"))["mcpServers"]["shop"]["env"] == {"PGPASSWORD": "sekret"}


def test_client_that_keeps_the_token_needs_it(home: Home) -> None:
    printed = home.run("claude-desktop", "--http", REMOTE)
    done = home.run("claude-desktop", "--http", REMOTE, "--write", status=2)

    assert "<the value of DBTOOLS_TOKEN>" in printed.stdout
    assert "set DBTOOLS_TOKEN first" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param((URL, "cursor"), "TARGET comes after it", id="the wrong way round"),
        pytest.param(("cursr", "shop.db"), "CLIENT must be one of", id="misspelt client"),
        pytest.param(("cursor", "host=db user=ann password=p@ss"), "looks like a login", id="words of libpq"),
        pytest.param(("cursor", "ann:p@ss@db/shop"), "looks like a login", id="no scheme"),
    ],
)
def test_password_in_a_wrong_place_is_not_repeated(home: Home, words: tuple[str, ...], said: str) -> None:
    done = home.run(*words, status=2)

    assert said in done.stderr
    assert "p@ss" not in done.stderr
    assert "p%40ss" not in done.stderr
