"""What the commands share: options, how words become arguments, and how complaints end a command."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from dbtools.cli.terminal import interruptible, waiting

if TYPE_CHECKING:
    from dbtools.backends.port import Backend
    from dbtools.policy import Caller
    from dbtools.service.toolbox import Toolbox
    from dbtools.settings import Settings

REFUSED, WRONG, INTERRUPTED = 1, 2, 130  #: exit status
DEFAULT_ROLE = "default"
CLAIMS = "DBTOOLS_CLAIMS"
DEBUG = "DBTOOLS_DEBUG"  #: the variable that lets tracebacks through
READING = "Reading the database"


def is_target(word: str) -> bool:
    """Return whether *word* names what is served: an existing file, a URL, or a `.toml` file."""
    if "://" in word or word.endswith(".toml"):
        return True
    from dbtools.settings import is_file

    return is_file(Path(word))


class ExampleCommand(click.Command):
    """A command whose help ends with an example."""

    def __init__(self, *arguments: Any, example: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.epilog = f"\b\nExample:\n  {example}"


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Complete the name of a file."""
    return [CompletionItem(incomplete, type="file")]


target_argument = click.argument("target", required=False, shell_complete=files)
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


def arguments_of(words: Sequence[str]) -> dict[str, object]:
    """Read `key=value` words, or one JSON object."""
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        value = _json_or_text(words[0])
        if not isinstance(value, dict):
            raise click.UsageError("The arguments are not a JSON object.")
        return value
    pairs = _pairs(words, "{!r} is not key=value. All arguments at once are one JSON object.")
    return {key: _json_or_text(text) for key, text in pairs.items()}


def _pairs(words: Sequence[str], problem: str) -> dict[str, str]:
    """Return the values of NAME=VALUE *words*; one that is none has the *problem*."""
    for word in words:
        if not word.partition("=")[0] or "=" not in word:
            raise click.UsageError(problem.format(word))
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def caller_of(settings: "Settings", role: str, claims: Sequence[str]) -> "Caller":
    """Return who calls: *role*, with the claims of the environment and of NAME=VALUE words."""
    from dbtools.policy import Caller
    from dbtools.settings import typed_claims

    return Caller(role=role, claims=typed_claims(settings, _claims(claims)))


def _claims(words: Sequence[str]) -> dict[str, object]:
    """Return the claims of the environment, and of `NAME=VALUE` *words*, which count for more."""
    written = os.environ.get(CLAIMS, "")
    try:
        claims = json.loads(written) if written else {}
    except (ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict) or any(isinstance(each, dict | list) for each in claims.values()):
        raise click.UsageError(f"{CLAIMS} is not a JSON object of texts, numbers and booleans.")
    return claims | _pairs(words, "--claim: {!r} is not NAME=VALUE.")


def words_of_caller(role: str, claims: tuple[str, ...]) -> list[str]:
    """Return the options that name the caller."""
    options = [] if role == DEFAULT_ROLE else ["--role", role]
    return options + [word for each in claims for word in ("--claim", each)]


def _json_or_text(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def settings_for(target: str | None, *roles: str) -> "Settings":
    """Return the settings that *target* names, which must have *roles*."""
    from dbtools.settings import settings_of

    settings = settings_of(target, Path.cwd())
    for role in roles:
        check_role(settings, role)
    return settings


def check_role(settings: "Settings", role: str) -> None:
    """Raise ConfigurationError where *settings* have no *role*."""
    from dbtools.errors import ConfigurationError, listing
    from dbtools.settings.roles import role_names

    roles = role_names(settings)
    if role not in roles:
        hint = f"--role names one of: {listing(roles)}."
        raise ConfigurationError(f"There is no role {role!r}.", hint=hint)


def with_toolbox(
    settings: "Settings",
    use: "Callable[[Toolbox, Backend], Any]",
    role: str | None = None,
    *,
    title: str = READING,
) -> Any:
    """Return what *use* makes of the toolbox of *settings*, for *role* or for all, and of its backend.

    Progress has the *title*.
    """
    from dbtools.service.serving import open_toolbox

    async def use_and_close() -> Any:
        toolbox, backend = open_toolbox(settings, role)
        try:
            return await use(toolbox, backend)
        finally:
            await backend.close()
            # An operator who misses a tool should learn why.
            for each in toolbox.current.missing if toolbox.current else ():
                click.echo(f"dbtools: {each}", err=True)

    return wait_for(use_and_close, title=title)


def wait_for(function: Callable[..., Any], *arguments: Any, title: str = READING) -> Any:
    """Run an async *function* to its end, and show progress with the *title* if it takes long."""
    with waiting(title):
        return run(function, *arguments)


def run(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run an async *function* to its end."""
    import anyio

    with interruptible():
        return anyio.run(function, *arguments)


@contextmanager
def complaints() -> Iterator[None]:
    """End with one clear line on stderr and the exit status that belongs to the error."""
    from dbtools import errors
    from dbtools.cells import one_line

    try:
        yield
    except errors.DbtoolsError as exc:
        broken = isinstance(exc, errors.DatabaseUnavailable | errors.UnknownTable)
        refused = isinstance(exc, errors.CallError) and not broken
        click.echo(f"dbtools: {one_line(str(exc))}", err=True)
        sys.exit(REFUSED if refused else WRONG)
    except (KeyboardInterrupt, click.Abort):
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
