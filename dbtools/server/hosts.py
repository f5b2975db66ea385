"""Checks of Host and Origin (MCP 2026-07-28, basic/transports), and CORS for the web pages that may call.

Any web page can have a browser call a server on the user's machine under a name of its own (DNS rebinding).
"""

import re
from collections.abc import Collection
from ipaddress import ip_address

from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from dbtools.server.requests import fields
from dbtools.settings.fields import LOOPBACK
from dbtools.settings.sections import ServerSection

PORT = re.compile(r":\d+$")
WRONG_HOST = PlainTextResponse("This server has no such name: [server] allowed_hosts.\n", 421)
WRONG_ORIGIN = PlainTextResponse("Pages of this origin may not call. [server] allowed_origins.\n", 403)


class Hosts:
    """Middleware that rejects other hosts and origins than *section* names; *exempt* paths take any.

    If the server is *local*, the names of the loopback address are allowed as well.
    """

    def __init__(
        self, app: ASGIApp, section: ServerSection, *, local: bool, exempt: Collection[str] = ()
    ) -> None:
        self._app = app
        self._hosts = {each.lower() for each in (*section.allowed_hosts, *(LOOPBACK_HOSTS if local else ()))}
        self._origins = {each.lower().rstrip("/") for each in section.allowed_origins}
        self._local_origin = re.compile(LOOPBACK_ORIGIN if local else r"(?!)")  # which nothing matches
        self._exempt = exempt
        self._shared = CORSMiddleware(
            app,
            allow_origins=[each.rstrip("/") for each in section.allowed_origins],
            allow_origin_regex=self._local_origin.pattern,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["Mcp-Session-Id", "WWW-Authenticate", "X-Request-Id"],
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 421 or 403, or pass the request on."""
        app: ASGIApp = self._app
        if scope["type"] == "http" and scope["path"] not in self._exempt:
            hosts = [each.lower() for each in fields(scope, b"host")]
            origins = [each.lower() for each in fields(scope, b"origin")]
            if len(hosts) != 1 or not self._hosts & {hosts[0], PORT.sub("", hosts[0])}:
                app = WRONG_HOST
            elif origins:
                app = self._shared if len(origins) == 1 and self._may_call(origins[0]) else WRONG_ORIGIN
        await app(scope, receive, send)

    def _may_call(self, origin: str) -> bool:
        return origin in self._origins or self._local_origin.fullmatch(origin) is not None


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a listener at *host*."""
    if host in LOOPBACK:
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False  # a name, which may stand for any address


def bracketed(host: str) -> str:
    """Return *host* as a URL and Host write it (RFC 3986, 3.2.2)."""
    return f"[{host}]" if ":" in host else host


LOOPBACK_HOSTS = tuple(map(bracketed, LOOPBACK))
LOOPBACK_ORIGIN = rf"https?://({'|'.join(map(re.escape, LOOPBACK_HOSTS))})(:\d+)?"
