"""Hosts, origins, URLs and hashes as a configuration names them: what is none is refused, in plain words."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from dbtools.errors import ConfigurationError
from dbtools.settings import Settings, load

HASH = "0123456789abcdef" * 4
JWT = {"issuer": "https://id.example.com/", "audience": "https://db.example.com/mcp", "jwks": "keys.json"}


def _load(folder: Path, text: str) -> Settings:
    path = folder / "dbtools.toml"
    path.write_text(f'[database]\nurl = "shop.db"\n{text}\n')
    return load(path)


def _jwt(**changed: str) -> str:
    return "\n".join(("[auth.jwt]", *(f'{key} = "{value}"' for key, value in {**JWT, **changed}.items())))


def _list(key: str, value: str) -> str:
    return f'[server]\n{key} = ["{value}"]'


def _token(hashed: str) -> str:
    return f'[auth]\ntokens = [{{ sha256 = "{hashed}", role = "a" }}]'


HOST, ORIGIN = "the name of a host", "an origin, SCHEME://HOST or SCHEME://HOST:PORT"
RESOURCE, PLACE = "the URL of this server", "an https URL or a file of keys"
REFUSED: Mapping[str, tuple[str, str, str]] = {
    **{
        f"host {each}": (_list("allowed_hosts", each), "server.allowed_hosts.0", HOST)
        for each in ("", "*", "*.example.com", "https://db.example.com", "db.example.com/mcp", "a b", "::1")
    },
    **{
        f"origin {each}": (_list("allowed_origins", each), "server.allowed_origins.0", ORIGIN)
        for each in ("", "*", "null", "app.example.com", "https://", "https://a.example.com/app", "https://*")
    },
    **{
        f"audience {each}": (_jwt(audience=each), "auth.jwt.audience", RESOURCE)
        for each in ("", "api://db", "db.example.com", "https://", "https://db.example.com/#a", "https://[db")
    },
    **{
        f"keys {each}": (_jwt(jwks=each), "auth.jwt.jwks", PLACE)
        for each in ("ftp://id.example.com/keys", "file:///etc/passwd", "https://", "://", "https://a b/keys")
    },
    "no keys": (_jwt(jwks=""), "auth.jwt.jwks", "a URL or a file of keys"),
    "keys without encryption": (_jwt(jwks="http://id.example.com/keys"), "auth.jwt.jwks", "https: whoever"),
    "no issuer": (_jwt(issuer=" "), "auth.jwt.issuer", "what stands in the claim iss"),
    **{
        f"hash {each[-9:]}": (
            _token(each),
            "auth.tokens.0.sha256",
            "the hash of a token, 64 hexadecimal digits",
        )
        for each in ("", "dbt_secret", HASH[1:], f"{HASH}0", f"{HASH}\\n")
    },
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_not_the_form_is_refused_in_plain_words(case: str, tmp_path: Path) -> None:
    text, key, wants = REFUSED[case]

    with pytest.raises(ConfigurationError) as raised:
        _load(tmp_path, text)
    assert f": {key}: wants {wants}" in str(raised.value)
    assert "dbt_secret" not in str(raised.value)


HOSTS = ("db.example.com", "db:8443", "10.0.0.5", "[2001:db8::1]", "[::1]:8000", "db_1", "rôle.example")
ORIGINS = (
    "https://app.example.com",
    "http://localhost:3000",
    "https://app.example.com/",
    "vscode-webview://a1",
)


def test_what_has_the_form_is_kept(tmp_path: Path) -> None:
    text = f"[server]\nallowed_hosts = {list(HOSTS)}\nallowed_origins = {list(ORIGINS)}"
    server = _load(tmp_path, text).server

    assert (server.allowed_hosts, server.allowed_origins) == (HOSTS, ORIGINS)


@pytest.mark.parametrize(
    "changed",
    [
        {"jwks": "https://id.example.com/keys?v=1"},
        {"jwks": "http://127.0.0.1:8080/keys"},
        {"jwks": "http://localhost/keys"},
        {"jwks": "http://[::1]/keys"},
        {"audience": "http://127.0.0.1:8000/mcp"},
        {"issuer": "accounts.example.com"},
    ],
)
def test_issuer_audience_and_keys_are_kept(changed: dict[str, str], tmp_path: Path) -> None:
    section = _load(tmp_path, _jwt(**changed)).auth.jwt

    assert section is not None
    assert {name: getattr(section, name) for name in changed} == changed


def test_hash_of_a_token_is_kept_in_small_letters(tmp_path: Path) -> None:
    assert _load(tmp_path, _token(HASH.upper())).auth.tokens[0].sha256 == HASH
