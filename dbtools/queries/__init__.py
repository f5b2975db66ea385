"""Query files: SQL that operators permit. Text in, Queries and Findings out."""

from dbtools.queries.bodies import Body, Stretch
from dbtools.queries.declarations import QueryParameter
from dbtools.queries.headers import Returns
from dbtools.queries.reading import Permitted, Query, read_queries, sources_of, texts_of

__all__ = [
    "Body",
    "Permitted",
    "Query",
    "QueryParameter",
    "Returns",
    "Stretch",
    "read_queries",
    "sources_of",
    "texts_of",
]
