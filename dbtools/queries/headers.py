"""The header of a query: lines of comments before its SQL in, what they say and what is wrong with them out.

A header line is `-- KEY: value`, or `-- param NAME: TYPE  text`: two hyphens where the line begins, a blank,
and a lowercase key. What looks like one is an error; any other comment is free.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from dbtools.dates import seconds_of
from dbtools.policy import Source
from dbtools.queries.declarations import FORM, QueryParameter, declaration
from dbtools.types import quoted

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
NAME_WANTED = "a name of at most 40 characters a-z, 0-9 and _, a letter first"
LONGEST_TIMEOUT = 3600.0  #: seconds, as in [limits]
DESCRIPTION, PARAM = "description", "param"
#: How each line is written.
FORMS: Mapping[str, str] = {
    "name": "-- name: NAME",
    "title": "-- title: text",
    DESCRIPTION: "-- description: text",
    PARAM: FORM,
    "returns": "-- returns: one | many",
    "max_rows": "-- max_rows: N",
    "timeout": "-- timeout: 5s",
}
ANYTHING = re.compile(".*")
KEYS = "name|title|description|returns|max[_ -]?rows|timeout"
HEADER = re.compile(rf"-- (?:param |(?P<key>{'|'.join(FORMS.keys() - {PARAM})}):(?!//|:))(?P<value>.*)")
CONTINUATION = re.compile(r"--(?:[ \t]{2}|\t)\s*(\S.*)")
#: A comment that must have been meant for a header line, wherever it stands.
LIKE_HEADER = re.compile(rf"\s*--\s*(?P<key>(?i:(?:{KEYS})\s*:(?!//|:)|param\s+\w+\s*:))")
#: Before the SQL, also a comment that begins with a key, or with a lowercase word and a colon.
LIKE_KEY = re.compile(rf"--\s*(?P<key>(?:{KEYS}|{PARAM})\b|[a-z][a-z0-9_-]*\s*:(?!\S))")


class Returns(StrEnum):
    """How many rows a query gives."""

    ONE = "one"
    MANY = "many"


@dataclass(kw_only=True)
class Header:
    """What the comments before a query's SQL say, filled in line by line."""

    said: dict[str, Any] = field(default_factory=dict)  #: by the keys, of which a Query has fields
    parameters: list[QueryParameter] = field(default_factory=list)
    mentioned: set[str] = field(default_factory=set)  #: the words of lines with mistakes
    mistakes: list[tuple[int, str]] = field(default_factory=list)  #: lines, and what is wrong there


def read_header(lines: Iterable[tuple[int, str]], file: str) -> Header:
    """Return what *lines* of *file*, each after its number, say."""
    header = Header()
    key = ""  #: of the line before
    for number, line in lines:
        text = line.rstrip()
        found = HEADER.fullmatch(text)
        more = CONTINUATION.fullmatch(text) if key == DESCRIPTION else None
        try:
            if found:
                key = found["key"] or PARAM
                _take(header, key, found["value"].strip(), Source(file=file, line=number))
            elif problem := near_miss(text, LIKE_HEADER, *([] if more else [LIKE_KEY])):
                raise ValueError(problem)
            elif more:
                header.said[DESCRIPTION] = f"{header.said[DESCRIPTION]} {more[1]}".strip()
            else:
                key = ""
        except ValueError as exc:
            key = ""
            header.mistakes.append((number, str(exc)))
            header.mentioned.update(re.findall(r"\w+", text))
    return header


def near_miss(text: str, *patterns: re.Pattern[str]) -> str:
    """Return what to write instead of *text* if it is like a header line by one of *patterns*, or nothing."""
    found = next(filter(None, (pattern.match(text) for pattern in patterns)), None)
    if found is None:
        return ""
    word = re.sub("[ -]", "_", found["key"].lower().strip(" \t:"))
    like = PARAM if word.startswith(PARAM) else "".join(get_close_matches(word, FORMS, n=1, cutoff=0.7))
    form = FORMS[like] if like else f"-- KEY: value, with one of the keys {', '.join(FORMS)}"
    return f"{quoted(text.strip())} is not a header line. Write {form}, where a line above the SQL begins"


def _take(header: Header, key: str, value: str, source: Source) -> None:
    """Put *value* of a line into *header*, or raise ValueError."""
    if key == PARAM:
        parameter = declaration(value, source)
        if any(parameter.name == each.name for each in header.parameters):
            raise ValueError(f"param {parameter.name}: this name is declared above")
        header.parameters.append(parameter)
        return
    if key in header.said:
        raise ValueError(f"{key} is there twice")
    pattern, read, wanted = READERS[key]
    if not pattern.fullmatch(value):
        raise ValueError(f"{key}: must be {wanted}, not {quoted(value)}")
    header.said[key] = read(value)


def _timeout(value: str) -> float:
    seconds = seconds_of(value)
    if not 0 < seconds <= LONGEST_TIMEOUT:
        raise ValueError(f"timeout: must be more than 0 seconds and at most an hour, not {quoted(value)}")
    return seconds


#: What a value must look like, how it is read, and what to write instead of another.
READERS: Mapping[str, tuple[re.Pattern[str], Callable[[str], Any], str]] = {
    "name": (NAME, str, NAME_WANTED),
    "title": (ANYTHING, str, "text"),
    DESCRIPTION: (ANYTHING, str, "text"),
    "returns": (re.compile("|".join(Returns)), Returns, " or ".join(Returns)),
    "max_rows": (re.compile(r"[1-9][0-9]{0,8}"), int, "a number of rows such as 50"),
    "timeout": (re.compile(r"\d+(\.\d+)?\s*(ms|s|m|h|)"), _timeout, "a duration such as 10s, 500ms or 2m"),
}
