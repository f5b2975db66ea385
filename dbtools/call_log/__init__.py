"""The call log: calls in, lines of JSON out to stderr or to a file, and from the file calls again."""

from dbtools.call_log.entries import Entry, Outcome, redacted
from dbtools.call_log.reading import FileReader, LogReader, RegistryReader, Stored
from dbtools.call_log.sinks import FileSink, RegistrySink, Sink, StderrSink
from dbtools.call_log.writing import CallLog, CallLogs

__all__ = [
    "CallLog",
    "CallLogs",
    "Entry",
    "FileReader",
    "FileSink",
    "LogReader",
    "Outcome",
    "RegistryReader",
    "RegistrySink",
    "Sink",
    "StderrSink",
    "Stored",
    "redacted",
]
