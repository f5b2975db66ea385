"""Authentication over HTTP: tokens by hash, tokens of an issuer, and what each caller may see."""

import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from dbtools.policy import Caller
from dbtools.server.identity import Identity, Rejection, hash_of, new_token
from dbtools.service.serving import open_served
from dbtools.settings import load
from tests.protocol.client import MODERN, PATIENCE
from tests.protocol.command_line import run
from tests.protocol.http_server import (
    HANDSHAKE,
    SESSION,
    HttpServer,
    http_server,
    initialize,
    modern,
    open_session,
    posted,
)
from tests.protocol.issuer import AUDIENCE, ISSUER, KEY, OTHER, key_set, signed

DDL = """
create table orders (id integer primary key, region text not null, margin integer);
insert into orders values (1, 'north', 5), (2, 'south', 6);
"""
ROLES = """
[roles.all]
tables."*" = true
[roles.some]
tables.orders = { exclude = ["margin"], where = "region = :claims.region" }
"""
NORTH, ALL, STALE = new_token(), new_token(), new_token()


@pytest.fixture(scope="module")
async def server(
    sqlite_database: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[HttpServer]:
    """Give a server that asks who calls."""
    folder = tmp_path_factory.mktemp("identity")
    (folder / "keys.json").write_text(key_set(KEY))
    async with http_server(_configured(folder, sqlite_database(DDL)), folder) as server:
        yield server


def _configured(folder: Path, database: Path, tokens: tuple[str, str] = (NORTH, ALL)) -> Path:
    path = folder / "dbtools.toml"
    north, everything = map(hash_of, tokens)
    path.write_text(f"""
[database]
url = "sqlite:///{database}"
{ROLES}
[auth]
tokens = [
    {{ sha256 = "{north}", role = "some", claims = {{ region = "north" }} }},
    {{ sha256 = "{everything}", role = "all", name = "night reports" }},
    {{ sha256 = "{hash_of(STALE)}", role = "gone" }},
]
[auth.jwt]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
jwks = "keys.json"
role_claim = "db_role"
scopes = ["db"]
""")
    return path


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def _rows(server: HttpServer, token: str) -> Any:
    asked = modern("tools/call", {"name": "list_orders", "arguments": {}})
    async with server.client(**_bearer(token)) as client:
        answer = await client.post(**asked)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]["structuredContent"]["rows"]


async def test_callers_see_what_their_tokens_stand_for(server: HttpServer) -> None:
    assert await _rows(server, NORTH) == [[1, "north"]]
    assert await _rows(server, ALL) == [[1, "north", 5], [2, "south", 6]]
    assert await _rows(server, signed()) == [[2, "south"]]
    assert await _rows(server, signed(kid=None, db_role="all")) == [[1, "north", 5], [2, "south", 6]]
    assert await _rows(server, signed(db_role=["team", "all", 5])) == [[1, "north", 5], [2, "south", 6]]


