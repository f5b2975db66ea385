"""Checks of Host and Origin (MCP 2026-07-28, basic/transports), and CORS for the web pages that may call.

Any web page can have a browser call a server on the user's machine under a name of its own (DNS rebinding).
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import ip_address

from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from dbtools import errors
from dbtools.server.requests import fields
from dbtools.settings.sections import ServerSection

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")
LOOPBACK_ORIGIN = rf"https?://({'|'.join(map(re.escape, LOOPBACK_HOSTS))})(:\d+)?"
NOTHING = r"(?!)"  #: a pattern that matches nothing
FORM = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<name>[^:]+)):(?P<port>\d{1,5})")
PORT = re.compile(r":\d+$")
WRONG_HOST = PlainTextResponse("This server has no such name: [server] allowed_hosts.\n", 421)
WRONG_ORIGIN = PlainTextResponse("Pages of this origin may not call. [server] allowed_origins.\n", 403)


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a server listens."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> "Address":
        """Return the address that HOST:PORT means, or raise ConfigurationError."""
        found = FORM.fullmatch(text)
        if found is None or int(found["port"]) > 65535:
            raise errors.ConfigurationError(f"--http wants HOST:PORT, such as 127.0.0.1:8000, not {text!r}.")
        return cls(host=found["v6"] or found["name"], port=int(found["port"]))

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it; a name may stand for any address."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def url(self) -> str:
        """The URL of the address, without a path."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


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
        self._local_origin = re.compile(LOOPBACK_ORIGIN if local else NOTHING)
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
