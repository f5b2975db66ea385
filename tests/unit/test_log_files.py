"""Files of the audit log: written by several processes, followed, renamed and truncated."""

import json
import os
import stat
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path

import orjson
import pytest

from dbtools.errors import ConfigurationError
from dbtools.records import FileSink, follow_file
from tests.unit.log_sinks import PATIENCE

ROOT = Path(__file__).parents[2]


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
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
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


@pytest.mark.parametrize("end", ["", "raise ValueError"])
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
