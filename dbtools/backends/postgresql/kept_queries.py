"""What a query reads, as the server keeps it with a view. The text of the query's tree in, numbers out."""

import re
from collections.abc import Iterator, Sequence

SELECT = 2  #: the bit of the privilege
WHOLE_ROW = 0  #: the number that stands for all columns
BIT_OF_WHOLE_ROW = 7
NOT_TEMPORARY = ("25006", "42501")  #: the states of a server or a login that makes no temporary views
#: How the tree of a query tells what it reads of each table; before version 16 the table itself told it.
READS = re.compile(
    r"\{RTEPERMISSIONINFO :relid (\d+) :inh \w+"
    r" :requiredPerms (\d+) :checkAsUser \d+ :selectedCols \(b([ \d]*)\)"
)
READS_BEFORE_16 = re.compile(
    r":relid (\d+) (?:(?!:relid ).)*? :requiredPerms (\d+) :checkAsUser \d+ :selectedCols \(b([ \d]*)\)",
    re.DOTALL,
)
FUNCTIONS = re.compile(r"\{\w+ (?::opno \d+ )?:(?:funcid|opfuncid|aggfnoid|winfnoid) (\d+)")
#: What makes values of a type, and so holds its constraints against them: a column or a field that is read
#: does not.
COERCED = re.compile(r"(?P<field>:fieldnum \d+ )?:(?:resulttype|consttype) (?P<type>\d+)")
#: The types of the columns of functions in FROM.
MADE = re.compile(r":(?:funccoltypes|coltypes) \(o ([\d ]+)\)")
ORIGINS = re.compile(
    r":resno \d+ :resname \S+ :ressortgroupref \d+ :resorigtbl (\d+) :resorigcol (-?\d+) :resjunk false"
)
#: An outer join, or grouping by more than one set: either makes nulls of what has none.
MAKES_NULLS = re.compile(r":jointype [^0]|:groupingSets [^<]")

#: The trees of the queries of the views $1, as the server keeps them.
TREES = """
select
    r.ev_class as view,
    r.ev_action::pg_catalog.text as tree
from pg_catalog.pg_rewrite as r
where r.ev_class = any($1::pg_catalog.oid[])
    and r.ev_type = '1'
"""

#: The temporary view $1: its tree, and the names and types of its columns.
KEPT = """
select
    r.ev_action::pg_catalog.text as tree,
    array(
        select a.attname::pg_catalog.text
        from pg_catalog.pg_attribute as a
        where a.attrelid = c.oid
            and a.attnum > 0
        order by a.attnum
    ) as names,
    array(
        select a.atttypid
        from pg_catalog.pg_attribute as a
        where a.attrelid = c.oid
            and a.attnum > 0
        order by a.attnum
    ) as types,
    array(
        select a.atttypmod
        from pg_catalog.pg_attribute as a
        where a.attrelid = c.oid
            and a.attnum > 0
        order by a.attnum
    ) as modifiers
from pg_catalog.pg_class as c
join pg_catalog.pg_rewrite as r on r.ev_class = c.oid
where c.relnamespace = pg_catalog.pg_my_temp_schema()
    and c.relname = $1::pg_catalog.text
    and r.ev_type = '1'
"""

#: The columns of the tables $1, and whether each surely has no nulls: those that inherit a table may have.
READ_COLUMNS = """
select
    c.oid as relation,
    n.nspname::text as schema,
    c.relname::text as name,
    a.attnum as number,
    a.attname::text as column,
    a.attnotnull
    and (c.relkind = 'p' or c.relkind = 'r' and not c.relhassubclass)
    and not exists (
        select
        from pg_catalog.pg_constraint as k
        where k.conrelid = c.oid
            and k.contype = 'n'
            and a.attnum = any(k.conkey)
            and not k.convalidated
    ) as filled
from pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
left join pg_catalog.pg_attribute as a
    on a.attrelid = c.oid
    and a.attnum > 0
    and not a.attisdropped
where c.oid = any($1::pg_catalog.oid[])
"""

#: The functions $1, whether they came with the system or with an extension, and whether they may read tables.
CALLED = """
select
    f.oid as number,
    n.nspname::text as schema,
    f.proname::text as name,
    n.nspname not in ('pg_catalog', 'information_schema')
    and not (e.known and f.provolatile = 'i') as reads,
    n.nspname = 'pg_catalog' or e.known as known
from pg_catalog.pg_proc as f
join pg_catalog.pg_namespace as n on n.oid = f.pronamespace
cross join lateral (
    select exists (
        select
        from pg_catalog.pg_depend as d
        where d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid
            and d.objid = f.oid
            and d.deptype = 'e'
    ) as known
) as e
where f.oid = any($1::pg_catalog.oid[])
order by n.nspname, f.proname
"""

#: The trees of the CHECK constraints of the domains among the types $1 and all that these are made of.
CHECKS = """
with recursive types (oid) as (
    select u.oid
    from pg_catalog.unnest($1::pg_catalog.oid[]) as u (oid)
    union
    select p.oid
    from types as s
    join pg_catalog.pg_type as t on t.oid = s.oid
    left join pg_catalog.pg_range as r on r.rngtypid = t.oid
    left join pg_catalog.pg_attribute as a
        on a.attrelid = t.typrelid
        and a.attnum > 0
        and not a.attisdropped
    cross join lateral pg_catalog.unnest(array[t.typbasetype, t.typelem, r.rngsubtype, a.atttypid]) as p (oid)
    where p.oid <> 0
)
select k.conbin::pg_catalog.text as tree
from pg_catalog.pg_constraint as k
where k.contypid in (select s.oid from types as s)
    and k.contype = 'c'
"""


def reads_of(tree: str, version: int) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the tables that somebody must be allowed to read, each with the numbers of columns."""
    pattern = READS if version >= 16 else READS_BEFORE_16
    for relation, privileges, columns in pattern.findall(tree):
        if int(privileges) & SELECT:
            yield int(relation), [int(bit) - BIT_OF_WHOLE_ROW for bit in columns.split()]


def functions_of(tree: str) -> set[int]:
    """Return the functions that are called, those of operators too."""
    return {int(number) for number in FUNCTIONS.findall(tree)} - {0}


def types_made_in(tree: str) -> set[int]:
    """Return the types of which values are made."""
    listed = (number for numbers in MADE.findall(tree) for number in numbers.split())
    coerced = (type for field, type in COERCED.findall(tree) if not field)
    return {int(number) for number in (*coerced, *listed)}


def origins_of(tree: str, width: int) -> list[tuple[int, int]]:
    """Return, of each of the *width* columns of the result, the table and the column whose cells it shows.

    Nought is the table where a column shows none, or where a join may have put nulls between.
    """
    if width == 0 or MAKES_NULLS.search(tree):
        return [(0, 0)] * width
    # The list of the query itself comes after those of all that is in it.
    found = ORIGINS.findall(tree)[-width:]
    return [(int(table), int(column)) for table, column in found]
