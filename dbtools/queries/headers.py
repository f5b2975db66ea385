"""The header of a query: lines of comments before its SQL in, what they say and what is wrong with them out.

A header line is `-- KEY: value`, or `-- param NAME: TYPE  text`: two hyphens where the line begins, a blank,
a lowercase word, and a colon right after it. What only looks like one is refused. Any other comment is free:
its first word is no key, and no colon follows it, unless it begins with a capital letter.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from dbtools.dates import seconds_of
from dbtools.errors import listing, nearest
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
#: A word and its colon, and a blank or nothing behind: no sentence begins so.
KEYED = re.compile(r"-- [a-z][a-z0-9_]*:(?:\s.*)?", re.DOTALL)
HEADER = re.compile(
    rf"-- (?:param |(?P<key>{'|'.join(FORMS.keys() - {PARAM})}):(?!//|:))(?P<value>.*)", re.DOTALL
)
CONTINUATION = re.compile(r"--[ \t]{3,}(?P<text>\S.*)", re.DOTALL)
#: With fewer blanks, and yet more than those of an ordinary comment.
NEAR_CONTINUATION = re.compile(r"--(?:[ \t]{2}|\t)\S.*", re.DOTALL)
WORDS = re.compile(r"--(?P<gap>\s*)(?P<first>[A-Za-z][\w-]*)(?P<rest>.*)", re.DOTALL)
COLON = re.compile(r"\s*:(?!//|:)")
SECOND = re.compile(r"\s+(?P<second>\w+)\s*:(?!//|:)")
SECOND_WORD = re.compile(r"^--\s*\w+\s+(\w+)")
KEY_IN_TEXT = re.compile(rf"(?:(?P<key>{'|'.join(FORMS)})|(?P<param>param) \w+):")
#: A comment within the SQL that must have been meant for a header; those of `name` begin a query.
LATE = re.compile(rf"--\s*(?:(?P<key>{'|'.join(FORMS)})\s*:|(?P<param>param)\s+\w+\s*:)", re.IGNORECASE)
NEAR_PARAM = ("parameter", "parameters", "argument", "arg")  #: besides what is spelled like it


class Returns(StrEnum):
    """How many rows a query gives."""

    ONE = "one"
    MANY = "many"


@dataclass(frozen=True, kw_only=True)
class CommentLine:
    """A comment of one line, before the SQL of a query."""

    text: str  #: from its hyphens on
    line: int  #: of the file
    indented: bool = False  #: whether something stands before it on its line


@dataclass(kw_only=True)
class Header:
    """What the comments before a query's SQL say, filled in line by line."""

    said: dict[str, Any] = field(default_factory=dict)  #: by the keys, of which a Query has fields
    parameters: list[QueryParameter] = field(default_factory=list)
    mentioned: set[str] = field(default_factory=set)  #: what lines with mistakes may have meant to declare
    mistakes: list[tuple[int, str]] = field(default_factory=list)  #: lines, and what is wrong there
    lines: dict[str, int] = field(default_factory=dict)  #: of the keys


def read_header(lines: Sequence[CommentLine], file: str) -> Header:
    """Return what *lines* of *file* say."""
    header = Header()
    described: int | None = None  #: the line on which the description has ended so far
    for each in lines:
        try:
            more = CONTINUATION.fullmatch(each.text)
            if more and described == each.line - 1 and not each.indented:
                described = each.line
                header.said[DESCRIPTION] = f"{header.said[DESCRIPTION]} {_continued(more['text'])}".strip()
                continue
            found = _recognised(each)
            if described == each.line - 1 and not each.indented and NEAR_CONTINUATION.fullmatch(each.text):
                described = each.line
                raise ValueError("a description goes on in lines that begin with -- and three blanks")
            if found is not None:
                _take(header, *found, Source(file=file, line=each.line))
            described = each.line if found and found[0] == DESCRIPTION else None
        except ValueError as exc:
            header.mistakes.append((each.line, str(exc)))
            header.mentioned.update(SECOND_WORD.findall(each.text))
    untold = [key for key, value in header.said.items() if value == ""]
    header.mistakes += ((header.lines[key], f"{key}: wants a text") for key in untold)
    return header


