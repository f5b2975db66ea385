"""A configuration that cannot be used: `check` rejects it, and a server keeps the previous one."""

from collections.abc import Callable
from pathlib import Path

import anyio
import httpx2
import pytest
from click.testing import CliRunner

from dbtools.cli import main
from dbtools.errors import ConfigurationError
from dbtools.settings import load
from tests.odd_settings import KEYS, NAMES, ODD
from tests.protocol.changing import open_changing
from tests.protocol.client import PATIENCE
from tests.protocol.command_line import run
from tests.protocol.http_server import call, http_server
from tests.protocol.http_servers import DDL

GRANT = '[roles.default]\ntables.person = { where = "id = 1" }\n'
#: What makes a configuration a bad one, and what is said of it.
BAD = {
    f'[auth]\ntokens = [{{ sha256 = "{"0" * 64}", role = "default", nmae = "x" }}]\n': (
        "auth.tokens.0.nmae: unknown key."
    ),
    "\n[sources]\nid = 1\n": "sources: unknown key.",
    "[limits]\nmax_rows =\n": "not TOML",
    '[queries]\ndirectory = "/"\n': "[queries] directory: more than 10000 files",
}


def test_check_refuses_it_with_file_and_line(
    sqlite_database: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path, database = tmp_path / "dbtools.toml", f'[database]\nurl = "{sqlite_database(DDL)}"\n'
    for text, says in BAD.items():
        path.write_text(database + text)
        result = run("check")
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("dbtools: dbtools.toml:4: ")
        assert says in result.stderr

    path.write_text(f"{database}readonly = true\n[limits]\nmax_rows = 0\n")
    assert [line[:42] for line in run("check").stderr.splitlines()] == [
        "dbtools: dbtools.toml:3: database.readonly",
        "dbtools: dbtools.toml:5: limits.max_rows: ",
    ]


@pytest.mark.parametrize("section", sorted({key[0] for key in KEYS}))
def test_check_of_any_configuration_ends_without_an_internal_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.db").touch()
    database = "" if section == "database" else '[database]\nurl = "shop.db"\n'
    texts = [
        *(f"{'.'.join(key)} = {value}\n" for key in KEYS for value in ODD if key[0] == section),
        *(f"{'.'.join(key)}.{name} = 1\n" for key in KEYS for name in NAMES if key[0] == section),
    ]

    codes = {text: _code_of_check(tmp_path / "dbtools.toml", text + database) for text in texts}
    assert {text: code for text, code in codes.items() if code not in (0, 1, 2)} == {}


def _code_of_check(path: Path, text: str) -> object:
    """Return the exit status of `check` of *text*, or what went wrong."""
    path.write_text(text, encoding="utf-8")
    try:
        load(path)
    except ConfigurationError:
        return 2
    result = CliRunner().invoke(main, ["check"])
    return result.stderr if "internal error" in result.stderr else result.exit_code


async def test_server_goes_on_with_the_one_before_through_changes_of_the_schema(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    path = tmp_path / "dbtools.toml"
    with open_changing("sqlite", DDL, request) as changing:
        good = f'[database]\nurl = "{changing.url}"\n{GRANT}'
        path.write_text(good)
        async with http_server(path, tmp_path) as server, server.client() as client:
            before = await client.get("/readyz")
            for number, text in enumerate(BAD):
                path.write_text(good + text)
                refused = await _told(client, "refused")
                await changing.change(f"alter table person add column c{number} integer")
                answer = await call(client, "list_person")
                path.write_text(f"{good}# better{number}\n")
                mended = await _told(client, "in force")

                assert (refused.status_code, refused.json()["ready"], mended.status_code) == (200, True, 200)
                assert answer["structuredContent"]["rows"] == [[1, "Ada", *[None] * (number + 1)]]
            log = (await anyio.Path(server.log).read_text()).splitlines()

    assert before.json()["configuration"] == "in force"
    for says in BAD.values():
        [told] = [line for line in log if says in line and "Resolved: " not in line]
        assert "dbtools.toml:6: error: " in told
        assert told.endswith("The previous configuration stays in force.")


async def _told(client: httpx2.AsyncClient, configuration: str) -> httpx2.Response:
    """Return the answer that tells this of the *configuration*, asking until it comes."""
    with anyio.fail_after(PATIENCE):
        while True:
            answer = await client.get("/readyz")
            if answer.json()["configuration"] == configuration:
                return answer
            await anyio.sleep(0.05)
