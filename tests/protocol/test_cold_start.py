"""A client starts a server for each session: up to the first list it imports only what that needs."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from dbtools.server.tokens import hash_of, new_token
from tests.protocol.client import PATIENCE, ROOT

PostgresqlDatabase = Callable[[str], AbstractContextManager[str]]
#: by the first call, by commands that print, and where signed tokens are configured
LATER = {"sqlalchemy", "alembic", "rich", "jwt"}
#: does what `serve` does up to the answer of tools/list, then prints what has been imported
LIST = """
import sys
import anyio
import dbtools.__main__
from dbtools.cli.options import settings_for
from dbtools.service.serving import open_toolbox
import dbtools.server
import dbtools.server.stdio
from dbtools.server.protocol import always, build_server
from dbtools.policy import Caller
from dbtools.tools.definition import tool_content

async def list_tools():
    toolbox, database = open_toolbox(settings_for(sys.argv[1], "default"))
    build_server(toolbox, always(Caller()), "")
    assert [tool_content(definition) for definition in await toolbox.list("default")]
    await database.close()

anyio.run(list_tools)
print(*sys.modules)
"""

#: makes a token, and admits who shows another
ADMIT = """
import sys
from pathlib import Path
import anyio
from dbtools.cli import main
from dbtools.policy import Caller
from dbtools.server.identity import Admitted, Identity
from dbtools.service.serving import open_served
from dbtools.settings import load

async def admit(path, token):
    served = open_served(load(Path(path)))
    await served.toolbox.snapshot()
    assert isinstance(await Identity(served, Caller()).admit([f"Bearer {token}"]), Admitted)
    await served.backend.close()

main(["token", "new"], standalone_mode=False)
anyio.run(admit, *sys.argv[1:])
print(*sys.modules)
"""


def _imported(script: str, *arguments: str) -> set[str]:
    command = (sys.executable, "-c", script, *arguments)
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True)
    return {name for name in ended.stdout.split() if "." not in name}


def test_list_of_a_sqlite_database_needs_neither_sqlalchemy_nor_a_driver(path: Path) -> None:
    imported = _imported(LIST, str(path))

    assert imported & (LATER | {"aiosqlite", "asyncpg"}) == set()
    assert {"mcp", "sqlite3"} <= imported


def test_list_of_a_database_with_a_registry_needs_no_more() -> None:
    imported = _imported(LIST, str(ROOT / "sample.db"))

    assert imported & (LATER | {"aiosqlite", "asyncpg"}) == set()


def test_list_of_a_postgresql_database_needs_its_driver_only(
    postgresql_database: PostgresqlDatabase,
) -> None:
    with postgresql_database("create table thing (id integer primary key)") as url:
        imported = _imported(LIST, url)

    assert imported & (LATER | {"aiosqlite", "sqlite3"}) == set()
    assert {"mcp", "asyncpg"} <= imported


def test_tokens_of_ours_need_no_library_for_signed_ones(path: Path, tmp_path: Path) -> None:
    configuration, token = tmp_path / "dbtools.toml", new_token()
    tokens = f'tokens = [{{ sha256 = "{hash_of(token)}", role = "default" }}]'
    configuration.write_text(f'[database]\nurl = "sqlite:///{path}"\n[auth]\n{tokens}\n')
    imported = _imported(ADMIT, str(configuration), token)

    assert imported & {"jwt", "cryptography", "httpx2", "mcp", "starlette"} == set()


def test_server_over_http_needs_no_library_for_signed_tokens() -> None:
    imported = _imported("import sys, dbtools.server.http; print(*sys.modules)")

    assert "jwt" not in imported


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_imports_nothing_slow(option: str) -> None:
    script = """
import sys
from dbtools.cli import main
try:
    main([sys.argv[1]], prog_name="dbtools")
except SystemExit:
    pass
print(*sys.modules)
"""
    imported = _imported(script, option)

    assert imported & (LATER | {"mcp", "mcp_types", "pydantic", "anyio", "aiosqlite", "asyncpg"}) == set()
