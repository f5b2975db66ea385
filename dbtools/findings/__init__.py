"""Findings: what is wrong with a configuration, as values. A Kind and data in, a worded Finding out."""

from dbtools.findings.codes import FindingCode, Level
from dbtools.findings.kinds import Hindrance, Kind, WriteProblem
from dbtools.findings.values import Finding, Source, Unusable, finding, withdrawn

__all__ = [
    "Finding",
    "FindingCode",
    "Hindrance",
    "Kind",
    "Level",
    "Source",
    "Unusable",
    "WriteProblem",
    "finding",
    "withdrawn",
]
