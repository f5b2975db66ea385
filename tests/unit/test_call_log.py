"""The call log: what is written of a call, that nothing is lost or torn, and how it is read again."""

import json
import os
import stat
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import cast

import orjson
import pytest
from hypothesis import given, strategies as st

from dbtools.cells import json_of
from dbtools.errors import ConfigurationError
from dbtools.records import AuditEntry, AuditLog, FileSink, Outcome, follow_file
from dbtools.records.entries import ARGUMENTS, WORDS
from dbtools.records.log import MOST_LINES

ROOT = Path(__file__).parents[2]
PATIENCE = 60  #: seconds for a process, which a busy machine may need
NAMES = frozenset({"id", "customers", "country", "customer", "total", "ordered_on", "Order Details", 'a"b'})
SECRET, NUMBER = "sekret", 48151623
ENTRY = AuditEntry(
    time=datetime(2026, 3, 1, 13, 0, 0, 123_999, tzinfo=timezone(timedelta(hours=1))),
    identity=None,
    role="default",
    tool="list_customers",
    arguments={"where": [{"column": "country", "op": "eq", "value": "Norway"}], "limit": 5},
    vocabulary=lambda: NAMES,
    rows=5,
    bytes=300,
    truncated=True,
    duration=0.00123456789,
    outcome=Outcome.OK,
    code=None,
    protocol="2025-11-25",
    client="raw/1",
)


def _redacted(arguments: Mapping[str, object]) -> object:
    return replace(ENTRY, arguments=arguments).content(arguments=False)["arguments"]


def test_entry_has_every_key_in_order() -> None:
    content = ENTRY.content(arguments=False)

    assert list(content.items()) == [
        ("time", "2026-03-01T12:00:00.123Z"),
        ("identity", None),
        ("role", "default"),
        ("tool", "list_customers"),
        ("arguments", {"where": [{"column": "country", "op": "eq", "value": "…"}], "limit": 5}),
        ("rows", 5),
        ("bytes", 300),
        ("truncated", True),
        ("duration", 0.001235),
        ("outcome", "ok"),
        ("code", None),
        ("protocol", "2025-11-25"),
        ("client", "raw/1"),
    ]


