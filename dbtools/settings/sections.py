"""The sections of dbtools.toml as frozen values; each key is described where it is defined."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, StrictBool, ValidationInfo, field_validator

from dbtools.answers.styles import Listing, Surface, Text
from dbtools.findings import Source
from dbtools.schema.catalog import Selection
from dbtools.settings.fields import (
    Audiences,
    Claim,
    DatabaseUrl,
    Duration,
    FilePath,
    Hash,
    Host,
    Icon,
    Issuer,
    KeysPlace,
    Line,
    Origin,
    Secret,
    ServerName,
    Storage,
    TokenName,
    Website,
    Whole,
    is_resource,
)
from dbtools.settings.toml_file import TomlFile
from dbtools.telemetry import RequestIdTarget
from dbtools.values.types import Mask, ParameterName


class Section(BaseModel):
    """A table of the configuration file; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def key(default: Any, meaning: str, **bounds: Any) -> Any:
    """Return a key of a section by its *default*, its *meaning*, and the *bounds* of its value."""
    return Field(default=default, description=meaning, **bounds)


class DatabaseSection(Section):
    """[database]: the database to serve, and which of its tables."""

    url: DatabaseUrl = key("", "database file or URL; ${NAME} is read from the environment")
    schemas: tuple[str, ...] = key((), "schemas to serve; by default all except system schemas")
    include: tuple[str, ...] = key(("*",), "name patterns of the tables to serve")
    exclude: tuple[str, ...] = key((), "name patterns of the tables to leave out")
    description: str = key("", "what the database is about, for people and models")
    writable: StrictBool = key(
        False, "whether callers may change every table; only without [roles], where each grants its own"
    )
    write_url: DatabaseUrl = key("", "URL of the login that changes rows; by default url")
    lock_timeout: Duration = key(2.0, "how long a change waits for a lock")
    request_id: RequestIdTarget | None = key(
        None, "how to pass the request ID to the database: comment or application_name"
    )


class TableSection(Section):
    """[tables.T]: what the database does not say, or says differently."""

    description: str = key("", "replaces the table's comment")
    columns: dict[str, str] = key({}, "replaces comments of columns, by column name")
    references: dict[str, str] = key(
        {},
        'foreign keys that the database does not declare: { region_id = "regions.id" }, to a primary or '
        "unique key",
    )


class LimitsSection(Section):
    """[limits]: limits of each call."""

    max_rows: Whole = key(200, "rows per answer", ge=1, le=10_000)
    max_tokens: Whole = key(20_000, "tokens per answer, counted as bytes / 3", ge=500, le=1_000_000)
    max_cell: Whole = key(2_000, "characters per cell in a list", ge=20, le=100_000)
    timeout: Duration = key(10.0, 'time limit of a call: "10s", "500ms", "2m", or a number of seconds')
    calls_per_minute: Whole | None = key(
        None, "rate limit of each caller; by default 600 over HTTP, otherwise none", ge=1
    )
    concurrent_calls: Whole | None = key(None, "concurrency limit of each caller; by default none", ge=1)
    storage: Storage = key(
        "memory", "where calls are counted: memory, or redis://… if several servers share the limits"
    )


class ToolsSection(Section):
    """[tools]: how tools are listed."""

    style: Surface = key(
        Surface.AUTO,
        "typed: tools for each table; generic: tools with the table as an argument; auto: typed if they fit "
        "into the budget",
    )
    budget: Whole = key(
        10_000, "tokens (bytes / 4) that the definitions of queries and typed tools may take", ge=0
    )
    pin: tuple[str, ...] = key((), "tables that always have typed tools")
    sql: Literal["auto"] | StrictBool = key(
        "auto",
        "whether callers may write SQL themselves (run_sql) where there are no [roles]; auto: if the "
        "database can confine it; false: no role may",
    )


class FunctionsSection(Section):
    """[functions]: what run_sql may call besides functions that only compute a value, and what it may not."""

    include: tuple[str, ...] = key(
        (),
        'names or patterns, such as "public.search_*", that run_sql may call where there are no [roles]',
    )
    exclude: tuple[str, ...] = key(
        (), "names or patterns of functions that run_sql may not call, for all roles"
    )


class QueriesSection(Section):
    """[queries]: permitted queries."""

    directory: FilePath = key("", "folder of .sql files whose queries become tools")


class ResultsSection(Section):
    """[results]: the format of answers."""

    text: Text = key(Text.JSON, 'the format of the text content: "json", or "csv", which takes fewer tokens')


