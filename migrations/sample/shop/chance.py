"""Choices that look random and are the same everywhere: a key in, a number or an option out."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

T = TypeVar("T")


def number(*key: object) -> int:
    """Return a number below 2**64 that depends on *key* alone."""
    text = "/".join(map(str, key))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def percent(*key: object) -> int:
    """Return a number from 0 to 99."""
    return number(*key) % 100


def pick(options: Sequence[T], *key: object) -> T:
    """Return one of *options*, each as likely as the others."""
    return options[number(*key) % len(options)]


def pick_weighted(options: Sequence[T], weights: Sequence[int], *key: object) -> T:
    """Return one of *options*, as likely as its weight says."""
    rest = number(*key) % sum(weights)
    for option, weight in zip(options, weights, strict=True):
        if rest < weight:
            return option
        rest -= weight
    raise AssertionError("the weights add up to more than their sum")


def shuffled(options: Sequence[T], *key: object) -> list[T]:
    """Return *options* in an order that depends on *key*."""
    return sorted(options, key=lambda option: number(*key, option))
