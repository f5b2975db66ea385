"""Options and arguments that commands share, opening a database for them, and the terminal."""

import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from rich.status import Status

    from dbtools.backends.port import Backend
    from dbtools.policy.roles import Caller
    from dbtools.service.toolbox import Toolbox
    from dbtools.settings import Settings

REFUSED, WRONG, INTERRUPTED = 1, 2, 130  #: exit status
DEFAULT_ROLE = "default"
CLAIMS = "DBTOOLS_CLAIMS"
READING_LABEL = "Reading the database"
ANY_FILE = click.Path(readable=False)  #: a shell completes the names of files
PROGRESS_DELAY = 1.0  #: seconds after which progress is shown
FILE_WIDTH = 1_000  #: columns of an output that is not a terminal


def example(command: str) -> str:
    """Return *command* as the example at the end of a help text."""
    return f"\b\nExample:\n  {command}"


def is_target(word: str) -> bool:
    """Return whether the first argument *word* is TARGET, by the rule in docs/reference/command-line.md."""
    from dbtools.backends import home_path, is_url
    from dbtools.settings import is_file

    return is_url(word) or word.endswith(".toml") or is_file(home_path(word))


target_argument = click.argument("target", required=False, type=ANY_FILE)
role_option = click.option(
    "--role",
    envvar="DBTOOLS_ROLE",
    default=DEFAULT_ROLE,
    show_default=True,
    show_envvar=True,
    help="The role of the caller.",
)
claim_option = click.option(
    "--claim",
    "claims",
    multiple=True,
    metavar="NAME=VALUE",
    help="A fact about the caller, for row filters. DBTOOLS_CLAIMS may hold several as a JSON object.",
)
write_option = click.option(
    "--write", is_flag=True, help="Let callers change rows in every table. Only without [roles]."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def echo(as_json: bool, content: object, text: str = "") -> None:
    """Print *content* as JSON, or *text*."""
    from dbtools.values.cells import json_of

    click.echo(json_of(content) if as_json else text)


def count_of(count: int, noun: str, nouns: str = "") -> str:
    """Return *count* with its *noun*, whose plural is *nouns* if it is irregular."""
    return f"1 {noun}" if count == 1 else f"{count:,} {nouns or noun + 's'}"


def pairs_of(words: Sequence[str], problem: str) -> dict[str, str]:
    """Read NAME=VALUE *words*, or raise UsageError with the *problem* of one."""
    for word in words:
        if not word.partition("=")[0] or "=" not in word:
            raise click.UsageError(problem.format(word))
    return {name: value for name, _, value in (word.partition("=") for word in words)}


def caller_of(settings: "Settings", role: str, claims: Sequence[str]) -> "Caller":
    """Return the caller with *role* and the claims of the environment and of NAME=VALUE words."""
    from dbtools.configured.claims import typed_claims
    from dbtools.policy.roles import Caller

    written = os.environ.get(CLAIMS) or "{}"
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or any(isinstance(each, dict | list) for each in found.values()):
        raise click.UsageError(f"{CLAIMS} must be a JSON object of strings, numbers and booleans.")
    found |= pairs_of(claims, "--claim: {!r} is not NAME=VALUE.")
    return Caller(role=role, claims=typed_claims(settings, found))


def words_of_caller(role: str, claims: Sequence[str]) -> list[str]:
    """Return the options that name the caller."""
    options = [] if role == DEFAULT_ROLE else ["--role", role]
    return options + [word for each in claims for word in ("--claim", each)]


def settings_for(target: str | None, *roles: str) -> "Settings":
    """Load the settings of *target*, which must have *roles*."""
    from dbtools.settings import settings_of

    settings = settings_of(target)
    check_roles(settings, *roles)
    return settings


def with_writes(settings: "Settings", write: bool) -> "Settings":
    """Return *settings* in which callers may change rows, if *write* asks for it; without roles only."""
    if write and settings.roles:
        raise click.UsageError(
            "--write works only without [roles]. Grant insert, update or delete to a role instead."
        )
    return settings.with_value("database", "writable", True) if write else settings


def check_roles(settings: "Settings", *roles: str) -> None:
    """Raise ConfigurationError if *settings* lack one of *roles*."""
    from dbtools.configured.roles import role_names
    from dbtools.errors import ConfigurationError, listing

    names = role_names(settings)
    for role in roles:
        if role not in names:
            hint = f"Choose one with --role: {listing(names)}."
            raise ConfigurationError(f"There is no role {role!r}.", hint=hint)


def with_toolbox(
    settings: "Settings",
    use: "Callable[[Toolbox, Backend], Any]",
    role: str | None = None,
    *,
    title: str = READING_LABEL,
) -> Any:
    """Open the toolbox of *settings*, for *role* or for all roles, and return the result of *use*.

    *title* is shown as the progress.
    """
    from dbtools.service.serving import open_toolbox

    async def use_and_close() -> Any:
        toolbox, backend = open_toolbox(settings, role)
        try:
            return await use(toolbox, backend)
        finally:
            await backend.close()
            # This may explain why a tool is missing.
            for each in toolbox.current.missing if toolbox.current else ():
                click.echo(f"dbtools: {each}", err=True)

    return wait_for(use_and_close, title=title)


def wait_for(function: Callable[..., Any], *arguments: Any, title: str = READING_LABEL) -> Any:
    """Run an async *function* to its end; show *title* as the progress if it takes long."""
    with waiting(title):
        return run(function, *arguments)


def run(function: Callable[..., Any], *arguments: Any, **options: object) -> Any:
    """Run an async *function* to its end, or until Ctrl-C, on an event loop with *options*."""
    import anyio

    return anyio.run(_run_until_interrupt, function, arguments, backend_options=options)


async def _run_until_interrupt(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Run *function*; Ctrl-C cancels it, and a second one ends the process without waiting for that."""
    import asyncio
    import signal

    import anyio

    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        scope.cancel()

    with anyio.CancelScope() as scope:
        if sys.platform != "win32" and threading.current_thread() is threading.main_thread():
            # asyncio's own handler runs late if the signal comes just before the loop waits.
            loop.add_signal_handler(signal.SIGINT, interrupt)
        return await function(*arguments)
    raise KeyboardInterrupt


def width_of(stream: TextIO) -> int:
    """Return the width of *stream* in columns; output that is not a terminal has no line breaks."""
    return shutil.get_terminal_size().columns if stream.isatty() else FILE_WIDTH


def is_capable(stream: TextIO) -> bool:
    """Return whether *stream* is a terminal on which the cursor can be moved."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def has_colours(stream: TextIO) -> bool:
    """Return whether *stream* is a terminal that shows colours, unless NO_COLOR forbids them."""
    return is_capable(stream) and not os.environ.get("NO_COLOR")


@contextmanager
def waiting(title: str) -> Iterator[None]:
    """Show *title*, if any, on stderr after a second, if stderr is a terminal."""
    if not (title and is_capable(sys.stderr)):
        yield
        return
    shown: list[Status] = []

    def show() -> None:
        from rich.console import Console
        from rich.text import Text

        console = Console(stderr=True, color_system="auto" if has_colours(sys.stderr) else None)
        shown.append(console.status(Text(title)))
        shown[0].start()

    timer = threading.Timer(PROGRESS_DELAY, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        for status in shown:
            status.stop()