class GrantSection(Section):
    """[roles.R] tables.T: the access of a role to a table."""

    columns: tuple[str, ...] | None = key(None, "visible columns; by default all")
    exclude: tuple[str, ...] = key((), "hidden columns")
    where: str | None = key(None, "row filter: an SQL condition; :claims.x is a claim of the caller")
    mask: dict[str, Mask] = key({}, "masks by column: null, redact, partial or hash")
    aggregate: bool = key(True, "whether aggregate_rows may read the table")
    insert: StrictBool | tuple[str, ...] = key(
        False, "columns that callers may set in new rows; true: all that the role sees"
    )
    update: StrictBool | tuple[str, ...] = key(
        False, "columns that callers may set; true: all that the role sees"
    )
    delete: StrictBool = key(False, "whether callers may delete rows")
    check: str | None = key(
        None, "SQL condition that a row must satisfy after a change, besides where", min_length=1
    )
    after: str | None = key(
        None,
        "SQL condition that a row must satisfy after a change instead of where, which may then hide the row",
        min_length=1,
    )
    preset: dict[str, Claim] = key(
        {}, "values of new rows that callers cannot choose: literals, or claims written :claims.x"
    )
    preset_update: dict[str, Claim] = key({}, "the same for updated rows")
    max_affected: Whole | None = key(
        None,
        "rows that one call may change; by default 100 for inserts and upserts, otherwise 1",
        ge=1,
        le=1_000,
    )
    confirm: StrictBool = key(False, "whether a person, or a second call, must confirm each change")

    @property
    def granted(self) -> tuple[str, ...]:
        """The changes that are granted."""
        return tuple(key for key in ("insert", "update", "delete") if getattr(self, key) is not False)


class RoleLimitsSection(Section):
    """[roles.R.limits]: lower limits for a role."""

    max_rows: Whole | None = key(None, "as in [limits], but not higher", ge=1)
    max_tokens: Whole | None = key(None, "as in [limits], but not higher", ge=500)
    max_cell: Whole | None = key(None, "as in [limits], but not higher", ge=20)
    timeout: Duration | None = key(None, "as in [limits], but not higher")
    calls_per_minute: Whole | None = key(None, "as in [limits], but not higher", ge=1)
    concurrent_calls: Whole | None = key(None, "as in [limits], but not higher", ge=1)


class RoleSection(Section):
    """[roles.R]: what a role may see. Without roles there is one, `default`, which sees everything."""

    tables: dict[str, StrictBool | GrantSection] = key(
        {}, "access by table name or pattern: true, false, or the keys of [roles.R.tables.T]"
    )
    queries: tuple[str, ...] = key((), "names or patterns of the queries that the role may call")
    inherits: tuple[str, ...] = key((), "roles whose grants this role also has")
    set_role: str | None = key(None, "database role that statements run as (SET ROLE)", min_length=1)
    settings: dict[str, str] = key(
        {}, "database settings for each statement; :claims.x is a claim of the caller"
    )
    sql: StrictBool = key(False, "whether callers may write SQL themselves (run_sql)")
    functions: tuple[str, ...] = key((), "names or patterns of further functions that run_sql may call")
    limits: RoleLimitsSection = RoleLimitsSection.model_construct()


class PolicySection(Section):
    """[policy]: settings that all roles share."""

    hash_key: str = key("", "secret key of the mask `hash`, such as ${DBTOOLS_HASH_KEY}")
    claims: dict[str, ParameterName] = key(
        {}, "types of claims; a claim that is not a value of its type counts as missing"
    )


class RegistrySection(Section):
    """[registry]: the database that holds permitted queries and the audit log."""

    url: DatabaseUrl = key(
        "", "database file or URL; by default the served database, or none if there are roles"
    )


class LogSection(Section):
    """[log]: the audit log of calls, and the format of the server's log."""

    format: Literal["text", "json"] = key("text", "format of the server's log on stderr")
    file: FilePath = key("", "audit log: a file of JSON lines; by default stderr")
    arguments: StrictBool = key(False, "whether the audit log has the values of arguments")
    changes: StrictBool = key(False, "whether the audit log has the old and new values of changed columns")
    registry: StrictBool = key(False, "whether to write the audit log also to the registry of [registry] url")


class ServerSection(Section):
    """[server]: settings of the server. Those after secret are for HTTP."""

    name: ServerName = key("dbtools", "name of the server for programs")
    title: Line = key("", "name of the server for people; by default that of the database")
    description: Line = key("", "what the server is for; by default [database] description")
    website: Website = key("", "URL of a page about the server")
    icon: Icon = key(
        "",
        "image that clients show: an https or data: URL, or a PNG, JPEG, WebP or SVG file of at most 32 KiB",
    )
    strict: StrictBool = key(False, "whether to refuse a database login that can do more than read")
    secret: Secret = key(
        "",
        "key of at least 32 characters that seals confirmations, the same for all workers and replicas, such "
        "as ${DBTOOLS_SECRET}; by default a random one",
    )
    allowed_hosts: tuple[Host, ...] = key((), "host names of the server; by default those of localhost")
    allowed_origins: tuple[Origin, ...] = key(
        (), "origins of web pages that may call the server; by default those of localhost"
    )
    max_body: Whole = key(2**18, "bytes per request body", ge=1_000, le=64 * 2**20)
    max_sessions: Whole = key(1_000, "open sessions (protocol versions before 2026-07-28)", ge=1)
    max_streams: Whole = key(1_000, "open notification streams", ge=1)
    max_connections: Whole = key(4_000, "open connections per process", ge=10)
    max_requests: Whole = key(256, "concurrent requests", ge=1)


