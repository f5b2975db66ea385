"""The call log: calls in, lines of JSON out to stderr or to a file, and from the file calls again."""

from dbtools.call_log.entries import Entry, Outcome, redacted
from dbtools.call_log.reading import LogReader, Stored
from dbtools.call_log.sinks import FileSink, Sink, StderrSink
from dbtools.call_log.writing import CallLog

__all__ = [
    "CallLog",
    "Entry",
    "FileSink",
    "LogReader",
    "Outcome",
    "Sink",
    "StderrSink",
    "Stored",
    "redacted",
]
