"""The picture of the rooms in CONTRIBUTING: `python -m cogapp -r CONTRIBUTING.md` draws it."""

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path

from dbtools import errors

PACKAGE = Path(errors.__file__).parent
WIDTH = 100  #: characters of a line
INDENT = "      "
#: The rooms of a call, from the request down: what each does with it, and then with its answer.
WAY = (
    ("server", "reads the message, finds the caller, counts the call", "writes the answer, logs the call"),
    ("service", "takes the tools of the caller's role", "repeats the call if the schema has changed"),
    ("tools", "binds the arguments to a statement", "renders rows, notes and links"),
    ("expressions, statements", "reads columns, paths, calculations and cursors", ""),
    ("backends", "compiles the statement with filters and masks", "reads rows, translates errors"),
)


def drawing() -> str:
    """Return the rooms that a call passes, with the codes of the errors that each answers."""
    lines = [
        "dbtools.toml → settings → configured → policy → a snapshot of what each role sees → service",
        "",
    ]
    lines.append(f"{INDENT}request{'answer':>{WIDTH - 22}}")
    for room, down, up in WAY:
        lines.append(f"{INDENT}   ▼{'':{WIDTH - 20}}▲")
        lines.append(f"┌─ {room} {'─' * (WIDTH - len(room) - 5)}┐")
        lines.append(f"│{INDENT}  {down:<{WIDTH - 11 - len(up)}}{up} │")
        lines += (f"│{INDENT}  {line:<{WIDTH - 11}} │" for line in _refusals(room))
        lines.append(f"└{'─' * (WIDTH - 2)}┘")
    return "\n".join([*lines, f"{INDENT}   ▼{'the database':^{WIDTH - 20}}▲"])


def _refusals(room: str) -> list[str]:
    """Return lines with the codes of the errors that *room* makes."""
    kinds = {each.__name__: each.code for each in _kinds(errors.DbtoolsError)}
    made = {
        name for part in room.split(", ") for path in (PACKAGE / part).rglob("*.py") for name in _made(path)
    }
    codes = sorted({kinds[name] for name in made & kinds.keys()} - {errors.ConfigurationError.code})
    return textwrap.wrap(f"may refuse: {', '.join(codes)}", WIDTH - 11)


def _kinds(kind: type[errors.DbtoolsError]) -> Iterator[type[errors.DbtoolsError]]:
    for each in kind.__subclasses__():
        yield each
        yield from _kinds(each)


def _made(path: Path) -> Iterator[str]:
    """Yield what is called, or stands at the beginning of a tuple, in the file at *path*."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=kind) | ast.Tuple(elts=[kind, *_]):
                yield ast.unparse(kind).removeprefix("errors.")
            case _:
                pass
