"""A client starts a server for each session: until the first list, it imports only what that needs."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Timer

from dbtools.server.http.identity import hash_of, new_token
from tests.protocol.client import PATIENCE, ROOT

PostgresqlDatabase = Callable[[str], AbstractContextManager[str]]
#: What others have made and a list needs.
NEEDED = {
    *("anyio", "click", "opentelemetry", "orjson", "uvloop"),
    *("annotated_types", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection"),
}
TRIED = {"org", "sniffio"}  #: by Python's pickle and by anyio, whether or not they are installed
CLIENT = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
MESSAGES = (
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": CLIENT},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
)


#: makes a token, and admits who shows another
ADMIT = """
import sys
from pathlib import Path
import anyio
from dbtools.cli import main
from dbtools.policy.roles import Caller
from dbtools.server.http.identity import Identity
from dbtools.service.serving import open_served
from dbtools.settings import load

async def admit(path, token):
    served = open_served(load(Path(path)))
    await served.toolbox.snapshot()
    assert isinstance(await Identity(served, Caller()).admit([f"Bearer {token}"]), Caller)
    await served.backend.close()

main(["token", "new"], standalone_mode=False)
anyio.run(admit, *sys.argv[1:])
print(*sys.modules)
"""


def _imported(target: str) -> set[str]:
    """Return the packages and modules that a server of *target* imports before it answers its first list."""
    command = (sys.executable, "-X", "importtime", "-m", "dbtools", "serve", target)
    pipe = subprocess.PIPE
    # Python reports imports on stderr. In one pipe, those before the answer are those that happen before it.
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT) as server:
        watchdog = Timer(PATIENCE, server.kill)
        watchdog.start()
        try:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.writelines(json.dumps(each).encode() + b"\n" for each in MESSAGES)
            server.stdin.flush()
            lines: list[str] = []
            while not lines or (lines[-1] and "inputSchema" not in lines[-1]):
                lines.append(server.stdout.readline().decode())
            server.communicate()
        finally:
            watchdog.cancel()
    *before, answer = lines
    assert answer, before
    return _top_level(before)


def _modules(script: str, *arguments: str) -> set[str]:
    """Return the packages and modules that *script* prints."""
    command = (sys.executable, "-c", script, *arguments)
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True)
    return {name for name in ended.stdout.split() if "." not in name}


def _top_level(lines: Sequence[str]) -> set[str]:
    """Return the packages and modules in *lines* of -X importtime that come after those of Python itself."""
    names = [line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")]
    return {name.partition(".")[0] for name in names[names.index("dbtools") :]}


def _foreign(imported: set[str]) -> set[str]:
    """Return what belongs neither to Python nor to us."""
    own = sys.stdlib_module_names | TRIED | {"dbtools"}
    return {name for name in imported if name not in own and not name.startswith("_")}


def test_list_of_a_sqlite_database_imports_what_it_needs() -> None:
    imported = _imported(str(ROOT / "sample.db"))  # which has a registry

    assert _foreign(imported) == NEEDED
    assert "sqlite3" in imported


def test_list_of_a_postgresql_database_needs_its_driver_instead(
    postgresql_database: PostgresqlDatabase,
) -> None:
    with postgresql_database("create table thing (id integer primary key)") as url:
        imported = _imported(url)

    assert _foreign(imported) == NEEDED | {"asyncpg"}
    assert "sqlite3" not in imported


def test_tokens_of_ours_need_no_library_for_signed_ones(path: Path, tmp_path: Path) -> None:
    configuration, token = tmp_path / "dbtools.toml", new_token()
    tokens = f'tokens = [{{ sha256 = "{hash_of(token)}", role = "default" }}]'
    configuration.write_text(f'[database]\nurl = "sqlite:///{path}"\n[auth]\n{tokens}\n')
    imported = _modules(ADMIT, str(configuration), token)

    assert imported & {"jwt", "cryptography", "starlette"} == set()


def test_server_over_http_needs_no_library_for_signed_tokens() -> None:
    imported = _modules("import sys, dbtools.server.http.app; print(*sys.modules)")

    assert imported & {"jwt", "cryptography"} == set()


def test_help_imports_click_alone() -> None:
    for option in ("--help", "--version"):
        command = (sys.executable, "-X", "importtime", "-m", "dbtools", option)
        ended = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True
        )
        assert _foreign(_top_level(ended.stderr.splitlines())) == {"click"}
