"""The closed set of findings: each Kind is one sentence, with its code and its level.

Stages name a Kind and give the data for the places in its sentence; `finding` fills them in. No other module
words a finding.
"""

from enum import Enum, StrEnum, unique
from typing import NamedTuple

from dbtools.findings.codes import FindingCode, Level


class Sentence(NamedTuple):
    """What a kind of finding says, with places such as {role} for its data."""

    code: FindingCode
    level: Level | None  #: None: the stage decides between error and warning
    text: str


def error(code: str, text: str) -> Sentence:
    """Return a sentence about something that is withheld or cannot be used."""
    return Sentence(FindingCode(code), Level.ERROR, text)


def warning(code: str, text: str) -> Sentence:
    """Return a sentence about something that is probably not intended."""
    return Sentence(FindingCode(code), Level.WARNING, text)


def either(code: str, text: str) -> Sentence:
    """Return a sentence that is an error or a warning, as the stage decides."""
    return Sentence(FindingCode(code), None, text)


def success(code: str, text: str) -> Sentence:
    """Return a sentence about a step that succeeded."""
    return Sentence(FindingCode(code), Level.OK, text)


@unique
class Kind(Enum):
    """Every kind of finding, in the order of the stages."""

    # The roles as configured.
    HIGHER_LIMIT = warning("higher_limit", "role {role}, limits.{key}: [limits] allows at most {most:g}.")
    INHERITS_ITSELF = error("unknown_role", "role {role}, inherits: {other} inherits from itself.")
    INHERITS_UNKNOWN = error(
        "unknown_role", "role {role}, inherits: there is no role {other}. {nearest}Roles: {roles}."
    )
    INHERITS_TOO_DEEP = error(
        "unknown_role", "role {role}, inherits: more than {most} roles inherit from each other."
    )
    TOKEN_ROLE = error("unknown_role", "[auth] tokens: there is no role {token_role}. Roles: {roles}.")
    NO_HASH_KEY = error("no_hash_key", "role {role}, tables.{pattern}.mask: hash needs [policy] hash_key.")
    NO_CHANGE_GRANTED = error(
        "bad_writes",
        "role {role}, tables.{pattern}.{key}: nothing may be changed: grant insert, update or delete.",
    )
    AFTER_WITHOUT_WHERE = error(
        "bad_writes",
        "role {role}, tables.{pattern}.after: it replaces where after a change, and there is no where.",
    )
    UNSCANNED_FILTER = error("bad_filter", "role {role}, tables.{pattern}.{key}: {problem}.")
    NOT_A_CLAIM = error(
        "bad_filter", "role {role}, tables.{pattern}.{key}: {parameter} is not a claim: write :claims.{name}."
    )
    NOT_A_CONDITION = error("bad_filter", "role {role}, tables.{pattern}.{key}: must be a condition.")
    FALSE_FILTER = warning(
        "vain_filter", "role {role}, tables.{pattern}.{key}: no row passes: it is false for every row."
    )
    NULL_FILTER = warning(
        "vain_filter",
        "role {role}, tables.{pattern}.{key}: no row passes: nothing equals null, or differs from it: write "
        "is null, or is not null.",
    )
    LISTED_JSON = warning(
        "vain_filter",
        "role {role}, tables.{pattern}.{key}: the claim {claim} has the type json, and a list in JSON equals "
        "no value of a column: take its values out with a function for JSON.",
    )
    SET_ROLE_AS_SETTING = error("bad_session", "role {role}, settings.{name}: write set_role instead.")
    SETTING_WITH_CLAIM = error(
        "bad_session",
        "role {role}, settings.{name}: only a setting with a dot in its name, such as app.user, may have a "
        "claim.",
    )
    BAD_SETTING = error("bad_session", "role {role}, settings.{name}: {problem}.")

    # What [tables] declares, and the catalog.
    UNKNOWN_NAME = error(
        "unknown_table", "{key}: {name} is not a table of the database. {nearest}There are: {tables}."
    )
    AMBIGUOUS_NAME = error(
        "unknown_table", "{key}: {name} matches several tables. {nearest}There are: {tables}."
    )
    UNKNOWN_DECLARED = error(
        "unknown_column", "{key}: {table} has no column {column}. {nearest}There are: {columns}."
    )
    REFERENCE_UNREADABLE = error("bad_reference", '{key}: {text} is not written as "table.column".')
    REFERENCE_DECLARED = warning(
        "bad_reference", "{key}: the database declares a foreign key for this column, which takes precedence."
    )
    REFERENCE_NOT_UNIQUE = error("bad_reference", "{key}: {text} is not a primary or unique key.")
    REFERENCE_NOT_ALIKE = error(
        "bad_reference",
        "{key}: it cannot be compared with {text}: {here} and {there} differ in type or collation.",
    )
    MASKED_SECRETS = warning(
        "masked_secrets",
        "{columns} may hold secrets, so the tools show *** instead. To show such a column, name it in "
        "dbtools.toml: in columns of a rule for its table, or in [tables.TABLE.columns].",
    )
    CATALOG_WARNING = warning("catalog", "{problem}")
    NOT_SELECTABLE = warning("catalog", "The login may not select from {tables}.")

    # Queries in files and the registry.
    NO_FOLDER = error("no_queries", "[queries] directory: there is no folder {folder}. {nearest}")
    NOT_UTF8 = error("bad_query", "the file is not UTF-8 text.")
    BAD_QUERY = error("bad_query", "query {subject}: {problem}")
    BAD_QUERY_NAME = error("bad_query", "{problem}")
    USED_NAME = error("bad_query", "query {subject}: the name is already used at {place}.")
    NAME_OF_TOOL = error("bad_query", "query {subject}: a tool has this name already.")
    OTHER_QUERIES = error("bad_query", "query {name}: the registry has other queries under this name.")
    COVERED = warning("covered", "query {subject} is not served: the name is already used at {place}.")
    UNREAD_REGISTRY = error("no_registry", "[registry] url: {problem}")
    UNREAD_OWN_REGISTRY = either("no_registry", "registry: {problem}")
    NOT_WRITABLE = error(
        "not_writable",
        "query {subject} changes rows, which needs [database] writable = true (--write), or a role with this "
        "query.",
    )

    # Whether the database accepts a query. The caller adds which query is withdrawn: see `withdrawn`.
    QUERY_REFUSED = error("withdrawn", "{problem}")
    QUERY_UNCHECKED = error("unchecked", "{problem}")
    QUERY_UNREACHABLE = error("unreachable", "{problem}")
    QUERY_CHANGES_ROWS = error(
        "withdrawn", "{problem} To change rows, declare how many at most: -- writes: N."
    )
    COLUMNS_DEPEND = error("withdrawn", "Its columns must not depend on its optional clauses.")
    CONFIRM_WITHOUT_RETURNING = error(
        "withdrawn", "confirm: needs RETURNING, so that the rows can be shown, and compared when they change."
    )
    VALUE_OF_OTHER_TYPE = error(
        "withdrawn", "param {parameter}: {keyword}: Its type in the database is {type}, and {problem}"
    )
    UNTYPED_CLAIM_OF_QUERY = error(
        "withdrawn",
        "the claim {claim} needs a type, since a value of another type could let rows in: declare it under "
        '[policy.claims], such as {claim} = "integer".',
    )

    # The rules of a role, its row filters and its session.
    BAD_ROLE_SESSION = error("bad_session", "role {role}, set_role and settings: {problem}")
    UNKNOWN_TABLE = error("unknown_table", "role {role}, tables.{pattern}: unknown table. {nearest}")
    UNKNOWN_TABLE_CLOSES = error(
        "unknown_table",
        "role {role}, tables.{pattern}: unknown table. {nearest}Until this is fixed, the patterns of this "
        "role grant nothing.",
    )
    NAMESAKES = error(
        "ambiguous_table",
        "role {role}, tables.{pattern}: more than one table has this name. Write one of {names}.",
    )
    RIVAL_RULES = error(
        "ambiguous_table", "role {role}, tables.{pattern}: this names the same table as {others}. Keep one."
    )
    OTHER_CASE = error(
        "unknown_column", "role {role}, tables.{pattern}: {column} is written {spelling} in {table}."
    )
    UNKNOWN_COLUMN = error(
        "unknown_column",
        "role {role}, tables.{pattern}: {table} has no column {column}. {nearest}Columns: {columns}.",
    )
    UNKNOWN_TO_ALL = error(
        "unknown_column",
        "role {role}, tables.{pattern}: no table there has a column {column}. {nearest}Columns: {columns}.",
    )
    UNREADABLE_TABLE = warning(
        "unreadable", "role {role}, tables.{pattern}: the login may not select from {table}."
    )
    UNREADABLE_COLUMNS = warning(
        "unreadable", "role {role}, tables.{pattern}: the login may not select {columns} of {table}."
    )
    OVERRIDDEN = warning(
        "overridden",
        "role {role}, tables.{pattern}: the pattern tables.{other}, which goes first, decides on {table}.",
    )
    REFUSED_FILTER = error("bad_filter", "role {role}, tables.{pattern}.{key}, of {table}: {problem}")
    UNCHECKED_FILTER = error("unchecked", "role {role}, tables.{pattern}.{key}, of {table}: {problem}")
    CLAIMS_DIFFER = error(
        "bad_filter", "role {role}, tables.{pattern}.{key}: its claims have different types in its tables."
    )
    UNTYPED_CLAIM = error(
        "untyped_claim",
        "role {role}, tables.{pattern}.{key}: the claim {claim} needs a type, since a value of another type "
        'could let rows in: declare it under [policy.claims], such as {claim} = "integer".',
    )
    READS_HIDDEN = warning(
        "reads_hidden",
        "role {role}, tables.{pattern}: the generated column {column} of {table} is withheld, since it is "
        "computed from a hidden or masked column. If that is intended, name it in columns.",
    )
    CHANGE_WITHHELD = either(
        "bad_writes", "role {role}, tables.{pattern}: {change} is withheld in {tables}: {why}"
    )
    CHANGES_WITHHELD = either(
        "bad_writes", "role {role}, tables.{pattern}: {tables} cannot be changed: {why}"
    )
    COMPARABLE_HASHES = warning(
        "revealing_mask",
        "role {role}, tables.{pattern}: {table}: a caller who may write {column} can find its values by "
        "comparing hashes. Use the mask redact, or leave it out of insert and update.",
    )
    UNIQUE_VALUES = warning(
        "revealing_mask",
        "role {role}, tables.{pattern}: {table}: a caller who may write {column} can find which values "
        "exist, since it is unique.",
    )

    # What the login can do, and what the configuration lets callers do.
    NO_SQL = either("no_sql", "{where}: run_sql is not offered: {obstacle}")
    NO_SQL_FOR_LOGIN = either(
        "no_sql", "{where}: run_sql is not offered: {obstacle} {remedy} Without run_sql, set sql = false."
    )
    POSTURE = either("posture", "{fact} {remedy}")
    EVERYTHING_WRITABLE = warning(
        "writable",
        "[database] writable (--write): every caller may insert, update and delete rows of every table.",
    )
    IDLE_WRITABLE = warning(
        "writable", "[database] writable has no effect beside [roles], which grant insert, update and delete."
    )
    IDLE_SQL = warning("idle_sql", "[tools] sql = true has no effect beside [roles], which grant sql.")
    NO_ROLE_HAS_SQL = warning(
        "idle_sql", "[tools] sql = false: no role has run_sql, although these grant it: {roles}."
    )
    ROW_SECURITY = warning(
        "row_security",
        "Row-level security applies to the login in {tables}: callers see only rows that its policies show.",
    )
    NO_POLICY = warning(
        "row_security",
        "Row-level security applies to the login in {tables}, and no policy shows it a row: callers see "
        "none.",
    )
    HINDERED = warning("hindered", "{table}: {why}")
    PRIVILEGES_UNCHECKED = error(
        "lacks_privilege", "The privileges of the login that changes rows cannot be checked: {problem}"
    )
    LACKS_PRIVILEGE = either(
        "lacks_privilege", "role {role}, tables.{pattern}: {tables} cannot be changed: {why}"
    )
    LACKS_PRIVILEGE_FOR_ALL = error(
        "lacks_privilege", "[database] writable: {tables} cannot be changed: {why}"
    )
    NO_JOURNAL = warning(
        "no_journal",
        "role {role}, tables.{pattern}.confirm: confirmations are kept in the memory of one process only. "
        "{why}",
    )
    NO_JOURNAL_OF_QUERY = warning(
        "no_journal",
        "role {role}, the query {query}: confirmations are kept in the memory of one process only. {why}",
    )

    # What only `check` and `grants` report.
    UNREAD_BY_SQL = error("unread_by_sql", "{where}: run_sql cannot read {table}: {problem}")
    UNTRIED_BY_SQL = warning(
        "untried_by_sql",
        "{where}: check could not try whether run_sql can read {table}, since it knows no value of the "
        "claims in its row filter.",
    )
    MANY_TOOLS = warning("many_tools", "role {role}: {excess}")
    WEAK_HASH_KEY = warning(
        "weak_hash_key", "[policy] hash_key: a key with fewer than {least} characters can be guessed."
    )
    NO_DESCRIPTION = warning(
        "no_description", "query {query}: add a description, since models choose queries by it."
    )
    SEES_NOTHING = warning("sees_nothing", "role {role}: it sees no table.")
    HIDDEN_KEY = warning(
        "hidden_key",
        "role {role}, tables.{pattern}: every key of {table} is hidden or masked, so there is no get_T, and "
        "pages use offsets.",
    )
    UNKNOWN_QUERY = error(
        "unknown_query", "role {role}, queries: there is no query {query}. {nearest}{unread}"
    )
    UNKNOWN_READS = warning("unknown_reads", "query {query}: the database does not report what {what} reads.")
    BAD_STORAGE = error("bad_storage", "{problem}")
    BAD_LOG = error("bad_log", "{problem}")
    BAD_KEYS = error("bad_keys", "{problem}")

    # What only a running server reports.
    BAD_CONFIGURATION = error("bad_configuration", "{problem} The previous configuration stays in force.")
    NEXT_START = warning("next_start", "{key}: takes effect after a restart.")

    # The steps of `check --connect`.
    VERSIONS = success("versions", "dbtools {dbtools}, Python {python}.")
    CONNECTION = success("connection", "{server} at {place} answers in {time}.")
    READ_ONLY = success("read_only", "The database refused a test write.")
    NOT_READ_ONLY = error(
        "not_read_only",
        "The database accepted a write. Use a login that can only read: `dbtools grants` prints its SQL.",
    )
    ONLY_READS = success("posture", "The connection can only read.")
    SCHEMA = success("schema", "The database has {size}.")
    COST = success("cost", "role {role}: sees {size}; its {count} tools cost {tokens:,} tokens.")
    HIGH_COST = warning(
        "cost",
        "role {role}: sees {size}; its {count} tools cost {tokens:,} tokens. `dbtools tools --role {role} "
        "--tokens` shows which.",
    )
    CHANGES = success("changes", "role {role}: may change {tables}.")
    NO_CALL = warning("call", "No role sees a table, so no call was tried.")
    CALL_NEEDS_CLAIMS = warning(
        "call",
        "role {role}: its row filters need claims, so no call was tried. Try one: `dbtools call --role "
        "{role} --claim NAME=VALUE list_rows table={table}`.",
    )
    CALL_FAILS = error("call", "role {role}: list_rows on {table} fails: {problem}")
    CALL_ANSWERS = success("call", "role {role}: list_rows on {table} answers in {time}.")

    def __init__(self, code: FindingCode, level: Level | None, text: str) -> None:
        self.code = code
        self.level = level
        self.text = text


