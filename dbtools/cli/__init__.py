"""The command line. Words in; output and an exit status out. Each command is imported when it is used."""

import os
import shlex
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.exceptions import Exit, NoSuchCommand

from dbtools import __version__
from dbtools.cli.options import INTERRUPTED, REFUSED, WRONG, example, is_target

DEBUG = "DBTOOLS_DEBUG"  #: the variable that turns on tracebacks
#: The module of each command.
MODULES: Mapping[str, str] = {
    "serve": "serving",
    "connect": "connecting",
    **dict.fromkeys(("tools", "call", "explain"), "calling"),
    **dict.fromkeys(("init", "sample", "check", "schema", "grants", "watch", "token"), "setup"),
    "log": "log",
    **dict.fromkeys(("query", "registry"), "registry"),
}


class Commands(click.Group):
    """The commands, each of which is imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command *cmd_name*, or None."""
        if cmd_name not in MODULES:
            return None
        module = import_module(f"dbtools.cli.{MODULES[cmd_name]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that *args* begin with, or raise UsageError."""
        word = args[0]
        if word in MODULES or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        from dbtools.settings.files import is_login

        if is_target(word) or is_login(word):
            shown = "URL" if is_login(word) else shlex.quote(word)
            ctx.fail(f"No such command. To serve this database, run: dbtools serve {shown}")
        raise NoSuchCommand(word, possibilities=MODULES, ctx=ctx)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error ends it with one line on stderr and the exit status for that error."""
        try:
            result = super().invoke(ctx)
            if sys.stdout is not None:
                sys.stdout.flush()  # a closed pipe fails here, not at the end of the process
            return result
        except (click.ClickException, Exit):
            raise
        except (KeyboardInterrupt, click.Abort):
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            # The reader of our output, such as `head`, has closed it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.exit(0)
        except Exception as exc:
            _end(exc)


def _end(error: Exception) -> None:
    from dbtools import errors
    from dbtools.values.cells import one_line

    status, message = WRONG, one_line(str(error))
    if isinstance(error, errors.ConfigurationError):
        message = "\ndbtools: ".join(one_line(each.line) for each in error.mistakes)
    elif isinstance(error, OSError) and error.filename:
        message = one_line(f"{error.filename}: {error.strerror}.")
    elif not isinstance(error, errors.DbtoolsError):
        if os.environ.get(DEBUG):
            raise error
        message = f"internal error: {type(error).__name__}. Set {DEBUG}=1 to see the traceback."
    elif isinstance(error, errors.CallError):
        is_broken = isinstance(error, errors.DatabaseUnavailable | errors.UnknownTable)
        status = WRONG if is_broken else REFUSED
    click.echo(f"dbtools: {message}", err=True)
    sys.exit(status)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=example("dbtools serve sample.db"),
)
@click.version_option(__version__, prog_name="dbtools")
def main() -> None:
    """Give language models safe, typed, fast access to a SQL database.

    TARGET is a database file, a database URL, or a configuration file that ends in .toml. The default is
    ./dbtools.toml.
    """
