"""`dbtools call` asks for confirmation at a terminal; otherwise it prints a preview and a token."""

import json
from pathlib import Path

import anyio
import pytest

from dbtools.alembic import upgrade
from dbtools.cli.calling import AWAITED, USABLE
from tests.processes import forked
from tests.protocol.changing import Changing
from tests.protocol.command_line import run
from tests.protocol.confirmed_things import MADE, PREVIEWED, QUESTION, UNCONFIRMED, entries, value_of
from tests.protocol.terminal import on_terminal

CALL = ("call", "dbtools.toml", "update_things", "id=1", 'set={"v": "new"}')
PROMPT = "Make this change? [y/N]"


@pytest.fixture
def folder(things: Changing, log: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with a configuration that serves the things."""
    folder = log.parent
    grant = "[roles.default.tables]\nthings = { update = true, confirm = true }\n"
    logged = '[log]\nfile = "calls.jsonl"\nchanges = true\n'
    (folder / "dbtools.toml").write_text(f'[database]\nurl = "{things.url}"\n{logged}{grant}')
    monkeypatch.chdir(folder)
    return folder


def with_secret(folder: Path) -> None:
    """Let tokens be valid in other commands."""
    path = folder / "dbtools.toml"
    path.write_text(f'{path.read_text()}[server]\nsecret = "what all commands of these tests know"\n')


async def test_person_at_a_terminal_confirms(folder: Path, things: Changing, log: Path) -> None:
    with on_terminal(*CALL, folder=folder, program=forked()) as screen:
        screen.wait_for(PROMPT)
        screen.type("YES\n")
        status, printed = screen.end()

    assert screen.shown.decode().replace("\r\n", "\n").endswith(f"{QUESTION}\n{PROMPT} YES\n")
    assert (status, printed.splitlines()[-1]) == (0, "1 row")
    assert await value_of(things) == "new"
    assert entries(log) == [MADE]


@pytest.mark.parametrize("typed", ["n\n", "\n", "\x04"], ids=["n", "nothing", "end"])
async def test_person_at_a_terminal_declines(folder: Path, things: Changing, log: Path, typed: str) -> None:
    with on_terminal(*CALL, folder=folder, program=forked()) as screen:
        screen.wait_for(PROMPT)
        screen.type(typed)
        status, printed = screen.end()

    assert (status, printed) == (1, "")
    assert b"dbtools: Nothing was changed." in screen.shown
    assert await value_of(things) == "one"
    assert entries(log) == [{**UNCONFIRMED, "confirmed": "declined"}]


async def test_interrupted_question_changes_nothing(folder: Path, things: Changing, log: Path) -> None:
    with on_terminal(*CALL, folder=folder, program=forked()) as screen:
        screen.wait_for(PROMPT)
        screen.interrupt()
        status, printed = screen.end()

    assert (status, printed) == (130, "")
    assert await value_of(things) == "one"
    assert entries(log) == [{**UNCONFIRMED, "outcome": "cancelled", "code": "cancelled"}]


def test_json_for_a_script_asks_nothing(folder: Path) -> None:
    with on_terminal(*CALL, "--json", folder=folder, program=forked()) as screen:
        status, printed = screen.end()

    assert (status, json.loads(printed)["expires_in"]) == (1, 300)
    assert PROMPT.encode() not in screen.shown


async def test_without_a_terminal_a_second_command_confirms(
    folder: Path, things: Changing, log: Path
) -> None:
    with_secret(folder)
    await anyio.to_thread.run_sync(upgrade, things.url)
    preview = await anyio.to_thread.run_sync(run, *CALL)
    [token] = [line for line in preview.stdout.splitlines() if line.startswith("confirm: ")]
    before = await value_of(things)
    made = await anyio.to_thread.run_sync(run, *CALL, token.replace(": ", "="))

    assert preview.stdout.startswith(f"{QUESTION}\nconfirm: ")
    assert (preview.exit_code, preview.stderr.splitlines()) == (1, [f"dbtools: {AWAITED}{USABLE}"])
    assert (made.exit_code, made.stderr) == (0, "")
    assert (before, await value_of(things)) == ("one", "new")
    assert entries(log) == [PREVIEWED, {**MADE, "confirmed": "token"}]


def test_token_that_no_other_command_can_use_is_reported(folder: Path) -> None:
    preview = run(*CALL, "--json")
    refused = run(*CALL, f"confirm={json.loads(preview.stdout)['confirm']}")

    assert "[server] secret" in preview.stderr
    assert preview.exit_code == 1
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "another call" in refused.stderr
