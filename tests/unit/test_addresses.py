"""Hosts, origins, URLs and hashes in a configuration: invalid ones are rejected with a clear message."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from dbtools.errors import ConfigurationError
from dbtools.settings import Settings, load

HASH = "0123456789abcdef" * 4
URL = "https://db.example.com/mcp"
JWT: dict[str, object] = {"issuer": "https://id.example.com/", "audience": URL, "jwks": "keys.json"}


def _load(folder: Path, text: str) -> Settings:
    path = folder / "dbtools.toml"
    path.write_text(f'[database]\nurl = "shop.db"\n{text}\n')
    return load(path)


def _jwt(**changed: object) -> str:
    return "\n".join(
        ("[auth.jwt]", *(f"{key} = {json.dumps(value)}" for key, value in (JWT | changed).items()))
    )


def _list(key: str, value: str) -> str:
    return f'[server]\n{key} = ["{value}"]'


def _token(hashed: str) -> str:
    return f'[auth]\ntokens = [{{ sha256 = "{hashed}", role = "a" }}]'


MISSING = f"be the URL of this server, such as {URL}, since no audience is one"
HOST, ORIGIN = "be a host name", "be an origin, SCHEME://HOST or SCHEME://HOST:PORT"
RESOURCE, PLACE = "be the URL of this server", "be an https URL or a file of keys"
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
        f"resource {each}": (_jwt(resource=each), "auth.jwt.resource", RESOURCE)
        for each in ("api://db", "db.example.com", "https://", "https://db.example.com/#a", "https://[db")
    },
    **{
        f"audience {each} without a resource": (_jwt(audience=each), "auth.jwt", MISSING)
        for each in ("api://db", "db.example.com", "https://db.example.com/#a", ["dbtools", "api://db"])
    },
    "empty audience": (_jwt(audience=" "), "auth.jwt.audience", "be a value of the claim aud"),
    "empty audience of several": (
        *(_jwt(audience=[URL, ""]), "auth.jwt.audience.1", "be a value of the claim aud"),
    ),
    "audience that is a number": (
        *(_jwt(audience=5), "auth.jwt.audience", "be a string or an array of strings"),
    ),
    "audiences that are numbers": (_jwt(audience=[5]), "auth.jwt.audience.0", "be a string"),
    **{
        f"keys {each}": (_jwt(jwks=each), "auth.jwt.jwks", PLACE)
        for each in ("ftp://id.example.com/keys", "file:///etc/passwd", "https://", "://", "https://a b/keys")
    },
    "no keys": (_jwt(jwks=""), "auth.jwt.jwks", "be a URL or a file of keys"),
    "keys without encryption": (
        *(_jwt(jwks="http://id.example.com/keys"), "auth.jwt.jwks", "use https: over http"),
    ),
    "keys with a password": (
        _jwt(jwks="https://ada:dbt_secret@id.example.com/keys"),
        "auth.jwt.jwks",
        "be a URL without a user name or a password",
    ),
    "no issuer": (_jwt(issuer=" "), "auth.jwt.issuer", "be the value of the claim iss"),
    **{
        f"hash {each[-9:]}": (
            *(_token(each), "auth.tokens.0.sha256", "be the hash of a token, 64 hexadecimal digits"),
        )
        for each in ("", "dbt_secret", HASH[1:], f"{HASH}0", f"{HASH}\\n")
    },
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_not_the_form_is_refused_in_plain_words(case: str, tmp_path: Path) -> None:
    text, key, must = REFUSED[case]

    with pytest.raises(ConfigurationError) as raised:
        _load(tmp_path, text)
    assert f": {key}: must {must}" in str(raised.value)
    assert "dbt_secret" not in str(raised.value)


HOSTS = ("db.example.com", "db:8443", "10.0.0.5", "[2001:db8::1]", "[::1]:8000", "db_1", "rôle.example")
ORIGINS = (
    *("https://app.example.com", "http://localhost:3000", "https://app.example.com/", "vscode-webview://a1"),
)


def test_what_has_the_form_is_kept(tmp_path: Path) -> None:
    text = f"[server]\nallowed_hosts = {list(HOSTS)}\nallowed_origins = {list(ORIGINS)}"
    server = _load(tmp_path, text).server

    assert (server.allowed_hosts, server.allowed_origins) == (HOSTS, ORIGINS)


@pytest.mark.parametrize(
    ("audience", "resource", "audiences", "url"),
    [
        pytest.param(URL, None, (URL,), URL, id="the URL"),
        (["dbtools", URL, f"{URL}/2"], None, ("dbtools", URL, f"{URL}/2"), URL),
        pytest.param("api://db", URL, ("api://db",), URL, id="no URL"),
        pytest.param("https://api.example.com", URL, ("https://api.example.com",), URL, id="another URL"),
    ],
)
def test_resource_is_the_first_audience_that_is_a_url(
    audience: object, resource: str | None, audiences: tuple[str, ...], url: str, tmp_path: Path
) -> None:
    given = {"resource": resource} if resource else {}
    section = _load(tmp_path, _jwt(audience=audience, **given)).auth.jwt

    assert section is not None
    assert (section.audience, section.resource) == (audiences, url)


def test_no_audience_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"dbtools.toml:5: auth\.jwt\.audience: "):
        _load(tmp_path, _jwt(audience=[]))


def _names(*names: str) -> str:
    tokens = (f'{{ sha256 = "{HASH}", role = "a", name = {json.dumps(name)} }}' for name in names)
    return f"[auth]\ntokens = [{', '.join(tokens)}]"


def test_tokens_have_names_that_differ(tmp_path: Path) -> None:
    tokens = _load(tmp_path, f"{_names('reports', 'Ada Lovelace')}").auth.tokens

    assert [token.name for token in tokens] == ["reports", "Ada Lovelace"]
    with pytest.raises(ConfigurationError, match=r"auth\.tokens: tokens 1 and 3 have the same name"):
        _load(tmp_path, _names("reports", "other", "reports"))


@pytest.mark.parametrize("name", ["", " ", "a ", "\n", "a\x1b[1m", "a" * 101])
def test_names_of_tokens_are_short_and_on_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"auth\.tokens\.0\.name: must be 1 to 100 characters on one line"
    ):
        _load(tmp_path, _names(name))


@pytest.mark.parametrize(
    "changed",
    [
        {"jwks": "https://id.example.com/keys?v=1"},
        {"jwks": "http://127.0.0.1:8080/keys"},
        {"jwks": "http://localhost/keys"},
        {"jwks": "http://[::1]/keys"},
        {"audience": "api://3a1b", "resource": "http://127.0.0.1:8000/mcp"},
        {"issuer": "accounts.example.com"},
    ],
)
def test_issuer_audience_and_keys_are_kept(changed: dict[str, str], tmp_path: Path) -> None:
    section = _load(tmp_path, _jwt(**changed)).auth.jwt

    assert section is not None
    kept = section.model_dump(include=set(changed)) | {"audience": section.audience[0]}
    assert kept == {"audience": URL, **changed}


def test_hash_of_a_token_is_kept_in_small_letters(tmp_path: Path) -> None:
    assert _load(tmp_path, _token(HASH.upper())).auth.tokens[0].sha256 == HASH
