"""Read query files, which contain SQL that operators permit. Text in, Queries and Findings out."""

from dbtools.queries.headers import QueryParameter, Returns
from dbtools.queries.reading import Effect, Effects, Permitted, Query, read_queries, sources_of, texts_of

__all__ = [
    "Effect",
    "Effects",
    "Permitted",
    "Query",
    "QueryParameter",
    "Returns",
    "read_queries",
    "sources_of",
    "texts_of",
]
