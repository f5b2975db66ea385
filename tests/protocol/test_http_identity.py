"""Who calls over HTTP: tokens by their hashes, tokens that somebody else signs, and what each may see."""

import json
import time
from collections.abc import AsyncIterator, Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from dbtools.config import JwtSection
from dbtools.server.jwts import Jwts, NoKeysError
from dbtools.server.tokens import hash_of, new_token
from tests.protocol.client import MODERN
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
from tests.protocol.test_command_line import run

DDL = """
create table orders (id integer primary key, region text not null, margin integer);
insert into orders values (1, 'north', 5), (2, 'south', 6);
"""
ISSUER, AUDIENCE = "https://id.example.com/", "https://db.example.com/mcp"
ROLES = """
[roles.all]
tables."*" = true
[roles.some]
tables.orders = { exclude = ["margin"], where = "region = :claims.region" }
"""
NORTH, ALL, STALE = new_token(), new_token(), new_token()
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _keys(*keys: rsa.RSAPrivateKey) -> str:
    """Return the set of the public parts of *keys*, named by their places."""
    written = (json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())) for key in keys)
    return json.dumps({"keys": [{**each, "kid": str(at), "use": "sig"} for at, each in enumerate(written)]})


def _signed(key: Any = KEY, algorithm: str = "RS256", kid: str | None = "0", **claims: object) -> str:
    known = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "exp": int(time.time()) + 600,
        "sub": "ada",
        "db_role": "some",
        "region": "south",
        "scope": "db other",
        **claims,
    }
    told = {name: value for name, value in known.items() if value is not None}
    return jwt.encode(told, key, algorithm=algorithm, headers={"kid": kid} if kid else None)


