"""Word findings. A Kind, a place in a file and data in, a Finding out."""

from dataclasses import dataclass, field, replace

from dbtools.findings.codes import FindingCode, Level
from dbtools.findings.kinds import Kind
from dbtools.values.cells import one_line


@dataclass(frozen=True, kw_only=True)
class Source:
    """A place in a file."""

    file: str = ""
    line: int | None = None

    def __str__(self) -> str:
        """Return the place as the prefix of a message; empty without a file."""
        return f"{one_line(self.file)}:{self.line or 1}: " if self.file else ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A problem with a configuration, query or policy."""

    code: FindingCode
    message: str
    level: Level = Level.ERROR
    source: Source = field(default_factory=Source)
    role: str = field(default="", compare=False)  #: that it concerns, if any
    subject: str = field(default="", compare=False)  #: the query or view that is withheld, if any

    @property
    def place(self) -> tuple[str, int]:
        """The file and line, to sort findings by."""
        return self.source.file, self.source.line or 0

    def __str__(self) -> str:
        """Return the finding as one line that begins with its place."""
        return f"{self.source}{self.level}: {one_line(self.message)}"


def finding(
    kind: Kind, source: Source | None = None, level: Level = Level.ERROR, /, **places: object
) -> Finding:
    """Return the finding of *kind* at *source*, with the data for the *places* in its sentence.

    *level*: of a kind that has none. The places role and subject are fields of the finding as well.
    """
    return Finding(
        code=kind.code,
        message=kind.text.format_map(places).rstrip(),
        level=kind.level or level,
        source=source or Source(),
        role=str(places.get("role", "")),
        subject=str(places.get("subject", "")),
    )


def withdrawn(problem: Finding, query: str, source: Source, role: str = "") -> Finding:
    """Return that *query* is withdrawn, or withdrawn from *role*, because of *problem*."""
    where = f"role {role}, queries: {query}" if role else f"query {query}"
    message = f"{where} is withdrawn: {problem.message}"
    return replace(problem, message=message, source=source, role=role, subject=query)


class Unusable(Exception):
    """Something in the configuration is invalid; its finding says why."""

    def __init__(self, kind: Kind, source: Source, /, **places: object) -> None:
        self.finding = finding(kind, source, **places)
        super().__init__(self.finding.message)
