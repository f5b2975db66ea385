"""Durations as people write them. A text in, seconds out."""

import re
from collections.abc import Mapping

UNITS: Mapping[str, float] = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


def seconds_of(text: str) -> float:
    """Return how many seconds 10s, 500ms or 2m means, or raise ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|)", text.strip())
    if match is None:
        raise ValueError("wants a duration such as 10s, 500ms or 2m")
    return float(match[1]) * UNITS[match[2]]
