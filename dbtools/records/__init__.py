"""The call log: calls in, lines of JSON out to stderr or to a file, and from the file calls again."""

from dbtools.records.calls import Entry, Outcome, redacted
from dbtools.records.reading import FileReader, LogReader, RegistryReader, Stored
from dbtools.records.sinks import FileSink, RegistrySink, Sink, StderrSink
from dbtools.records.writing import CallLog, CallLogs

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
