"""`dbtools token`: secrets that callers show over HTTP."""

import json

import click

from dbtools.cli.options import ExampleCommand, json_option


@click.group(epilog="\b\nExample:\n  dbtools token new")
def token() -> None:
    """Make tokens for callers over HTTP."""


@token.command(cls=ExampleCommand, example="dbtools token new --json")
@json_option
def new(as_json: bool) -> None:
    """Print a new token, which nobody can print again, and its hash, which the configuration holds."""
    from dbtools.server.tokens import hash_of, new_token

    made = new_token()
    hashed = hash_of(made)
    if as_json:
        click.echo(json.dumps({"token": made, "sha256": hashed}))
        return
    click.echo(
        f"token:  {made}\nsha256: {hashed}\n\n"
        "Give the token to the caller, who sends it as Authorization: Bearer TOKEN, and the hash to "
        f'dbtools.toml:\n\n[auth]\ntokens = [{{ sha256 = "{hashed}", role = "default" }}]'
    )
