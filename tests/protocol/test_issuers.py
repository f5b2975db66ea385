"""Tokens of various issuers: their audiences, and the claims that name a role."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from dbtools.policy.roles import Caller
from dbtools.server.http.identity import Identity
from dbtools.service.serving import open_served
from dbtools.settings import load
from tests.pages import blocks_of
from tests.protocol.client import ROOT
from tests.protocol.issuer import AUDIENCE, ISSUER, KEY, key_set, signed

ROLES = """
[roles.all]
tables."*" = true
[roles.some]
tables."*" = true
[roles.support]
tables."*" = true
"""


async def _admitted(folder: Path, jwt: str, *tokens: str) -> list[object]:
    """Return the caller of each of *tokens* as a server with the section *jwt* knows them, or the refusal."""
    path = folder / "dbtools.toml"
    (folder / "keys.json").write_text(key_set(KEY))
    (folder / "shop.db").touch()
    path.write_text(f'[database]\nurl = "shop.db"\n{ROLES}[auth.jwt]\njwks = "keys.json"\n{jwt}\n')
    served = open_served(load(path))
    try:
        await served.toolbox.snapshot()
        identity = Identity(served, Caller())
        found = [await identity.admit([f"Bearer {each}"]) for each in tokens]
    finally:
        await served.backend.close()
    return [each if isinstance(each, Caller) else each.status for each in found]


async def test_token_is_for_any_of_the_audiences(tmp_path: Path) -> None:
    audiences = ["3f2a", ["account", "3f2a"], "api://3f2a", "account", ["account"], "3f2a api://3f2a"]
    jwt = f'''
issuer = "{ISSUER}"
audience = ["3f2a", "api://3f2a"]
resource = "{AUDIENCE}"
role_claim = "db_role"
'''

    admitted = await _admitted(tmp_path, jwt, *(signed(aud=each) for each in audiences))

    assert [401 if each == 401 else 200 for each in admitted] == [200, 200, 200, 401, 401, 401]


#: The claim that names the role, the claims of a token, and the role or the status of the answer.
ROLE_CLAIMS: Mapping[str, tuple[str, Mapping[str, object], str | int]] = {
    "within an object": ("realm.roles", {"realm": {"roles": ["offline", "all"]}}, "all"),
    "text within objects": ("a.b.c", {"a": {"b": {"c": "some"}}}, "some"),
    "a client with dots": (
        "access.db.example.com.roles",
        {"access": {"db.example.com": {"roles": ["all"]}}},
        "all",
    ),
    "a name with dots": ("https://db.example.com/roles", {"https://db.example.com/roles": ["all"]}, "all"),
    "the longest name": ("a.b", {"a.b": "all", "a": {"b": "some"}}, "all"),
    "a shorter name": ("a.b.c", {"a.b": {"x": "all"}, "a": {"b.c": "some"}}, "some"),
    "several": ("realm.roles", {"realm": {"roles": ["some", "all"]}}, 403),
    "none": ("realm.roles", {"realm": {"roles": ["offline"]}}, 403),
    "an object": ("realm", {"realm": {"roles": ["all"]}}, 403),
    "a list on the way": ("realm.roles", {"realm": [{"roles": ["all"]}]}, 403),
    "a text on the way": ("realm.roles", {"realm": "roles"}, 403),
    "no such object": ("realm.roles", {"roles": ["all"]}, 403),
    "other roles": ("realm.roles", {"realm": {"roles": ["gone"]}}, 403),
    "blank": ("realm..roles", {"realm": {"roles": ["all"]}}, 403),
}


@pytest.mark.parametrize("case", ROLE_CLAIMS)
async def test_role_claim_is_a_name_or_a_path(case: str, tmp_path: Path) -> None:
    path, claims, role = ROLE_CLAIMS[case]
    jwt = f'issuer = "{ISSUER}"\naudience = "{AUDIENCE}"\nrole_claim = "{path}"'

    [admitted] = await _admitted(tmp_path, jwt, signed(KEY, "RS256", "0", **claims))

    assert (admitted.role if isinstance(admitted, Caller) else admitted) == role


async def test_claims_of_row_filters_are_names_or_paths(tmp_path: Path) -> None:
    jwt = f'issuer = "{ISSUER}"\naudience = "{AUDIENCE}"\nrole_claim = "db_role"\n'
    jwt += 'claims = { region = "address.region", mail = "email", teams = "address.teams" }'
    address = {"region": "north", "teams": ["a"]}

    [admitted] = await _admitted(tmp_path, jwt, signed(address=address))

    assert isinstance(admitted, Caller)
    assert admitted.claims == {"region": "north"}


TENANT, API = "11111111-2222-3333-4444-555555555555", "66666666-7777-8888-9999-000000000000"
#: Tokens as the documentation of each issuer describes them: what its name is in, and the claims.
DOCUMENTED: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "Entra ID": (
        "microsoftonline",
        {
            "aud": API,
            "iss": f"https://login.microsoftonline.com/{TENANT}/v2.0",
            "azp": "77777777-0000-0000-0000-000000000000",
            "azpacr": "1",
            "name": "Ada Lovelace",
            "oid": "00000000-0000-0000-66f3-3332eca7ea81",
            "preferred_username": "ada@example.com",
            "roles": ["support"],
            "scp": "access_as_user",
            "sub": "AAAAAAAAAAAAAAAAAAAAAIkzqFVrSaSaFHy782bbtaQ",
            "tid": TENANT,
            "ver": "2.0",
        },
    ),
    "Keycloak": (
        "realms",
        {
            "iss": "https://sso.example.com/realms/shop",
            "aud": ["dbtools", "account"],
            "sub": "f86caf01-69b4-4892-ba2d-ffa58fdd5dab",
            "typ": "Bearer",
            "azp": "claude",
            "realm_access": {
                "roles": ["offline_access", "support", "uma_authorization", "default-roles-shop"]
            },
            "resource_access": {"account": {"roles": ["manage-account", "view-profile"]}},
            "scope": "openid email profile",
            "preferred_username": "ada",
        },
    ),
    "Auth0": (
        "auth0",
        {
            "iss": "https://shop.eu.auth0.com/",
            "sub": "auth0|5878e4cdf299cf16c0558a10",
            "aud": ["https://db.example.com/mcp", "https://shop.eu.auth0.com/userinfo"],
            "azp": "XByZxpuDPlwnXe1mYTe2gu3VP8n59ld1",
            "scope": "openid profile",
            "https://db.example.com/roles": ["support"],
        },
    ),
}


def _section(word: str) -> str:
    """Return the section of docs/how-to/serve-a-team.md whose issuer contains *word*, with keys in a file."""
    page = (ROOT / "docs/how-to/serve-a-team.md").read_text()
    texts = [block.text for block in blocks_of(page) if block.language == "toml"]
    [text] = [each for each in texts if word in str(tomllib.loads(each).get("auth"))]
    return "\n".join(
        line for line in text.splitlines() if line != "[auth.jwt]" and not line.startswith("jwks")
    )


@pytest.mark.parametrize("name", DOCUMENTED)
async def test_documented_sections_admit_the_tokens_of_their_issuers(name: str, tmp_path: Path) -> None:
    word, claims = DOCUMENTED[name]
    own = dict.fromkeys(("db_role", "region", "scope"))  # what the tokens of other tests have
    tokens = [
        {**own, **claims, **changed}
        for changed in ({}, {"aud": "other"}, {"iss": "https://evil.example.com/"})
    ]

    admitted = await _admitted(
        tmp_path, _section(word), *(signed(KEY, "RS256", "0", **each) for each in tokens)
    )

    [caller, *others] = admitted
    assert isinstance(caller, Caller)
    assert (caller.role, caller.identity) == ("support", f"{claims['iss']} {claims['sub']}")
    assert others == [401, 401]
    if name != "Auth0":
        assert caller.claims["user"] == claims["oid" if name == "Entra ID" else "preferred_username"]
