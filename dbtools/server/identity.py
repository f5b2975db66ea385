"""Who makes an HTTP request: a bearer token in, a Caller out, for each request anew (RFC 6750, RFC 9728).

This is independent of ASGI. PyJWT is imported late: only who configures signed tokens waits for it.
What is known of callers comes into force with the snapshot that was made from the same configuration, so that
nobody has a role before its policy is there; what is taken away counts at once.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from dbtools.policy import Caller
from dbtools.server.tokens import BadTokenError, NoKeysError, end_of, find, scopes_of
from dbtools.service.serving import Served
from dbtools.settings import JwtSection, Settings, typed_claims
from dbtools.settings.roles import role_names
from dbtools.types import quoted

if TYPE_CHECKING:
    from dbtools.server.keys import Keys

WELL_KNOWN = "/.well-known/oauth-protected-resource"
LONGEST_NAME = 40  #: characters of a role that is not there
DIGITS = 16  #: of the hash of a token that says nothing of whom it is of


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a request is not made for anybody, as RFC 6750, 3.1, names it."""

    status: int
    error: str = ""  #: nothing where no token was shown
    description: str = ""
    scopes: tuple[str, ...] = ()
    reason: str = ""  #: for the operator alone, who is told no part of the token


WANTED = "A token is wanted: Authorization: Bearer TOKEN."
INVALID = Refusal(
    status=401,
    error="invalid_token",
    description="The token is none of ours, or has expired.",
    reason="the token is none of ours",
)
UNCHECKED = Refusal(
    status=503,
    error="temporarily_unavailable",
    description="Tokens cannot be checked at the moment.",
    reason="no keys are known",
)
UNSETTLED = Refusal(
    status=503,
    error="temporarily_unavailable",
    description="What the token stands for changes at this moment.",
    reason="the configuration of the token changes",
)


@dataclass(frozen=True, kw_only=True)
class Admitted:
    """Somebody who may make requests, and until when."""

    caller: Caller
    end: int | None = None  #: of the token, in seconds since 1970; None: it has none
    #: What the token was held against.
    basis: tuple[object, ...] = field(default=(), compare=False, repr=False)


class Identity:
    """Knows callers by their tokens; what the configuration says of them may change meanwhile."""

    def __init__(self, served: Served, anybody: Caller) -> None:
        self._served = served
        self._anybody = Admitted(caller=anybody)  #: where nobody is asked
        self._keys: dict[tuple[object, ...], Keys] = {}

    def prepare(self) -> None:
        """Begin to read the keys of signed tokens, so that the first one need not wait for them."""
        section = self._served.settled().auth.jwt
        if section is not None:
            self._keys_of(section).refresh()

    async def admit(self, authorization: Sequence[str]) -> Admitted | Refusal:
        """Return who shows the headers *authorization*.

        They have to be the same to the newest settings and to those of the snapshot.
        """
        newest, settled = self._served.current.settings, self._served.settled()
        if not newest.auth and newest is settled:
            return self._anybody
        basis = self._basis(newest, settled)
        found = await self._admit(newest, authorization)
        if isinstance(found, Refusal):
            return found
        if newest is not settled:
            before = await self._admit(settled, authorization)
            if before != found:
                return before if isinstance(before, Refusal) else UNSETTLED
        return Admitted(caller=found.caller, end=found.end, basis=basis)

    async def still(self, authorization: Sequence[str], admitted: Admitted) -> Admitted | None:
        """Return *admitted*, who had shown the headers *authorization*, None where they may no more.

        That is quick while neither the configuration nor a key has changed.
        """
        if admitted.end is not None and time.time() >= admitted.end:
            return None
        basis = self._basis(self._served.current.settings, self._served.settled())
        if len(basis) == len(admitted.basis) and all(map(_is, basis, admitted.basis)):
            return admitted
        found = await self.admit(authorization)
        return found if isinstance(found, Admitted) and found == admitted else None

    def _basis(self, newest: Settings, settled: Settings) -> tuple[object, ...]:
        """Return what tokens are held against: other objects where any of it is another."""
        return (newest, settled, *[each.known for each in self._keys.values()])

    async def _admit(self, settings: Settings, authorization: Sequence[str]) -> Admitted | Refusal:
        """Return whom *settings* know by the headers *authorization*."""
        if not settings.auth:
            return self._anybody
        if not authorization:
            scopes = settings.auth.jwt.scopes if settings.auth.jwt else ()
            return Refusal(status=401, description=WANTED, scopes=scopes, reason="no token")
        scheme, _, token = authorization[0].partition(" ")
        if len(authorization) > 1 or scheme.lower() != "bearer" or not token.strip():
            return Refusal(
                status=401, error="invalid_request", description=WANTED, reason="no token after Bearer"
            )
        found = await self._known(settings, token.strip())
        if isinstance(found, Refusal) or found.caller.role in role_names(settings):
            return found
        reason = f"no role {quoted(found.caller.role, LONGEST_NAME)} is configured"
        return Refusal(
            status=403, error="insufficient_scope", description="The token has no role here.", reason=reason
        )

    async def _known(self, settings: Settings, token: str) -> Admitted | Refusal:
        kept = find(token, settings.auth.tokens)
        if kept is not None:
            known = typed_claims(settings, kept.claims)
            caller = Caller(role=kept.role, claims=known, identity=kept.name or f"token {kept.sha256[:8]}")
            return Admitted(caller=caller)
        section = settings.auth.jwt
        if section is None:
            return INVALID
        try:
            claims = await self._keys_of(section).claims_of(token, section)
        except NoKeysError:
            return UNCHECKED
        except BadTokenError as exc:
            return replace(INVALID, reason=f"the token {exc}")
        named = _named(settings, section, claims, token)
        return named if isinstance(named, Refusal) else Admitted(caller=named, end=end_of(claims))

    def _keys_of(self, section: JwtSection) -> "Keys":
        """Return the keys of *section*; those that no settings name any more are forgotten."""
        from dbtools.server.keys import Keys

        place = _place(section)
        if place not in self._keys:
            sections = (
                settings.auth.jwt for settings in (self._served.current.settings, self._served.settled())
            )
            named = {_place(each) for each in sections if each is not None}
            self._keys = {each: keys for each, keys in self._keys.items() if each in named}
            self._keys[place] = Keys(section.jwks, section.algorithms)
        return self._keys[place]

    def metadata_at(self, path: str) -> Mapping[str, object] | None:
        """Return what clients are told at *path* of where tokens come from, if anything (RFC 9728, 2)."""
        section = self._served.settled().auth.jwt
        if section is None or path not in (WELL_KNOWN, urlsplit(metadata_url(section.resource)).path):
            return None
        scopes = {"scopes_supported": list(section.scopes)} if section.scopes else {}
        return {
            "resource": section.resource,
            "authorization_servers": [section.issuer],
            "bearer_methods_supported": ["header"],
            **scopes,
        }

    def challenge(self, refusal: Refusal) -> str:
        """Return the header WWW-Authenticate of *refusal* (RFC 6750, 3; RFC 9728, 5.1)."""
        parts = {"error": refusal.error, "error_description": refusal.description} if refusal.error else {}
        section = self._served.settled().auth.jwt
        if section is not None:
            parts |= {"scope": " ".join(refusal.scopes), "resource_metadata": metadata_url(section.resource)}
        told = ", ".join(f'{name}="{value}"' for name, value in parts.items() if value)
        return f"Bearer {told}".rstrip()


