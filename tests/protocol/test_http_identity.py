"""Authentication over HTTP: tokens by hash, tokens of an issuer, and what each caller may see."""

import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from dbtools.policy.roles import Caller
from dbtools.server.http.identity import Identity, Rejection, hash_of, new_token
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
    everything = [[1, "north", 5], [2, "south", 6]]

    assert await _rows(server, NORTH) == [[1, "north"]]
    assert await _rows(server, ALL) == everything
    assert await _rows(server, signed()) == [[2, "south"]]
    assert await _rows(server, signed(kid=None, db_role="all")) == everything
    assert await _rows(server, signed(db_role=["team", "all", 5])) == everything
    for scopes in ({"scp": "db other"}, {"scp": ["db"]}, {"scope": ["other", "db"]}):
        claims: dict[str, Any] = {"scope": None, **scopes}
        assert await _rows(server, signed(**claims)) == [[2, "south"]]


METADATA = "/.well-known/oauth-protected-resource"
CURVE = ec.generate_private_key(ec.SECP384R1())
INVALID, TOO_LITTLE = "invalid_token", "insufficient_scope"  #: 401 and 403
#: Headers, the error of the answer, and the reason in the log, if that is tested.
HOSTILE = {
    "no token": (None, None, "no token"),
    "not ours": (_bearer(new_token()), INVALID, "the token is not valid"),
    "its hash": (_bearer(hash_of(ALL)), INVALID, None),
    "empty": ({"Authorization": "Bearer"}, "invalid_request", None),
    "basic": ({"Authorization": "Basic YTpi"}, "invalid_request", "no token after Bearer"),
    "odd letters": ({"Authorization": b"Bearer \xff\xfe"}, INVALID, None),
    "a role that is gone": (_bearer(STALE), TOO_LITTLE, None),
    "expired": (_bearer(signed(exp=int(time.time()) - 60)), INVALID, "the token has expired"),
    "for ever": (_bearer(signed(exp=None)), INVALID, "the token lacks exp, iss or aud"),
    "not yet": (_bearer(signed(nbf=int(time.time()) + 86_400)), INVALID, "the token is not valid yet"),
    "another audience": (
        _bearer(signed(aud="https://other.example.com")),
        INVALID,
        "the token is for another audience",
    ),
    "other audiences": (_bearer(signed(aud=["a", "b"])), INVALID, None),
    "no audience": (_bearer(signed(aud=None)), INVALID, None),
    "another issuer": (
        _bearer(signed(iss="https://evil.example.com/")),
        INVALID,
        "the token is of another issuer",
    ),
    "another key": (_bearer(signed(OTHER)), INVALID, "the token is signed with another key"),
    "an unknown key": (_bearer(signed(OTHER, kid="9")), INVALID, "the token has an unknown key"),
    "unsigned": (_bearer(signed("", "none")), INVALID, "the token has another algorithm"),
    "a symmetric key": (_bearer(signed("secret" * 10, "HS256")), INVALID, None),
    "another algorithm": (_bearer(signed(CURVE, "ES384")), INVALID, None),
    "no signature": (_bearer(signed().rpartition(".")[0] + "."), INVALID, None),
    "no parts": (_bearer("a.b.c"), INVALID, None),
    "long": (_bearer("a." * 10_000), INVALID, "the token is too long"),
    "no role": (_bearer(signed(db_role=None)), TOO_LITTLE, None),
    "an unknown role": (_bearer(signed(db_role="gone")), TOO_LITTLE, "no role 'gone' is configured"),
    "several roles": (
        _bearer(signed(db_role=["all", "some"])),
        TOO_LITTLE,
        "the token does not name one role as db_role",
    ),
    "groups without a role": (_bearer(signed(db_role=["team", 5])), TOO_LITTLE, None),
    "no scope": (_bearer(signed(scope="other")), TOO_LITTLE, "the token lacks a scope"),
    "no scope in a list": (_bearer(signed(scope=None, scp=["other", 5])), TOO_LITTLE, None),
    "a subject that is none": (_bearer(signed(sub=["ada"])), INVALID, None),
    "a key that is none": (_bearer(signed(kid=None, key=OTHER)), INVALID, None),
}


