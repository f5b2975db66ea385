"""The call of a tool that changes rows. What was changed in; an answer, or a question for a person, out."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, repeat

from dbtools import errors
from dbtools.answers.results import Answer, Budget, Changed, Pending, Reserve, ResultSet
from dbtools.errors import listing
from dbtools.queries.headers import OF_CHANGES
from dbtools.schema.catalog import Table
from dbtools.statements.select import Statement
from dbtools.statements.write import RowKeys, Transaction, Write, WriteKind, chooses, pair_rows, without_none
from dbtools.tools.calls import Call
from dbtools.tools.definition import ToolContext
from dbtools.tools.get_row import Lookup, key_arguments
from dbtools.tools.meanings import Meanings
from dbtools.values.cells import one_line, size

NOTHING_CHANGED = "Dry run: nothing was changed."
TO_CONFIRM = "Nothing was changed yet. If the user agrees, repeat the call with this token as confirm."
INSIDE = "In run_query, put it into arguments."
CHANGED_SINCE = "The call would no longer make the change that was confirmed."
NO_MATCH = "No row matches where."
NO_CHANGE = "The query changed no row."
UNCHECKED = "Deferred foreign keys were not checked."
PREPOSITIONS = {WriteKind.INSERT: "into", WriteKind.UPDATE: "of", WriteKind.DELETE: "from"}
MOST_ASKED = 10  #: rows of a question
LONGEST_ASKED = 200  #: characters of a cell in a question
LONGEST_LINE, SHORTEST = 1_000, 10  #: characters of all cells of a row in a question, and at least of each


@dataclass(frozen=True, kw_only=True)
class ChangeCall(Call[Answer]):
    """A call that changes rows of a table, or by a query, with a transaction instead of a statement."""

    context: ToolContext
    transaction: Transaction
    table: Table | None = None
    query: str = ""  #: its name; it may be called by two tools
    arguments: Mapping[str, object] = field(default_factory=dict)  #: of the query
    meanings: Meanings | None = None  #: of the conditions that choose the rows
    counts: Sequence[ResultSet] = ()  #: of the rows that these leave out, before the change

    @property
    def inquiries(self) -> Sequence[Statement]:
        """The statements that count the rows that the conditions leave out."""
        return () if self.meanings is None else self.meanings.statements

    def reread_statements(self, keys: RowKeys | None) -> Sequence[Statement]:
        """Return the statements that read the rows with *keys*, which an earlier call has changed.

        Raise NoRow if the role does not see this key now.
        """
        shape, _ = self.transaction.writes[0]
        if self.table is None:
            return ()
        lookup = Lookup(context=self.context, table=self.table, keys=key_arguments(self.table))
        columns = tuple(column.name for column in lookup.keys.values())
        if keys is None or (keys.table, keys.columns) != (self.table.location, columns):
            raise errors.NoRow
        found = (lookup.statement(key) for key in keys.rows)
        return [replace(each, shape=replace(each.shape, outputs=shape.outputs)) for each in found]

    def render(self, found: Changed) -> Answer:
        """Return the answer with the rows that were changed."""
        budget = self.context.budgets[Reserve.ROWS]
        content, count, notes = self._content(found, budget)
        note = f"{NOTHING_CHANGED * found.dry_run} {notes}".strip()
        truncated = count < len(found.rows)
        return budget.answer(content, rows=count, truncated=truncated, note=note, changed=found)

    def render_pending(self, found: Changed, token: str, expires_in: int, *, is_outdated: bool) -> Answer:
        """Return the answer with the preview *found*, and the *token* that confirms it."""
        budget = self.context.budgets[Reserve.ROWS]
        budget = replace(budget, reserved=budget.reserved + 2 * len(token))
        preview, count, notes = self._content(found, budget)
        content = {
            "affected": 0,
            "confirm": token,
            "expires_in": expires_in,
            "preview": {**preview, **({"note": notes} if notes else {})},
        }
        outdated = [CHANGED_SINCE] * is_outdated
        return budget.answer(
            content,
            rows=count,
            truncated=count < len(found.rows),
            note=" ".join([*outdated, TO_CONFIRM, *[INSIDE] * bool(self.query)]),
            changed=found,
            pending=Pending(token=token, question="\n".join([*outdated, *self._question(found)])),
        )

    def _content(self, found: Changed, budget: Budget) -> tuple[Mapping[str, object], int, str]:
        """Return the content of an answer within *budget*, how many rows it has, and notes on it."""
        names = [output.term.name for output in found.outputs]
        before: Mapping[str, object] = {}
        if found.before and found.dry_run:
            half = replace(budget, reserved=budget.reserved + budget.room // 2)
            fitting = _rows_that_fit(half, replace(found, rows=without_none(found.before)), names)
            before = {"before": list(pair_rows(fitting, found.before))}
            budget = replace(budget, reserved=budget.reserved + size(before))
        rows = _rows_that_fit(budget, found, names)
        content = {
            "affected": found.affected,
            "dry_run": found.dry_run,
            "columns": names,
            "rows": rows,
            **before,
        }
        return content, len(rows), " ".join(filter(None, self._notes(found, len(rows))))

    def _notes(self, found: Changed, count: int) -> Sequence[str]:
        """Return notes on an answer with *count* of the rows of *found*."""
        made = ""
        if found.earlier is not None:
            moment = datetime.fromtimestamp(found.earlier.seconds, UTC).isoformat().replace("+00:00", "Z")
            rows = "the rows are as they are now" if found.earlier.keys is not None else "rows are not shown"
            made = f"An earlier call with this idempotency_key made the change at {moment}; {rows}."
        total = len(found.rows)
        left = f"Only {count} of {total} rows fit into the answer." if count < total else ""
        return [
            made,
            NO_MATCH * (found.affected == 0 and chooses(found.shape)),
            NO_CHANGE * (found.affected == 0 and bool(self.query)),
            self.meanings.note(self.counts) if self.meanings and not found.earlier else "",
            _upsert_note(found),
            _ignored_note(found),
            _left_rows_note(found),
            UNCHECKED * (found.unchecked and found.dry_run),  # COMMIT checks them
            self._other_changes_note(found),
            left,
        ]

    def _question(self, found: Changed) -> Sequence[str]:
        """Return the lines that tell a person what would happen."""
        shape = found.shape
        rows, before = found.records(MOST_ASKED)
        head = [self._request(found), _ignored_note(found)]
        key: Sequence[str] = ()
        written: Collection[str] = ()
        if isinstance(shape, Write):
            key = [name for name in shape.writes.key if name in shape.table.column_by_name]
            written = {column.name for column in (shape.instead or shape).written}
        lines = [
            _cells(row, row) if old is None else _difference(key, written, old, row)
            for row, old in zip(rows, chain(before, repeat(None)), strict=False)
        ]
        lines += [f"{_cells(row, row)} → hidden from you" for row in found.left_records(MOST_ASKED)]
        more = len(found.rows) + len(found.left) - len(lines)
        lines += [f"… and {more:,} more, which are not shown"] * (more > 0)
        return [one_line(line) for line in (*head, *lines, self._other_changes_note(found)) if line]

    def _request(self, found: Changed) -> str:
        """Return what *found* asks a person to allow."""
        if self.table is not None:
            return f"{_changes(found)} {self.context.title_of(self.table)}?"
        given = {name: each for name, each in self.arguments.items() if name not in OF_CHANGES}
        with_them = f" with {_cells(given, given)}" if given else ""
        number = f"{found.affected} row{'s' * (found.affected != 1)}"
        return f"Run the query {self.query}{with_them}, which changes {number}?"

    def _other_changes_note(self, found: Changed) -> str:
        """Return what else changes: rows of tables that the role sees whole and, in a preview, others."""
        catalog, own = self.context.catalog, self.table and self.table.location
        parts: list[str] = []
        hidden = False
        for places, number in () if found.earlier else found.elsewhere:
            tables = [catalog.table(*place) for place in sorted(places)]
            whole = [each for each in tables if each is not None and each.filter is None]
            if len(whole) < len(places):
                hidden = True
                continue
            labels = (catalog.label(each) + " besides" * (each.location == own) for each in whole)
            parts.append(f"{number:,} row{'s' * (number > 1)} of {listing(labels)}")
        parts += ["rows elsewhere"] if hidden and found.dry_run else []
        change = "would change" if found.dry_run else "changed"
        return f"Triggers and foreign keys {change} {' and '.join(parts)}." if parts else ""


def _upsert_note(found: Changed) -> str:
    """Return how many rows an upsert has inserted and updated, if it has updated any."""
    updated = len(without_none(found.before))
    is_upsert = isinstance(found.shape, Write) and found.shape.conflict and updated
    return f"{found.affected - updated} inserted, {updated} updated." if is_upsert else ""


def _ignored_note(found: Changed) -> str:
    some = "1 row exists" if found.ignored == 1 else f"{found.ignored} rows exist"
    return f"{some} already, left unchanged." if found.ignored else ""


def _left_rows_note(found: Changed) -> str:
    """Return how many changed rows the role does not see, if the grant allows that."""
    number = found.affected - len(found.rows)
    leaves = isinstance(found.shape, Write) and found.shape.writes.leaves and not found.earlier
    some = "1 changed row is" if number == 1 else f"{number} changed rows are"
    return f"{some} not among those that you see." if leaves and number else ""


def _changes(found: Changed) -> str:
    """Return what *found* does, such as "Insert 2 rows and update 1 row of"."""
    assert isinstance(found.shape, Write)
    kind, updated = found.shape.kind, len(without_none(found.before)) if found.shape.conflict else 0
    counts = (
        {kind: found.affected - updated, WriteKind.UPDATE: updated} if updated else {kind: found.affected}
    )
    parts = [
        f"{each} {count} row{'s' * (count != 1)}" for each, count in counts.items() if count or not updated
    ]
    return f"{' and '.join(parts).capitalize()} {'of' if updated else PREPOSITIONS[kind]}"


def _rows_that_fit(budget: Budget, found: ResultSet, names: Sequence[str]) -> Sequence[object]:
    """Return the rows of *found* that fit; perhaps none, since the change has happened."""
    try:
        page = budget.page(found, names)
    except errors.BadArgument:
        return ()
    return page.table.rows[: len(page.found.rows)]


def _difference(
    key: Sequence[str], written: Collection[str], old: Mapping[str, object], new: Mapping[str, object]
) -> str:
    """Return the key of a row, and its columns that change.

    A cell that is *written* may change although it looks the same, if it is masked or cut.
    """
    changed = [name for name in new if name in written or old[name] != new[name]]
    cells = 2 * len(changed)
    changes = [f"{name} {_cell(old[name], cells)} → {_cell(new[name], cells)}" for name in changed]
    return ": ".join(filter(None, [_cells(key, old), ", ".join(changes)]))


def _cells(names: Iterable[str], row: Mapping[str, object]) -> str:
    shown = [name for name in names if row[name] is not None]
    return ", ".join(f"{name} {_cell(row[name], len(shown))}" for name in shown)


def _cell(cell: object, cells: int) -> str:
    """Return *cell*, one of so many *cells* in a line, as JSON: a text cannot imitate the question."""
    text = json.dumps(cell, ensure_ascii=False)
    longest = max(SHORTEST, min(LONGEST_ASKED, LONGEST_LINE // cells))
    return text if len(text) <= longest else f"{text[:longest]}…"