class WriteProblem(StrEnum):
    """Why granted changes are withheld, for the place {why} of CHANGE_WITHHELD and CHANGES_WITHHELD."""

    UNCHANGEABLE = (
        "tables inherit from it, it has neither a rowid nor a primary key, or it has ON CONFLICT REPLACE"
    )
    NO_TABLE = "dbtools changes no rows of a {kind}"
    KEYLESS = "it has no key that the role sees unmasked"
    COLUMNLESS = (
        "the role sees no column of it. Give columns; where hides its rows, and after lets it insert them"
    )
    NEEDS_COLUMN = "{name} needs a value: add it to insert, or preset it"
    NEEDS_PRESET = "{name} needs a value: preset it"
    PRESET = "{name} is preset, so callers cannot supply it"
    HIDDEN = "the role does not see {name}: preset it instead"
    IDLE_PRESET = "it is not granted, so presetting {name} has no effect"
    UNKNOWN_COLUMN = "there is no column {name}. {nearest}"
    GENERATED = "the database generates {name}"
    UNKNOWN_TYPE = "the login may not select {name}, so its type is unknown"
    COMPOSITE = "{name} has a composite type"
    LIKE_CLAIM = "{name} is preset to {value}: a claim is written :claims.name"
    MISFIT = "{name} is preset to {value}, but must be {expected}"


class Hindrance(StrEnum):
    """What in the database hinders every granted change of one kind, for the place {why} of HINDERED."""

    UNPOLICED = "no policy of row-level security lets the login {change} rows."
    REPLACED = "the rule {name} replaces each {change}, so that every such call fails."
    BESIDE = "because of the rule {name}, a change with on_conflict, a filter or a check fails."
    REFUSED = "the trigger {name} refuses each {change}."
    KEPT = "the trigger {name} leaves the row as it is at each {change}."
