"""What ad-hoc SQL may name besides tables: functions, operators, types, collations. A catalog in, names out.

A name is permitted if all that it may mean in its schema is permitted. So it does not matter which of several
overloaded functions PostgreSQL chooses, and no statement must be planned to find out: planning already
runs functions on constants.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dbtools.backends.run_sql import SqlOffer
from dbtools.policy.roles import FunctionRules
from dbtools.schema.sql import words

if TYPE_CHECKING:
    from asyncpg import Record

SYSTEM = "pg_catalog"
#: Functions of the system that read more than their arguments: catalogs, settings, the session, files.
DENIED = (
    "^(pg_|has_|acl|makeaclitem|current_|session_user|inet_(client|server)_|txid_|fmgr_|lo_|to_reg|query_to|"
    "ts_debug|ts_parse|jsonb?_populate|ts_token_type|brin_|gin_|gist_|spg_|bt.*(equalimage|support)|unicode_version)|"
    "(_to_xml.*|_description|_validator|send|recv|sel|support)$|"
    "^(version|system_user|icu_unicode_version|format_type|row_security_active|satisfies_hash_partition|mxid_age|"
    "getdatabaseencoding|getpgusername|get_current_ts_config|nameconcatoid|oidvectortypes|dblink.*)$"
)
#: Exceptions, which compute a value from their arguments; the last ones are volatile.
HARMLESS = "pg_size_pretty pg_size_bytes bool_or bit_or random random_normal gen_random_uuid uuidv4 uuidv7"
#: Types whose texts name objects of the database, or internal structures.
NAMING = (
    "regclass regproc regprocedure regoper regoperator regtype regrole regnamespace regcollation refcursor "
    "aclitem internal cstring trigger event_trigger pg_node_tree pg_ddl_command oidvector int2vector "
    "gtsvector pg_ndistinct pg_dependencies pg_mcv_list pg_brin_bloom_summary pg_brin_minmax_multi_summary"
)
#: Functions of pg_trgm that read one of its settings. Unless its operator % is permitted, 5 % 2 is not.
STABLE = (
    "similarity_op word_similarity_op word_similarity_commutator_op strict_word_similarity_op "
    "strict_word_similarity_commutator_op"
)
POINTERS = "internal cstring"  #: types of arguments that only C code has
ROW_TYPES = "record any anyelement anynonarray anycompatible anycompatiblenonarray"  #: types that a row fits
OIDS = """array(
    select t.oid
    from pg_catalog.pg_type as t
    where t.typnamespace = 'pg_catalog'::pg_catalog.regnamespace::pg_catalog.oid
        and t.typname::text = any(pg_catalog.string_to_array('{}', ' '))
)"""
LATER = "Write x + interval '1 day'."
AGGREGATED = "Write string_agg(x::text, ', ')."
MEDIAN = "Write percentile_cont(0.5) within group (order by x)."
#: What to write for words and signs of other databases, which are syntax errors.
FOREIGN: Mapping[str, str] = {
    "interval": LATER,
    "separator": AGGREGATED,
    "top": "Write limit 5 at the end.",
    "limit": "Write limit 10 offset 5.",
    "in": "Select one column in the subquery, or give both sides equally many.",
    **dict.fromkeys(words("for into"), "run_sql only reads: leave it out."),
    **dict.fromkeys(
        words("insert update delete merge"), "run_sql only reads: use the tools that change rows."
    ),
    **dict.fromkeys(words("` ["), "Write names in double quotes."),
    "?": "Parameters are not supported: write the value.",
}
#: What to write for these, and for functions, types and operators of other databases that analysts often use.
HABITS: Mapping[str, str] = {
    **FOREIGN,
    **{unit: f"Write extract({unit} from x)." for unit in words("year month day hour")},
    **dict.fromkeys(words("date_format strftime"), "Write to_char(x, 'YYYY-MM')."),
    **dict.fromkeys(words("datediff date_diff julianday timestampdiff"), "Write a - b."),
    **dict.fromkeys(words("date_add date_sub dateadd"), LATER),
    **dict.fromkeys(words("getdate sysdate"), "Write now()."),
    "datetime": "Write now(), or x::timestamp.",
    **dict.fromkeys(words("curdate today current_date"), "Write current_date without brackets."),
    **dict.fromkeys(words("group_concat listagg"), AGGREGATED),
    **dict.fromkeys(words("ifnull nvl isnull"), "Write coalesce(a, b)."),
    **dict.fromkeys(words("if iif"), "Write case when … then … else … end."),
    "len": "Write length(x).",
    **dict.fromkeys(words("instr charindex locate"), "Write strpos(text, part)."),
    "median": MEDIAN,
    **dict.fromkeys(words("try_cast safe_cast"), "Write case when x ~ '^[0-9]+$' then x::int end."),
    "string": "Write text.",
    **dict.fromkeys(words("regexp rlike"), "Write ~ for a regular expression, or like."),
    "==": "Write =.",
}
#: What to write for functions and operators of other databases with names that PostgreSQL has, too.
NAMESAKES: Mapping[str, str] = {
    "+": "Write a || b for texts; cast other values.",
    "convert": "Write cast(x as integer).",
    "date": LATER,
    "decode": "Write case when … then … else … end.",
    **dict.fromkeys(words("percentile_cont percentile_disc"), MEDIAN),
}
#: The operators that PostgreSQL applies where SQL has a keyword.
IMPLIED: Mapping[str, Collection[str]] = {
    **dict.fromkeys(words("in distinct case nullif using natural"), words("= <>")),
    "between": words("< <= > >="),
    "like": words("~~ !~~"),
    "ilike": words("~~* !~~*"),
    "similar": words("~ !~"),
}
UNWRITTEN = frozenset[str]().union(*IMPLIED.values())  #: all of these operators

MADE_BY_CASTS = "json"  #: to_json and its like call every cast to this type, for any value within theirs

#: Whether the function p is permitted, apart from the names in [functions].
PERMITTED = f"""(
    not p.prosecdef
    and p.prokind <> 'p'
    and (
        p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace::pg_catalog.oid
        and (
            p.provolatile <> 'v'
            and p.proname::text !~ '{DENIED}'
            and not (p.proargtypes::pg_catalog.oid[] || p.prorettype) && {OIDS.format(NAMING)}
            or p.proname::text = any(pg_catalog.string_to_array('{HARMLESS}', ' '))
        )
        -- An extension's function that depends on nothing but its arguments, and takes and gives no pointers.
        or (p.provolatile = 'i' or p.proname::text = any(pg_catalog.string_to_array('{STABLE}', ' ')))
        and not (p.proargtypes::pg_catalog.oid[] || p.prorettype) && {OIDS.format(POINTERS)}
        and exists (
            select
            from pg_catalog.pg_depend as d
            where d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid
                and d.objid = p.oid
                and d.deptype = 'e'
        )
        -- The owner of an extension, who need not be a superuser, may add own functions to it.
        and p.proowner in (select u.oid from pg_catalog.pg_roles as u where u.rolsuper)
    )
)"""
FUNCTIONS = f"""
select n.nspname::text as schema, p.proname::text as name, pg_catalog.bool_and({PERMITTED}) as permitted,
    -- Such a function can be called as if it were a column of its argument.
    pg_catalog.bool_or(p.pronargs >= 1 and p.pronargs - p.pronargdefaults <= 1) as takes_one,
    pg_catalog.bool_or(
        p.pronargs >= 1
        and p.pronargs - p.pronargdefaults <= 1
        and (t.typtype = 'c' or t.oid = any({OIDS.format(ROW_TYPES)}))
    ) as takes_row
