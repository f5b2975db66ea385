"""Stdin and stdout kept for the protocol: what others print goes to stderr, what others read is empty."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Descriptors:
    """Two file descriptors that nobody else has, child processes included."""

    input: int
    output: int


@contextmanager
def private_descriptors() -> Iterator[Descriptors]:
    """Give stdin and stdout to the caller alone, for good: what is printed at exit is no message either."""
    private = Descriptors(input=_duplicate(0, os.O_RDONLY), output=_duplicate(1, os.O_WRONLY))
    _replace(0, _duplicate(-1, os.O_RDONLY))
    _replace(1, _duplicate(2, os.O_WRONLY))
    if sys.stdout is not None:
        sys.stdout.flush()
    try:
        yield private
    finally:
        os.close(private.input)
        os.close(private.output)


def _duplicate(descriptor: int, mode: int) -> int:
    """Return a copy of *descriptor*, or of the null device where it is closed."""
    try:
        return os.dup(descriptor)
    except OSError:
        return os.open(os.devnull, mode)


def _replace(descriptor: int, by: int) -> None:
    os.dup2(by, descriptor)
    os.close(by)
