"""Tools and answers for people at a terminal, and as JSON for scripts."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dbtools.cells import json_of, visible
from dbtools.cli.terminal import has_colours, width_of
from dbtools.policy import Finding
from dbtools.results import Answer, Surface
from dbtools.service.checking import Review, RoleChange
from dbtools.service.explanation import Explanation
from dbtools.service.snapshot import View
from dbtools.tools.definition import ToolDefinition, tokens_of, tool_content

MEASURED = 1_000_000  #: columns of what is measured: more than any table has
#: Where keys stand that do not stand in the middle.
PLACES = {"name": 0, "schema": 1, "kind": 2, "comment": 4}


def tools_json(definitions: Sequence[ToolDefinition]) -> str:
    """Return the array of `tools/list`, with `tokens` beside each."""
    contents = [tool_content(definition) for definition in definitions]
    return json.dumps([{**content, "tokens": tokens_of(content)} for content in contents], indent=2)


def print_tools(view: View, *, split: bool, budget: int) -> None:
    """Print name, title and tokens of each tool that is listed, and of all."""
    contents = [tool_content(definition) for definition in view.definitions]
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    parts = ("description", "inputSchema", "outputSchema") if split else ()
    table.add_column("name", no_wrap=True)
    table.add_column("title")
    for heading in (*parts, "tokens"):
        table.add_column(heading, justify="right")
    each = zip(contents, view.costs, strict=True)
    costs = [[*(tokens_of(content[part]) for part in parts), cost] for content, cost in each]
    for content, cost in zip(contents, costs, strict=True):
        table.add_row(*map(_text, [content["name"], content["title"], *cost]))
    table.add_section()
    totals = map(sum, zip([0] * (len(parts) + 1), *costs, strict=True))
    table.add_row(*map(_text, [counted(len(contents), "tool"), "", *totals]))
    _print(table)
    if view.surface is Surface.GENERIC and view.catalog.tables:
        told = "list_T and get_T of each table can be called too; [tools] style, budget and pin list them."
        _print(Text(told))
    elif (taken := view.cost_of_tables) > budget:
        told = f"The definitions of tables take {taken:,} tokens, over the budget of {budget:,}"
        _print(Text(f"{told} ([tools] budget)."))


def review_json(found: Review, steps: Sequence[Finding] = ()) -> str:
    """Return *found*, and what is wrong in *steps*, as `dbtools check --json` prints it."""
    findings = (*found.findings, *(each for each in steps if each.level != "ok"))
    shown = [
        {"level": each.level, "code": each.code, **asdict(each.source), "message": each.message}
        for each in findings
    ]
    queries = {name: {"reads": list(reads)} for name, reads in found.reads.items()}
    content: dict[str, object] = {"findings": shown} | ({"queries": queries} if queries else {})
    if found.changes is not None:
        content["changes"] = {role: asdict(change) for role, change in found.changes.items()}
    return visible(json.dumps(content, indent=2, ensure_ascii=False))


def print_review(found: Review, steps: Sequence[Finding] = ()) -> None:
    """Print each finding and each of *steps* on a line, what queries read, and a migration's changes."""
    lines = [str(finding) for finding in (*steps, *found.findings)] or ["All is well."]
    for name, reads in found.reads.items():
        lines.append(f"The query {name} reads {visible(', '.join(reads)) or 'no table'}.")
    if found.changes is not None:
        lines += list(_change_lines(found.changes)) or ["The migration changes no tool."]
    sys.stdout.write("\n".join(lines) + "\n")


def _change_lines(changes: Mapping[str, RoleChange]) -> Iterator[str]:
    for role, change in changes.items():
        for what, names in asdict(change).items():
            if names:
                yield f"role {role}: {what}: {', '.join(names)}"


def content_json(content: Mapping[str, object]) -> str:
    """Return *content* as `dbtools call` and `dbtools explain` print it with --json."""
    return json_of(dict(content))


def print_explanation(found: Explanation) -> None:
    """Print whether the call is allowed, by which rule, and its statement."""
    place = f" ({found.rule.file}:{found.rule.line})" if found.rule.file else ""
    _print(_plain(f"{'allowed' if found.allowed else 'denied'}{place}: {found.reason}"))
    if found.sql is not None:
        _print(_plain(found.sql))
        _print(_plain(f"parameters: {json_of(list(found.parameters))}"))


def rows_json(rows: Sequence[Mapping[str, object]]) -> str:
    """Return *rows* as a JSON array of objects."""
    return visible(json.dumps(list(rows), indent=2, ensure_ascii=False))


def print_entries(rows: Sequence[Mapping[str, object]]) -> None:
    """Print name, version, state and description of the queries of a registry."""
    columns = ("name", "version", "enabled", "description")
    _print(_table(columns, [[_yes_or_no(row[column]) for column in columns] for row in rows]))
    _print(Text(counted(len(rows), "query", "queries")))


