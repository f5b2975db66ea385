"""Under which name a server is called, and from which web page: what is not expected is refused.

Any web page can have a browser call a server that only listens on the own machine, under a name of that
page's (DNS rebinding); MCP 2026-07-28, basic/transports, requires these checks.
"""

import re
from collections.abc import Collection, Sequence
from ipaddress import ip_address

from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from dbtools.server.requests import fields
from dbtools.settings.fields import LOOPBACK


class Hosts:
    """Middleware that passes on requests which name one of *hosts*, and no origin but *origins*.

    If it is *local*, the names and pages of the own machine are among these. Requests for *exempt* paths
    pass: whoever balances load asks by address.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Collection[str],
        origins: Collection[str],
        *,
        local: bool,
        exempt: Collection[str] = (),
    ) -> None:
        self._app = app
        self._shared = _shared(app, origins, local=local)
        self._hosts = frozenset(map(str.lower, (*hosts, *(LOOPBACK_HOSTS if local else ()))))
        self._origins = frozenset(each.lower().rstrip("/") for each in origins)
        self._local = local
        self._exempt = exempt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 421 or 403, or pass the request on."""
        if scope["type"] != "http" or scope["path"] in self._exempt:
            await self._app(scope, receive, send)
        elif not self._is_host(fields(scope, b"host")):
            answer = PlainTextResponse("This server has no such name: [server] allowed_hosts.\n", 421)
            await answer(scope, receive, send)
        elif not self._is_origin(fields(scope, b"origin")):
            answer = PlainTextResponse("Pages of this origin may not call. [server] allowed_origins.\n", 403)
            await answer(scope, receive, send)
        else:
            await (self._shared if fields(scope, b"origin") else self._app)(scope, receive, send)

    def _is_host(self, named: Sequence[str]) -> bool:
        if len(named) != 1:
            return False
        host = named[0].lower()
        return host in self._hosts or without_port(host) in self._hosts

    def _is_origin(self, named: Sequence[str]) -> bool:
        if not named:
            return True  # no web page
        origin = named[0].lower()
        is_local = self._local and re.fullmatch(LOOPBACK_ORIGIN, origin) is not None
        return len(named) == 1 and (origin in self._origins or is_local)


def _shared(app: ASGIApp, origins: Collection[str], *, local: bool) -> ASGIApp:
    """Return *app* as pages of *origins*, or of the own machine, can call it (Fetch, CORS protocol)."""
    return CORSMiddleware(
        app,
        allow_origins=[origin.rstrip("/") for origin in origins],
        allow_origin_regex=LOOPBACK_ORIGIN if local else None,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=["Mcp-Session-Id", "WWW-Authenticate", "X-Request-Id"],
    )


def is_loopback(host: str) -> bool:
    """Return whether only the own machine reaches a listener at *host*."""
    if host in LOOPBACK:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False  # a name, which may lead anywhere


def bracketed(host: str) -> str:
    """Return *host* as it stands in a URL and in Host (RFC 3986, 3.2.2)."""
    return f"[{host}]" if ":" in host else host


def without_port(host: str) -> str:
    """Return *host* without its port; an IPv6 address stands in brackets."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() and not host.endswith("]") else host


#: The names of the own machine as they stand in Host, and the origins of pages that it serves: a pattern.
LOOPBACK_HOSTS = tuple(map(bracketed, LOOPBACK))
LOOPBACK_ORIGIN = rf"https?://({'|'.join(map(re.escape, LOOPBACK_HOSTS))})(:\d+)?"
