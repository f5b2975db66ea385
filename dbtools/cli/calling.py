"""`dbtools tools`, `call` and `explain`, which show what a role may do."""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbtools.cli.options import (
    ANY_FILE,
    REFUSED,
    caller_of,
    claim_option,
    echo,
    example,
    is_target,
    json_option,
    pairs_of,
    role_option,
    settings_for,
    target_argument,
    waiting,
    with_toolbox,
    with_writes,
    write_option,
)

if TYPE_CHECKING:
    from dbtools.answers.results import Answer
    from dbtools.policy.roles import Caller
    from dbtools.service.toolbox import Toolbox
    from dbtools.settings import Settings

AWAITED = "Nothing was changed: the change must be confirmed. "
USABLE = "Repeat the command with the token as confirm, or confirm on a terminal."
UNUSABLE = (
    "Confirm it on a terminal. Another command can use the token only with [server] secret and the table "
    "dbtools_write."
)
EXPLAINED = "`dbtools explain` with the same arguments says why."


@click.command(epilog=example("dbtools tools sample.db --tokens"))
@target_argument
@role_option
@claim_option
@write_option
@click.option("--tokens", is_flag=True, help="Count description, input schema and output schema separately.")
@json_option
def tools(
    target: str | None, role: str, claims: Sequence[str], write: bool, tokens: bool, as_json: bool
) -> None:
    """List the tools of a role, and what they cost in tokens.

    Four bytes count as one token. Claims change which rows a role sees, never which tools.
    """
    from dbtools.tools.definition import tokens_of, tool_content

    settings = with_writes(settings_for(target, role), write)
    caller_of(settings, role, claims)
    view = with_toolbox(settings, lambda toolbox, _: toolbox.view(role), role)
    for each in view.problems:
        if each.level == "error" and each.role == role:
            click.echo(f"dbtools: {each}", err=True)
    if as_json:
        contents = [tool_content(definition) for definition in view.definitions]
        echo(as_json, [{**each, "tokens": tokens_of(each)} for each in contents])
        return
    from dbtools.cli.presentation import print_tools

    print_tools(view, split=tokens, listing=settings.listing())


words_argument = click.argument(
    "words", nargs=-1, metavar="[TARGET] TOOL [key=value… | '{json}']", type=ANY_FILE
)


@click.command(epilog=example("dbtools call sample.db list_customers limit=3 'order_by=name desc'"))
@words_argument
@role_option
@claim_option
@write_option
@json_option
def call(words: Sequence[str], role: str, claims: Sequence[str], write: bool, as_json: bool) -> None:
    """Call a tool and print its answer.

    A value that parses as JSON is passed as JSON, any other value as a string. On a terminal, dbtools
    asks you to confirm a change whose grant has confirm = true. Otherwise it prints a preview and a token,
    with exit status 1.
    """
    settings, caller, tool, arguments = _call_of(words, role, claims, write)
    asks = not as_json and sys.stdin.isatty() and sys.stderr.isatty()
    answer = with_toolbox(
        settings,
        lambda toolbox, _: _call_and_log(settings, toolbox, caller, tool, arguments, asks=asks),
        role,
        title="",
    )
    if as_json:
        click.echo(answer.json)
    else:
        from dbtools.cli.presentation import print_answer

        print_answer(answer)
    if answer.pending is not None:
        sys.exit(REFUSED)


@click.command(
    epilog=example("dbtools explain dbtools.toml --role support --claim region=north list_customers limit=3")
)
@words_argument
@role_option
@claim_option
@write_option
@json_option
def explain(words: Sequence[str], role: str, claims: Sequence[str], write: bool, as_json: bool) -> None:
    """Explain why a call is allowed or denied, without running it.

    The output names the rule that decides, and shows the SQL and its parameters. The exit status is 0,
    whether the call is allowed or not: in a script, read allowed of --json.
    """
    from dbtools.cli.presentation import print_explanation
    from dbtools.service.explanation import explain as explained

    settings, caller, tool, arguments = _call_of(words, role, claims, write)
    found = with_toolbox(
        settings, lambda toolbox, backend: explained(toolbox, backend, caller, tool, arguments), role
    )
    if as_json:
        echo(as_json, found.content())
    else:
        print_explanation(found)


