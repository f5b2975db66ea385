"""`dbtools serve`: the server, and what a person at a terminal is told of it."""

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dbtools.cli.options import (
    ExampleCommand,
    caller_of,
    claim_option,
    complaints,
    role_option,
    run,
    settings_for,
)

if TYPE_CHECKING:
    from dbtools.toolbox import View


@click.command(cls=ExampleCommand, example="dbtools serve sample.db")
@click.argument("target", required=False)
@role_option
@claim_option
def serve(target: str | None, role: str, claim: tuple[str, ...]) -> None:
    """Serve TARGET to an MCP client over stdin and stdout."""
    # From here on: the server's own handler takes over when its imports are done.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _open_closed_descriptors()
    with complaints():
        settings = settings_for(target, role)
        from dbtools.server import serve_stdio

        run(serve_stdio, settings, caller_of(settings, role, claim), _announcement(target), _tell)


def _open_closed_descriptors() -> None:
    """Give the null device to standard descriptors that are closed, before others get their numbers."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        # Python has None for a stream whose descriptor was closed when it began.
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", closefd=False))


def _announcement(target: str | None) -> "Callable[[View], None]":
    """Return what tells a person at a terminal what is served, and how a client is connected."""

    def announce(view: "View") -> None:
        for warning in view.warnings:
            click.echo(f"dbtools: {warning}", err=True)
        if not sys.stderr.isatty():
            return
        command = {"command": "dbtools", "args": ["serve", *([_full(target)] if target else [])]}
        click.echo(
            f"dbtools serves {len(view.catalog.tables)} tables with {len(view.definitions)} tools, "
            "to the client at stdin and stdout.\n"
            f"An MCP client starts it by itself: {json.dumps(command)}\n"
            "Ctrl-C ends it.",
            err=True,
        )

    return announce


def _tell(message: str) -> None:
    """Tell the operator *message*, on one line."""
    click.echo(f"dbtools: {message}", err=True)


def _full(target: str) -> str:
    """Return *target* as a client can use it from any folder, without a password."""
    if "://" not in target:
        return str(Path(target).absolute())
    return re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:…@", target)
