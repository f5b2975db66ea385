"""`dbtools log`: the calls that were logged, for people and for scripts."""

import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dbtools.cli.options import (
    example,
    has_colours,
    json_option,
    settings_for,
    target_argument,
    waiting,
    width_of,
)

if TYPE_CHECKING:
    from dbtools.records import FileReader, Stored
    from dbtools.records.registry import RegistryReader

OUTCOMES = {"ok": None, "error": "red", "denied": "yellow", "timeout": "magenta", "cancelled": "cyan"}
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
PAUSE = 0.2  #: seconds until the file is looked at again
TOGETHER = 200  #: calls that are aligned
WIDEST = 40  #: characters of a column
#: What a terminal obeys or reorders, and JSON has an escape for.
UNSHOWN = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
ESCAPES = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})


class Moment(click.ParamType[datetime]):
    """A time: RFC 3339, or so long ago."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return the time that *value* means, or fail."""
        from dbtools.backends.records import moment_of

        text = str(value).strip()
        ago = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd])", text)
        try:
            moment = (
                datetime.now(UTC) - timedelta(**{UNITS[ago[2]]: float(ago[1])}) if ago else moment_of(text)
            )
        except OverflowError:
            moment = None
        if moment is None:
            self.fail(f"{text!r} is neither 90s, 15m, 1h or 2d nor a time such as 2026-03-01T12:00:00Z.")
        return moment


@click.command(epilog=example("dbtools log dbtools.toml --since 1h --outcome denied"))
@target_argument
@json_option
@click.option("--follow", is_flag=True, help="Go on with the calls that come, until Ctrl-C.")
@click.option("--since", type=Moment(), help="Only calls since then: 90s, 15m, 1h, 2d, or a time.")
@click.option("--tool", "tools", multiple=True, help="Only calls of this tool, or of a pattern: 'list_*'.")
@click.option("--role", "roles", multiple=True, help="Only calls of this role.")
@click.option("--outcome", "outcomes", multiple=True, type=click.Choice([*OUTCOMES]), help="Only such calls.")
def log(
    target: str | None,
    as_json: bool,
    follow: bool,
    since: datetime | None,
    tools: tuple[str, ...],
    roles: tuple[str, ...],
    outcomes: tuple[str, ...],
) -> None:
    """Show the calls in the audit log.

    The configuration TARGET says where the log is: in a file, or in a registry.
    """
    from dbtools.backends.records import moment_of

    reader = _reader(target, as_json, since)

    def is_wanted(call: dict[str, object]) -> bool:
        return (
            (not tools or any(fnmatchcase(str(call.get("tool")), each) for each in tools))
            and (not roles or call.get("role") in roles)
            and (not outcomes or call.get("outcome") in outcomes)
            and (since is None or ((time := moment_of(call.get("time"))) is not None and time >= since))
        )

    lines_of = _json_lines if as_json else Columns().lines
    try:
        with closing(reader.follow()) as found:
            entries = found if follow else iter(partial(next, found), None)
            wanted = (each for each in entries if each is None or is_wanted(each.call))
            groups = _together(wanted)
            with waiting("Waiting for calls" if follow else "Reading the log"):
                first = list(islice(groups, 1))
            if not first and not follow and (tools or roles or outcomes or since):
                click.echo("No calls match.", err=True)
            for calls in chain(first, groups):
                click.echo("\n".join(lines_of(calls)))
    finally:
        if reader.skipped:
            lines = "1 line that holds" if reader.skipped == 1 else f"{reader.skipped} lines that hold"
            click.echo(f"dbtools: skipped {lines} no call.", err=True)


def _reader(target: str | None, as_json: bool, since: datetime | None) -> "FileReader | RegistryReader":
    from dbtools.errors import ConfigurationError
    from dbtools.records import FileReader

    settings = settings_for(target)
    if settings.log.registry:
        from dbtools.records.registry import RegistryReader

        return RegistryReader(settings.registry.url, since or BEGINNING)
    if not settings.log.file:
        raise ConfigurationError(
            "The call log goes to stderr.",
            hint="[log] file of a configuration names a file for it; [log] registry = true keeps it, too.",
        )
    if not (as_json or os.path.lexists(settings.log.file)):
        click.echo("No calls yet.", err=True)
    return FileReader(Path(settings.log.file), settings.log.keep)