def test_values_are_written_where_the_operator_wants_them() -> None:
    assert ENTRY.content(arguments=True)["arguments"] == ENTRY.arguments


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        pytest.param({"table": "t", "key": {"id": 5}}, {"table": "…", "key": {"id": "…"}}, id="unseen table"),
        pytest.param(
            {"table": "customers", "key": {"id": 5}}, {"table": "customers", "key": {"id": "…"}}, id="key"
        ),
        pytest.param({"key": {"name": "customers"}}, {"key": {"name": "…"}}, id="value that looks as a name"),
        pytest.param({"id": 5}, {"id": "…"}, id="typed key"),
        pytest.param(
            {"uri": "dbtools://row/customers/10"}, {"uri": "dbtools://row/customers/…"}, id="resource"
        ),
        pytest.param({"uri": "dbtools://row/elsewhere/10"}, {"uri": "…"}, id="resource of no table"),
        pytest.param({"uri": "file:///customers/10"}, {"uri": "…"}, id="other address"),
        pytest.param({"salary": 1, "id": 2}, {"…": "…", "id": "…"}, id="unknown argument"),
        pytest.param({"search": "total", "cursor": "total"}, {"search": "…", "cursor": "…"}, id="texts"),
        pytest.param(
            {"order_by": ["total desc", "id", "salary desc", "customer.country ASC"]},
            {"order_by": ["total desc", "id", "…", "customer.country ASC"]},
            id="order",
        ),
        pytest.param({"order_by": "total desc"}, {"order_by": "total desc"}, id="item for an array of it"),
        pytest.param(
            {"columns": ["Order Details", '"Order Details".id', "Order Details desc", '"a""b"', "a b"]},
            {"columns": ["Order Details", '"Order Details".id', "Order Details desc", '"a""b"', "…"]},
            id="odd names",
        ),
        pytest.param(
            {"group_by": ["ordered_on:month", "ordered_on:Norway", "customer.Norway"]},
            {"group_by": ["ordered_on:month", "…", "…"]},
            id="groups",
        ),
        pytest.param(
            {"measures": [{"function": "sum", "column": "total", "name": "Ada's"}, {"name": "total"}]},
            {"measures": [{"function": "sum", "column": "total", "name": "…"}, {"name": "total"}]},
            id="measures",
        ),
        pytest.param(
            {"having": {"column": "count_distinct_id", "op": "gt", "value": 7}, "order_by": "sum_total"},
            {"having": {"column": "count_distinct_id", "op": "gt", "value": "…"}, "order_by": "sum_total"},
            id="names of measures",
        ),
        pytest.param(
            {"where": [{"column": "id", "op": "in", "values": [1, None, True, {"id": "x"}]}], "match": "any"},
            {"where": [{"column": "id", "op": "in", "values": ["…", "…", "…", {"id": "…"}]}], "match": "any"},
            id="values",
        ),
        pytest.param({"where": "country = 'Norway'"}, {"where": "…"}, id="SQL"),
        pytest.param(
            {"columns": ["total * id", "total * 42", "coalesce(total, id)", "coalesce(country, 'Norway')"]},
            {"columns": ["total * id", "…", "coalesce(total, id)", "…"]},
            id="expressions",
        ),
        pytest.param(
            {"where": [{"some": "total", "where": [{"any": [{"column": "id", "value_column": "total"}]}]}]},
            {"where": [{"some": "total", "where": [{"any": [{"column": "id", "value_column": "total"}]}]}]},
            id="related rows",
        ),
        pytest.param({"where": [{"limit": 5}]}, {"where": [{"limit": "…"}]}, id="limit elsewhere"),
        pytest.param({"limit": True}, {"limit": "…"}, id="limit that is none"),
        pytest.param({"limit": "5"}, {"limit": "…"}, id="limit as text"),
        pytest.param({"limit": 2**70}, {"limit": "…"}, id="endless limit"),
        pytest.param({"tables": [], "detail": "full"}, {"tables": [], "detail": "full"}, id="words"),
        pytest.param({"columns": ["...", "   "]}, {"columns": ["…", "…"]}, id="nothing but separators"),
        pytest.param({"id": list(range(51))}, {"id": ["…"] * 51}, id="many items"),
    ],
)
def test_redaction_keeps_names_and_replaces_values(
    arguments: dict[str, object], written: dict[str, object]
) -> None:
    assert _redacted(arguments) == written


MARKED = st.one_of(
    st.text(max_size=5).map(lambda text: text + SECRET),
    st.sampled_from(sorted(NAMES)).map(lambda name: f"{name}.{SECRET}"),
    st.sampled_from(sorted(NAMES)).map(lambda name: f'"{name}" {SECRET}'),
    st.sampled_from(sorted(WORDS)).map(lambda word: f"{SECRET} {word}"),
    st.just(NUMBER),
    st.just(float(NUMBER)),
)
KEYS = st.sampled_from(sorted({*ARGUMENTS, *NAMES} - {"limit"})) | st.text(max_size=3).map(SECRET.__add__)
MARKED_JSON = st.recursive(MARKED, lambda part: st.lists(part) | st.dictionaries(KEYS, part), max_leaves=40)


@given(st.dictionaries(KEYS, MARKED_JSON))
def test_no_value_of_the_caller_is_written(arguments: dict[str, object]) -> None:
    text = json_of(replace(ENTRY, arguments=arguments).content(arguments=False))

    assert SECRET not in text
    assert str(NUMBER) not in text


TEXT = st.text(st.characters(exclude_categories=()))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda part: st.lists(part) | st.dictionaries(TEXT | st.sampled_from(sorted(ARGUMENTS)), part),
)


