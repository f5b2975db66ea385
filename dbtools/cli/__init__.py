"""The command line: a group, and one module for the commands that belong together."""

import click

from dbtools import __version__
from dbtools.cli.calling import call, explain, tools
from dbtools.cli.connecting import connect
from dbtools.cli.log import log
from dbtools.cli.registry import query, registry
from dbtools.cli.serving import serve
from dbtools.cli.setup import check, grants, schema, token, watch
from dbtools.cli.starting import init, sample


@click.group(
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
    serve,
    connect,
    init,
    sample,
    tools,
    call,
    explain,
    check,
    schema,
    grants,
    log,
    query,
    registry,
    watch,
    token,
):
    main.add_command(command)