HOSTILE = {
    "no token": (None, 401, None),
    "not ours": (_bearer(new_token()), 401, "invalid_token"),
    "its hash": (_bearer(hash_of(ALL)), 401, "invalid_token"),
    "empty": ({"Authorization": "Bearer"}, 401, "invalid_request"),
    "basic": ({"Authorization": "Basic YTpi"}, 401, "invalid_request"),
    "odd letters": ({"Authorization": b"Bearer \xff\xfe"}, 401, "invalid_token"),
    "a role that is gone": (_bearer(STALE), 403, "insufficient_scope"),
    "expired": (_bearer(signed(exp=int(time.time()) - 60)), 401, "invalid_token"),
    "for ever": (_bearer(signed(exp=None)), 401, "invalid_token"),
    "not yet": (_bearer(signed(nbf=int(time.time()) + 86_400)), 401, "invalid_token"),
    "another audience": (_bearer(signed(aud="https://other.example.com")), 401, "invalid_token"),
    "other audiences": (_bearer(signed(aud=["a", "b"])), 401, "invalid_token"),
    "no audience": (_bearer(signed(aud=None)), 401, "invalid_token"),
    "another issuer": (_bearer(signed(iss="https://evil.example.com/")), 401, "invalid_token"),
    "another key": (_bearer(signed(OTHER)), 401, "invalid_token"),
    "an unknown key": (_bearer(signed(OTHER, kid="9")), 401, "invalid_token"),
    "unsigned": (_bearer(signed("", "none")), 401, "invalid_token"),
    "a symmetric key": (_bearer(signed("secret" * 10, "HS256")), 401, "invalid_token"),
    "another algorithm": (
        _bearer(signed(ec.generate_private_key(ec.SECP384R1()), "ES384")),
        401,
        "invalid_token",
    ),
    "no signature": (_bearer(signed().rpartition(".")[0] + "."), 401, "invalid_token"),
    "no parts": (_bearer("a.b.c"), 401, "invalid_token"),
    "long": (_bearer("a." * 10_000), 401, "invalid_token"),
    "no role": (_bearer(signed(db_role=None)), 403, "insufficient_scope"),
    "an unknown role": (_bearer(signed(db_role="gone")), 403, "insufficient_scope"),
    "several roles": (_bearer(signed(db_role=["all", "some"])), 403, "insufficient_scope"),
    "groups without a role": (_bearer(signed(db_role=["team", 5])), 403, "insufficient_scope"),
    "no scope": (_bearer(signed(scope="other")), 403, "insufficient_scope"),
    "no scope in a list": (_bearer(signed(scope=None, scp=["other", 5])), 403, "insufficient_scope"),
    "a subject that is none": (_bearer(signed(sub=["ada"])), 401, "invalid_token"),
    "a key that is none": (_bearer(signed(kid=None, key=OTHER)), 401, "invalid_token"),
}


REASONS = {
    "no token": "no token",
    "basic": "no token after Bearer",
    "not ours": "the token is not valid",
    "expired": "the token has expired",
    "not yet": "the token is not valid yet",
    "another audience": "the token is for another audience",
    "another issuer": "the token is of another issuer",
    "for ever": "the token lacks exp, iss or aud",
    "another key": "the token is signed with another key",
    "an unknown key": "the token has an unknown key",
    "unsigned": "the token has another algorithm",
    "long": "the token is too long",
    "no scope": "the token lacks a scope",
    "several roles": "the token does not name one role as db_role",
    "an unknown role": "no role 'gone' is configured",
}


async def test_log_tells_why_requests_are_refused(server: HttpServer) -> None:
    settings = load(server.log.parent / "dbtools.toml")
    served, found = open_served(settings), {}

    try:
        await served.toolbox.snapshot()
        identity = Identity(served, Caller())
        for case in REASONS:
            headers, *_ = HOSTILE[case]
            shown = [_decoded(value) for value in (headers or {}).values()]
            rejection = await identity.admit(shown)
            assert isinstance(rejection, Rejection)
            found[case] = rejection.reason
    finally:
        await served.backend.close()

    assert found == REASONS