@given(st.dictionaries(TEXT | st.sampled_from(sorted(ARGUMENTS)), JSON), TEXT, st.booleans())
def test_any_call_has_a_line(arguments: dict[str, object], text: str, values: bool) -> None:
    entry = replace(ENTRY, arguments=arguments, tool=text, client=text, identity=text)
    line = json_of(entry.content(arguments=values))

    assert line.splitlines() == [line]
    assert list(orjson.loads(line)) == list(ENTRY.content(arguments=False))


def _nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = {"value": [value]}
    return value


@pytest.mark.parametrize(
    "argument",
    [
        pytest.param("x" * 2**26, id="64 MB"),
        pytest.param(["x" * 1_000] * 100_000, id="100,000 items"),
        pytest.param({f"{number}" * 300: number for number in range(1_000)}, id="long keys"),
        pytest.param(_nested(400), id="deep"),
        pytest.param([[[["x" * 600] * 60] * 60] * 60] * 60, id="wide and deep"),
        pytest.param(10**5_000, id="digits"),
    ],
)
@pytest.mark.parametrize("name", ["columns", "value"])
@pytest.mark.parametrize("values", [False, True])
def test_line_is_bounded(argument: object, name: str, values: bool) -> None:
    entry = replace(ENTRY, arguments={name: argument}, tool="x" * 2**20)
    line = json_of(entry.content(arguments=values))

    assert len(line) < 1_000_000


def test_values_are_cut() -> None:
    entry = replace(ENTRY, arguments={"value": "x" * 501, "search": "y" * 500, "values": [1] * 51})
    content = entry.content(arguments=True)["arguments"]

    assert content == {"value": "x" * 500 + "…", "search": "y" * 500, "values": [*[1] * 50, "…"]}


class Memory:
    """A sink that keeps lines, fails as often as it is told, and waits until it may go on."""

    def __init__(self, *, failures: int = 0) -> None:
        self.lines: list[bytes] = []
        self.failures = failures
        self.free = threading.Event()
        self.free.set()
        self.tried = threading.Semaphore(0)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def write(self, lines: deque[bytes]) -> None:
        """Write *lines*."""
        self.free.wait()
        try:
            if self.failures:
                self.failures -= 1
                raise OSError(28, "No space left on device")
            self.lines += lines
            lines.clear()
        finally:
            self.tried.release()

    def tools(self) -> list[str]:
        """Return the tools of the calls that were written."""
        return [json.loads(line)["tool"] for line in self.lines]


def _record(log: AuditLog, numbers: Iterable[int]) -> list[str]:
    tools = [f"tool_{number}" for number in numbers]
    for tool in tools:
        log.record(replace(ENTRY, tool=tool))
    return tools


def test_close_writes_what_was_recorded() -> None:
    sink = Memory()
    log = AuditLog([sink], arguments=False)
    tools = _record(log, range(1_000))
    log.close()

    assert sink.tools() == tools


def test_calls_are_written_without_a_close() -> None:
    sink = Memory()
    log = AuditLog([sink], arguments=False)
    tools = _record(log, range(3))

    assert sink.tried.acquire(timeout=PATIENCE)
    assert sink.tools() == tools


def test_call_after_the_close_is_written_as_well() -> None:
    sink = Memory()
    log = AuditLog([sink], arguments=False)
    log.close()
    for number in range(3):
        _record(log, [number])
        log.close()
        log.close()

    assert sink.tools() == ["tool_0", "tool_1", "tool_2"]


class Echo(Memory):
    """A sink that records a call while it writes the first one."""

    log: AuditLog

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def write(self, lines: deque[bytes]) -> None:
        """Write *lines*."""
        if not self.lines:
            _record(self.log, [1])
        super().write(lines)


def test_call_that_comes_while_the_log_is_closed_is_written_as_well() -> None:
    sink = Echo()
    sink.log = AuditLog([sink], arguments=False)
    _record(sink.log, [0])
    sink.log.close()

    assert sink.tried.acquire(timeout=PATIENCE)
    assert sink.tried.acquire(timeout=PATIENCE)
    assert sink.tools() == ["tool_0", "tool_1"]


