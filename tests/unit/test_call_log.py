"""The queue of the audit log: nothing is lost or delayed while its sink fails."""

import json
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import cast

import pytest

from dbtools.records import AuditLog
from dbtools.records.log import MAX_WAITING_LINES
from tests.unit.log_sinks import ENTRY, PATIENCE


class Memory:
    """A sink that keeps lines, fails a given number of times, and waits for an event."""

    def __init__(self, *, failures: int = 0) -> None:
        self.lines: list[bytes] = []
        self.failures = failures
        self.free = threading.Event()
        self.free.set()
        self.tried = threading.Semaphore(0)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def write(self, lines: deque[bytes]) -> None:
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
    for _ in range(3 * MAX_WAITING_LINES):
        log.record(ENTRY)
    sink.free.set()
    _close_wholly(log, sink)

    missing = _missing(sink, 3 * MAX_WAITING_LINES)
    assert missing >= MAX_WAITING_LINES - 1
    assert f"Missing calls: {missing}." in caplog.text


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
    sink = Memory(failures=9)
    log = AuditLog([sink], arguments=False)
    _record(log, range(7))
    log.close()
    said = caplog.messages[-1]
    sink.failures = 0
    log.close()  # so that nothing is missing when the interpreter ends

    assert "Missing calls: 7." in said


def test_backlog_of_a_failing_sink_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    sink = Memory(failures=10**9)
    log = AuditLog([sink], arguments=False)
    for _ in range(2):
        _record(log, range(MAX_WAITING_LINES - 1_000))
        log.close()
    sink.failures = 0
    _record(log, [0])
    log.close()
    _close_wholly(log, sink)

    missing = _missing(sink, 2 * (MAX_WAITING_LINES - 1_000) + 1)
    assert missing >= MAX_WAITING_LINES - 2_016
    assert f"Missing calls: {missing}." in caplog.text


def test_entry_that_cannot_be_encoded_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    sink = Memory()
    log = AuditLog([sink], arguments=False)
    before = _record(log, range(10))
    log.record(replace(ENTRY, tool="broken", duration=cast(float, "soon")))
    tools = before + _record(log, range(10, 30))
    log.close()

    assert sink.tools() == tools
    assert "'broken' cannot be encoded" in caplog.text
