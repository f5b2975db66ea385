"""Who may see what, and how much: roles, limits, and `restrict`, the lens between catalog and tools."""

from dataclasses import dataclass, field

from dbtools.catalog import Catalog


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one call may take."""

    max_rows: int = 200
    max_tokens: int = 20_000  #: bytes of the encoded result / 3
    max_cell: int = 2_000  #: characters of one cell in a list
    timeout: float = 10.0  #: seconds

    @property
    def max_bytes(self) -> int:
        """How many bytes the encoded result may take."""
        return self.max_tokens * 3


@dataclass(frozen=True, kw_only=True)
class Role:
    """Somebody on whose behalf calls are made."""

    name: str = "default"
    limits: Limits = field(default_factory=Limits)


def restrict(catalog: Catalog, role: Role) -> Catalog:
    """Return the part of *catalog* that *role* has been granted: all of it, until roles can be configured."""
    return catalog
