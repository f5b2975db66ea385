"""Dates, times and durations: a text from a caller in, the value to bind out."""

import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
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
MIDNIGHT = " 00:00:00"
#: A moment as programs store it where a database has no type for it, with an offset as in TIME.
STORED_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[ T]+(\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?\s*"
    r"(?:Z|([+-])(0\d|1[0-5])(?::?([0-5]\d))?)?)?\s*",
    re.ASCII | re.IGNORECASE,
)
STORED_TIME = re.compile(
    r"(\d\d:\d\d)(?::(\d\d)(?:\.(\d+))?)?(?:Z|[+-]00(?::?00)?)?", re.ASCII | re.IGNORECASE
)
FIRST_MOMENT = datetime(1, 1, 1)
LAST_SECOND = (datetime.max - FIRST_MOMENT) // timedelta(seconds=1)
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
    """Decode the date *text*, or raise ValueError; a moment at midnight in UTC is a date."""
    text = _with_hyphens(text)
    if _is_special(text, calendar):
        return text.lower()
    if _is_date(text, calendar, LATEST_DATE):
        return text
    moment = read_moment(text, calendar)
    if not isinstance(moment, str):
        return moment
    if not PLAIN_DATE.fullmatch(day := day_of(utc(text) or text)):
        raise ValueError
    return day


def read_time(text: str, calendar: Calendar) -> object:
    """Decode the time of day *text*, with or without a zone, or raise ValueError."""
    if not TIME.fullmatch(text):
        return _stored_number(text, calendar)
    return clock_of(text) if calendar.lenient else text


def read_timestamp(text: str, calendar: Calendar) -> object:
    """Decode the date and time *text* for a column without a zone, which is in UTC, or raise ValueError."""
    moment = read_moment(text, calendar)
    time = TIME.fullmatch(_parts(text)[-1])
    if not time or not time["zone"] or time["zone"].upper() in NO_OFFSET:
        return moment
    # The database would ignore the offset, and the value would mean another time.
    if (converted := utc(text)) is None:
        raise ValueError
    return converted


def read_moment(text: str, calendar: Calendar) -> object:
    """Decode the date and time *text*, with or without a zone, or raise ValueError."""
    text = _with_hyphens(text)
    if _is_special(text, calendar):
        return text.lower()
    day, separator, clock = _parts(text)
    time = TIME.fullmatch(clock)
    if not _is_date(day, calendar, LATEST_TIMESTAMP) or (separator and not time):
        return _stored_number(text, calendar)
    # What a database without date types stores and compares has one spelling.
    return utc(text) or text if calendar.lenient else text


def read_interval(text: str, calendar: Calendar) -> str:
    """Decode the duration *text*, or raise ValueError."""
    if _is_special(text, calendar):
        return text.lower()
    if not text or len(text) > 100 or not INTERVAL.fullmatch(text):
        raise ValueError
    return text


def _with_hyphens(text: str) -> str:
    """Return the date *text* as 2024-03-05 if it is 20240305; any other text as it is."""
    basic = BASIC_DATE.fullmatch(text)
    day = "-".join(basic.groups()) if basic else text
    return text if instant(day) is None else day


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


def instant(text: str) -> tuple[int, str] | None:
    """Return the seconds from the year 1 to the moment *text*, and the digits of its fraction.

    Return None if *text* is no moment of the years 1 to 9999. Without an offset it is in UTC.
    """
    match = STORED_MOMENT.fullmatch(text)
    if match is None:
        return None
    day, hour, minute, second, fraction, sign, *offset = match.groups("0")
    clock, ahead = (int(hour), int(minute), int(second)), int(offset[0]) * 60 + int(offset[1])
    if clock > (24, 0, 0) or clock[1] > 59 or clock[2] > 59:
        return None
    try:
        days = date.fromisoformat(day).toordinal() - 1
    except ValueError:
        return None
    seconds = (
        days * 86_400 + clock[0] * 3600 + clock[1] * 60 + clock[2] + ahead * (60 if sign == "-" else -60)
    )
    return (seconds, fraction.rstrip("0")) if 0 <= seconds <= LAST_SECOND else None


def utc(text: str) -> str | None:
    """Return the moment *text* as 2024-03-05 14:30:00 in UTC; None if it is none, see `instant`.

    The order of these texts is the order of the moments.
    """
    found = instant(text)
    if found is None:
        return None
    moment = (FIRST_MOMENT + timedelta(seconds=found[0])).isoformat(" ")
    return f"{moment}.{found[1]}" if found[1] else moment


def day_of(moment: str) -> str:
    """Return *moment*, as `utc` writes it, without the time if that is midnight."""
    return moment.removesuffix(MIDNIGHT)


def clock_of(text: str) -> str:
    """Return the time of day *text* as 14:30:00; a text that is none, or has an offset, as it is."""
    match = STORED_TIME.fullmatch(text)
    if match is None:
        return text
    fraction = (match[3] or "").rstrip("0")
    return f"{match[1]}:{match[2] or '00'}" + (f".{fraction}" if fraction else "")


def seconds_of(text: str) -> float:
    """Return the seconds of a duration such as 10s, 500ms or 2m, or raise ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|)", text.strip())
    if match is None:
        raise ValueError("must be a duration such as 10s, 500ms or 2m")
    return float(match[1]) * UNITS[match[2]]
