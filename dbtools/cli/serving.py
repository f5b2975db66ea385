"""`dbtools serve`: start the server, and log what its operator should know."""

import logging
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from dbtools.cli.options import (
    CLAIMS,
    caller_of,
    check_roles,
    claim_option,
    count_of,
    example,
    role_option,
    run,
    settings_for,
    target_argument,
    with_writes,
    words_of_caller,
    write_option,
)

if TYPE_CHECKING:
    from dbtools.findings import Finding
    from dbtools.service.snapshot import RoleSnapshot, Snapshot
    from dbtools.settings import Settings
    from dbtools.tools.definition import ListChange

logger = logging.getLogger("dbtools")
GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
CLIENT = "claude-code"  #: the client of the command that is shown
NAMES_PER_LINE = 8  #: at most, of roles or tools


@click.command(epilog=example("dbtools serve sample.db"))
@target_argument
@role_option
@claim_option
@click.option("--http", metavar="HOST:PORT", help="Serve over HTTP at this address, instead of over stdio.")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Number of processes that share the port of --http.",
)
@write_option
@click.option("--stateless", is_flag=True, help="Keep no sessions for protocol versions before 2026-07-28.")
def serve(
    target: str | None,
    role: str,
    claims: Sequence[str],
    http: str | None,
    workers: int,
    write: bool,
    stateless: bool,
) -> None:
    """Serve TARGET to MCP clients, over stdio or HTTP."""
    # Handle the signal already now: the server's own handler takes over after its imports.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if http is None and (workers > 1 or stateless):
        raise click.UsageError("--workers and --stateless need --http.")
    settings = with_writes(settings_for(target), write)
    if http is None or not settings.auth:
        check_roles(settings, role)
    else:
        _refuse_options_of_callers()
    from dbtools.server.running import begin_log

    begin_log(settings.log)
    caller = caller_of(settings, role, claims)
    operator = _Operator(target, words_of_caller(role, claims), settings)
    if http is None:
        from dbtools.server.stdio import serve_stdio

        run(serve_stdio, settings, caller, operator, use_uvloop=sys.platform != "win32")
        return
    from dbtools.server.http.app import ListenAddress, Startup, listen

    startup = Startup(
        settings=settings,
        anonymous=caller,
        operator=operator,
        address=ListenAddress.of(http),
        stateless=stateless or workers > 1,
        workers=workers,
    )
    listen(startup)


def _refuse_options_of_callers() -> None:
    """Raise UsageError if an option names the caller, since each token does."""
    context = click.get_current_context()
    given = [name for name in ("role", "claims") if context.get_parameter_source(name) in GIVEN]
    if given or os.environ.get(CLAIMS):
        raise click.UsageError(
            "With [auth], each token decides role and claims: do not set --role, --claim, DBTOOLS_ROLE or "
            "DBTOOLS_CLAIMS."
        )


class _Operator:
    """Logs what is served, and, on a terminal or as JSON, how to connect and which tools change."""

    def __init__(self, target: str | None, options: Sequence[str], settings: "Settings") -> None:
        self._target = target
        self._options = options  #: the options that name the caller
        self._settings = settings
        self._is_verbose = sys.stderr.isatty() or settings.log.format == "json"

    def announce(self, view: "RoleSnapshot") -> None:
        """Log problems, what is served over stdio, and the command that connects a client."""
        self._warn(view.problems)
        if self._is_verbose:
            from dbtools.cli.connecting import place_of

            tables, tools = len(view.catalog.tables), len(view.definitions)
            lines = (
                f"Serving {count_of(tables, 'table')} with {count_of(tools, 'tool')} over stdio.",
                *view.replacement_notes(self._settings.listing()),
                f"To connect a client: {_connect_command(place_of(self._target), *self._options)}",
                "Press Ctrl-C to stop.",
            )
            logger.info("\n".join(lines))

    def listening(self, url: str, snapshot: "Snapshot | None", notes: Sequence[str]) -> None:
        """Log problems, what is served at *url* to which roles, and commands to connect and to ask."""
        from dbtools.errors import listing

        if snapshot is None:
            logger.info(f"Listening at {url}. Serving begins when the database answers.")
            return
        views = snapshot.views.values()
        problems = [each for view in views for each in view.problems]
        self._warn([*problems, *notes])
        tables = {table.location for view in views for table in view.catalog.tables}
        roles = f"the role{'s' if len(views) > 1 else ''} {listing(snapshot.views, NAMES_PER_LINE)}"
        logger.info(f"Serving {count_of(len(tables), 'table')} at {url} to {roles}.")
        if self._is_verbose:
            for name, view in snapshot.views.items():
                for replaced in view.replacement_notes(self._settings.listing()):
                    logger.info(f"role {name}: {replaced}")
        jwt = self._settings.auth.jwt
        token = ["--token-env", "DBTOOLS_TOKEN"] if self._settings.auth else []
        logger.info(
            f"To connect a client: {_connect_command('--http', jwt.resource if jwt else url, *token)}"
        )
        if not self._settings.auth:
            (view,) = views
            logger.info(f"To ask from another shell: {self._example_command(view)}")

    def _example_command(self, view: "RoleSnapshot") -> str:
        """Return a command that reads rows of *view*, or lists its tools if no table has its own."""
        from dbtools.cli.connecting import place_of

        target = place_of(self._target)
        for each in view.definitions:
            if each.name.startswith("list_") and view.tools[each.name].table:
                return _command("call", *self._options, target, each.name, "limit=3")
        return _command("tools", *self._options, target)

    def _warn(self, problems: "Iterable[str | Finding]") -> None:
        from dbtools.server.running import report

        for problem in dict.fromkeys(problems):
            report(problem)

    def changed(self, snapshot: "Snapshot", changes: "Mapping[str, ListChange]") -> None:
        """Log one line for each role whose tools have changed."""
        from dbtools.errors import listing

        for role, change in changes.items():
            if not (change.tools and self._is_verbose):
                continue
            lists = {"added": change.added, "changed": change.changed, "removed": change.removed}
            parts = [f"{what} {listing(names, NAMES_PER_LINE)}" for what, names in lists.items() if names]
            of = f" of {role}" if len(snapshot.views) > 1 else ""
            logger.info(f"The tools{of} have changed: {'; '.join(parts)}.")


def _connect_command(*words: str) -> str:
    """Return the command that connects a client."""
    return _command("connect", CLIENT, *words, "--write")


def _command(*words: str) -> str:
    """Return the command that runs this dbtools with *words*."""
    from dbtools.cli.connecting import PACKAGE, command_of

    program = command_of()
    if program[-1] == PACKAGE:
        program = ["uvx", PACKAGE]
    elif shutil.which("dbtools"):
        program = ["dbtools"]
    return shlex.join([*program, *words])