def _continued(text: str) -> str:
    if found := KEY_IN_TEXT.match(text):
        form = FORMS[found["key"] or PARAM]
        raise ValueError(f"this goes on with the description: for a header line write {form}")
    return text.strip()


def _recognised(line: CommentLine) -> tuple[str, str] | None:
    """Return the key and the value of a header line, None for a comment, or raise ValueError."""
    text = line.text.rstrip()
    found = HEADER.fullmatch(text)
    if found is None:
        if problem := _near_miss(text):
            raise ValueError(problem)
        return None
    key = found["key"] or PARAM
    if line.indented:
        raise ValueError(f"a header line begins with its hyphens: write {FORMS[key]}")
    return key, found["value"].strip()


def _near_miss(text: str) -> str:
    """Return what was probably meant by *text*, which is no header line; nothing for an ordinary comment."""
    words = WORDS.fullmatch(text)
    if words is None:
        return ""
    first, rest = words["first"], words["rest"]
    key = first.lower().replace("-", "_")
    two = SECOND.match(rest)
    if first in FORMS:
        return f"a line whose first word is {first} is a header line: write {FORMS[first]}"
    if two and key != PARAM and (joined := f"{key}_{two['second'].lower()}") in FORMS:
        return f"{quoted(first + ' ' + two['second'])} is no header key. Write {FORMS[joined]}"
    if two and (key in NEAR_PARAM or get_close_matches(key, (PARAM,), cutoff=0.75)):
        return f"{quoted(first)} is no header key. Did you mean param? Write {FORM}"
    if not COLON.match(rest):
        return ""
    if like := get_close_matches(key, FORMS, n=1, cutoff=0.8):
        meant = "" if key in like else f"Did you mean {like[0]}? "
        return f"{quoted(first)} is no header key. {meant}Write {FORMS[like[0]]}"
    if KEYED.fullmatch(text):
        return (
            f"{quoted(first)} is no header key. {nearest(first, FORMS)}Keys: {listing(FORMS)}. "
            "A comment that begins so wants a capital letter"
        )
    return ""


def _take(header: Header, key: str, value: str, source: Source) -> None:
    """Put *value* of a line into *header*, or raise ValueError."""
    if key == PARAM:
        parameter = declaration(value, source)
        if any(parameter.name == each.name for each in header.parameters):
            raise ValueError(f"param {parameter.name}: this name is declared above")
        header.parameters.append(parameter)
        return
    if key in header.lines:
        raise ValueError(f"{key}: is on line {header.lines[key]} as well")
    header.lines[key] = source.line or 1
    try:
        header.said[key] = READERS[key](value)
    except ValueError as exc:
        raise ValueError(f"{key}: {exc}") from exc


def _name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError(f"{quoted(value)} is not {NAME_WANTED}" if value else f"wants {NAME_WANTED}")
    return value


def _returns(value: str) -> Returns:
    if value not in tuple(Returns):
        raise ValueError(f"wants {' or '.join(Returns)}, not {quoted(value)}")
    return Returns(value)


def _max_rows(value: str) -> int:
    if not re.fullmatch(r"\d{1,9}", value, re.ASCII) or int(value) < 1:
        raise ValueError(f"wants a number of rows such as 50, not {quoted(value)}")
    return int(value)


def _timeout(value: str) -> float:
    seconds = seconds_of(value)
    if not 0 < seconds <= LONGEST_TIMEOUT:
        raise ValueError(f"wants more than nothing and at most an hour, not {quoted(value)}")
    return seconds


READERS: Mapping[str, Callable[[str], Any]] = {
    "name": _name,
    "title": str,
    DESCRIPTION: str,
    "returns": _returns,
    "max_rows": _max_rows,
    "timeout": _timeout,
}


def late_key(text: str) -> str:
    """Return the key that the comment *text*, which is in no header, must be meant to give; else nothing."""
    late = LATE.match(text)
    return (late["key"] or PARAM).lower() if late else ""