class Stay:
    """Tells, as often as it is called, whether who has been admitted still may be there."""

    def __init__(self, identity: Identity, authorization: Sequence[str], admitted: Admitted) -> None:
        self._identity = identity
        self._authorization = authorization
        self._admitted: Admitted | None = admitted

    async def __call__(self) -> bool:
        """Return whether they may; who may not once does not again."""
        if self._admitted is not None:
            self._admitted = await self._identity.still(self._authorization, self._admitted)
        return self._admitted is not None


def _named(
    settings: Settings, section: JwtSection, claims: Mapping[str, Any], token: str
) -> Caller | Refusal:
    """Return whom the genuine *claims* of *token* name."""
    if not set(section.scopes) <= scopes_of(claims):
        return Refusal(
            status=403,
            error="insufficient_scope",
            description=f"The token lacks a scope of: {' '.join(section.scopes)}.",
            scopes=section.scopes,
            reason="the token lacks a scope",
        )
    role, subject = _role(_claim(claims, section.role_claim), role_names(settings)), claims.get("sub")
    if role is None:
        return Refusal(
            status=403,
            error="insufficient_scope",
            description="The token does not name one role.",
            reason=f"the token does not name one role as {section.role_claim}",
        )
    named = section.claims or {name: name for name in claims}
    told = {name: _claim(claims, claim) for name, claim in named.items()}
    # Who cannot be told from others by a name is told from them by the token.
    digest = sha256(token.encode()).hexdigest()[:DIGITS]
    identity = f"{section.issuer} {subject}" if subject else f"token {digest} of {section.issuer}"
    return Caller(role=role, claims=typed_claims(settings, told), identity=identity)


def _claim(claims: Mapping[str, Any], path: str) -> object:
    """Return the claim that is named *path*, or the one that its dots lead to: `realm_access.roles`.

    A name may have dots itself, as a URL or a client of Keycloak has: the longest name counts.
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
    """Return the role that *claim* names, alone or as the only one of *roles* among other groups."""
    if not isinstance(claim, list):
        return claim if isinstance(claim, str) else None
    named = {each for each in claim if isinstance(each, str) and each in roles}
    return named.pop() if len(named) == 1 else None


def metadata_url(resource: str) -> str:
    """Return where the metadata of *resource* is (RFC 9728, 3.1)."""
    parts = urlsplit(resource)
    return urlunsplit(parts._replace(path=f"{WELL_KNOWN}{parts.path.rstrip('/')}", query="", fragment=""))


def _place(section: JwtSection) -> tuple[object, ...]:
    return section.jwks, section.algorithms


def _is(one: object, other: object) -> bool:
    return one is other
