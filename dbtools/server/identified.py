"""Callers in ASGI scopes: a request in, refused, or passed on with who makes it."""

from functools import lru_cache

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dbtools.server.bodies import error
from dbtools.server.identity import CALLER, STILL, Identity, Refusal, Stay
from dbtools.server.requests import REASON, fields


class Identified:
    """Passes requests on with their caller in the scope, and with what tells whether they still may."""

    def __init__(self, app: ASGIApp, identity: Identity) -> None:
        self._app = app
        self._identity = identity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401, 403 or 503, or pass the request on."""
        authorization = fields(scope, b"authorization")
        found = await self._identity.admit(authorization)
        if isinstance(found, Refusal):
            scope[REASON] = found.reason
            await self._refused(found)(scope, receive, send)
            return
        # The SDK binds sessions to whom it finds here; the token itself goes no further.
        user = _user(found.caller.identity or "")
        stay = Stay(self._identity, authorization, found)
        await self._app({**scope, CALLER: found.caller, STILL: stay, "user": user}, receive, send)

    def _refused(self, refusal: Refusal) -> Response:
        # Clients show the words of an error of the protocol, and of no other.
        answer = error(refusal.status, refusal.description)
        if refusal.status in (401, 403):
            answer.headers["www-authenticate"] = self._identity.challenge(refusal)
        return answer


@lru_cache(maxsize=1_000)
def _user(name: str) -> AuthenticatedUser:
    return AuthenticatedUser(AccessToken(token="", client_id=name, subject=name, scopes=[]))