async def test_log_tells_why_requests_are_refused(server: HttpServer) -> None:
    settings = load(server.log.parent / "dbtools.toml")
    served, found = open_served(settings), {}
    expected = {case: reason for case, (*_, reason) in HOSTILE.items() if reason}

    try:
        await served.toolbox.snapshot()
        identity = Identity(served, Caller())
        for case in expected:
            headers, *_ = HOSTILE[case]
            shown = [_decoded(value) for value in (headers or {}).values()]
            rejection = await identity.admit(shown)
            assert isinstance(rejection, Rejection)
            found[case] = rejection.reason
    finally:
        await served.backend.close()

    assert found == expected


def _decoded(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_others_are_refused_as_the_specification_says(era: str, server: HttpServer) -> None:
    async with server.client() as client:
        for case, (headers, error, _) in HOSTILE.items():
            asked = initialize() if era == HANDSHAKE else modern("tools/list")
            asked["headers"] = {**asked["headers"], **(headers or {})}
            answer = await client.post(**asked)

            challenge = answer.headers["www-authenticate"]
            assert answer.status_code == (403 if error == TOO_LITTLE else 401), case
            assert challenge.startswith("Bearer "), case
            assert (f'error="{error}"' in challenge) is (error is not None), case
            assert f'resource_metadata="https://db.example.com{METADATA}/mcp"' in challenge
            assert ('scope="db"' in challenge) is (case == "no token" or case.startswith("no scope")), case


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


async def test_identity_is_in_the_call_log_and_who_has_no_name_is_known_by_the_token(
    server: HttpServer,
) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    tokens = [signed(sub=None, jti=each) for each in ("one", "two")] + [signed(sub="", jti="three")]
    for each in (*tokens, NORTH, ALL, signed()):
        await _rows(server, each)
    async with server.client() as client:
        session = await open_session(client, **_bearer(tokens[0]))
        own = await client.post(**posted(message, session))
        others = [await client.post(**posted(message, {**session, **_bearer(each)})) for each in tokens[1:]]
    wanted = {f"token {hash_of(each)[:16]} of {ISSUER}" for each in tokens}
    wanted |= {f"token {hash_of(NORTH)[:8]}", "night reports", f"{ISSUER} ada"}
    identities: set[str] = set()
    with anyio.fail_after(PATIENCE):
        while not wanted <= identities:  # it is written beside
            lines = (await anyio.Path(server.log).read_text()).splitlines(keepends=True)
            whole = (line for line in lines if line.startswith("{") and line.endswith("\n"))
            identities = {json.loads(line)["identity"] for line in whole}

    assert (own.status_code, [each.status_code for each in others]) == (200, [404, 404])
    assert not {ISSUER, f"token {hash_of(ALL)[:8]}"} & identities  # a name takes the place of the token
    assert not any(secret in server.log.read_text() for secret in (NORTH, ALL, "eyJ"))


@pytest.mark.parametrize(
    "words", ["--role all", "--claim region=north", "DBTOOLS_ROLE=all", "DBTOOLS_CLAIMS={}"]
)
def test_role_options_are_refused_where_tokens_decide(
    words: str, sqlite_database: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _configured(tmp_path, sqlite_database(DDL))
    options = words.split() if words.startswith("-") else []
    if not options:
        monkeypatch.setenv(*words.split("="))

    result = run("serve", str(path), "--http", "127.0.0.1:0", *options)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "each token decides role and claims" in result.stderr


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


def test_check_finds_keys_that_cannot_be_read_and_roles_that_are_not_there(
    server: HttpServer, sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    path = _configured(tmp_path, sqlite_database(DDL))
    text, line = path.read_text(), 1 + path.read_text().partition("jwks = ")[0].count("\n")
    for jwks, content, reason in KEYS.values():
        (tmp_path / "keys.json").unlink(missing_ok=True)
        if content is not None:
            (tmp_path / "keys.json").write_text(content)
        path.write_text(text.replace('"keys.json"', f'"{jwks}"').replace('"gone"', '"all"'))
        checked = run("check", str(path))

        assert checked.exit_code == 1
        found = f"{path}:{line}: error: [auth] jwt.jwks: {reason.format(folder=tmp_path)}."
        assert found in checked.stdout.splitlines()

    (tmp_path / "keys.json").write_text(key_set(KEY))
    path.write_text(text)
    gone = "/dbtools.toml:11: error: [auth] tokens: there is no role gone. Roles: all, some.\n"
    assert gone in run("check", str(path)).stdout
    assert gone in server.log.read_text()  # at its start
    path.write_text(text.replace('"gone"', '"all"'))
    right = run("check", str(path))
    assert (right.exit_code, "error" in right.stdout) == (0, False)