def _json_lines(calls: "Iterable[Stored]") -> Iterator[str]:
    for each in calls:
        line = each.line.decode("utf-8", "replace")
        yield UNSHOWN.sub(lambda match: f"\\u{ord(match[0]):04x}", line)


def _together(found: "Iterable[Stored | None]") -> "Iterator[list[Stored]]":
    """Yield what can be printed together: some calls, or all that there are until more come."""
    calls: list[Stored] = []
    for each in found:
        if each is not None:
            calls.append(each)
        if calls and (each is None or len(calls) == TOGETHER):
            yield calls
            calls = []
        if each is None:
            _pause()
    if calls:
        yield calls


def _pause() -> None:
    """Wait for more calls, or end where nobody reads any more."""
    if not hasattr(select, "poll"):
        time.sleep(PAUSE)
        return
    poll = select.poll()
    poll.register(1, 0)
    if poll.poll(PAUSE * 1_000):
        raise BrokenPipeError


class Columns:
    """Writes calls one below the other; columns get wider with what stands in them, up to a limit."""

    def __init__(self) -> None:
        self._widths = [0] * len(COLUMNS)
        self._colours = has_colours(sys.stdout)
        self._room = width_of(sys.stdout)

    def lines(self, found: "Iterable[Stored]") -> Iterator[str]:
        """Yield the line of each call that was *found*."""
        calls = [each.call for each in found]
        rows = [[_cut(_shown(text(call)), WIDEST) for text, _ in COLUMNS] for call in calls]
        self._widths = [
            max(width, *map(len, texts))
            for width, texts in zip(self._widths, zip(*rows, strict=True), strict=True)
        ]
        for call, row in zip(calls, rows, strict=True):
            cells = [
                text.rjust(width) if right else text.ljust(width)
                for text, width, (_, right) in zip(row, self._widths, COLUMNS, strict=True)
            ]
            head = "  ".join(cells)
            line = _cut(f"{head}  {_arguments(call)}", self._room)
            yield self._coloured(line, len(head), call)

    def _coloured(self, line: str, head: int, call: dict[str, object]) -> str:
        colour = OUTCOMES.get(str(call.get("outcome")))
        if not self._colours:
            return line
        return click.style(line[:head], fg=colour) + click.style(line[head:], dim=True)


def _text(call: dict[str, object], key: str) -> str:
    value = call.get(key)
    return "-" if value is None else str(value)


def _outcome(call: dict[str, object]) -> str:
    outcome, code = _text(call, "outcome"), call.get("code")
    return outcome if code in (None, outcome) else f"{outcome} ({code})"


def _role(call: dict[str, object]) -> str:
    identity = call.get("identity")
    return _text(call, "role") + (f" ({identity})" if identity is not None else "")


def _rows(call: dict[str, object]) -> str:
    rows = call.get("rows")
    return "-" if rows is None else f"{rows}{'+' if call.get('truncated') else ''}"


def _duration(call: dict[str, object]) -> str:
    seconds: Any = call.get("duration")
    return f"{seconds * 1_000:.1f} ms" if isinstance(seconds, int | float) else "-"


#: What is shown of a call before its arguments, and whether at the right.
COLUMNS: tuple[tuple[Callable[[dict[str, object]], str], bool], ...] = (
    (lambda call: _text(call, "time"), False),
    (_role, False),
    (lambda call: _text(call, "tool"), False),
    (_outcome, False),
    (_rows, True),
    (_duration, True),
)


def _arguments(call: dict[str, object]) -> str:
    from dbtools.cells import json_of

    return json_of(call.get("arguments"))


def _shown(text: str) -> str:
    from dbtools.cells import visible

    return visible(text).translate(ESCAPES)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