from pg_catalog.pg_proc as p
join pg_catalog.pg_namespace as n on n.oid = p.pronamespace
left join pg_catalog.pg_type as t on t.oid = p.proargtypes[0]
where n.nspname not in ('pg_toast', 'information_schema')
group by 1, 2
"""
OPERATORS = f"""
select n.nspname::text as schema, o.oprname::text as name, p.proname::text as function,
    m.nspname::text as function_schema, {PERMITTED} as permitted
from pg_catalog.pg_operator as o
join pg_catalog.pg_namespace as n on n.oid = o.oprnamespace
join pg_catalog.pg_proc as p on p.oid = o.oprcode
join pg_catalog.pg_namespace as m on m.oid = p.pronamespace
where n.nspname::text = any($1::pg_catalog.text[])
    and ($2::pg_catalog.text[] is null or o.oprname::text = any($2::pg_catalog.text[]))
"""
#: Casts that run functions which are not permitted.
CASTS = f"""
select s.typname::text as source, t.typname::text as target, c.castcontext::text as context,
    n.nspname::text as schema, p.proname::text as function
from pg_catalog.pg_cast as c
join pg_catalog.pg_proc as p on p.oid = c.castfunc
join pg_catalog.pg_namespace as n on n.oid = p.pronamespace
join pg_catalog.pg_type as s on s.oid = c.castsource
join pg_catalog.pg_type as t on t.oid = c.casttarget
where c.oid >= '16384' and not {PERMITTED}
"""
#: Columns whose type is, or is made of, a domain with a CHECK that runs functions which are not permitted: to
#: read a text as a row, an array or a range, PostgreSQL runs it while it parses a statement.
CHECKED = f"""
with recursive made (type, part) as (
    select a.atttypid, a.atttypid
    from pg_catalog.pg_attribute as a
    where a.attrelid >= '16384' and a.atttypid >= '16384' and a.attnum > 0
    union
    select m.type, u.oid
    from made as m
    join pg_catalog.pg_type as t on t.oid = m.part
    left join pg_catalog.pg_attribute as a on a.attrelid = t.typrelid and a.attnum > 0
    left join pg_catalog.pg_range as r
        on t.oid::pg_catalog.text in (r.rngtypid::pg_catalog.text, pg_catalog.to_jsonb(r) ->> 'rngmultitypid')
    left join pg_catalog.pg_constraint as k on k.contypid = t.oid
    left join pg_catalog.pg_depend as d
        on d.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass::pg_catalog.oid
        and d.objid = k.oid
        and d.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass::pg_catalog.oid
    cross join lateral pg_catalog.unnest(
        array[t.typbasetype, t.typelem, a.atttypid, r.rngsubtype, d.refobjid]
    ) as u (oid)
    where u.oid >= '16384'
)
select distinct s.nspname::text as table_schema, c.relname::text as table, t.typname::text as type,
    n.nspname::text as schema, p.proname::text as function