def test_threads_may_record_at_once_and_close() -> None:
    sink = Memory()
    log = AuditLog([sink], arguments=False)

    def record(start: int) -> None:
        for number in range(start, start + 500):
            _record(log, [number])
            if number % 50 == 0:
                log.close()

    threads = [threading.Thread(target=record, args=(start,)) for start in (0, 1_000, 2_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()

    assert sorted(sink.tools()) == sorted(f"tool_{at + n}" for at in (0, 1_000, 2_000) for n in range(500))


def test_sink_that_is_stuck_holds_up_neither_calls_nor_the_end() -> None:
    sink = Memory()
    sink.free.clear()
    log = AuditLog([sink], arguments=False)
    tools = _record(log, range(5))
    log.close()
    log.close()
    before = sink.tools()
    sink.free.set()
    sink.tried.acquire(timeout=PATIENCE)
    log.close()

    assert (before, sink.tools()) == ([], tools)


def _close_wholly(log: AuditLog, sink: Memory) -> None:
    """Close *log*, however long a busy machine takes for many calls: one more is the last to be written."""
    log.close()
    while "last" not in sink.tools()[-1:]:
        log.record(replace(ENTRY, tool="last"))
        assert sink.tried.acquire(timeout=PATIENCE)
        log.close()


def _missing(sink: Memory, recorded: int) -> int:
    return recorded - sum(tool != "last" for tool in sink.tools())


def test_calls_that_a_stuck_sink_has_no_room_for_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    sink = Memory()
    sink.free.clear()
    log = AuditLog([sink], arguments=False)
    for _ in range(3 * MOST_LINES):
        log.record(ENTRY)
    sink.free.set()
    _close_wholly(log, sink)

    missing = _missing(sink, 3 * MOST_LINES)
    assert missing >= MOST_LINES - 1
    assert f"{missing} calls are missing" in caplog.text


def test_failing_sink_is_said_once_and_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    sink = Memory(failures=2)
    log = AuditLog([sink], arguments=False)
    tools = []
    for number in range(4):
        tools += _record(log, [number])
        assert sink.tried.acquire(timeout=PATIENCE)
    log.close()

    assert sink.tools() == tools
    assert [(record.levelname, record.args) for record in caplog.records][1:] == [("WARNING", (0,))]
    assert "No space left on device" in caplog.messages[0]


def test_what_a_failing_sink_never_took_is_counted_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    log = AuditLog([Memory(failures=9)], arguments=False)
    _record(log, range(7))
    log.close()

    assert "7 calls are missing" in caplog.messages[-1]


def test_backlog_of_a_failing_sink_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    sink = Memory(failures=10**9)
    log = AuditLog([sink], arguments=False)
    for _ in range(2):
        _record(log, range(MOST_LINES - 1_000))
        log.close()
    sink.failures = 0
    _record(log, [0])
    log.close()
    _close_wholly(log, sink)

    missing = _missing(sink, 2 * (MOST_LINES - 1_000) + 1)
    assert missing >= MOST_LINES - 2_016
    assert f"{missing} calls are missing" in caplog.text


def _line(number: int, length: int = 100) -> bytes:
    head = b'{"number":%d,"text":"' % number
    return head + b"x" * (length - len(head) - 3) + b'"}\n'


def _calls(path: Path) -> list[dict[str, object]]:
    """Return the calls that are in the file at *path* now."""
    return [orjson.loads(line) for line in iter(partial(next, follow_file(path)), None) if line]


def _numbers(path: Path) -> list[object]:
    return [call["number"] for call in _calls(path)]


def _write(path: Path, lines: deque[bytes]) -> None:
    with closing(FileSink(path)) as sink:
        sink.write(lines)


def test_new_files_are_private(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    _write(path, deque(_line(number) for number in range(15)))

    assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o600}


def test_file_that_was_removed_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    sink = FileSink(path)
    sink.write(deque([_line(1)]))
    path.unlink()
    sink.write(deque([_line(2)]))
    sink.close()

    assert _numbers(path) == [2]


def test_line_after_a_torn_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_bytes(_line(1) + b'{"number"')
    _write(path, deque([_line(2)]))

    assert path.read_bytes().splitlines() == [_line(1)[:-1], b'{"number"', _line(2)[:-1]]


def test_link_to_a_file_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "calls.jsonl"
    link.symlink_to(tmp_path / "real" / "calls.jsonl")
    _write(link, deque(_line(number) for number in range(15)))

    assert link.is_symlink()
    assert _numbers(link) == list(range(15))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_full_disk_takes_nothing() -> None:
    lines = deque([_line(1), _line(2)])
    with pytest.raises(OSError, match="No space"):
        _write(Path("/dev/full"), lines)

    assert lines == deque([_line(1), _line(2)])


def test_entry_that_cannot_be_encoded_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    sink = Memory()
    log = AuditLog([sink], arguments=False)
    before = _record(log, range(10))
    log.record(replace(ENTRY, tool="broken", duration=cast(float, "soon")))
    tools = before + _record(log, range(10, 30))
    log.close()

    assert sink.tools() == tools
    assert "'broken' cannot be encoded" in caplog.text


@pytest.mark.parametrize("name", ["missing/calls.jsonl", ".", "file/calls.jsonl", "a\0b", "x" * 300])
def test_file_that_cannot_be_written_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError) as caught:
        FileSink(tmp_path / name).check()

    assert str(caught.value).startswith("[log] file: ")
    assert "\n" not in str(caught.value)


def test_file_that_can_be_written_passes(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    sink = FileSink(path)
    sink.check()
    sink.check()
    sink.write(deque([_line(1)]))
    sink.close()

    assert _numbers(path) == [1]


PREAMBLE = """
import os, sys, time
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from dataclasses import replace
from dbtools.records import AuditEntry, AuditLog, FileSink, Outcome
path = Path(sys.argv[1])
entry = AuditEntry(time=datetime.now(UTC), identity=None, role="default", tool="list_t", arguments={},
    vocabulary=tuple, rows=1, bytes=2, truncated=False, duration=0.1, outcome=Outcome.OK, code=None,
    protocol=None, client=None)
"""


def _start(script: str, path: Path, *, stderr: int | None = None) -> "subprocess.Popen[str]":
    command = (sys.executable, "-c", PREAMBLE + script, str(path))
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def test_batch_that_is_written_in_part_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    script = """
import resource
sink = FileSink(path)
lines = deque(b'{"number":%d,"text":"%s"}\\n' % (number, b"x" * 80) for number in range(10))
sink.write(deque([lines.popleft()]))
resource.setrlimit(resource.RLIMIT_FSIZE, (450, resource.RLIM_INFINITY))
try:
    sink.write(lines)
except OSError:
    print(path.stat().st_size)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
sink.write(lines)
"""
    said = _start(script, path).communicate(timeout=PATIENCE)[0]

    assert said == "450\n"
    assert _numbers(path) == list(range(10))


def test_processes_that_write_at_once_lose_and_tear_nothing(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    script = """
sink = FileSink(path)
name = os.getpid()
for number in range(5_000):
    if number % 2_500 == 0:
        print("ready", flush=True)
        sys.stdin.readline()
    line = b'{"writer":%d,"number":%d,"text":"%s"}\\n' % (name, number, b"x" * (number % 300))
    sink.write(deque([line]))
"""
    writers = [_start(script, path) for _ in range(2)]
    for _ in range(2):  # so that each writes after the other, however busy the machine is
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=PATIENCE)

    calls = _calls(path)
    assert [writer.returncode for writer in writers] == [0, 0]
    for writer in writers:
        assert [call["number"] for call in calls if call["writer"] == writer.pid] == list(range(5_000))
    assert sum(a["writer"] != b["writer"] for a, b in pairwise(calls)) > 1, "they did not write at once"
    assert len(calls) == 10_000


def test_process_that_is_killed_loses_no_more_than_the_last_second(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    script = """
log = AuditLog([FileSink(path)], arguments=False)
while True:
    now = datetime.now(UTC)
    log.record(replace(entry, time=now))
    print(now.isoformat(), flush=True)
    time.sleep(0.01)
"""
    process = _start(script, path)
    assert process.stdout is not None
    recorded = [process.stdout.readline() for _ in range(150)]
    process.kill()
    recorded += process.communicate(timeout=PATIENCE)[0].splitlines()

    stored = [call["time"] for call in _calls(path)]
    last = datetime.fromisoformat(recorded[-1].strip())
    assert last - datetime.fromisoformat(str(stored[-1])) <= timedelta(seconds=1)
    assert len(stored) >= 20
    assert [datetime.fromisoformat(each.strip()).isoformat(timespec="milliseconds") for each in recorded][
        : len(stored)
    ] == [str(each).replace("Z", "+00:00") for each in stored]


@pytest.mark.parametrize("end", ["log.close()", "", "sys.exit(3)", "raise ValueError"])
def test_clean_end_loses_nothing(tmp_path: Path, end: str) -> None:
    path = tmp_path / "calls.jsonl"
    script = f"""
log = AuditLog([FileSink(path)], arguments=False)
for number in range(500):
    log.record(replace(entry, tool=str(number)))
{end}
"""
    _start(script, path, stderr=subprocess.DEVNULL).communicate(timeout=PATIENCE)

    stored = [call["tool"] for call in _calls(path)]
    assert stored == [str(number) for number in range(500)]


def test_stderr_takes_whole_lines(tmp_path: Path) -> None:
    script = """
log = AuditLog([FileSink(2)], arguments=False)
for number in range(3_000):
    log.record(replace(entry, tool=str(number)))
log.close()
"""
    process = _start(script, tmp_path, stderr=subprocess.PIPE)
    _, lines = process.communicate(timeout=PATIENCE)

    assert [json.loads(line)["tool"] for line in lines.splitlines()] == [str(n) for n in range(3_000)]


def test_stderr_that_nobody_reads_holds_up_neither_calls_nor_the_end(tmp_path: Path) -> None:
    script = """
log = AuditLog([FileSink(2)], arguments=False)
for number in range(3_000):
    log.record(entry)
log.close()
print("done", flush=True)
"""
    process = _start(script, tmp_path, stderr=subprocess.PIPE)
    assert process.stdout is not None
    said, status = process.stdout.readline(), process.wait(timeout=PATIENCE)
    process.communicate()

    assert (said, status) == ("done\n", 0)


def _followed(path: Path) -> Callable[[], list[object]]:
    """Return what gives the numbers of the calls that came since the last time."""
    lines = follow_file(path)

    def numbers() -> list[object]:
        return [orjson.loads(line)["number"] for line in iter(partial(next, lines), None) if line]

    return numbers


def test_writer_and_reader_go_on_when_the_file_is_renamed(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    sink, numbers = FileSink(path), _followed(path)
    found = [numbers()]
    sink.write(deque([_line(0)]))
    found.append(numbers())
    path.rename(tmp_path / "calls.jsonl.1")
    with (tmp_path / "calls.jsonl.1").open("ab") as file:
        file.write(_line(1))
    sink.write(deque([_line(2)]))
    found += [numbers(), numbers()]
    sink.close()

    assert found == [[], [0], [1, 2], []]
    assert _numbers(path) == [2]


def test_writer_and_reader_go_on_when_the_file_is_emptied(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    sink, numbers = FileSink(path), _followed(path)
    sink.write(deque(_line(number) for number in range(9)))
    found = [numbers()]
    os.truncate(path, 0)
    sink.write(deque([_line(9)]))
    found.append(numbers())
    sink.close()

    assert found == [list(range(9)), [9]]


def test_line_without_its_end_is_not_complete_yet(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_bytes(_line(1) + _line(2)[:30])
    numbers = _followed(path)
    first = [numbers(), numbers(), _numbers(path)]
    with path.open("ab") as file:
        file.write(_line(2)[30:])

    assert (first, numbers()) == ([[1], [], [1]], [2])
