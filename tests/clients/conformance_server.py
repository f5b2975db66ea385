"""dbtools' HTTP server with the fixtures of the conformance suite in front.

A database file and the descriptor of a socket that listens come in; it serves until a signal comes.
"""

import logging
import socket
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import uvicorn

from dbtools.backends import url_of_file
from dbtools.policy.roles import Caller
from dbtools.server.http.app import HttpApp, ListenAddress, Startup, config_of
from dbtools.server.http.endpoint import Endpoint
from dbtools.server.running import RunningServer
from dbtools.service.snapshot import RoleSnapshot, Snapshot
from dbtools.settings import DatabaseSection, LogSection, Settings
from dbtools.tools.definition import ListChange
from tests.clients.conformance_fixtures import add_fixtures


class Operator:
    """Ignores what happens: the log reports failures."""

    def announce(self, view: RoleSnapshot) -> None:
        """Take note of nothing."""

    def listening(self, url: str, snapshot: Snapshot | None, notes: tuple[str, ...]) -> None:
        """Take note of nothing."""

    def changed(self, snapshot: Snapshot, changes: Mapping[str, ListChange]) -> None:
        """Take note of nothing."""


class ConformanceApp(HttpApp):
    """The package's application, whose protocol knows the fixtures as well."""

    def __init__(self, startup: Startup, path: Path) -> None:
        super().__init__(startup)
        self._path = path

    def open(self, run: RunningServer) -> Endpoint:
        """Add the fixtures before the first request is answered."""
        add_fixtures(run.server, run.served.toolbox, self._path)
        return super().open(run)


def serve(path: Path, descriptor: int) -> None:
    """Serve the database file at *path* on the socket that *descriptor* is of."""
    startup = Startup(
        settings=Settings(
            database=DatabaseSection(url=url_of_file(path)),
            log=LogSection(file=str(path.with_suffix(".log"))),
        ),
        anonymous=Caller(),
        operator=Operator(),
        address=ListenAddress(host="127.0.0.1", port=0),
        stateless=False,
        workers=1,
    )
    config = config_of(partial(ConformanceApp, startup, path))
    uvicorn.Server(config).run([socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    serve(Path(sys.argv[1]), int(sys.argv[2]))
