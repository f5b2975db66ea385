"""A module for worker processes whose answers are odd. A request in; what it asks for out."""

import sys
import time
from collections.abc import Mapping
from typing import Any

KNOWN: list[str] = []


def start() -> None:
    """Do nothing."""


def answer(request: Mapping[str, Any]) -> Mapping[str, object]:
    """Return the timeout of *request*, after its specification is known."""
    match request["kind"]:
        case "no JSON":
            sys.stdout.write("{\n")
        case "long":
            sys.stdout.write("x" * request["length"])
        case "slow" if "spec" not in request:
            time.sleep(request["seconds"])
            return {"needs": "spec"}
    return {"timeout": request["timeout"]}
