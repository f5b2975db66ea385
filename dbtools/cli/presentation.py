"""Print tools, findings and answers, for people at a terminal or as JSON for scripts."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dbtools.answers.results import Answer
from dbtools.answers.styles import Listing
from dbtools.cli.options import count_of, has_colours, width_of
from dbtools.errors import listing, series
from dbtools.findings import Finding
from dbtools.service.checking import Review
from dbtools.service.explanation import Explanation
from dbtools.service.snapshot import RoleSnapshot
from dbtools.tools.definition import tokens_of, tool_content
from dbtools.values.cells import escape, json_of

ANY_WIDTH = 1_000_000  #: columns: more than any table has
#: The columns that are not in the middle of the table of described tables, by their places.
PLACES = {"name": 0, "schema": 1, "kind": 2, "comment": 4}
HEADING = ("name", "kind", "row_estimate", "comment", "columns")


def print_tools(view: RoleSnapshot, *, split: bool, listing: Listing) -> None:
    """Print name, title and tokens of each tool that is listed, and of all."""
    parts = ("description", "inputSchema", "outputSchema") if split else ()
    rows: list[list[Any]] = []
    for definition, cost in zip(view.definitions, view.costs, strict=True):
        content = tool_content(definition)
        rows.append([content["name"], content["title"], *(tokens_of(content[part]) for part in parts), cost])
    table = _table(["name", "title", *parts, "tokens"], rows)
    table.columns[0].no_wrap = True
    for column in table.columns[2:]:
        column.justify = "right"
    table.add_section()
    costs = zip(view.costs, (definition.name for definition in view.definitions), strict=True)
    totals = [sum(row[place] for row in rows) for place in range(2, len(parts) + 3)]
    table.add_row(*map(_text, [count_of(len(rows), "tool"), "", *totals]))
    _print(table)
    if lines := [*view.replacement_notes(listing)]:
        _print("\n".join(lines))
    # Tools without a group are listed beside the budget.
    elif (taken := sum(cost for cost, name in costs if view.tools[name].group)) > listing.budget:
        _print(f"The tools cost {taken:,} tokens, more than [tools] budget ({listing.budget:,}).")


def review_content(found: Review, steps: Sequence[Finding] = ()) -> Mapping[str, object]:
    """Return *found*, and the problems among *steps*, as `dbtools check --json` prints them."""
    findings = (*found.findings, *(each for each in steps if each.level != "ok"))
    content: dict[str, object] = {
        "findings": [
            {"level": each.level, "code": each.code, **asdict(each.source), "message": each.message}
            for each in findings
        ]
    }
    if found.queries:
        content["queries"] = {name: asdict(facts) for name, facts in found.queries.items()}
    if found.views:
        content["views"] = found.views
    if found.changes is not None:
        content["changes"] = {role: asdict(change) for role, change in found.changes.items()}
    return content


def print_review(found: Review, steps: Sequence[Finding] = ()) -> None:
    """Print each finding and each of *steps* on a line, what should be known, and a migration's changes."""
    lines = [str(finding) for finding in (*steps, *found.findings)] or ["No problems found."]
    for name, facts in found.queries.items():
        does = (f"reads {escape(', '.join(facts.reads)) or 'no table'}", *map(escape, facts.changes))
        lines.append(f"The query {name} {series(does)}.")
        unseen = facts.unseen.items()
        lines += [
            f"The role {role} may call {name}, although it reads {escape(series(what))}."
            for role, what in unseen
        ]
    for role, views in found.views.items():
        lines.append(
            f"The patterns of the role {role} do not grant views that may show what it does not see: "
            f"{escape(listing(views))}. Name those that it may see."
        )
    if found.changes is not None:
        changes = [
            f"role {role}: {what}: {', '.join(names)}"
            for role, change in found.changes.items()
            for what, names in asdict(change).items()
            if names
        ]
        lines += changes or ["The migration changes no tool."]
    sys.stdout.write("\n".join(lines) + "\n")


def print_explanation(found: Explanation) -> None:
    """Print whether the call is allowed, by which rule, and its statement."""
    verdict = "allowed" if found.allowed else "denied" if found.valid else "invalid"
    place = f" ({found.rule.file}:{found.rule.line})" if found.rule.file else ""
    _print(f"{verdict}{place}: {found.reason}")
    if found.sql is not None:
        _print(found.sql)
        _print(f"parameters: {json_of(found.content()['parameters'])}")