def _call_of(
    words: Sequence[str], role: str, claims: Sequence[str], write: bool
) -> "tuple[Settings, Caller, str, dict[str, object]]":
    """Read [TARGET] TOOL [arguments] and the options of the caller."""
    from dbtools.errors import nearest_path

    target, words = (words[0], words[1:]) if words and is_target(words[0]) else (None, words)
    if not words:
        raise click.UsageError("TOOL is missing. `dbtools tools` lists the tools.")
    if target is None and len(words) > 1 and "=" not in words[1] and "{" not in words[1]:
        if is_target(words[1]):
            raise click.UsageError(f"TARGET comes before TOOL: {words[1]} {words[0]}")
        near = nearest_path(Path(words[0])).rstrip()
        raise click.UsageError(
            f"{words[1]!r} is not key=value, and {words[0]!r} is not a file. {near}".rstrip()
        )
    arguments = _arguments_of(words[1:])
    settings = with_writes(settings_for(target, role), write)
    return settings, caller_of(settings, role, claims), words[0], arguments


def _arguments_of(words: Sequence[str]) -> dict[str, object]:
    """Read `key=value` words, or one JSON object."""
    from dbtools.values.cells import one_line

    if len(words) == 1 and words[0].lstrip().startswith("{"):
        value, problem = _value_of(words[0])
        if problem:
            raise click.UsageError(f"The arguments are not valid JSON: {problem}.")
        return dict(value)
    pairs = pairs_of(words, "{!r} is not key=value. You can also pass all arguments as one JSON object.")
    arguments: dict[str, object] = {}
    for key, text in pairs.items():
        arguments[key], problem = _value_of(text)
        if problem:
            text = f"{key} is not valid JSON, so it is passed as a string: {problem}."
            click.echo(f"dbtools: {one_line(text)}", err=True)
    return arguments


def _value_of(text: str) -> tuple[Any, str]:
    """Return *text* as JSON or as it is, and what is wrong with it if it looks like an array or an object."""
    problem = "it is too large"
    try:
        return json.loads(text), ""
    except json.JSONDecodeError as exc:
        problem = f"{exc.msg} at character {exc.pos + 1}"
    except (ValueError, RecursionError):
        pass
    return text, problem if text.lstrip().startswith(("[", "{")) else ""


async def _call_and_log(
    settings: "Settings",
    toolbox: "Toolbox",
    caller: "Caller",
    tool: str,
    arguments: Mapping[str, object],
    *,
    asks: bool,
) -> "Answer":
    """Call *tool* as the server would, and log the call; *asks*: whether a person can confirm changes."""
    from dbtools.errors import Denied, UnknownTool
    from dbtools.records import open_log
    from dbtools.server.calls import Calls, Limiter
    from dbtools.server.mcp.confirming import ask_and_call
    from dbtools.service.explanation import problems_of

    limiter = Limiter(settings.limits.storage)
    log = open_log(settings, stderr=False)
    calls = Calls(toolbox, limiter, log)
    entry = calls.entry(caller, tool, arguments, client="dbtools call")
    attempt = partial(toolbox.call, caller, tool, arguments)
    try:
        with ExitStack() as progress:
            progress.enter_context(waiting(f"Calling {tool}"))
            asking = partial(ask_and_call, entry, attempt, partial(_ask, progress))
            answer = await calls.make(caller, entry, asking if asks else attempt)
    except UnknownTool:
        # The user of this command is the operator, who may see what clients may not.
        for problem in problems_of(await toolbox.view(caller.role), tool):
            click.echo(f"dbtools: {problem}", err=True)
        raise
    except Denied as exc:
        if exc.message == Denied.__doc__:
            raise exc.with_hint(EXPLAINED) from exc
        raise
    finally:
        limiter.close()
        log.close()
    is_shared = settings.server.secret and (await toolbox.view(caller.role)).context.journal
    if answer.pending is not None:
        click.echo(f"dbtools: {AWAITED}{USABLE if is_shared else UNUSABLE}", err=True)
    return answer


async def _ask(progress: ExitStack, question: str) -> None:
    """Close *progress* and ask the person at the terminal; raise NotConfirmed unless they agree."""
    import anyio

    from dbtools.errors import NotConfirmed
    from dbtools.values.cells import escape

    progress.close()
    click.echo(f"{escape(question)}\nMake this change? [y/N] ", err=True, nl=False)
    if sys.platform != "win32":
        # Unlike a read, this wait ends when the user presses Ctrl-C.
        await anyio.wait_readable(sys.stdin)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise NotConfirmed("Nothing was changed.", declined=True)
