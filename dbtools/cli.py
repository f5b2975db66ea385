"""The command line: serve, tools, call, explain, check and schema."""

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbtools import __version__

if TYPE_CHECKING:
    from dbtools.config import Settings
    from dbtools.database import Database
    from dbtools.policy import Finding
    from dbtools.toolbox import Toolbox, View

REFUSED, WRONG, INTERRUPTED = 1, 2, 130  #: exit status
DEFAULT_ROLE = "default"
CLAIMS = "DBTOOLS_CLAIMS"
DEBUG = "DBTOOLS_DEBUG"  #: the variable that lets tracebacks through


def is_target(word: str) -> bool:
    """Return whether *word* names what is served: an existing file, a URL, or a `.toml` file."""
    if "://" in word or word.endswith(".toml"):
        return True
    from dbtools.config import is_file

    return is_file(Path(word))


class ExampleCommand(click.Command):
    """A command whose help ends with an example."""

    def __init__(self, *arguments: Any, example: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.epilog = f"\b\nExample:\n  {example}"


class ExampleGroup(click.Group):
    """A group whose help ends with an example."""

    command_class = ExampleCommand


role_option = click.option(
    "--role",
    envvar="DBTOOLS_ROLE",
    default=DEFAULT_ROLE,
    show_default=True,
    help="Whose view of the database.",
)
claim_option = click.option(
    "--claim",
    "claim",
    multiple=True,
    metavar="NAME=VALUE",
    help="What is known of the caller, for row filters; DBTOOLS_CLAIMS is a JSON object of them.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(
    cls=ExampleGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExample:\n  dbtools serve sample.db",
)
@click.version_option(__version__, prog_name="dbtools")
def main() -> None:
    """Give language models safe, typed, fast access to a SQL database.

    TARGET is a database file, a database URL or a configuration file that ends in .toml; without one it is
    ./dbtools.toml.
    """


@main.command(example="dbtools serve sample.db")
@click.argument("target", required=False)
@role_option
@claim_option
def serve(target: str | None, role: str, claim: tuple[str, ...]) -> None:
    """Serve TARGET to an MCP client over stdin and stdout."""
    # From here on: the server's own handler takes over when its imports are done.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _open_closed_descriptors()
    with _complaints():
        settings = _settings(target, role)
        from dbtools.server import serve_stdio

        _run(serve_stdio, settings, role, _claims(claim), _announcement(target))


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


@main.command(example="dbtools tools sample.db --tokens")
@click.argument("target", required=False)
@role_option
@claim_option
@click.option("--tokens", is_flag=True, help="Split the tokens into description, input and output schema.")
@json_option
def tools(target: str | None, role: str, claim: tuple[str, ...], tokens: bool, as_json: bool) -> None:
    """Show the tools that a role sees of TARGET, and what they cost in tokens (bytes / 4).

    Claims change what rows are seen, never which tools.
    """
    with _complaints():
        _claims(claim)
        settings = _settings(target, role)
        view = _with_toolbox(settings, lambda toolbox, _: toolbox.view(role))
        if as_json:
            from dbtools.presentation import tools_json

            click.echo(tools_json(view.definitions))
        else:
            from dbtools.presentation import print_tools

            print_tools(view, split=tokens, budget=settings.tools.budget)


@main.command(example="dbtools call sample.db list_customers limit=3 'order_by=name desc'")
@click.argument("words", nargs=-1, metavar="[TARGET] TOOL [key=value… | '{json}']")
@role_option
@claim_option
@json_option
def call(words: tuple[str, ...], role: str, claim: tuple[str, ...], as_json: bool) -> None:
    """Call TOOL once and print its answer. A value that parses as JSON is JSON, else a string."""
    with _complaints():
        target, words = (words[0], words[1:]) if words and is_target(words[0]) else (None, words)
        if not words:
            raise click.UsageError("TOOL is missing. `dbtools tools` shows what there is.")
        if target is None and len(words) > 1 and "=" not in words[1] and "{" not in words[1]:
            raise click.UsageError(f"There is no file {words[0]!r}, and {words[1]!r} is not key=value.")
        arguments = _arguments(words[1:])
        settings = _settings(target, role)
        claims = _claims(claim)
        answer = _with_toolbox(settings, lambda toolbox, _: toolbox.call(role, words[0], arguments, claims))
        from dbtools.presentation import answer_json, print_answer

        if as_json:
            click.echo(answer_json(answer))
        else:
            print_answer(answer)


@main.command(
    example="dbtools explain dbtools.toml --role support --claim region=north list_customers limit=3"
)
@click.argument("words", nargs=-1, metavar="[TARGET] TOOL [key=value… | '{json}']")
@role_option
@claim_option
@json_option
def explain(words: tuple[str, ...], role: str, claim: tuple[str, ...], as_json: bool) -> None:
    """Say whether a role may call TOOL, which rule decides it, and with which SQL; nothing is run."""
    with _complaints():
        target, words = (words[0], words[1:]) if words and is_target(words[0]) else (None, words)
        if not words:
            raise click.UsageError("TOOL is missing. `dbtools tools --role` shows what a role has.")
        arguments = _arguments(words[1:])
        settings = _settings(target, role)
        claims = _claims(claim)
        from dbtools.explanation import explain as explained
        from dbtools.presentation import explanation_json, print_explanation

        found = _with_toolbox(
            settings,
            lambda toolbox, database: explained(toolbox, database, role, words[0], arguments, claims),
        )

        if as_json:
            click.echo(explanation_json(found))
        else:
            print_explanation(found)


@main.command(example="dbtools check dbtools.toml")
@click.argument("target", required=False)
@json_option
def check(target: str | None, as_json: bool) -> None:
    """Hold the configuration TARGET against the live database: exit status 1 where something is wrong."""
    with _complaints():
        from dbtools.config import settings_of
        from dbtools.presentation import findings_json

        settings = settings_of(target, Path.cwd())
        findings = _with_toolbox(settings, lambda _, database: _review(settings, database))
        if as_json:
            click.echo(findings_json(findings))
        else:
            click.echo("\n".join(map(str, findings)) or "All is well.")
        if any(finding.level == "error" for finding in findings):
            sys.exit(REFUSED)


async def _review(settings: "Settings", database: "Database") -> "tuple[Finding, ...]":
    from dbtools.config import read_catalog, review

    return await review(settings, await read_catalog(settings, database), database)


@main.command(example="dbtools schema > dbtools.schema.json")
def schema() -> None:
    """Print the JSON Schema of dbtools.toml, for editors."""
    from dbtools.config import Settings

    click.echo(json.dumps(Settings.model_json_schema(), indent=2))


def _arguments(words: Sequence[str]) -> dict[str, object]:
    """Read `key=value` words, or one JSON object."""
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return _json_object(words[0])
    arguments: dict[str, object] = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator or not key:
            raise click.UsageError(f"{word!r} is not key=value. All arguments at once are one JSON object.")
        arguments[key] = _json_or_text(value)
    return arguments


def _claims(words: Sequence[str]) -> dict[str, object]:
    """Return the claims of the environment, and of `NAME=VALUE` *words*, which count for more."""
    written = os.environ.get(CLAIMS, "")
    try:
        claims = json.loads(written) if written else {}
    except (ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict) or any(isinstance(each, dict | list) for each in claims.values()):
        raise click.UsageError(f"{CLAIMS} is not a JSON object of texts, numbers and booleans.")
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name:
            raise click.UsageError(f"--claim: {word!r} is not NAME=VALUE.")
        claims[name] = value
    return claims


def _json_object(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise click.UsageError("The arguments are not a JSON object.") from exc
    if not isinstance(value, dict):
        raise click.UsageError("The arguments are not a JSON object.")
    return value


def _json_or_text(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def _settings(target: str | None, role: str) -> "Settings":
    from dbtools.config import roles_of, settings_of
    from dbtools.errors import ConfigurationError, listing

    settings = settings_of(target, Path.cwd())
    roles = [each.name for each in roles_of(settings)]
    if role not in roles:
        raise ConfigurationError(f"There is no role {role!r}.", hint=f"Roles: {listing(roles)}.")
    return settings


def _with_toolbox(settings: "Settings", use: "Callable[[Toolbox, Database], Any]") -> Any:
    """Return what *use* makes of the toolbox that *settings* describe and its database, and close it."""
    from dbtools.config import open_toolbox

    async def run() -> Any:
        toolbox, database = open_toolbox(settings)
        try:
            return await use(toolbox, database)
        finally:
            await database.close()

    return _run(run)


def _run(function: Callable[..., Any], *arguments: Any) -> Any:
    import anyio

    return anyio.run(function, *arguments)


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


def _full(target: str) -> str:
    """Return *target* as a client can use it from any folder, without a password."""
    if "://" not in target:
        return str(Path(target).absolute())
    return re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:…@", target)


@contextmanager
def _complaints() -> Iterator[None]:
    """End with one clear line on stderr and the exit status that belongs to the error."""
    from dbtools import errors

    try:
        yield
    except errors.DbtoolsError as exc:
        refused = isinstance(exc, errors.CallError) and not isinstance(
            exc, errors.DatabaseUnavailable | errors.UnknownTable
        )
        click.echo(f"dbtools: {exc}", err=True)
        sys.exit(REFUSED if refused else WRONG)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except click.ClickException:
        raise
    except BrokenPipeError:
        # Whoever reads our output has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(0)
    except Exception as exc:
        if os.environ.get(DEBUG):
            raise
        click.echo(f"dbtools: internal error: {type(exc).__name__}. {DEBUG}=1 shows where.", err=True)
        sys.exit(WRONG)