class TokenSection(Section):
    """[auth] tokens: a bearer token; `dbtools token new` creates one."""

    sha256: Hash = Field(description="SHA-256 hash of the token, in hexadecimal")
    role: str = Field(description="role of the caller")
    claims: dict[str, Claim] = key({}, "claims of the caller, for row filters")
    name: TokenName | None = key(None, "identity of the caller in the audit log; unique")


class JwtSection(Section):
    """[auth] jwt: tokens of an identity provider (RFC 7519)."""

    issuer: Issuer = Field(description="the value of the claim iss")
    audience: Audiences = Field(
        min_length=1,
        description="a string or a list of strings, of which the claim aud must contain one",
    )
    resource: str = key(
        "",
        "URL of this server in its metadata (RFC 9728); by default the first audience that is an http or "
        "https URL",
        validate_default=True,
    )
    jwks: KeysPlace = Field(description="https URL or file of the key set (RFC 7517)")
    algorithms: tuple[Literal["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"], ...] = key(
        ("RS256", "ES256"), "allowed signature algorithms", min_length=1
    )
    role_claim: str = key(
        "role", "the claim that names the role; a dot leads into nested claims: realm_access.roles"
    )
    claims: dict[str, str] = key(
        {}, "claims of the token by the name that row filters use; by default, all keep their names"
    )
    scopes: tuple[str, ...] = key((), "required scopes")

    @field_validator("resource")
    @classmethod
    def _url(cls, text: str, others: ValidationInfo) -> str:
        """Return *text*, or else an audience that can be the URL of this server."""
        given = (text,) if text else others.data.get("audience", ())
        if url := next(filter(is_resource, given), ""):
            return url
        why = "" if text else ", since no audience is one"
        raise ValueError(f"must be the URL of this server, such as https://db.example.com/mcp{why}")


class AuthSection(Section):
    """[auth]: authentication over HTTP, required if the server listens beyond localhost."""

    tokens: tuple[TokenSection, ...] = key((), "bearer tokens and their roles")
    jwt: JwtSection | None = key(None, "signed tokens of an identity provider")

    @field_validator("tokens")
    @classmethod
    def _names_differ(cls, tokens: tuple[TokenSection, ...]) -> tuple[TokenSection, ...]:
        numbers: dict[str, int] = {}
        for number, name in enumerate((token.name for token in tokens), 1):
            if name and numbers.setdefault(name, number) != number:
                raise ValueError(
                    f"tokens {numbers[name]} and {number} have the same name; names must be unique"
                )
        return tokens

    def __bool__(self) -> bool:
        """Return whether callers must authenticate."""
        return bool(self.tokens) or self.jwt is not None


class Settings(Section):
    """All of dbtools.toml."""

    database: DatabaseSection = DatabaseSection.model_construct()
    tables: dict[str, TableSection] = {}
    limits: LimitsSection = LimitsSection.model_construct()
    tools: ToolsSection = ToolsSection.model_construct()
    results: ResultsSection = ResultsSection.model_construct()
    functions: FunctionsSection = FunctionsSection.model_construct()
    queries: QueriesSection = QueriesSection.model_construct()
    roles: dict[str, RoleSection] = {}
    policy: PolicySection = PolicySection.model_construct()
    registry: RegistrySection = RegistrySection.model_construct()
    log: LogSection = LogSection.model_construct()
    server: ServerSection = ServerSection.model_construct()
    auth: AuthSection = AuthSection.model_construct()
    _origin: TomlFile = PrivateAttr(default=TomlFile())

    @property
    def origin(self) -> TomlFile:
        """The file that these settings were read from, if any."""
        return self._origin

    def written_in(self, origin: TomlFile) -> "Settings":
        """Return these settings, as read from *origin*."""
        self._origin = origin
        return self

    def with_value(self, section: str, key: str, value: object) -> "Settings":
        """Return these settings with an unvalidated *value* for *key* of *section*."""
        return self.model_copy(update={section: getattr(self, section).model_copy(update={key: value})})

    def source(self, *path: str) -> Source:
        """Return where the file has the key *path*."""
        return self._origin.source(path)

    def shown_path(self, path: Path) -> Path:
        """Return *path* as it opens from the current folder, relative if the name of the file is relative."""
        folder = Path(self._origin.path).parent
        return (
            Path(self._origin.file).parent / path.relative_to(folder) if path.is_relative_to(folder) else path
        )

    def selection(self) -> Selection:
        """Return which tables to read."""
        wanted = self.database
        return Selection(schemas=wanted.schemas, include=wanted.include, exclude=wanted.exclude)

    def listing(self) -> Listing:
        """Return which tools are listed."""
        return Listing(surface=self.tools.style, budget=self.tools.budget, pin=self.tools.pin)
