"""Stdin and stdout of `dbtools serve` carry only messages, whatever else prints, reads or ends."""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from dbtools.server.stdio import LONGEST_LINE
from tests.processes import FRESH, forked
from tests.protocol.client import CLIENT, HANDSHAKES, MODERN, PATIENCE, ROOT, read_message, spawn

TOO_LONG = LONGEST_LINE + 2**22  #: bytes; the end of the line comes when it has been refused already
COMMAND = (*forked(), "serve")
NOISE = '''
import atexit, os, subprocess, sys, threading, warnings


def shout(where):
    print("print " + where)  # at once: the thread prints as well
    sys.stdout.flush()
    sys.__stdout__.write("sys.__stdout__\\n")
    os.write(1, b"os.write\\n")
    subprocess.run(["sh", "-c", "echo child; cat"], check=True)
    warnings.warn("warning")


def chatter():
    while True:
        print("thread")
        os.write(1, b"thread\\n")
        if done.wait(0.001):
            return


def end():
    done.set()
    thread.join()
    shout("exit")


class Noisy:
    """Shouts as each of the slow imports begins; none of them comes before `serve` has."""

    def find_spec(self, name, path=None, target=None):
        if name in ("sqlalchemy", "aiosqlite"):
            print("without a flush")
            shout(name)
        if name == "sqlalchemy":
            thread.start()
            atexit.register(end)


done = threading.Event()
thread = threading.Thread(target=chatter, daemon=True)
sys.meta_path.insert(0, Noisy())
'''


def _conversation(version: str) -> list[dict[str, object]]:
    """Return what a client in a hurry says all at once: it opens, lists and calls."""
    call = {"name": "list_person", "arguments": {}}
    if version == MODERN:
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        return [
            {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}},
            {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"_meta": meta}},
            {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {**call, "_meta": meta}},
        ]
    handshake = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT}
    return [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": handshake},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": call},
    ]


def _lines(version: str, *, end: str = "\n") -> bytes:
    return ("\n".join(json.dumps(message) for message in _conversation(version)) + end).encode()


def _assert_answered(output: bytes) -> None:
    answers = {message["id"]: message for message in map(read_message, output.splitlines())}

    assert set(answers) == {1, 2, 3}
    assert answers[2]["result"]["tools"]
    assert answers[3]["result"]["structuredContent"]["row_count"] == 3


def _serve(path: Path, **streams: object) -> "subprocess.CompletedProcess[bytes]":
    command = (*COMMAND, str(path))
    return subprocess.run(command, cwd=ROOT, timeout=PATIENCE, check=False, **streams)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("version", ["2024-11-05", MODERN])
async def test_nothing_but_messages_reaches_stdout(path: Path, tmp_path: Path, version: str) -> None:
    """Whatever imports, threads, child processes and the exit print (mcp.md, pitfall 14)."""
    (tmp_path / "sitecustomize.py").write_text(NOISE)
    async with spawn(path, tmp_path, version=version, environment={"PYTHONPATH": str(tmp_path)}) as client:
        await client.open()
        await client.result("tools/list")
        result = await client.call("list_person")
        rest = await client.rest()  # reads every line as a message

        assert await client.status() == 0
        assert result["structuredContent"]["row_count"] == 3
        assert len(rest) == 3
        log = client.log.read_text()
        said = (
            "print sqlalchemy",
            "print aiosqlite",
            "print exit",
            "without a flush",
            "thread",
            "child",
            "os.write",
        )
        assert [each for each in said if each not in log] == []


@pytest.mark.parametrize(("version", "end"), [(HANDSHAKES[0], "\n"), (HANDSHAKES[-1], ""), (MODERN, "\n")])
def test_requests_sent_before_stdin_closes_are_answered(path: Path, version: str, end: str) -> None:
    """As in `printf '…' | dbtools serve`; the last line needs no end."""
    ended = _serve(path, input=_lines(version, end=end), capture_output=True)

    assert (ended.returncode, _logged(ended.stderr)) == (0, ["list_person"])
    _assert_answered(ended.stdout)


