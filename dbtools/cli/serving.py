"""`dbtools serve`: the server, and what a person at a terminal is told of it."""

import logging
import os
import shlex
import signal
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from dbtools.cli.options import (
    ExampleCommand,
    caller_of,
    check_role,
    claim_option,
    complaints,
    role_option,
    run,
    settings_for,
    target_argument,
    words_of_caller,
)
from dbtools.cli.terminal import interruptible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dbtools.catalog import Catalog
    from dbtools.policy import Finding
    from dbtools.service.snapshot import Snapshot, View
    from dbtools.settings import Settings
    from dbtools.tools.definition import Change

logger = logging.getLogger("dbtools")
GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
CLIENT = "claude-code"  #: for which the command is told
FEW = 8  #: names of tools on one line


@click.command(cls=ExampleCommand, example="dbtools serve sample.db")
@target_argument
@role_option
@claim_option
@click.option("--http", metavar="HOST:PORT", help="Serve any number of clients over HTTP.")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Processes that share the port of --http.",
)
@click.option("--stateless", is_flag=True, help="Keep no sessions of clients before 2026-07-28.")
def serve(
    target: str | None, role: str, claim: tuple[str, ...], http: str | None, workers: int, stateless: bool
) -> None:
    """Serve TARGET to MCP clients, over stdio or HTTP."""
    # From here on: the server's own handler takes over when its imports are done.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _open_closed_descriptors()
    if http is None and (workers > 1 or stateless):
        raise click.UsageError("--workers and --stateless go with --http.")
    with complaints():
        settings = settings_for(target)
        if http is None or not settings.auth:
            check_role(settings, role)
        else:
            _refuse_options_of_callers()
        from dbtools.server.running import begin_log

        begin_log(settings.log)
        # Who reads JSON wants to know of changes as much as who sits at a terminal.
        talks = sys.stderr.isatty() or settings.log.format == "json"
        caller = caller_of(settings, role, claim)
        operator = _Operator(target, words_of_caller(role, claim), settings, talks=talks)
        if http is None:
            from dbtools.server.stdio import serve_stdio

            run(serve_stdio, settings, caller, operator)
            return
        from dbtools.server.http import Address, Plan, listen

        plan = Plan(
            settings=settings,
            anonymous=caller,
            operator=operator,
            address=Address.of(http),
            stateless=stateless or workers > 1,
            workers=workers,
        )
        with interruptible():
            listen(plan)


def _refuse_options_of_callers() -> None:
    """Raise UsageError where somebody says who calls, which is asked of each caller."""
    context = click.get_current_context()
    given = [name for name in ("role", "claim") if context.get_parameter_source(name) in GIVEN]
    if given or os.environ.get("DBTOOLS_CLAIMS"):
        raise click.UsageError(
            "Tokens say who calls, since there is [auth]: no --role, no --claim, "
            "and neither DBTOOLS_ROLE nor DBTOOLS_CLAIMS."
        )


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


class _Operator:
    """Tells whoever has started the server, by the log: who *talks* with it more than others."""

    def __init__(
        self, target: str | None, options: "Sequence[str]", settings: "Settings", *, talks: bool
    ) -> None:
        self._target = target
        self._options = options  #: that name the caller
        self._settings = settings
        self._talks = talks

    def announce(self, view: "View") -> None:
        """Tell what is wrong, what is served, and how a client is connected."""
        for problem in view.problems:
            self.tell(problem)
        self._tell_secrets(view.catalog)
        if not self._talks:
            return
        from dbtools.cli.clients import CLIENTS

        logger.info(
            f"{len(view.catalog.tables)} tables are served with {len(view.definitions)} tools, "
            "to the client at stdin and stdout.\n"
            f"To connect one: {_connecting(_place(self._target), *self._options)}\n"
            f"Other clients are {', '.join(each for each in CLIENTS if each != CLIENT)}. Ctrl-C ends it."
        )

    def _tell_secrets(self, catalog: "Catalog") -> None:
        """Name the columns that nobody has decided to show and that look like secrets."""
        if self._target is None or self._target.endswith(".toml"):
            return
        from dbtools.vetting import secret_names

        found = secret_names(catalog)
        if found:
            self.tell(
                f"Columns that look like secrets are shown: {_few(found)}. "
                "`dbtools init` writes a configuration without them."
            )

    def listening(self, url: str, snapshot: "Snapshot", notes: "tuple[str, ...]") -> None:
        """Tell where it is served, and to whom."""
        problems = dict.fromkeys(each for view in snapshot.views.values() for each in view.problems)
        for each in (*problems, *notes):
            self.tell(each)
        self._tell_secrets(next(iter(snapshot.views.values())).catalog)
        seen = {(each.schema, each.name) for view in snapshot.views.values() for each in view.catalog.tables}
        logger.info(f"{len(seen)} tables are served at {url} to {_roles(snapshot)}.")
        if self._talks:
            token = ["--token-env", "DBTOOLS_TOKEN"] if self._settings.auth else []
            logger.info(f"To connect a client: {_connecting('--http', self._reached(url), *token)}")

    def _reached(self, url: str) -> str:
        """Return *url* as clients reach it: by a name, where the server listens at every address."""
        if self._settings.auth.jwt:
            return str(self._settings.auth.jwt.resource)
        names = self._settings.server.allowed_hosts
        parts = urlsplit(url)
        if parts.hostname not in ("0.0.0.0", "::") or not names:
            return url
        name = names[0] if ":" in names[0] else f"{names[0]}:{parts.port}"
        return parts._replace(netloc=name).geturl()

    def tell(self, problem: "str | Finding") -> None:
        """Log *problem*, which an operator should mend; a finding says whether it is an error."""
        from dbtools.cells import one_line

        is_error = not isinstance(problem, str) and problem.level == "error"
        logger.log(logging.ERROR if is_error else logging.WARNING, one_line(str(problem)))

    def mended(self, message: str) -> None:
        """Tell *message*, which is good news of what has been told before."""
        from dbtools.cells import one_line

        logger.info(one_line(message))

    def changed(self, snapshot: "Snapshot", changes: "Mapping[str, Change]") -> None:
        """Tell on one line which tools are new, other ones and gone."""
        for role, change in changes.items():
            if not (change.tools and self._talks):
                continue
            told = (("new", change.added), ("changed", change.changed), ("gone", change.removed))
            parts = [f"{what}: {_few(names)}" for what, names in told if names]
            of = f" of {role}" if len(snapshot.views) > 1 else ""
            logger.info(f"The tools{of} have changed. {'; '.join(parts).capitalize()}.")


def _roles(snapshot: "Snapshot") -> str:
    names = list(snapshot.views)
    return f"the role {names[0]}" if len(names) == 1 else f"the roles {_few(names)}"


def _few(names: "Sequence[str]") -> str:
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return ", ".join(names[:FEW]) + more


def _connecting(*words: str) -> str:
    """Return the command that connects a client."""
    from dbtools.cli.connecting import PACKAGE, command_of

    is_uvx = command_of()[-1] == PACKAGE
    return shlex.join([*(("uvx", PACKAGE) if is_uvx else ("dbtools",)), "connect", CLIENT, *words, "--write"])


def _place(target: str | None) -> str:
    """Return *target* as it is found from any folder, without a password."""
    from dbtools.backends import open_backend
    from dbtools.settings.files import FILE

    if target is not None and "://" in target:
        url, _ = open_backend(target).shareable()
        return url
    return os.path.abspath(target or FILE)