def _yes_or_no(value: object) -> object:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


def print_answer(answer: Answer) -> None:
    """Print *answer* as a table, and below it what is to be known of it."""
    structured = answer.structured
    match structured:
        case {"columns": list(columns), "rows": list(rows)}:
            _print_rows([str(column) for column in columns], rows)
            more = ", and there are more" if structured.get("truncated") else ""
            _print(Text(f"{counted(len(rows), 'row')}{more}"))
        case {"row": dict(row)}:
            _print(_table(["column", "value"], [list(pair) for pair in row.items()]))
        case {"tables": list(tables), "table_count": int(count)}:
            _print_tables(tables)
            shown = f"{len(tables):,} of " if len(tables) < count else ""
            _print(Text(shown + counted(count, "table")))
        case _:
            _print(_plain(json.dumps(structured, indent=2, ensure_ascii=False)))
    for name in ("note", "next_cursor"):
        if name in structured:
            _print(_plain(f"{name}: {structured[name]}"))


def _print_tables(tables: Sequence[Mapping[str, Any]]) -> None:
    """Print what is said of *tables*: side by side, or one after the other where their columns are told."""
    if not any("columns" in table for table in tables):
        _print(_records(tables))
        return
    for table in tables:
        rows = f"about {counted(table['row_estimate'], 'row')}" if "row_estimate" in table else ""
        what = ", ".join(filter(None, [table.get("kind"), rows]))
        comment = f": {table['comment']}" if "comment" in table else ""
        _print(_plain(f"{table['name']} ({what}){comment}", style="bold"))
        columns = table["columns"]
        is_full = any(isinstance(column, dict) for column in columns)
        _print(_records(columns) if is_full else _table(["column"], [[column] for column in columns]))
        for name in ("key", "unique", "references", "relations", "referenced_by", "column_count"):
            if name in table:
                _print(_plain(f"{name}: {_listed(table[name])}"))
        _print(Text())


def _records(records: Sequence[Mapping[str, object]]) -> Table:
    """Return *records* as a table of all keys that any of them has."""
    keys = sorted(dict.fromkeys(key for record in records for key in record), key=_place)
    rows = [[_listed(_yes_or_no(record.get(key, ""))) for key in keys] for record in records]
    return _table(keys, rows)


def _place(key: str) -> int:
    return PLACES.get(key, 3)


def _listed(value: object) -> object:
    """Return an array or an object as text with commas, anything else as it is."""
    match value:
        case list():
            return ", ".join(f"({_listed(each)})" if isinstance(each, list) else str(each) for each in value)
        case dict():
            return ", ".join(f"{name} → {target}" for name, target in value.items())
        case _:
            return value


def counted(count: int, noun: str, nouns: str = "") -> str:
    """Return *count* with its *noun*, whose plural is *nouns*, or as most are."""
    return f"1 {noun}" if count == 1 else f"{count:,} {nouns or noun + 's'}"


def _print_rows(columns: Sequence[str], rows: Sequence[object]) -> None:
    """Print *rows* side by side where they fit, else one field on each line."""
    cells = [[row[name] for name in columns] if isinstance(row, dict) else row for row in rows]
    table = _table(columns, cells)
    console = _console()
    if console.measure(table, options=console.options.update_width(MEASURED)).maximum <= console.width:
        _print(table)
        return
    for number, row in enumerate(cells, start=1):
        assert isinstance(row, list)
        pairs = [[name, cell] for name, cell in zip(columns, row, strict=True)]
        _print(_table([f"row {number}", ""], pairs))
        _print(Text())


def _table(columns: Sequence[str], rows: Sequence[object]) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(_plain(column), overflow="fold")
    for row in rows:
        assert isinstance(row, list)
        table.add_row(*map(_text, row))
    return table


def _text(cell: object) -> Text:
    match cell:
        case None:
            return Text("null", style="dim")
        case str():
            return _plain(cell)
        case bool() | list() | dict():
            return _plain(json_of(cell))
        case _:
            return Text(str(cell))


def _plain(text: str, style: str = "") -> Text:
    """Return *text* without what a terminal would obey."""
    return Text(visible(text).replace("\r", "\\r"), style=style)


def _console() -> Console:
    return Console(
        width=width_of(sys.stdout),
        color_system="auto" if has_colours(sys.stdout) else None,
        highlight=False,
        emoji=False,
    )


def _print(content: Table | Text) -> None:
    console = _console()
    # The terminal breaks lines of text itself: copied, they are whole.
    with console.capture() as captured:
        console.print(content, soft_wrap=isinstance(content, Text))
    lines = [line.rstrip() for line in captured.get().splitlines()]
    sys.stdout.write("\n".join(lines) + "\n")