def _decoded(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_others_are_refused_as_the_specification_says(era: str, case: str, server: HttpServer) -> None:
    headers, status, error = HOSTILE[case]
    asked = initialize() if era == HANDSHAKE else modern("tools/list")
    asked["headers"] = {**asked["headers"], **(headers or {})}
    async with server.client() as client:
        answer = await client.post(**asked)

    challenge = answer.headers["www-authenticate"]
    assert (answer.status_code, challenge.startswith("Bearer ")) == (status, True)
    assert (f'error="{error}"' in challenge) is (error is not None)
    assert 'resource_metadata="https://db.example.com/.well-known/oauth-protected-resource/mcp"' in challenge
    assert ('scope="db"' in challenge) is (case == "no token" or case.startswith("no scope"))


@pytest.mark.parametrize("scopes", [{"scp": "db other"}, {"scp": ["db"]}, {"scope": ["other", "db"]}])
async def test_scopes_are_a_text_or_a_list_by_either_name(scopes: dict[str, Any], server: HttpServer) -> None:
    assert await _rows(server, signed(**{"scope": None, **scopes})) == [[2, "south"]]


METADATA = "/.well-known/oauth-protected-resource"


async def test_metadata_says_where_tokens_come_from(server: HttpServer) -> None:
    async with server.client() as client:
        answer = await client.get(f"{METADATA}/mcp")
        short = await client.get(METADATA)
        others = [await client.get(f"{METADATA}{rest}") for rest in ("/other", "/mcp/other", "s", "x/mcp")]
        alive = await client.get("/readyz")

    assert [each.status_code for each in others] == [404] * 4
    assert short.json() == answer.json()
    assert answer.json() == {
        "resource": AUDIENCE,
        "authorization_servers": [ISSUER],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["db"],
    }
    assert alive.status_code == 200


async def test_metadata_without_signed_tokens_names_no_issuer(
    sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    path = tmp_path / "dbtools.toml"
    tokens = f'[auth]\ntokens = [{{ sha256 = "{hash_of(ALL).upper()}", role = "all" }}]\n'
    path.write_text(f'[database]\nurl = "sqlite:///{sqlite_database(DDL)}"\n{ROLES}{tokens}')
    async with http_server(path, tmp_path) as server:
        async with server.client() as client:
            answer = await client.post(**modern("tools/list"))
            metadata = await client.get(METADATA)
        rows = await _rows(server, ALL)

    assert answer.headers["www-authenticate"] == "Bearer"
    assert (answer.status_code, metadata.status_code) == (401, 404)
    assert len(rows) == 2  # a hash in capitals is that hash


async def test_session_is_of_whom_it_was_opened_for(server: HttpServer) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with server.client() as client:
        session = await open_session(client, **_bearer(NORTH))
        own = await client.post(**posted(message, session))
        other = await client.post(**posted(message, {**session, **_bearer(ALL)}))
        nobody = await client.post(**posted(message, {SESSION: session[SESSION]}))
        ended = await client.delete("/mcp", headers={**session, **_bearer(signed())})
        still = await client.post(**posted(message, session))

    assert (own.status_code, other.status_code, nobody.status_code) == (200, 404, 401)
    assert (ended.status_code, still.status_code) == (404, 200)


async def test_token_that_is_taken_away_counts_no_more(
    sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "keys.json").write_text(key_set(KEY))
    database = sqlite_database(DDL)
    path = _configured(tmp_path, database)
    async with http_server(path, tmp_path) as server, server.client(**_bearer(ALL)) as client:
        session = await open_session(client)
        before = await client.post(**modern("tools/list"))
        _configured(tmp_path, database, (NORTH, new_token()))
        while (after := await client.post(**modern("tools/list"))).status_code == 200:
            pass
        within = await client.post(**posted({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, session))
        log = server.log.read_text()

    assert (before.status_code, after.status_code, within.status_code) == (200, 401, 401)
    assert ALL not in log


async def _logged(server: HttpServer, wanted: set[str]) -> set[str]:
    """Return whom the call log names, once those who are *wanted* are there: it is written beside."""
    with anyio.fail_after(PATIENCE):
        while True:
            lines = (await anyio.Path(server.log).read_text()).splitlines(keepends=True)
            whole = (line for line in lines if line.startswith("{") and line.endswith("\n"))
            if wanted <= (named := {json.loads(line)["identity"] for line in whole}):
                return named


async def test_who_has_no_name_is_known_by_the_token(server: HttpServer) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    tokens = [signed(sub=None, jti=each) for each in ("one", "two")] + [signed(sub="", jti="three")]
    for each in tokens:
        await _rows(server, each)
    async with server.client() as client:
        session = await open_session(client, **_bearer(tokens[0]))
        own = await client.post(**posted(message, session))
        others = [await client.post(**posted(message, {**session, **_bearer(each)})) for each in tokens[1:]]
    identities = await _logged(server, {f"token {hash_of(each)[:16]} of {ISSUER}" for each in tokens})

    assert (own.status_code, [each.status_code for each in others]) == (200, [404, 404])
    assert ISSUER not in identities


async def test_identity_is_in_the_call_log_and_no_token(server: HttpServer) -> None:
    for each in (NORTH, ALL, signed()):
        await _rows(server, each)
    identities = await _logged(server, {f"token {hash_of(NORTH)[:8]}", "night reports", f"{ISSUER} ada"})

    assert f"token {hash_of(ALL)[:8]}" not in identities  # a name takes its place
    assert not any(secret in server.log.read_text() for secret in (NORTH, ALL, "eyJ"))


def test_token_new_prints_what_belongs_together() -> None:
    told = json.loads(run("token", "new", "--json").stdout)
    shown = run("token", "new").stdout

    assert hash_of(told["token"]) == told["sha256"]
    assert told["token"] not in shown
    assert shown.count(hash_of(shown.split()[1])) == 2


def test_check_finds_tokens_of_roles_that_are_not_there(
    sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    checked = run("check", str(_configured(tmp_path, sqlite_database(DDL))))

    assert checked.exit_code == 1
    assert "dbtools.toml:11: error: [auth] tokens: there is no role gone. Roles: all, some." in checked.stdout


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        (("--role", "all"), {}),
        (("--claim", "region=north"), {}),
        ((), {"DBTOOLS_ROLE": "all"}),
        ((), {"DBTOOLS_CLAIMS": "{}"}),
    ],
)
def test_role_options_are_refused_where_tokens_decide(
    options: tuple[str, ...],
    environment: dict[str, str],
    sqlite_database: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = _configured(tmp_path, sqlite_database(DDL))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    result = run("serve", str(path), "--http", "127.0.0.1:0", *options)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "each token decides role and claims" in result.stderr


async def test_start_tells_of_tokens_of_roles_that_are_not_there(server: HttpServer) -> None:
    told = "/dbtools.toml:11: error: [auth] tokens: there is no role gone. Roles: all, some.\n"

    assert told in server.log.read_text()


NO_SET, NO_KEY = "this is not a JWK Set (RFC 7517)", "has no key for RS256, ES256"
FILE = "{folder}/keys.json"
#: What is written for the keys of [auth.jwt], and what is found.
KEYS = {
    "no file": ("keys.json", None, f"cannot read keys from {FILE}: No such file or directory"),
    "no keys": ("keys.json", '{"keys": []}', f"{FILE} {NO_KEY}"),
    "no set": ("keys.json", "rubbish", f"cannot read keys from {FILE}: {NO_SET}"),
    "for secrets": ("keys.json", key_set(KEY, use="enc"), f"{FILE} {NO_KEY}"),
    "nobody": (
        "http://127.0.0.1:1/keys?key=secret",
        None,
        "cannot read keys from 127.0.0.1: Connection refused",
    ),
}


@pytest.mark.parametrize("case", KEYS)
def test_check_finds_keys_that_cannot_be_read(
    case: str, sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    jwks, content, reason = KEYS[case]
    if content is not None:
        (tmp_path / "keys.json").write_text(content)
    path = _configured(tmp_path, sqlite_database(DDL))
    path.write_text(path.read_text().replace('"keys.json"', f'"{jwks}"').replace('"gone"', '"all"'))
    checked = run("check", str(path))

    assert checked.exit_code == 1
    line = 1 + path.read_text().partition("jwks = ")[0].count("\n")
    found = f"{path}:{line}: error: [auth] jwt.jwks: {reason.format(folder=tmp_path)}."
    assert found in checked.stdout.splitlines()


def test_check_is_content_with_keys(sqlite_database: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(key_set(KEY))
    path = _configured(tmp_path, sqlite_database(DDL))
    path.write_text(path.read_text().replace('"gone"', '"all"'))
    checked = run("check", str(path))

    assert (checked.exit_code, "error" in checked.stdout) == (0, False)
