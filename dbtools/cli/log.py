"""`dbtools log`: the calls in the audit log, for people and for scripts."""

import json
import os
import re
import select
import sys
import time
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import click

from dbtools.cli.options import (
    example,
    has_colours,
    json_option,
    settings_for,
    target_argument,
    width_of,
)

Call = dict[str, Any]
Lines = Generator[bytes | None, None, None]  #: of the log; None whenever there is none yet
OUTCOMES = {"ok": None, "error": "red", "denied": "yellow", "timeout": "magenta", "cancelled": "cyan"}
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
PAUSE = 0.2  #: seconds until the log is looked at again
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


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which calls to show."""

    since: datetime | None
    tools: Collection[str]
    roles: Collection[str]
    outcomes: Collection[str]

    def accepts(self, call: Call) -> bool:
        """Return whether to show *call*."""
        from dbtools.backends.records import moment_of

        time = moment_of(call.get("time")) if self.since else None
        return (
            (not self.tools or any(fnmatchcase(str(call.get("tool")), each) for each in self.tools))
            and (not self.roles or call.get("role") in self.roles)
            and (not self.outcomes or call.get("outcome") in self.outcomes)
            and (self.since is None or (time is not None and time >= self.since))
        )


@click.command(epilog=example("dbtools log dbtools.toml --since 1h --outcome denied"))
@target_argument
@json_option
@click.option("--follow", is_flag=True, help="Go on with the calls that come, until Ctrl-C.")
@click.option("--since", type=Moment(), help="Only calls since then: 90s, 15m, 1h, 2d, or a time.")
@click.option("--tool", "tools", multiple=True, help="Only calls of this tool, or of a pattern: 'list_*'.")
@click.option("--role", "roles", multiple=True, help="Only calls of this role.")
@click.option("--outcome", "outcomes", multiple=True, type=click.Choice([*OUTCOMES]), help="Only such calls.")
def log(target: str | None, as_json: bool, follow: bool, **filters: Any) -> None:
    """Show the calls in the audit log.

    The configuration TARGET says where the log is: in a file, or in a registry.
    """
    wanted, columns = Filter(**filters), Columns()
    shown = skipped = 0
    with closing(_lines(target, as_json, wanted.since)) as lines:
        try:
            for batch in _batches(lines, follow=follow):
                calls = [(line, call) for line in batch if (call := _call(line)) is not None]
                skipped += len(batch) - len(calls)
                calls = [(line, call) for line, call in calls if wanted.accepts(call)]
                texts = [_json(line) for line, _ in calls] if as_json else columns.lines(calls)
                if texts:
                    click.echo("\n".join(texts))
                shown += len(texts)
            if not shown and any(filters.values()):
                click.echo("No calls match.", err=True)
        finally:
            if skipped:
                no_calls = "1 line that is" if skipped == 1 else f"{skipped} lines that are"
                click.echo(f"dbtools: skipped {no_calls} not a call.", err=True)


def _lines(target: str | None, as_json: bool, since: datetime | None) -> Lines:
    """Return the lines of the log that the configuration *target* names."""
    from dbtools.errors import ConfigurationError
    from dbtools.records import follow_file

    settings = settings_for(target)
    if settings.log.registry:
        from dbtools.records.registry import follow_registry

        return follow_registry(settings.registry.url, since or BEGINNING)
    if not settings.log.file:
        raise ConfigurationError(
            "The audit log goes to stderr.", hint="Set [log] file, or [log] registry = true, to keep it."
        )
    if not (as_json or os.path.lexists(settings.log.file)):
        click.echo("No calls yet.", err=True)
    return follow_file(Path(settings.log.file))


def _batches(lines: Lines, *, follow: bool) -> Iterator[list[bytes]]:
    """Yield what is shown together: some lines, or all that there are until more come."""
    while (batch := [*islice(iter(partial(next, lines), None), TOGETHER)]) or follow:
        yield batch
        if not batch:
            _pause()


def _pause() -> None:
    """Wait for more calls, or end if the reader of our output has ended."""
    if not hasattr(select, "poll"):
        time.sleep(PAUSE)
        return
    poll = select.poll()
    poll.register(1, 0)
    if poll.poll(PAUSE * 1_000):
        raise BrokenPipeError


def _call(line: bytes) -> Call | None:
    try:
        call = json.loads(line)
    except ValueError:
        return None
    return call if isinstance(call, dict) else None


def _json(line: bytes) -> str:
    return UNSHOWN.sub(lambda match: f"\\u{ord(match[0]):04x}", line.decode("utf-8", "replace"))


class Columns:
    """Writes calls one below the other; columns grow with their cells, up to a limit."""

    def __init__(self) -> None:
        self._widths = [0] * 6
        self._colours = has_colours(sys.stdout)
        self._room = width_of(sys.stdout)

    def lines(self, calls: Sequence[tuple[bytes, Call]]) -> list[str]:
        """Return the lines of *calls*."""
        from dbtools.cells import json_of, visible

        rows = [
            [_cut(visible(each).translate(ESCAPES), WIDEST) for each in _cells(call)] for _, call in calls
        ]
        for row in rows:
            self._widths = list(map(max, self._widths, map(len, row)))
        lines: list[str] = []
        for row, (_, call) in zip(rows, calls, strict=True):
            head = "  ".join(map(str.ljust, row, self._widths))
            line = _cut(f"{head}  {json_of(call.get('arguments'))}", self._room)
            if self._colours:
                colour = OUTCOMES.get(str(call.get("outcome")))
                line = click.style(line[: len(head)], fg=colour) + click.style(line[len(head) :], dim=True)
            lines.append(line)
        return lines


def _cells(call: Call) -> tuple[str, ...]:
    """Return what is shown of *call* before its arguments."""
    texts = {key: "-" if value is None else str(value) for key, value in call.items()}
    time, role, tool, outcome, rows = (
        texts.get(key, "-") for key in ("time", "role", "tool", "outcome", "rows")
    )
    identity, code, seconds = call.get("identity"), call.get("code"), call.get("duration")
    return (
        time,
        role if identity is None else f"{role} ({identity})",
        tool,
        outcome if code in (None, outcome) else f"{outcome} ({code})",
        rows + "+" * (rows != "-" and bool(call.get("truncated"))),
        f"{seconds * 1_000:.1f} ms" if isinstance(seconds, int | float) else "-",
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
