"""A query as it can be called: what its file declares and what the database says of it, as one value."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from dbtools.catalog import Column
from dbtools.queries.declarations import QueryParameter
from dbtools.queries.reading import Query
from dbtools.types import ColumnType


@dataclass(frozen=True, kw_only=True)
class Permitted:
    """A query that the database understands."""

    query: Query
    columns: tuple[Column, ...]
    types: Mapping[str, ColumnType] = field(
        default_factory=dict
    )  #: of parameters, and of claims as :claims.x
    casts: Mapping[str, str] = field(default_factory=dict)  #: their SQL names, where the database wants them
    reads: Collection[tuple[str, str, str]] | None = None  #: schema, table and column; None: not known
    versions: tuple[str, ...] = ()  #: of the tables that it reads, where they are known
    functions: tuple[str, ...] = ()  #: not the system's: what they read is not among that

    @property
    def name(self) -> str:
        """The name by which it is called."""
        return self.query.name

    @property
    def parameters(self) -> tuple[QueryParameter, ...]:
        """What callers give it."""
        return self.query.parameters
