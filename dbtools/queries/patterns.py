"""Patterns that texts of callers must match: a regular expression in, whether a text has it out.

They are matched by pydantic's engine, which takes time in proportion to the text, whatever the pattern: the
standard library's may take years, and holds up all other callers meanwhile.
"""

import re
import warnings
from functools import lru_cache
from typing import Annotated

from pydantic import StringConstraints, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from dbtools.types import quoted


def check_pattern(pattern: str) -> None:
    """Raise ValueError where *pattern* is no regular expression, for the engine or for clients."""
    try:
        with warnings.catch_warnings():
            # A pattern that means something else in another version means nothing.
            warnings.simplefilter("error")
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError, Warning) as exc:
        raise ValueError(f"pattern: {quoted(pattern)} is no regular expression: {exc}") from exc
    try:
        _compiled(pattern)
    except SchemaError as exc:
        # The last line says what; those before it show where.
        problem = str(exc).strip().splitlines()[-1].strip().removeprefix("error: ")
        raise ValueError(f"pattern: {quoted(pattern)} cannot be used: {problem}") from exc


def has_pattern(text: str, pattern: str) -> bool:
    """Return whether *pattern*, which is one, is found somewhere in *text*."""
    try:
        _compiled(pattern).validate_python(text)
    except ValidationError:
        return False
    return True


@lru_cache(maxsize=1_000)
def _compiled(pattern: str) -> TypeAdapter[str]:
    return TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])