def _logged(stderr: bytes) -> list[str]:
    """Return the tools of the calls that were written down; there is nothing else on *stderr*."""
    return [json.loads(line)["tool"] for line in stderr.splitlines()]


def test_one_socket_serves_as_stdin_and_stdout(path: Path) -> None:
    """As inetd, systemd and socat start a server."""
    command = (*COMMAND, str(path))
    ours, theirs = socket.socketpair()
    both = theirs.fileno()
    with ours, theirs, subprocess.Popen(command, cwd=ROOT, stdin=both, stdout=both) as process:
        theirs.close()
        ours.settimeout(PATIENCE)
        with ours.makefile("rwb", buffering=0) as client:
            for message in _conversation(MODERN):
                client.write(json.dumps(message).encode() + b"\n")
            answers = [read_message(client.readline())["id"] for _ in range(3)]
            client.write(json.dumps({**_conversation(MODERN)[1], "id": 4}).encode() + b"\n")
            answers.append(read_message(client.readline())["id"])
        ours.shutdown(socket.SHUT_WR)

        assert process.wait(PATIENCE) == 0
    assert sorted(answers) == [1, 2, 3, 4]


def test_stdin_and_stdout_may_be_files(path: Path, tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(_lines("2025-11-25"))
    with (tmp_path / "input").open("rb") as stdin, (tmp_path / "output").open("wb") as stdout:
        ended = _serve(path, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE)

    assert (ended.returncode, _logged(ended.stderr)) == (0, ["list_person"])
    _assert_answered((tmp_path / "output").read_bytes())


@pytest.mark.parametrize("end", ["terminate", "vanish", "stop_reading"])
async def test_signal_and_client_that_leaves_end_an_idle_server(path: Path, tmp_path: Path, end: str) -> None:
    """Where the client stops reading, stdin stays open."""
    async with spawn(path, tmp_path, program=FRESH) as client:
        await client.open()
        getattr(client.process if end == "terminate" else client, end)()

        assert await client.status() == 0
        assert client.log.read_text() == ""


async def test_interrupt_ends_with_its_own_status(path: Path, tmp_path: Path) -> None:
    async with spawn(path, tmp_path, program=FRESH) as client:
        await client.open()
        os.kill(client.process.pid, signal.SIGINT)

        assert await client.status() == 130
        assert "Traceback" not in client.log.read_text()


async def test_line_over_the_limit_is_refused_and_the_next_is_read(path: Path, tmp_path: Path) -> None:
    call = b'{"jsonrpc":"2.0","id":"long","method":"tools/call","params":{"name":"' + b"x" * TOO_LONG
    async with spawn(path, tmp_path) as client:
        await client.open()
        await client.send_line(call + b'"}}')
        refused = await client.answer(None)
        for line in (b"\xff\xfe", b"no JSON", b"[" * 100_000, b"\0", b"[]"):
            await client.send_line(line)
        listed = await client.result("tools/list")

        codes = [message["error"]["code"] for message in client.received if "error" in message]
        assert codes == [-32600, -32700, -32700, -32600, -32700, -32600]
        assert "bytes" in refused["error"]["message"]
        assert listed["tools"]
        assert len(client.received) == 8


async def test_fifty_calls_at_once_are_answered_by_a_process(path: Path, tmp_path: Path) -> None:
    """Lists between them make more answers than a pipe holds before anybody reads."""
    async with spawn(path, tmp_path) as client:
        ids: list[object] = []
        for each in range(50):
            ids.append(await client.start_call("get_person", {"id": each % 3 + 1}))
            await client.start("tools/list")
        answers = [await client.answer(id) for id in ids]

        rows = [answer["result"]["structuredContent"]["row"]["id"] for answer in answers]
        assert rows == [each % 3 + 1 for each in range(50)]
