"""The command line: a group, and one module for the commands that belong together."""

import shlex
from collections.abc import Mapping
from importlib import import_module

import click
from click.exceptions import NoSuchCommand

from dbtools import __version__
from dbtools.cli.options import is_target

#: The module of each command. It is imported when somebody asks for the command: most start one alone.
MODULES: Mapping[str, str] = {
    "serve": "serving",
    "connect": "connecting",
    **dict.fromkeys(("init", "sample"), "starting"),
    **dict.fromkeys(("tools", "call", "explain"), "calling"),
    **dict.fromkeys(("check", "schema", "grants", "watch", "token"), "setup"),
    "log": "log",
    **dict.fromkeys(("query", "registry"), "registry"),
    "completion": "completion",
}


class Commands(click.Group):
    """The commands; what is served is none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command *cmd_name*, None where there is none."""
        if cmd_name not in MODULES:
            return None
        module = import_module(f"dbtools.cli.{MODULES[cmd_name]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that *args* begin with, or raise UsageError."""
        if args[0] not in MODULES:
            from dbtools.settings.files import is_login

            if is_target(args[0]) or is_login(args[0]):
                word = "URL" if is_login(args[0]) else shlex.quote(args[0])
                ctx.fail(f"No such command. To serve this database: dbtools serve {word}")
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as exc:
            raise NoSuchCommand(exc.command_name, possibilities=MODULES, ctx=ctx) from exc


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExample:\n  dbtools serve sample.db",
)
@click.version_option(__version__, prog_name="dbtools")
def main() -> None:
    """Give language models safe, typed, fast access to a SQL database.

    TARGET is a database file, a database URL or a configuration file that ends in .toml; without one it is
    ./dbtools.toml.
    """
