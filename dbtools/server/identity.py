"""Who makes an HTTP request: a bearer token in, a Caller out, for each request anew (RFC 6750, RFC 9728)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import orjson
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dbtools.config import JwtSection, Settings, role_names, typed_claims
from dbtools.policy import Caller
from dbtools.server.jwts import Jwts, NoKeysError
from dbtools.server.tokens import find

CALLER = "dbtools.caller"  #: the key of the scope that holds who makes a request
WELL_KNOWN = "/.well-known/oauth-protected-resource"


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a request is not made for anybody, as RFC 6750, 3.1, names it."""

    status: int
    error: str = ""  #: nothing where no token was shown
    description: str = ""
    scopes: tuple[str, ...] = ()


class Identity:
    """Knows callers by their tokens; what the configuration says of them may change meanwhile."""

    def __init__(self, settings: Callable[[], Settings], anybody: Caller) -> None:
        self._settings = settings
        self._anybody = anybody  #: where nobody is asked
        self._jwts: Jwts | None = None

    async def caller_of(self, authorization: Sequence[str]) -> Caller | Refusal:
        """Return who shows the headers *authorization*."""
        settings = self._settings()
        if not settings.auth:
            return self._anybody
        if not authorization:
            return Refusal(status=401, scopes=self._scopes(settings))
        scheme, _, token = authorization[0].partition(" ")
        if len(authorization) > 1 or scheme.lower() != "bearer" or not token.strip():
            return Refusal(status=401, error="invalid_request", description="One bearer token is wanted.")
        return self._in_role(settings, await self._known(settings, token.strip()))

    def _in_role(self, settings: Settings, found: Caller | Refusal) -> Caller | Refusal:
        if isinstance(found, Refusal) or found.role in role_names(settings):
            return found
        return Refusal(status=403, error="insufficient_scope", description="The token has no role here.")

    async def _known(self, settings: Settings, token: str) -> Caller | Refusal:
        auth = settings.auth
        kept = find(token, auth.tokens)
        if kept is not None:
            known = typed_claims(settings, kept.claims)
            return Caller(role=kept.role, claims=known, identity=f"token {kept.sha256[:8]}")
        invalid = Refusal(
            status=401, error="invalid_token", description="The token is none of ours, or has expired."
        )
        if auth.jwt is None:
            return invalid
        if self._jwts is None or self._jwts.section != auth.jwt:
            self._jwts = Jwts(auth.jwt)
        try:
            claims = await self._jwts.claims_of(token)
        except NoKeysError:
            return Refusal(status=503, description="Tokens cannot be checked at the moment.")
        return invalid if claims is None else _signed(settings, auth.jwt, claims)

    def _scopes(self, settings: Settings) -> tuple[str, ...]:
        return settings.auth.jwt.scopes if settings.auth.jwt else ()

    def metadata(self) -> Mapping[str, object] | None:
        """Return what clients are told of where tokens come from (RFC 9728, 2), if anywhere."""
        section = self._settings().auth.jwt
        if section is None:
            return None
        scopes = {"scopes_supported": list(section.scopes)} if section.scopes else {}
        return {
            "resource": section.audience,
            "authorization_servers": [section.issuer],
            "bearer_methods_supported": ["header"],
            **scopes,
        }

    def challenge(self, refusal: Refusal) -> str:
        """Return the header WWW-Authenticate of *refusal* (RFC 6750, 3; RFC 9728, 5.1)."""
        parts = {"error": refusal.error, "error_description": refusal.description}
        section = self._settings().auth.jwt
        if section is not None:
            parts |= {"scope": " ".join(refusal.scopes), "resource_metadata": metadata_url(section.audience)}
        return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in parts.items() if value)


class Identified:
    """Passes requests on with their caller in the scope."""

    def __init__(self, app: ASGIApp, identity: Identity) -> None:
        self._app = app
        self._identity = identity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401, 403 or 503, or pass the request on."""
        found = await self._identity.caller_of(Headers(scope=scope).getlist("authorization"))
        if isinstance(found, Refusal):
            content = {"error": found.error or "invalid_request", "error_description": found.description}
            answer = Response(orjson.dumps(content), found.status, media_type="application/json")
            if found.status in (401, 403):
                answer.headers["www-authenticate"] = self._identity.challenge(found)
            await answer(scope, receive, send)
            return
        # The SDK binds sessions to whom it finds here; the token itself goes no further.
        name = found.identity or ""
        user = AuthenticatedUser(AccessToken(token="", client_id=name, subject=name, scopes=[]))
        await self._app({**scope, CALLER: found, "user": user}, receive, send)


def _signed(settings: Settings, section: JwtSection, claims: Mapping[str, Any]) -> Caller | Refusal:
    """Return whom the genuine *claims* name."""
    granted = str(claims.get("scope", "")).split()
    if not set(section.scopes) <= set(granted):
        return Refusal(
            status=403,
            error="insufficient_scope",
            description="The token lacks a scope.",
            scopes=section.scopes,
        )
    role, subject = claims.get(section.role_claim), claims.get("sub")
    if not isinstance(role, str):
        return Refusal(status=403, error="insufficient_scope", description="The token names no role.")
    named = section.claims or {name: name for name in claims}
    told = {name: claims[claim] for name, claim in named.items() if claim in claims}
    identity = f"{section.issuer} {subject}" if subject is not None else section.issuer
    return Caller(role=role, claims=typed_claims(settings, told), identity=identity)


def metadata_url(resource: str) -> str:
    """Return where the metadata of *resource* is (RFC 9728, 3.1)."""
    parts = urlsplit(resource)
    return urlunsplit(parts._replace(path=f"{WELL_KNOWN}{parts.path.rstrip('/')}", query="", fragment=""))
