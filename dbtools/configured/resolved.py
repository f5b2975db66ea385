"""What a configuration serves of a database, and what is wrong with it: values, which `resolve` makes."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from dbtools.configured.permitted import Library
from dbtools.findings import Finding, FindingCode, Level
from dbtools.policy.roles import Role
from dbtools.schema.catalog import Catalog, Table
from dbtools.settings.sections import Settings

UNREAD = (FindingCode.NO_REGISTRY, Level.ERROR)  #: code and level of a registry that cannot be read


@dataclass(frozen=True, kw_only=True)
class ResolvedRole:
    """A role as configured, and the valid part of it that is served."""

    written: Role
    served: Role  #: without what is invalid
    whole: Catalog = field(repr=False)  #: what the database lets the role see
    catalog: Catalog = field(repr=False)  #: the part of it that the role is granted
    views: tuple[Table, ...] = field(default=(), repr=False)  #: that its patterns do not grant
    journal: bool | None = False  #: whether its writes can use the journal; None: not known so far
    findings: tuple[Finding, ...] = ()
    server: str = ""  #: of the SQL that callers may run; empty: they may not


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """Everything that is served, and what is wrong with it."""

    catalog: Catalog = field(repr=False)
    roles: tuple[ResolvedRole, ...]
    library: Library = field(default_factory=Library)
    findings: tuple[Finding, ...] = ()  #: about neither a role nor a query
    settings: Settings = field(default_factory=Settings, repr=False)
    stamps: Mapping[str, Hashable] = field(default_factory=dict)  #: of its sources, by name

    @property
    def unchecked(self) -> str:
        """Why something cannot be checked at this moment, or nothing."""
        return next((each.message for each in self.problems if each.code is FindingCode.UNCHECKED), "")

    @property
    def is_complete(self) -> bool:
        """Whether everything could be checked."""
        return all(
            each.code not in (FindingCode.UNCHECKED, FindingCode.UNREACHABLE) for each in self.problems
        )

    @property
    def missing(self) -> tuple[str, ...]:
        """Why queries may be missing, if the registry cannot be read."""
        return tuple(str(each) for each in self.library.findings if (each.code, each.level) == UNREAD)

    @cached_property
    def problems(self) -> tuple[Finding, ...]:
        """All that was found."""
        of_roles = (finding for role in self.roles for finding in role.findings)
        return (*self.findings, *of_roles, *self.library.findings)
