"""Ctrl-C while a command waits on its event loop ends the command, and a second one ends it at once."""

import os
import signal

import anyio
import pytest

from dbtools.cli.options import run


@pytest.fixture(autouse=True)
def _interruptible() -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_signal_wakes_the_event_loop() -> None:
    async def wakes() -> bool:
        descriptor = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(descriptor)
        return descriptor != -1

    assert run(wakes)


def test_interrupt_cancels_what_runs() -> None:
    ended = []

    async def wait() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("cancelled")

    with pytest.raises(KeyboardInterrupt):
        run(wait)
    assert ended == ["cancelled"]


def test_second_interrupt_does_not_wait_for_what_was_cancelled() -> None:
    async def refuse() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                os.kill(os.getpid(), signal.SIGINT)
                await anyio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        run(refuse)
