"""Store what dbtools itself keeps: the audit log, as lines or in a registry, and queries in a registry."""

from dbtools.records.entries import AuditEntry, Outcome
from dbtools.records.log import AuditLog, FileSink, follow_file, open_log

__all__ = ["AuditEntry", "AuditLog", "FileSink", "Outcome", "follow_file", "open_log"]