@pytest.fixture(scope="module")
async def server(
    sqlite_database: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[HttpServer]:
    """Give a server that asks who calls."""
    folder = tmp_path_factory.mktemp("identity")
    (folder / "keys.json").write_text(_keys(KEY))
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
    {{ sha256 = "{everything}", role = "all" }},
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
    assert await _rows(server, _signed()) == [[2, "south"]]
    assert await _rows(server, _signed(kid=None, db_role="all")) == [[1, "north", 5], [2, "south", 6]]


HOSTILE = {
    "no token": (None, 401, None),
    "not ours": (_bearer(new_token()), 401, "invalid_token"),
    "its hash": (_bearer(hash_of(ALL)), 401, "invalid_token"),
    "empty": ({"Authorization": "Bearer"}, 401, "invalid_request"),
    "basic": ({"Authorization": "Basic YTpi"}, 401, "invalid_request"),
    "odd letters": ({"Authorization": b"Bearer \xff\xfe"}, 401, "invalid_token"),
    "a role that is gone": (_bearer(STALE), 403, "insufficient_scope"),
    "expired": (_bearer(_signed(exp=int(time.time()) - 60)), 401, "invalid_token"),
    "for ever": (_bearer(_signed(exp=None)), 401, "invalid_token"),
    "not yet": (_bearer(_signed(nbf=int(time.time()) + 600)), 401, "invalid_token"),
    "another audience": (_bearer(_signed(aud="https://other.example.com")), 401, "invalid_token"),
    "no audience": (_bearer(_signed(aud=None)), 401, "invalid_token"),
    "another issuer": (_bearer(_signed(iss="https://evil.example.com/")), 401, "invalid_token"),
    "another key": (_bearer(_signed(OTHER)), 401, "invalid_token"),
    "an unknown key": (_bearer(_signed(OTHER, kid="9")), 401, "invalid_token"),
    "unsigned": (_bearer(_signed("", "none")), 401, "invalid_token"),
    "a symmetric key": (_bearer(_signed("secret" * 10, "HS256")), 401, "invalid_token"),
    "another algorithm": (
        _bearer(_signed(ec.generate_private_key(ec.SECP384R1()), "ES384")),
        401,
        "invalid_token",
    ),
    "no signature": (_bearer(_signed().rpartition(".")[0] + "."), 401, "invalid_token"),
    "no parts": (_bearer("a.b.c"), 401, "invalid_token"),
    "long": (_bearer("a." * 20_000), 401, "invalid_token"),
    "no role": (_bearer(_signed(db_role=None)), 403, "insufficient_scope"),
    "an unknown role": (_bearer(_signed(db_role="gone")), 403, "insufficient_scope"),
    "a list of roles": (_bearer(_signed(db_role=["all"])), 403, "insufficient_scope"),
    "no scope": (_bearer(_signed(scope="other")), 403, "insufficient_scope"),
}


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
    assert ('scope="db"' in challenge) is (case in ("no token", "no scope"))


async def test_metadata_says_where_tokens_come_from(server: HttpServer) -> None:
    async with server.client() as client:
        answer = await client.get("/.well-known/oauth-protected-resource/mcp")
        alive = await client.get("/readyz")

    assert answer.json() == {
        "resource": AUDIENCE,
        "authorization_servers": [ISSUER],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["db"],
    }
    assert alive.status_code == 200


async def test_session_is_of_whom_it_was_opened_for(server: HttpServer) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with server.client() as client:
        session = await open_session(client, **_bearer(NORTH))
        own = await client.post(**posted(message, session))
        other = await client.post(**posted(message, {**session, **_bearer(ALL)}))
        nobody = await client.post(**posted(message, {SESSION: session[SESSION]}))
        ended = await client.delete("/mcp", headers={**session, **_bearer(_signed())})
        still = await client.post(**posted(message, session))

    assert (own.status_code, other.status_code, nobody.status_code) == (200, 404, 401)
    assert (ended.status_code, still.status_code) == (404, 200)


async def test_token_that_is_taken_away_counts_no_more(
    sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "keys.json").write_text(_keys(KEY))
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


async def test_identity_is_in_the_call_log_and_no_token(server: HttpServer) -> None:
    await _rows(server, NORTH)
    await _rows(server, _signed())
    log = server.log.read_text()
    identities = {json.loads(line)["identity"] for line in log.splitlines() if line.startswith("{")}

    assert {f"token {hash_of(NORTH)[:8]}", f"{ISSUER} ada"} <= identities
    assert not any(secret in log for secret in (NORTH, ALL, "eyJ"))


class Issuer:
    """Serves keys, and counts how often it is asked."""

    def __init__(self) -> None:
        self.content = _keys(KEY)
        self.asked = 0
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                self.send_response(200 if self.path == "/keys" else 302)
                self.send_header("Location", "/keys")
                self.end_headers()
                self.wfile.write(issuer.content.encode())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """End."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def issuer() -> Any:
    """Give an issuer."""
    issuer = Issuer()
    yield issuer
    issuer.close()


def _section(jwks: str) -> JwtSection:
    return JwtSection(issuer=ISSUER, audience=AUDIENCE, jwks=jwks)


async def test_keys_are_kept_and_read_again_when_others_are_named(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    jwts = Jwts(_section(f"{issuer.url}/keys"))
    first = [await jwts.claims_of(_signed()) for _ in range(3)]
    asked = issuer.asked
    issuer.content = _keys(KEY, OTHER)
    early = [await jwts.claims_of(_signed(OTHER, kid="1")) for _ in range(3)]
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 11)
    later = await jwts.claims_of(_signed(OTHER, kid="1"))
    issuer.content = "nothing"
    monkeypatch.setattr(time, "monotonic", lambda: now + 1_000)
    kept = await jwts.claims_of(_signed())

    assert all(first)
    assert (asked, issuer.asked) == (1, 3)
    assert early == [None] * 3  # whoever shows unknown keys has nobody ask all the time
    assert later is not None
    assert kept is not None


@pytest.mark.parametrize("place", ["/elsewhere", "http://id.example.com/keys", "file:///etc/passwd"])
async def test_keys_come_from_where_they_are_and_nowhere_else(place: str, issuer: Issuer) -> None:
    jwts = Jwts(_section(issuer.url + place if place.startswith("/") else place))

    with pytest.raises(NoKeysError):
        await jwts.claims_of(_signed())


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
