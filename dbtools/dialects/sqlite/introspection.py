"""Read the catalog of a SQLite database: a few statements over all tables, not one for each.

Only what is in the file itself counts (the schema "main"); what SQLite, a virtual table or dbtools keeps for
itself is no part of it. A relation that cannot be read is left out with a warning, and the others stay.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from dbtools.catalog import Catalog, Column, ForeignKey, Key, Selection, Table, TableKind
from dbtools.column_types import ColumnType, Family
from dbtools.dialects.checks import Check, read_checks
from dbtools.dialects.sqlite.ddl import Definition, fold, module_of, read_definition
from dbtools.dialects.sqlite.types import column_type

#: of migrations, and of the registry
INTERNAL = frozenset({"alembic_version", "dbtools_version", "dbtools_query", "dbtools_call"})
#: modules of virtual tables whose rows have a rowid that stays the same
MODULES_WITH_ROWID = frozenset({"fts3", "fts4", "fts5", "rtree", "rtree_i32"})
ROWIDS = ("rowid", "_rowid_", "oid")
MOST_ESTIMATES = 200  #: tables whose rowids are looked at
LEAST_BYTES_OF_ROW = 6

RELATIONS = """
select l.name, l.type, l.wr, l.strict, s.sql
from pragma_table_list as l
join main.sqlite_schema as s on s.name = l.name and s.type in ('table', 'view')
where l.schema = 'main'
and l.type in ('table', 'view', 'virtual')
"""
