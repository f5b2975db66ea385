"""The codes and levels of findings, as `check --json` prints them, and what each code means."""

from enum import StrEnum


class Level(StrEnum):
    """How serious a finding is."""

    ERROR = "error"
    WARNING = "warning"
    OK = "ok"  #: a step of `check --connect` that succeeded


class FindingCode(StrEnum):
    """What a finding is about, for programs."""

    meaning: str  #: for the reference

    def __new__(cls, code: str, meaning: str = "") -> "FindingCode":
        """Return the *code* with its *meaning*."""
        self = str.__new__(cls, code)
        self._value_, self.meaning = code, meaning
        return self

    AMBIGUOUS_TABLE = "ambiguous_table", "A rule means more than one table, or two rules name the same one."
    BAD_CONFIGURATION = "bad_configuration", "A changed file cannot be used: a running server ignores it."
    BAD_FILTER = "bad_filter", "A row filter or a check is not a condition that the database accepts."
    BAD_KEYS = "bad_keys", "The keys for signed tokens cannot be read."
    BAD_LOG = "bad_log", "The audit log cannot be written."
    BAD_QUERY = "bad_query", "A query file, or a query in the registry, is not written correctly."
    BAD_REFERENCE = "bad_reference", "A key under `references` cannot be used, or the database declares it."
    BAD_SESSION = "bad_session", "A role's `settings` or `set_role` cannot be used; it sees nothing."
    BAD_STORAGE = "bad_storage", "The storage of rate limits cannot be used."
    BAD_WRITES = "bad_writes", "A rule grants changes that are withheld, since they cannot be made."
    CALL = "call", "With `--connect`: how a call ended, or why none was tried."
    CATALOG = "catalog", "A part of the database is not served, or not as the configuration expects."
    CHANGES = "changes", "With `--connect`: which tables a role may change."
    CONNECTION = "connection", "With `--connect`: where the database is."
    COST = "cost", "With `--connect`: how many tokens the tools of a role cost; a warning if they are many."
    COVERED = "covered", "A query in the registry has the name of one in a file, which is served."
    HIDDEN_KEY = "hidden_key", "A role sees no key of a table, and so cannot get single rows of it."
    HIGHER_LIMIT = "higher_limit", "A role sets a higher limit than `[limits]`, whose value applies."
    HINDERED = "hindered", "The database refuses or undoes every change of one kind to a table."
    IDLE_SQL = "idle_sql", "`[tools] sql` has no effect, or overrules roles."
    LACKS_PRIVILEGE = "lacks_privilege", "The login may not make changes that a role is granted."
    MANY_TOOLS = "many_tools", "A role has more tools than some providers of models accept."
    MASKED_SECRETS = "masked_secrets", "Columns that look like secrets are masked."
    NEXT_START = "next_start", "A changed key takes effect when the server is restarted."
    NO_DESCRIPTION = "no_description", "A query has no description, by which models choose it."
    NO_HASH_KEY = "no_hash_key", "The mask `hash` needs `[policy] hash_key`."
    NO_JOURNAL = "no_journal", "Without a journal, confirmations are kept in the memory of one process."
    NO_QUERIES = "no_queries", "The folder of queries does not exist."
    NO_REGISTRY = "no_registry", "The registry cannot be read."
    NO_SQL = "no_sql", "`run_sql` is not offered, although the configuration allows it."
    NOT_READ_ONLY = "not_read_only", "With `--connect`: the database accepted a test write."
    NOT_WRITABLE = "not_writable", "A query changes rows, which nothing in the configuration allows."
    OVERRIDDEN = "overridden", "A rule that denies or narrows has no effect on a table: another decides."
    POSTURE = "posture", "The login can do more than read: an error with `[server] strict`."
    READ_ONLY = "read_only", "With `--connect`: the database refused a test write."
    READS_HIDDEN = "reads_hidden", "A generated column is withheld, since it would show hidden cells."
    REVEALING_MASK = "revealing_mask", "A role may write a masked column, and so could find its values."
    ROW_SECURITY = "row_security", "Row-level security of the database hides rows from the login."
    SCHEMA = "schema", "With `--connect`: how large the schema is."
    SEES_NOTHING = "sees_nothing", "A role sees no table and may call no query."
    UNCHECKED = "unchecked", "A query or filter cannot be checked at the moment."
    UNKNOWN_COLUMN = "unknown_column", "A column that is named does not exist."
    UNKNOWN_QUERY = "unknown_query", "A role is granted a query that does not exist."
    UNKNOWN_READS = "unknown_reads", "The database does not report what a query reads; only `grants` says so."
    UNKNOWN_ROLE = "unknown_role", "A role that is named does not exist, or inherits from itself."
    UNKNOWN_TABLE = "unknown_table", "A table that is named does not exist, or several have the name."
    UNREACHABLE = "unreachable", "A query cannot be checked, since the login for changes cannot connect."
    UNREAD_BY_SQL = "unread_by_sql", "`run_sql` cannot read a table that the role sees."
    UNREADABLE = "unreadable", "The login may not select what a rule grants."
    UNTRIED_BY_SQL = "untried_by_sql", "It is not known whether `run_sql` can read a table."
    UNTYPED_CLAIM = "untyped_claim", "A row filter uses a claim without a declared type."
    VAIN_FILTER = "vain_filter", "A row filter or a check lets no row through, or fewer than it seems to."
    VERSIONS = "versions", "With `--connect`: the versions of dbtools and Python."
    WEAK_HASH_KEY = "weak_hash_key", "`[policy] hash_key` is so short that it can be guessed."
    WITHDRAWN = "withdrawn", "A query is not served, since the database does not accept it."
    WRITABLE = "writable", "`[database] writable` lets every caller change rows, or has no effect."
