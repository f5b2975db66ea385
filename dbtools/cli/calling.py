"""`dbtools tools`, `call` and `explain`: what a role has, what a call answers, and why."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dbtools.cli.completion import call_words
from dbtools.cli.options import (
    ExampleCommand,
    arguments_of,
    caller_of,
    claim_option,
    complaints,
    is_target,
    json_option,
    role_option,
    settings_for,
    target_argument,
    with_toolbox,
)

if TYPE_CHECKING:
    from dbtools.policy import Caller
    from dbtools.results import Answer
    from dbtools.service.toolbox import Toolbox
    from dbtools.settings import Settings

CALL = "[TARGET] TOOL [key=value… | '{json}']"


@click.command(cls=ExampleCommand, example="dbtools tools sample.db --tokens")
@target_argument
@role_option
@claim_option
@click.option("--tokens", is_flag=True, help="Split the tokens into description, input and output schema.")
@json_option
def tools(target: str | None, role: str, claim: tuple[str, ...], tokens: bool, as_json: bool) -> None:
    """Show the tools that a role sees, and what they cost in tokens.

    Tokens are counted as bytes / 4. Claims change which rows are seen, never which tools.
    """
    with complaints():
        settings = settings_for(target, role)
        caller_of(settings, role, claim)
        view = with_toolbox(settings, lambda toolbox, _: toolbox.view(role), role)
        for each in view.problems:
            if not isinstance(each, str) and each.level == "error" and each.role == role:
                click.echo(f"dbtools: {each}", err=True)
        if as_json:
            from dbtools.cli.presentation import tools_json

            click.echo(tools_json(view.definitions))
        else:
            from dbtools.cli.presentation import print_tools

            print_tools(view, split=tokens, budget=settings.tools.budget)


@click.command(
    cls=ExampleCommand, example="dbtools call sample.db list_customers limit=3 'order_by=name desc'"
)
@click.argument("words", nargs=-1, metavar=CALL, shell_complete=call_words)
@role_option
@claim_option
@json_option
def call(words: tuple[str, ...], role: str, claim: tuple[str, ...], as_json: bool) -> None:
    """Call TOOL once and print its answer.

    A value that parses as JSON is JSON, otherwise a string.
    """
    with complaints():
        target, tool, arguments = _call_of(words)
        settings = settings_for(target, role)
        caller = caller_of(settings, role, claim)
        answer = with_toolbox(
            settings,
            lambda toolbox, _: _called(settings, toolbox, caller, tool, arguments),
            role,
            title=f"Calling {tool}",
        )
        if as_json:
            click.echo(answer.json)
            return
        from dbtools.cli.presentation import print_answer

        print_answer(answer)


def _call_of(words: tuple[str, ...]) -> tuple[str | None, str, dict[str, object]]:
    """Read [TARGET] TOOL [arguments]."""
    target, words = (words[0], words[1:]) if words and is_target(words[0]) else (None, words)
    if not words:
        named = [target] if target and "://" not in target else []
        shown = shlex.join(["dbtools", "tools", *named])
        raise click.UsageError(f"TOOL is missing: `{shown}` lists them.")
    if target is None and len(words) > 1 and "=" not in words[1] and "{" not in words[1]:
        from dbtools.errors import nearest

        problem = f"There is no file {words[0]!r}, and {words[1]!r} is not key=value."
        here = nearest(words[0], [path.name for path in Path().iterdir()])
        raise click.UsageError(f"{problem} {here}".rstrip())
    return target, words[0], arguments_of(words[1:])


async def _called(
    settings: "Settings", toolbox: "Toolbox", caller: "Caller", tool: str, arguments: Mapping[str, object]
) -> "Answer":
    """Call *tool* as the server would, and write it down where calls are kept."""
    from dbtools.errors import UnknownTool
    from dbtools.records import open_stored_log
    from dbtools.server.calls import Calls, IncomingCall
    from dbtools.server.limiter import Limiter
    from dbtools.service.explanation import problems_of

    limiter = Limiter(settings.limits.storage)
    log = open_stored_log(settings)
    try:
        request = IncomingCall(caller=caller, tool=tool, arguments=arguments, client="dbtools call")
        return await Calls(toolbox, limiter, log).call(request)
    except UnknownTool:
        # Whoever types this command may know what clients may not.
        for problem in problems_of(await toolbox.view(caller.role), tool):
            click.echo(f"dbtools: {problem}", err=True)
        raise
    finally:
        limiter.close()
        log.close()


@click.command(
    cls=ExampleCommand,
    example="dbtools explain dbtools.toml --role support --claim region=north list_customers limit=3",
)
@click.argument("words", nargs=-1, metavar=CALL, shell_complete=call_words)
@role_option
@claim_option
@json_option
def explain(words: tuple[str, ...], role: str, claim: tuple[str, ...], as_json: bool) -> None:
    """Explain why a call is allowed or denied, without running it.

    The answer names the rule that decides, the SQL and its parameters.
    """
    with complaints():
        target, tool, arguments = _call_of(words)
        settings = settings_for(target, role)
        caller = caller_of(settings, role, claim)
        from dbtools.cli.presentation import content_json, print_explanation
        from dbtools.service.explanation import explain as explained

        found = with_toolbox(
            settings, lambda toolbox, backend: explained(toolbox, backend, caller, tool, arguments), role
        )
        if as_json:
            click.echo(content_json(found.content()))
        else:
            print_explanation(found)