def print_entries(rows: Sequence[Mapping[str, object]]) -> None:
    """Print name, version, state and description of the queries of a registry."""
    columns = ("name", "version", "enabled", "description")
    _print(_table(columns, [[row[column] for column in columns] for row in rows]))
    _print(count_of(len(rows), "query", "queries"))


def print_answer(answer: Answer) -> None:
    """Print *answer* as a table, with its notes below."""
    structured = answer.structured
    match structured:
        case _ if answer.pending is not None:
            _print(answer.pending.question)
        case {"columns": list(columns), "rows": list(rows)}:
            _print_rows([str(column) for column in columns], rows)
            more = ", and there are more" if structured.get("truncated") else ""
            _print(f"{count_of(len(rows), 'row')}{more}")
        case {"row": dict(row)}:
            _print(_table(["column", "value"], [*row.items()]))
        case {"tables": list(tables), "table_count": int(count)}:
            _print_tables(tables)
            shown = f"{len(tables):,} of " if len(tables) < count else ""
            _print(shown + count_of(count, "table"))
        case _:
            _print(json.dumps(structured, indent=2, ensure_ascii=False))
    for name in ("confirm", "note", "next_cursor"):
        if name in structured:
            _print(f"{name}: {structured[name]}")


def _print_rows(columns: Sequence[str], rows: Sequence[Any]) -> None:
    """Print *rows* as a table if they fit, otherwise one field on each line."""
    table = _table(columns, rows)
    console = _console()
    if console.measure(table, options=console.options.update_width(ANY_WIDTH)).maximum <= console.width:
        _print(table)
        return
    for number, row in enumerate(rows, start=1):
        _print(_table([f"row {number}", ""], [*zip(columns, row, strict=True)]))
        _print("")


def _print_tables(tables: Sequence[Mapping[str, Any]]) -> None:
    """Print *tables* as one table, or, if they have columns, one after the other."""
    if not any("columns" in table for table in tables):
        _print(_records(tables))
        return
    for table in tables:
        rows = f"about {count_of(table['row_estimate'], 'row')}" if "row_estimate" in table else ""
        what = ", ".join(filter(None, [table.get("kind"), rows]))
        comment = f": {table['comment']}" if "comment" in table else ""
        _print(f"{table['name']} ({what}){comment}", style="bold")
        _print(_records([each if isinstance(each, dict) else {"column": each} for each in table["columns"]]))
        for name, value in table.items():
            if name not in HEADING:
                _print(f"{name}: {_list_text(value)}")
        _print("")


def _records(records: Sequence[Mapping[str, object]]) -> Table:
    """Return *records* as a table of all keys that any of them has."""
    found = dict.fromkeys(key for record in records for key in record)
    keys = sorted(found, key=lambda key: PLACES.get(key, 3))
    return _table(keys, [[_list_text(record.get(key, "")) for key in keys] for record in records])


def _list_text(value: object) -> object:
    """Return an array or an object as text with commas, anything else as it is."""
    match value:
        case list():
            return ", ".join(
                f"({_list_text(each)})" if isinstance(each, list) else str(each) for each in value
            )
        case dict():
            return ", ".join(f"{name} → {target}" for name, target in value.items())
        case _:
            return value


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(_plain_text(column), overflow="fold")
    for row in rows:
        table.add_row(*map(_text, row))
    return table


def _text(cell: object) -> Text:
    match cell:
        case None:
            return Text("null", style="dim")
        case str():
            return _plain_text(cell)
        case bool() | list() | dict():
            return _plain_text(json_of(cell))
        case _:
            return Text(str(cell))


def _plain_text(text: str, style: str = "") -> Text:
    """Return *text* without escape sequences."""
    return Text(escape(text).replace("\r", "\\r"), style=style)


def _console() -> Console:
    return Console(
        width=width_of(sys.stdout),
        color_system="auto" if has_colours(sys.stdout) else None,
        highlight=False,
        emoji=False,
    )


def _print(content: Table | str, style: str = "") -> None:
    console = _console()
    # The terminal wraps lines of text itself, so that they can be copied whole.
    with console.capture() as captured:
        console.print(
            _plain_text(content, style) if isinstance(content, str) else content,
            soft_wrap=isinstance(content, str),
        )
    lines = [line.rstrip() for line in captured.get().splitlines()]
    sys.stdout.write("\n".join(lines) + "\n")
