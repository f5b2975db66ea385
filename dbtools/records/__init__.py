"""The call log: calls in, lines of JSON out to stderr or to a file, and from the file calls again."""

from dbtools.records.entries import AuditEntry, Outcome, redacted
from dbtools.records.reading import FileReader, RegistryReader, Stored
from dbtools.records.writing import CallLog, CallLogs, FileSink, RegistrySink, Sink, StderrSink

__all__ = [
    "AuditEntry",
    "CallLog",
    "CallLogs",
    "FileReader",
    "FileSink",
    "Outcome",
    "RegistryReader",
    "RegistrySink",
    "Sink",
    "StderrSink",
    "Stored",
    "redacted",
]
