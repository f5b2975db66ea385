"""A configuration that cannot be used: `check` rejects it, and a server keeps the previous one."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import httpx2
import pytest
from click.testing import CliRunner

from dbtools.cli import main
from tests.protocol.changing import Changing, open_changing
from tests.protocol.client import PATIENCE
from tests.protocol.http_server import call, http_server

DDL = """
create table person (id integer primary key, name text not null);
insert into person values (1, 'Ada'), (2, 'Bo');
"""
GRANT = '[roles.default]\ntables.person = { where = "id = 1" }\n'
TOKEN = f'[auth]\ntokens = [{{ sha256 = "{"0" * 64}", role = "default", nmae = "x" }}]\n'
BAD = [
    pytest.param(TOKEN, "auth.tokens.0.nmae: unknown key.", id="unknown key of a token"),
    pytest.param("[limits]\nmax_rows =\n", "not TOML", id="no TOML"),
    pytest.param(
        '[queries]\ndirectory = "/"\n', "[queries] directory: more than 10000 files", id="all files"
    ),
]


@pytest.fixture(params=["sqlite", "postgresql"])
def changing(request: pytest.FixtureRequest) -> Iterator[Changing]:
    """Give a database of each dialect."""
    with open_changing(request.param, DDL, request) as changing:
        yield changing


@pytest.mark.parametrize(("text", "says"), BAD)
def test_check_refuses_it_with_file_and_line(
    changing: Changing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    (tmp_path / "dbtools.toml").write_text(f'[database]\nurl = "{changing.url}"\n{text}')
    monkeypatch.chdir(tmp_path)

    result = CliRunner().invoke(main, ["check"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("dbtools: dbtools.toml:4: ")
    assert says in result.stderr


@pytest.mark.parametrize(
    ("changing", "text", "says"),
    [
        *(pytest.param("sqlite", *each.values, id=f"sqlite-{each.id}") for each in BAD),
        pytest.param("postgresql", *BAD[0].values, id=f"postgresql-{BAD[0].id}"),
    ],
    indirect=["changing"],
)
async def test_server_goes_on_with_the_one_before_through_changes_of_the_schema(
    changing: Changing, tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "dbtools.toml"
    good = f'[database]\nurl = "{changing.url}"\n{GRANT}'
    path.write_text(good)
    async with http_server(path, tmp_path) as server, server.client() as client:
        before = await client.get("/readyz")
        path.write_text(good + text)
        refused = await _told(client, "refused")
        await changing.change("alter table person add column age integer")
        later = await call(client, "list_person")
        await changing.change("alter table person add column town text")
        last = await call(client, "list_person")
        path.write_text(f"{good}# better\n")
        mended = await _told(client, "in force")
        log = await anyio.Path(server.log).read_text()

    assert before.json()["configuration"] == "in force"
    assert (refused.status_code, refused.json()["ready"]) == (200, True)
    assert later["structuredContent"]["rows"] == [[1, "Ada", None]]
    assert last["structuredContent"]["rows"] == [[1, "Ada", None, None]]
    assert mended.status_code == 200
    told = [line for line in log.splitlines() if says in line and "Resolved: " not in line]
    assert ["dbtools.toml:6: error: " in line for line in told] == [True]
    assert told[0].endswith("The previous configuration stays in force.")


async def _told(client: httpx2.AsyncClient, configuration: str) -> httpx2.Response:
    """Return the answer that tells this of the *configuration*, asking until it comes."""
    with anyio.fail_after(PATIENCE):
        while True:
            answer = await client.get("/readyz")
            if answer.json()["configuration"] == configuration:
                return answer
            await anyio.sleep(0.05)
