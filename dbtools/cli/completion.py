"""Shell completion: the command that sets it up, and what may stand for TOOL."""

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem, get_completion_class

from dbtools.cli.options import ExampleCommand, files, is_target, settings_for

PROGRAMS = ("dbtools", "dbtools-mcp")
SHELLS = ("bash", "zsh", "fish")
PATIENCE = 2.0  #: seconds in which a database has to tell its tools


@click.command(cls=ExampleCommand, example="dbtools completion bash")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes dbtools commands in a shell.

    \b
    Set it up once, and open a new shell:
      bash  echo 'eval "$(dbtools completion bash)"' >> ~/.bashrc
      zsh   echo 'eval "$(dbtools completion zsh)"' >> ~/.zshrc
      fish  dbtools completion fish > ~/.config/fish/completions/dbtools.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    main = click.get_current_context().find_root().command
    for program in PROGRAMS:
        variable = f"_{program.replace('-', '_')}_COMPLETE".upper()
        click.echo(kind(main, {}, program, variable).source())


def call_words(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Complete [TARGET] TOOL."""
    words: tuple[str, ...] = context.params.get("words") or ()
    if len(words) > 1 or (words and not is_target(words[0])):
        return []
    tools = _tool_names(words[0] if words else None, context.params.get("role") or "")
    found = [CompletionItem(name) for name in tools if name.startswith(incomplete)]
    return found if words else [*files(context, parameter, incomplete), *found]


def _tool_names(target: str | None, role: str) -> Iterable[str]:
    """Return the names of the tools of *role*, or nothing if that takes long or fails."""
    import anyio

    from dbtools.service.serving import open_toolbox

    async def names() -> Iterable[str]:
        toolbox, backend = open_toolbox(settings_for(target, role), role)
        try:
            with anyio.move_on_after(PATIENCE):
                return (await toolbox.view(role)).tools
        finally:
            await backend.close()
        return ()

    try:
        return anyio.run(names)
    except Exception:
        # A message would stand in the middle of what is being typed.
        return ()
