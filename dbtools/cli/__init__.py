"""The command line: a group, and one module for the commands that belong together."""

import shlex

import click

from dbtools import __version__
from dbtools.cli.calling import call, explain, tools
from dbtools.cli.completion import completion
from dbtools.cli.connecting import connect
from dbtools.cli.log import log
from dbtools.cli.options import is_target
from dbtools.cli.registry import query, registry
from dbtools.cli.serving import serve
from dbtools.cli.setup import check, grants, schema, token, watch
from dbtools.cli.starting import init, sample


class Commands(click.Group):
    """The commands; what is served is none of them."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that *args* begin with, or raise UsageError."""
        from dbtools.settings.files import is_login

        if self.get_command(ctx, args[0]) is None and (is_target(args[0]) or is_login(args[0])):
            word = "URL" if is_login(args[0]) else shlex.quote(args[0])
            ctx.fail(f"No such command. To serve this database: dbtools serve {word}")
        return super().resolve_command(ctx, args)


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


for command in (
    *(serve, connect, init, sample, tools, call, explain, check, schema, grants),
    *(log, query, registry, watch, token, completion),
):
    main.add_command(command)
