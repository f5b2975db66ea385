"""`dbtools log`: the calls in the audit log, for people and for scripts."""

import json
import os
import re
import sys
import time
from collections.abc import Collection, Generator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from dbtools.cli.options import (
    count_of,
    example,
    has_colours,
    json_option,
    settings_for,
    target_argument,
    width_of,
)

LoggedCall = Mapping[str, Any]
Lines = Generator[bytes | None, None, None]  #: of the log; None whenever there is none yet
OUTCOMES = {"ok": None, "error": "red", "denied": "yellow", "timeout": "magenta", "cancelled": "cyan"}
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
POLL_INTERVAL = 0.2  #: seconds between two polls of the log
WIDTHS = (24, 16, 20, 18, 5, 10)  #: of the columns before the arguments
#: Characters that a terminal interprets or reorders, and for which JSON has an escape.
UNSHOWN = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
ESCAPES = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r"})


def _moment(_: click.Context, __: click.Parameter, text: str | None) -> datetime | None:
    """Return the time that *text* means: RFC 3339, or a duration before now."""
    from dbtools.backends.records import moment_of

    if text is None:
        return None
    ago = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhd])", text)
    try:
        moment = datetime.now(UTC) - timedelta(**{UNITS[ago[2]]: float(ago[1])}) if ago else moment_of(text)
    except OverflowError:
        moment = None
    if moment is None:
        wanted = "a period such as 90s, 15m, 1h or 2d, or a time such as 2026-03-01T12:00:00Z"
        raise click.BadParameter(f"{text!r} must be {wanted}.")
    return moment


@click.command(epilog=example("dbtools log dbtools.toml --since 1h --outcome denied"))
@target_argument
@json_option
@click.option("--follow", is_flag=True, help="Wait for more calls, until Ctrl-C.")
@click.option(
    "--since",
    metavar="TIME",
    callback=_moment,
    help="Only calls since TIME: a timestamp, or a period such as 90s, 15m, 1h or 2d.",
)
@click.option(
    "--tool", "tools", multiple=True, help="Only calls of this tool; may be a pattern such as 'list_*'."
)
@click.option("--role", "roles", multiple=True, help="Only calls of this role.")
@click.option(
    "--outcome",
    "outcomes",
    multiple=True,
    type=click.Choice([*OUTCOMES]),
    help="Only calls with this outcome.",
)
@click.option(
    "--writes", is_flag=True, help="Only calls that change rows, including refused calls and dry runs."
)
def log(target: str | None, as_json: bool, follow: bool, **filters: Any) -> None:
    """Show the calls in the audit log.

    The configuration TARGET says where the log is: in a file, or in a registry.
    """
    shown = skipped = 0
    with closing(_lines(target, as_json, filters["since"])) as lines:
        try:
            for line in lines:
                if line is None:
                    if not follow:
                        break
                    time.sleep(POLL_INTERVAL)
                elif (call := _call(line)) is None:
                    skipped += 1
                elif _is_wanted(call, **filters):
                    click.echo(_json(line) if as_json else _row(call))
                    shown += 1
            if not shown and any(filters.values()):
                click.echo("No calls match.", err=True)
        finally:
            if skipped:
                no_calls = count_of(skipped, "line that is", "lines that are")
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


def _call(line: bytes) -> LoggedCall | None:
    try:
        call = json.loads(line)
    except ValueError:
        return None
    return call if isinstance(call, dict) else None


def _is_wanted(
    call: LoggedCall,
    *,
    since: datetime | None,
    tools: Collection[str],
    roles: Collection[str],
    outcomes: Collection[str],
    writes: bool,
) -> bool:
    """Return whether *call* passes the filters."""
    from dbtools.backends.records import moment_of

    moment = moment_of(call.get("time")) if since else None
    return (
        (not tools or any(fnmatchcase(str(call.get("tool")), each) for each in tools))
        and (not roles or call.get("role") in roles)
        and (not outcomes or call.get("outcome") in outcomes)
        and (not writes or call.get("dry_run") is not None)
        and (since is None or (moment is not None and moment >= since))
    )


def _json(line: bytes) -> str:
    return UNSHOWN.sub(lambda match: f"\\u{ord(match[0]):04x}", line.decode("utf-8", "replace"))


def _row(call: LoggedCall) -> str:
    """Return *call* as one line, as wide as a terminal at most."""
    from dbtools.values.cells import escape, json_of

    cells = (escape(each).translate(ESCAPES) for each in _cells(call))
    head = "  ".join(map(str.ljust, cells, WIDTHS))
    line = f"{head}  {json_of(call.get('changes') or call.get('arguments'))}"
    if len(line) > (room := width_of(sys.stdout)):
        line = f"{line[: room - 1]}…"
    if not has_colours(sys.stdout):
        return line
    colour = OUTCOMES.get(str(call.get("outcome")))
    return click.style(line[: len(head)], fg=colour) + click.style(line[len(head) :], dim=True)


def _cells(call: LoggedCall) -> tuple[str, ...]:
    """Return what is shown of *call* before its arguments."""
    time, role, tool, outcome, rows = (
        "-" if call.get(key) is None else str(call[key])
        for key in ("time", "role", "tool", "outcome", "rows")
    )
    affected = call.get("affected")
    rows += "+" * (rows != "-" and bool(call.get("truncated")))
    identity, code, seconds = call.get("identity"), call.get("code"), call.get("duration")
    remarks = [str(code)] * (code not in (None, outcome)) + ["dry run"] * (call.get("dry_run") is True)
    if (confirmed := call.get("confirmed")) is not None:
        remarks = [str(confirmed)] if confirmed == "declined" else [*remarks, str(confirmed)]
    return (
        time,
        role if identity is None else f"{role} ({identity})",
        tool,
        f"{outcome} ({', '.join(remarks)})" if remarks else outcome,
        rows if affected is None else str(affected),
        f"{seconds * 1_000:.1f} ms" if isinstance(seconds, int | float) else "-",
    )
