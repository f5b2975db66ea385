"""An issuer of tokens: keys, tokens, and a server that publishes the keys, well or badly."""

import json
import socketserver
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

ISSUER, AUDIENCE = "https://id.example.com/", "https://db.example.com/mcp"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PATIENCE = 15.0  #: seconds in which a request comes, or ends


def key_set(*keys: rsa.RSAPrivateKey, **members: object) -> str:
    """Return the set of the public parts of *keys*, named by their places; *members* are said of each.

    A member that is None is left out.
    """
    written = (json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())) for key in keys)
    told = ({**each, "kid": str(at), "use": "sig", **members} for at, each in enumerate(written))
    return json.dumps(
        {"keys": [{name: each[name] for name in each if each[name] is not None} for each in told]}
    )


def signed(key: Any = KEY, algorithm: str = "RS256", kid: str | None = "0", **claims: object) -> str:
    """Return a token with *claims*; those that are None it does not have."""
    known = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "exp": int(time.time()) + 86_400,
        "sub": "ada",
        "db_role": "some",
        "region": "south",
        "scope": "db other",
        **claims,
    }
    told = {name: value for name, value in known.items() if value is not None}
    return jwt.encode(told, key, algorithm=algorithm, headers={"kid": kid} if kid else None)


def answer(content: str, status: str = "200 OK", *fields: str) -> bytes:
    """Return *content* as an answer of HTTP with these header *fields*."""
    head = "\r\n".join(
        (f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", "Connection: close", *fields)
    )
    return f"{head}\r\n\r\n{content}".encode()


class Issuer:
    """Sends its keys to any caller, when it is allowed to."""

    def __init__(self) -> None:
        self.content = answer(key_set(KEY))
        self.asked = 0
        self.head = b""  #: of the last request
        self.may_answer = Event()
        self.may_answer.set()
        self.drips = False  #: whether one field of the head follows the other, without an end
        self.came = Event()
        self._ended = Event()
        issuer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                issuer.head = self.request.recv(65_536)
                issuer.asked += 1
                issuer.came.set()
                with suppress(OSError):
                    issuer.respond(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/keys"
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def respond(self, connection: Any) -> None:
        """Answer a request on *connection*, once it may."""
        if self.drips:
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while not self._ended.wait(0.1):
                connection.sendall(b"x: y\r\n")
        while not (self.may_answer.wait(0.05) or self._ended.is_set()):
            pass
        connection.sendall(self.content)

    def close(self) -> None:
        """End, and let everybody go."""
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def open_issuer() -> Iterator[Issuer]:
    """Yield an issuer, and end it."""
    issuer = Issuer()
    try:
        yield issuer
    finally:
        issuer.close()
