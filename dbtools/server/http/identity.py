"""Authenticate HTTP requests: a bearer token in, a Caller out (RFC 6750, RFC 9728).

PyJWT is imported late, since only servers with signed tokens need it.
"""

import hmac
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from dbtools.configured.claims import typed_claims
from dbtools.configured.roles import role_names
from dbtools.policy.roles import Caller
from dbtools.service.serving import Served
from dbtools.settings import JwtSection, Settings
from dbtools.values.types import quote

if TYPE_CHECKING:
    from dbtools.server.keys import Keys

TOKEN_PREFIX = "dbt_"  #: lets secret scanners find leaked tokens
WELL_KNOWN = "/.well-known/oauth-protected-resource"
LONGEST_ROLE = 40  #: characters of an unknown role in the log
HASH_DIGITS = 16  #: of the hash that identifies a token without a subject
TOKEN_REQUIRED = "A token is required: Authorization: Bearer TOKEN."


@dataclass(frozen=True)
class Rejection:
    """Why a request is rejected."""

    status: int
    reason: str  #: for the operator; contains no part of the token
    description: str
    error: str = ""  #: the error code of RFC 6750, 3.1, if the request had a token
    scopes: tuple[str, ...] = ()


def _invalid_token(reason: str) -> Rejection:
    return Rejection(401, f"the token {reason}", "The token is unknown or has expired.", "invalid_token")


def _insufficient_scope(description: str, reason: str, scopes: tuple[str, ...] = ()) -> Rejection:
    return Rejection(403, reason, description, "insufficient_scope", scopes)


