"""Dates, times and durations: a text from a caller in, the value to bind out."""

import re
from collections.abc import Mapping
from datetime import date
from typing import Protocol

DATE = re.compile(r"([+-]?\d{4,7})-(\d\d)-(\d\d)( BC)?", re.ASCII)
PLAIN_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
BASIC_DATE = re.compile(r"([12]\d{3})(\d\d)(\d\d)", re.ASCII)
DAY = re.compile(r"\d{4}-?\d\d-?\d\d", re.ASCII)  #: a date alone, with or without hyphens
#: 24:00 is the end of the day. Databases accept UTC offsets of less than 16 hours.
TIME = re.compile(
    r"([01]\d|2[0-3]|24(?=:00(?::00(?:\.0{1,9})?)?(?![:.\d]))):([0-5]\d)(?::([0-5]\d(?:\.\d{1,9})?))?"
    r"(?P<zone>Z|([+-])(0\d|1[0-5])(?::?([0-5]\d))?(?::?([0-5]\d))?)?",
    re.ASCII | re.IGNORECASE,
)
NO_OFFSET = ("Z", "+00", "+0000", "+00:00", "-00:00")
MIDNIGHT = re.compile(r" 00:00(:00(\.0+)?)?$", re.ASCII)
STORED_NUMBER = re.compile(r"[+-]?\d{5,19}(\.\d{1,12})?", re.ASCII)
INTERVAL = re.compile(
    r"[+-]?P(?=.)([+-]?\d+(\.\d+)?[YMWD])*(T([+-]?\d+(\.\d+)?[HMS])+)?"
    r"|([+-]?\d+ (years?|mons?|months?|weeks?|days?|hours?|mins?|minutes?|secs?|seconds?) ?)*"
    r"([+-]?\d+:\d\d(:\d\d(\.\d+)?)?)?",
    re.ASCII | re.IGNORECASE,
)
LATEST_DATE, LATEST_TIMESTAMP = 5_874_897, 294_276  #: the latest years that a supported database accepts
UNITS: Mapping[str, float] = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


class Calendar(Protocol):
    """The properties of a column type that concern dates."""

    @property
    def infinite(self) -> bool:
        """Whether they include infinity and dates BC."""

    @property
    def lenient(self) -> bool:
        """Whether they are texts or numbers, in a database without a date type."""


def read_date(text: str, calendar: Calendar) -> object:
    """Decode the date *text*, or raise ValueError."""
    if _is_special(text, calendar):
        return text.lower()
    if _is_date(text, calendar, LATEST_DATE):
        return text
    if not calendar.lenient:
        raise ValueError
    # Midnight is written without a time, as stored dates are.
    moment = read_timestamp(text, calendar)
    return MIDNIGHT.sub("", moment) if isinstance(moment, str) else moment


def read_time(text: str, calendar: Calendar) -> object:
    """Decode the time of day *text*, with or without a zone, or raise ValueError."""
    return text if TIME.fullmatch(text) else _stored_number(text, calendar)


def read_timestamp(text: str, calendar: Calendar) -> object:
    """Decode the date and time *text* without a zone, or raise ValueError."""
    time = TIME.fullmatch(_parts(text)[-1])
    if time and time["zone"] and time["zone"].upper() not in NO_OFFSET:
        # The column has no time zone: the offset would be ignored, and the value would mean another time.
        raise ValueError
    return read_moment(text, calendar)


def read_moment(text: str, calendar: Calendar) -> object:
    """Decode the date and time *text*, with or without a zone, or raise ValueError."""
    basic = BASIC_DATE.fullmatch(text) if calendar.lenient else None
    if basic and _is_date(day := "-".join(basic.groups()), calendar, LATEST_TIMESTAMP):
        return day
    if _is_special(text, calendar):
        return text.lower()
    day, separator, clock = _parts(text)
    time = TIME.fullmatch(clock)
    if not _is_date(day, calendar, LATEST_TIMESTAMP) or (separator and not time):
        return _stored_number(text, calendar)
    if not calendar.lenient:
        return text
    return f"{day}{separator}{clock.removesuffix(time['zone'] or '') if time else ''}"


def read_interval(text: str, calendar: Calendar) -> str:
    """Decode the duration *text*, or raise ValueError."""
    if _is_special(text, calendar):
        return text.lower()
    if not text or len(text) > 100 or not INTERVAL.fullmatch(text):
        raise ValueError
    return text


def _parts(text: str) -> tuple[str, str, str]:
    era = " BC" if text.endswith(" BC") else ""
    day, separator, time = re.sub("[Tt]", " ", text.removesuffix(era), count=1).partition(" ")
    return day + era, separator, time


def _is_special(text: str, calendar: Calendar) -> bool:
    return calendar.infinite and text.lower() in ("infinity", "-infinity")


def _is_date(text: str, calendar: Calendar, latest: int) -> bool:
    """Return whether *text* is a date of the years 1 to *latest*, in ISO 8601 unless infinite."""
    if not (match := DATE.fullmatch(text)) or not (calendar.infinite or PLAIN_DATE.fullmatch(text)):
        return False
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    # Years beyond Python's calendar are checked as a leap year; the database checks the day.
    stand_in = year if year <= 9999 and not match[4] else 2000
    try:
        date(stand_in, month, day)
    except ValueError:
        return False
    return 1 <= year <= latest


def _stored_number(text: str, calendar: Calendar) -> int | float:
    """Decode an epoch or a Julian day, as a database without date types may store it."""
    if not calendar.lenient or not STORED_NUMBER.fullmatch(text):
        raise ValueError
    number = float(text) if "." in text else int(text)
    if abs(number) >= 2**63:
        raise ValueError
    return number


def shortest(text: str) -> str:
    """Return the shortest spelling of the date or time *text*: the same for equal values."""
    text = re.sub(r"(Z|\+00(:?00)?)$", "", text.strip().replace("T", " ", 1))
    return re.sub(r"(\b\d\d:\d\d):00$", r"\1", text)


def seconds_of(text: str) -> float:
    """Return the seconds of a duration such as 10s, 500ms or 2m, or raise ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|)", text.strip())
    if match is None:
        raise ValueError("must be a duration such as 10s, 500ms or 2m")
    return float(match[1]) * UNITS[match[2]]
