"""Apply a configuration to a database. `resolve` calls the stages in this order:

1. `roles.py`: the roles, as they are configured; `conditions.py` and `claims.py` judge their row filters;
2. `declarations.py`: what `[tables]` adds to the catalog;
3. `query_sources.py`: the queries in files and the registry; `permitted.py`: those that the database accepts;
4. `rules.py`, `filters.py`: the rules of each role that fit the database, and so what it sees;
5. `privileges.py`: what the login can do: run callers' SQL, do more than read, make the granted changes.

`resolved.py` has the result. What is invalid is withheld, and a finding says so.
"""
