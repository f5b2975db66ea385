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
    private = Descriptors(input=os.dup(0), output=os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout.flush()
    try:
        yield private
    finally:
        os.close(private.input)
        os.close(private.output)
