"""What dbtools itself keeps: the audit log, in lines and in a registry, and the queries of the registry."""

from dbtools.records.entries import AuditEntry, Outcome
from dbtools.records.reading import FileReader, Stored
from dbtools.records.writing import CallLog, CallLogs, FileSink, StderrSink, open_registry_sink

__all__ = [
    "AuditEntry",
    "CallLog",
    "CallLogs",
    "FileReader",
    "FileSink",
    "Outcome",
    "StderrSink",
    "Stored",
    "open_registry_sink",
]
