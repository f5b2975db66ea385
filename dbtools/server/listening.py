"""The socket of the HTTP server, and the processes that serve it. A plan in; it runs."""

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import anyio
import uvicorn
from uvicorn.supervisors import Multiprocess

from dbtools import errors
from dbtools.server.connections import BoundedProtocol
from dbtools.server.hosts import Address
from dbtools.server.http import PATH, HttpApp, Plan
from dbtools.server.running import Operator
from dbtools.service.serving import snapshot_of
from dbtools.settings import Settings

GRACE = 3  #: seconds for running requests when the server ends
IDLE = 30  #: seconds that a connection without a request stays open
TAKEN_IN = 20_000  #: milliseconds in which a client takes a part of an answer that waits for it


def listen(plan: Plan) -> None:
    """Serve *plan* until a signal comes; raise ConfigurationError, or what else keeps it from serving."""
    _check(plan.settings, plan.address)
    snapshot = anyio.run(snapshot_of, plan.settings)
    if not plan.settings.auth:
        snapshot = replace(snapshot, views={plan.anybody.role: snapshot.view(plan.anybody.role)})
    with bound(plan.address) as listener:
        host, port = listener.getsockname()[:2]
        url = f"{Address(host=host, port=port).url}{PATH}"
        plan.operator.listening(url, snapshot, tuple(_notes(plan)))
        config = config_of(partial(HttpApp, plan), plan.workers)
        if plan.workers > 1:
            Workers(config, [listener], plan.operator).run()
        else:
            uvicorn.Server(config).run([listener])


class Workers(Multiprocess):
    """uvicorn's processes. The *operator* learns when one replaces another."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket], operator: Operator) -> None:
        super().__init__(config, sockets)
        self._operator = operator

    def handle_int(self) -> None:
        """End the processes, and raise the interrupt again, as a server with one process does."""
        self.terminate_all()
        self.join_all()
        raise KeyboardInterrupt

    def keep_subprocess_alive(self) -> None:
        """Replace processes that have ended."""
        before = [each.pid for each in self.processes]
        super().keep_subprocess_alive()
        for old, new in zip(before, self.processes, strict=True):
            if old != new.pid:
                self._operator.tell(f"Worker {old} has ended; worker {new.pid} takes its place.")


def config_of(make: Callable[[], HttpApp], workers: int = 1) -> uvicorn.Config:
    """Return how uvicorn serves the application that *make* returns, in each of as many *workers*."""
    return uvicorn.Config(
        make,
        factory=True,
        workers=workers,
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=GRACE,
    )


def bound(address: Address) -> socket.socket:
    """Return a socket that listens at *address*, or raise ConfigurationError."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        family, *_, place = found[0]
        listener = socket.create_server(place[:2], family=family, backlog=2048)
    except OSError as exc:
        raise errors.ConfigurationError(
            f"Nobody can listen at {address.host}:{address.port}: {exc.strerror or 'no such address'}."
        ) from exc
    listener.set_inheritable(True)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; connections inherit it
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, TAKEN_IN)
    return listener


def _check(settings: Settings, address: Address) -> None:
    """Raise ConfigurationError if other machines reach a server that authenticates nobody."""
    if address.is_local:
        return
    if not settings.auth:
        raise errors.ConfigurationError(
            f"{address.host} is reached by others, and nobody is asked who they are.",
            hint="Configure [auth], such as a token that `dbtools token new` makes, or listen at 127.0.0.1.",
        )
    if not settings.server.allowed_hosts:
        raise errors.ConfigurationError(
            f"{address.host} is reached by others, and nobody knows under which name.",
            hint='Configure [server] allowed_hosts = ["db.example.com"]; requests for others are refused.',
        )


def _notes(plan: Plan) -> Iterator[str]:
    """Yield what an operator should know of several workers."""
    workers = plan.workers
    if workers > 1:
        yield f"{workers} workers: clients before 2026-07-28 have no sessions and are not told of changes."
        if plan.settings.limits.storage == "memory":
            yield f"Each allows 1/{workers} of calls_per_minute; [limits] storage makes them share it."
