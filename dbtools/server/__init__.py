"""MCP in front of a toolbox: what is served, over which transport."""

import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import anyio

from dbtools import errors
from dbtools.policy import Caller, Finding
from dbtools.records import open_log
from dbtools.server.exporting import exporting
from dbtools.server.limiter import Limiter
from dbtools.server.running import Operator, running
from dbtools.server.stdio import private_descriptors, serve
from dbtools.service.toolbox import Toolbox
from dbtools.settings import Settings

CLOSING = 10.0  #: seconds in which a server without a client reads its catalog

__all__ = ["review_server", "serve_stdio"]


async def serve_stdio(settings: Settings, caller: Caller, operator: Operator) -> None:
    """Serve *settings*' database to *caller* at the other end of stdin and stdout, until they leave.

    The catalog is read during the handshake. If it cannot be read, the server ends with the reason.
    """
    signals: list[int] = []
    limiter = Limiter(settings.limits.storage)
    with private_descriptors() as descriptors, exporting():
        async with running(settings, operator, limiter, only=caller.role) as run:
            run.group.start_soon(limiter.check)
            run.group.start_soon(_end_on_signal, run.group.cancel_scope, signals)
            announced = anyio.Event()
            run.group.start_soon(_announce, run.served.toolbox, caller.role, operator, announced)
            await serve(run.server, caller, descriptors)
            # Report problems even if the client has closed stdin at once.
            with anyio.move_on_after(CLOSING):
                await announced.wait()
    if signal.SIGINT in signals:
        raise KeyboardInterrupt


async def review_server(settings: Settings) -> tuple[Finding, ...]:
    """Return what keeps the server from counting calls, from logging them, or from verifying tokens."""
    found: list[Finding] = []

    @contextmanager
    def finding(code: str, *key: str) -> Iterator[None]:
        try:
            yield
        except errors.ConfigurationError as exc:
            found.append(Finding(code=code, message=str(exc), source=settings.source(*key)))

    with finding("bad_storage", "limits", "storage"), closing(Limiter(settings.limits.storage)) as limiter:
        await limiter.check()
    with finding("bad_log", "log", "file"):
        open_log(settings)
    if settings.auth.jwt is not None:
        from dbtools.server.keys import check_keys

        with finding("bad_keys", "auth", "jwt", "jwks"):
            await check_keys(settings.auth.jwt)
    return tuple(found)


async def _announce(toolbox: Toolbox, role: str, operator: Operator, announced: anyio.Event) -> None:
    operator.announce(await toolbox.view(role))
    announced.set()


async def _end_on_signal(scope: anyio.CancelScope, seen: list[int]) -> None:
    """Cancel *scope* when a signal comes: unlike a task, it stays cancelled until all in it has ended."""
    if sys.platform == "win32":
        return
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            seen.append(number)
            scope.cancel()
