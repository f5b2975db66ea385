"""What dbtools itself stores: the audit log, in lines or in a registry, and the queries of the registry."""

from dbtools.records.entries import AuditEntry, Outcome
from dbtools.records.log import AuditLog, FileSink, follow_file, open_log

__all__ = ["AuditEntry", "AuditLog", "FileSink", "Outcome", "follow_file", "open_log"]