def new_token() -> str:
    """Return a new token with 256 random bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    """Return the SHA-256 hash of *token* in hexadecimal; a random token needs no slow hash."""
    return sha256(token.encode(errors="surrogateescape")).hexdigest()


class Identity:
    """Authenticates callers by their tokens, following changes to the configuration."""

    def __init__(self, served: Served, anonymous: Caller) -> None:
        self._served = served
        self._anonymous = anonymous  #: the caller if [auth] is empty
        self._keys: dict[tuple[object, ...], Keys] = {}
        if section := served.settings_in_force().auth.jwt:
            self._keys_of(section).refresh()  # Read keys before the first token arrives.

    async def admit(self, authorization: Sequence[str]) -> Caller | Rejection:
        """Return the caller for the values of the Authorization header, or why it is rejected.

        The newest settings and those of the snapshot must agree: a revoked token is rejected at once, and a
        new one is accepted when the policy that came with it is in force.
        """
        newest, settled = self._served.current.settings, self._served.settings_in_force()
        found = await self._admit_under(newest, authorization)
        if newest is settled or isinstance(found, Rejection):
            return found
        before = await self._admit_under(settled, authorization)
        if before == found or isinstance(before, Rejection):
            return before
        return Rejection(503, "the claims of the token change", "The claims of the token are changing.")

    async def _admit_under(self, settings: Settings, authorization: Sequence[str]) -> Caller | Rejection:
        """Return the caller according to *settings*."""
        if not settings.auth:
            return self._anonymous
        if not authorization:
            scopes = settings.auth.jwt.scopes if settings.auth.jwt else ()
            return Rejection(401, "no token", TOKEN_REQUIRED, scopes=scopes)
        scheme, _, token = authorization[0].partition(" ")
        if len(authorization) > 1 or scheme.lower() != "bearer" or not token.strip():
            return Rejection(401, "no token after Bearer", TOKEN_REQUIRED, "invalid_request")
        found = await self._authenticate(settings, token.strip())
        if isinstance(found, Rejection) or found.role in role_names(settings):
            return found
        role = quote(found.role, LONGEST_ROLE)
        return _insufficient_scope("The token has no role here.", f"no role {role} is configured")

    async def _authenticate(self, settings: Settings, token: str) -> Caller | Rejection:
        digest, section = hash_of(token), settings.auth.jwt
        for configured in settings.auth.tokens:
            if hmac.compare_digest(configured.sha256, digest):
                known = typed_claims(settings, configured.claims)
                return Caller(
                    role=configured.role, claims=known, identity=configured.name or f"token {digest[:8]}"
                )
        if section is None:
            return _invalid_token("is unknown")
        claims = await self._keys_of(section).claims_of(token, section)
        if claims is None:
            return Rejection(503, "no keys are known", "Tokens cannot be checked at the moment.")
        return (
            _invalid_token(claims)
            if isinstance(claims, str)
            else _token_caller(settings, section, claims, digest)
        )

    def _keys_of(self, section: JwtSection) -> "Keys":
        from dbtools.server.keys import Keys

        place = (section.jwks, section.algorithms)
        return self._keys.get(place) or self._keys.setdefault(place, Keys(*place))

    def metadata_at(self, path: str) -> Mapping[str, object] | None:
        """Return the protected resource metadata at *path*, if any (RFC 9728, 2)."""
        section = self._served.settings_in_force().auth.jwt
        if section is None or path not in (WELL_KNOWN, urlsplit(_metadata_url(section)).path):
            return None
        members = {
            "resource": section.resource,
            "authorization_servers": [section.issuer],
            "bearer_methods_supported": ["header"],
            "scopes_supported": list(section.scopes),
        }
        return {name: value for name, value in members.items() if value}

    def challenge(self, rejection: Rejection) -> dict[str, str]:
        """Return the WWW-Authenticate header for *rejection*, if any (RFC 6750, 3; RFC 9728, 5.1)."""
        if rejection.status not in (401, 403):
            return {}
        parts = (
            {"error": rejection.error, "error_description": rejection.description} if rejection.error else {}
        )
        section = self._served.settings_in_force().auth.jwt
        if section is not None:
            parts |= {"scope": " ".join(rejection.scopes), "resource_metadata": _metadata_url(section)}
        listed = ", ".join(f'{name}="{value}"' for name, value in parts.items() if value)
        return {"WWW-Authenticate": f"Bearer {listed}".rstrip()}


def _metadata_url(section: JwtSection) -> str:
    parts = urlsplit(section.resource)
    return urlunsplit(parts._replace(path=f"{WELL_KNOWN}{parts.path.rstrip('/')}", query="", fragment=""))


def _token_caller(
    settings: Settings, section: JwtSection, claims: Mapping[str, Any], digest: str
) -> Caller | Rejection:
    """Return the caller with the verified *claims*; *digest* is the hash of the token."""
    if not set(section.scopes) <= _scopes(claims):
        description = f"The token lacks a scope of: {' '.join(section.scopes)}."
        return _insufficient_scope(description, "the token lacks a scope", section.scopes)
    role, subject = _role(_claim(claims, section.role_claim), role_names(settings)), claims.get("sub")
    if role is None:
        reason = f"the token does not name one role as {section.role_claim}"
        return _insufficient_scope("The token does not name one role.", reason)
    named = section.claims or {name: name for name in claims}
    given = {name: _claim(claims, claim) for name, claim in named.items()}
    identity = (
        f"{section.issuer} {subject}" if subject else f"token {digest[:HASH_DIGITS]} of {section.issuer}"
    )
    return Caller(role=role, claims=typed_claims(settings, given), identity=identity)


def _scopes(claims: Mapping[str, Any]) -> set[object]:
    """Return the scopes in `scope` (RFC 8693, 4.2) or `scp`, which some issuers use."""
    written = (claims.get("scope"), claims.get("scp"))
    lists = (each.split() if isinstance(each, str) else each for each in written)
    return {scope for each in lists if isinstance(each, list) for scope in each if isinstance(scope, str)}


def _claim(claims: Mapping[str, Any], path: str) -> object:
    """Return the claim at *path*, in which dots may separate nested names: `realm_access.roles`.

    A name may also contain dots, such as a URL or a Keycloak client ID: the longest match wins.
    """
    if path in claims:
        return claims[path]
    names = path.split(".")
    for length in range(len(names) - 1, 0, -1):
        within = claims.get(".".join(names[:length]))
        found = _claim(within, ".".join(names[length:])) if isinstance(within, dict) else None
        if found is not None:
            return found
    return None


def _role(claim: object, roles: Collection[str]) -> str | None:
    """Return the role in *claim*: a text, or a list with exactly one of *roles*."""
    if not isinstance(claim, list):
        return claim if isinstance(claim, str) else None
    named = {each for each in claim if isinstance(each, str) and each in roles}
    return named.pop() if len(named) == 1 else None
