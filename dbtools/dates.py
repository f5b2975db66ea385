"""Dates and times as texts: which are some, whatever a database makes of them."""

import re
from datetime import date

DATE = re.compile(r"([+-]?\d{4,7})-(\d\d)-(\d\d)( BC)?", re.ASCII)
PLAIN_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
TIME = re.compile(
    r"(\d\d):(\d\d)(?::(\d\d)(?:\.\d{1,9})?)?(Z|[+-]\d\d(?::?\d\d)?(?::?\d\d)?)?", re.ASCII | re.I
)
BASIC_DATE = re.compile(r"([12]\d{3})(\d\d)(\d\d)", re.ASCII)
MIDNIGHT = re.compile(r" 00:00(:00(\.0+)?)?$", re.ASCII)
LATEST_DATE, LATEST_TIMESTAMP = 5_874_897, 294_276  #: years that any database here knows


def is_date(text: str, *, infinite: bool, latest: int) -> bool:
    """Return whether *text* is a date of the years 1 to *latest*, in ISO 8601's form unless *infinite*."""
    if not (match := DATE.fullmatch(text)) or not (infinite or PLAIN_DATE.fullmatch(text)):
        return False
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    if not 1 <= year <= latest:
        return False
    # 2000 stands for years that Python's calendar lacks: their leap days are left to the database.
    stand_in = year if 1 <= year <= 9999 and not match[4] else 2000
    try:
        date(stand_in, month, day)
    except ValueError:
        return False
    return True


def is_time(text: str) -> bool:
    """Return whether *text* is a time of day, with or without a zone."""
    if not (match := TIME.fullmatch(text)):
        return False
    hour, minute, second = int(match[1]), int(match[2]), int(match[3] or 0)
    return (hour < 24 and minute < 60 and second < 60) or (hour, minute, second) == (24, 0, 0)