from made as m
join pg_catalog.pg_constraint as k on k.contypid = m.part
join pg_catalog.pg_depend as d
    on d.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass::pg_catalog.oid and d.objid = k.oid
left join pg_catalog.pg_operator as o
    on o.oid = d.refobjid and d.refclassid = 'pg_catalog.pg_operator'::pg_catalog.regclass::pg_catalog.oid
join pg_catalog.pg_proc as p
    on p.oid = coalesce(o.oprcode::pg_catalog.oid, d.refobjid)
    and (o.oid is not null or d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid)
join pg_catalog.pg_namespace as n on n.oid = p.pronamespace
join pg_catalog.pg_attribute as a on a.atttypid = m.type and a.attnum > 0
join pg_catalog.pg_class as c on c.oid = a.attrelid
join pg_catalog.pg_namespace as s on s.oid = c.relnamespace
join pg_catalog.pg_type as t on t.oid = m.type
where not {PERMITTED}
"""
TYPE_NAMES = f"""
select t.name, pg_catalog.bool_or(t.permitted) as permitted, pg_catalog.bool_and(t.permitted) as all_permitted
from (
    select t.typname::text as name,
        t.typnamespace = 'pg_catalog'::pg_catalog.regnamespace::pg_catalog.oid
        and t.typtype in ('b', 'r', 'm')
        and t.typname !~ '^_'
        and not t.typname::text = any(pg_catalog.string_to_array('tid cid xid {NAMING}', ' ')) as permitted
    from pg_catalog.pg_type as t
    join pg_catalog.pg_namespace as n on n.oid = t.typnamespace
    where n.nspname not in ('pg_toast', 'information_schema')
) as t
group by 1
"""
#: A number for what a vocabulary is made from: it changes with each object of users that a name may mean,
#: apart from tables.
VOCABULARY_NUMBER = """(
    select pg_catalog.concat_ws(
        ' ', pg_catalog.count(*), pg_catalog.sum(w.xmin::pg_catalog.text::pg_catalog.int8)
    )
    from (
        select x.xmin from pg_catalog.pg_proc as x where x.oid >= '16384'
        union all
        select x.xmin from pg_catalog.pg_operator as x where x.oid >= '16384'
        union all
        select x.xmin from pg_catalog.pg_cast as x where x.oid >= '16384'
        union all
        -- Each temporary table has a type, and an array type.
        select x.xmin
        from pg_catalog.pg_type as x
        where x.oid >= '16384' and x.typtype <> 'c' and x.typelem = '0'
        union all
        select x.xmin
        from pg_catalog.pg_namespace as x
        where not pg_catalog.starts_with(x.nspname::pg_catalog.text, 'pg_')
    ) as w
)"""
COLLATIONS = """
select c.collname::text
from pg_catalog.pg_collation as c
where c.collnamespace = 'pg_catalog'::pg_catalog.regnamespace::pg_catalog.oid
"""


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """What ad-hoc SQL may name besides tables, on one search path."""

    path: Sequence[str]  #: the schemas of unqualified names, that of the system first
    functions: Mapping[str, Mapping[str, bool]]  #: by name and schema: whether all of that name are permitted
    operators: Mapping[str, str]  #: with their schema; "" if several schemas of the path have it
    types: frozenset[str]  #: of the system
    blocked: frozenset[str]  #: types to which a cast may call a function that is not permitted
    collations: frozenset[str]
    attributes: frozenset[str]  #: functions and types that are not permitted, and can be called like a column
    attributes_of_rows: frozenset[str]  #: functions among them that take rows
    obstacles: Sequence[str]  #: why nothing can be run at all
    number: str  #: of what it was made from
    #: Tables that cannot be read, and functions that are not permitted, in the CHECK of a domain.
    checked: Mapping[tuple[str, str], str]

    def schema_of(self, name: str, schema: str = "") -> str | None:
        """Return the schema to write before the function *name*, perhaps ""; None if it is not permitted."""
        known = self.functions.get(name, {})
        if schema:
            return schema if known.get(schema) else None
        there = [each for each in self.path if each in known]
        permitted = [each for each in there if known[each]]
        # Without a schema, PostgreSQL lets unnest take several arrays.
        if permitted == there and (len(there) > 1 or name == "unnest"):
            return ""
        return permitted[0] if len(permitted) == 1 else None

    @property
    def names(self) -> Sequence[str]:
        """The functions that are permitted, to suggest one."""
        return sorted(name for name in self.functions if self.schema_of(name) is not None)


async def read_offer(connection: Any, path: Sequence[str], rules: FunctionRules) -> SqlOffer:
    """Return whether ad-hoc SQL may run on the search *path*, if functions are permitted by *rules*."""
    operators = await connection.fetch(OPERATORS, _searched_schemas(path), list(UNWRITTEN))
    obstacles = _obstacles(operators, await connection.fetch(CASTS), rules)
    version = connection.get_settings().server_version.split()[0]
    return SqlOffer(server=f"PostgreSQL {version}", obstacle=" ".join(obstacles))


async def read_vocabulary(connection: Any, path: Sequence[str], rules: FunctionRules) -> Vocabulary:
    """Return what may be named on the search *path*, if functions are permitted by *rules*."""
    number = await connection.fetchval(
        f"select {VOCABULARY_NUMBER}"
    )  # before the rest, so that it is never too new
    functions: defaultdict[str, dict[str, bool]] = defaultdict(dict)
    attributes, attributes_of_rows = set(), set()
    for row in await connection.fetch(FUNCTIONS):
        permitted = rules.permits(row["name"], row["schema"], harmless=row["permitted"])
        functions[row["name"]][row["schema"]] = permitted
        if row["takes_one"] and not permitted:
            attributes.add(row["name"])
            attributes_of_rows |= {row["name"]} if row["takes_row"] else set()
    operators = await connection.fetch(OPERATORS, _searched_schemas(path), None)
    casts, types = await connection.fetch(CASTS), await connection.fetch(TYPE_NAMES)
    rows = await connection.fetch(CHECKED)
    checked = [row for row in rows if not rules.permits(row["function"], row["schema"])]
    schemas: defaultdict[str, set[str]] = defaultdict(set)
    for row in operators:
        schemas[row["name"]].add(row["schema"])
    refused = {row["name"] for row in operators if not _is_permitted(row, rules)}
    blocked = {row["target"] for row in casts if not rules.permits(row["function"], row["schema"])}
    blocked |= {row["type"] for row in checked}
    return Vocabulary(
        path=_searched_schemas(path),
        functions=functions,
        operators={
            name: "".join(known) if len(known) == 1 else ""
            for name, known in schemas.items()
            if name not in refused
        },
        types=frozenset(row["name"] for row in types if row["permitted"]) - blocked,
        blocked=frozenset(blocked),
        collations=frozenset(row[0] for row in await connection.fetch(COLLATIONS)),
        attributes=frozenset(
            attributes | blocked | {row["name"] for row in types if not row["all_permitted"]}
        ),
        attributes_of_rows=frozenset(attributes_of_rows),
        obstacles=_obstacles(operators, casts, rules),
        number=number,
        checked={
            (row["table_schema"], row["table"]): f"{row['schema']}.{row['function']}" for row in checked
        },
    )


def _searched_schemas(path: Sequence[str]) -> Sequence[str]:
    """Return the schemas of unqualified names, that of the system first."""
    return list(dict.fromkeys((SYSTEM, *path)))


def _is_permitted(operator: "Record", rules: FunctionRules) -> bool:
    name, schema, harmless = operator["function"], operator["function_schema"], operator["permitted"]
    return operator["schema"] == SYSTEM or rules.permits(name, schema, harmless=harmless)


def _obstacles(
    operators: "Iterable[Record]", casts: "Iterable[Record]", rules: FunctionRules
) -> Sequence[str]:
    """Return why no statement can run: what calls a function that is not permitted without naming it."""
    calling = [
        (f"operator {row['name']}", row["function_schema"], row["function"])
        for row in operators
        if row["name"] in UNWRITTEN and not _is_permitted(row, rules)
    ]
    calling += [
        (f"{_kind(row)} from {row['source']} to {row['target']}", row["schema"], row["function"])
        for row in casts
        if (row["context"] == "i" or row["target"] == MADE_BY_CASTS)
        and not rules.permits(row["function"], row["schema"])
    ]
    sentence = "The {} calls the function {}.{}, which [functions] does not permit."
    return tuple(dict.fromkeys(sentence.format(*each) for each in calling))


def _kind(cast: "Record") -> str:
    return "implicit cast" if cast["context"] == "i" else "cast"
