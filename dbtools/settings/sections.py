"""The sections of dbtools.toml as frozen values; every key has its meaning beside it."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, StrictBool, ValidationInfo, field_validator

from dbtools.catalog import Selection
from dbtools.policy import Source
from dbtools.results import Listing, Manner, Rows, Style, Surface, Text
from dbtools.settings.fields import (
    Audiences,
    Claim,
    DatabaseUrl,
    Duration,
    FilePath,
    Hash,
    Host,
    Issuer,
    KeysPlace,
    Origin,
    Storage,
    TokenName,
    Whole,
    is_resource,
)
from dbtools.settings.positions import TomlFile
from dbtools.telemetry import RequestIdTarget
from dbtools.types import Mask, ParameterName


class Section(BaseModel):
    """A table of the configuration file; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class DatabaseSection(Section):
    """[database]: the database to serve, and which of its tables."""

    url: DatabaseUrl = Field(
        default="", description="database file or URL; ${NAME} is read from the environment"
    )
    schemas: tuple[str, ...] = Field(
        default=(), description="schemas to serve; by default all except system schemas"
    )
    include: tuple[str, ...] = Field(default=("*",), description="name patterns of the tables to serve")
    exclude: tuple[str, ...] = Field(default=(), description="name patterns of the tables to leave out")
    description: str = Field(default="", description="what the database is about, for people and models")
    request_id: RequestIdTarget | None = Field(
        default=None,
        description="how to pass the request ID to the database: comment or application_name",
    )


class TableSection(Section):
    """[tables.T]: what the database does not say, or says differently."""

    description: str = Field(default="", description="replaces the table's comment")
    columns: dict[str, str] = Field(default={}, description="replaces comments of columns, by column name")
    references: dict[str, str] = Field(
        default={},
        description="foreign keys that the database does not declare: "
        '{ region_id = "regions.id" }, to a primary or unique key',
    )


class LimitsSection(Section):
    """[limits]: limits of each call."""

    max_rows: Whole = Field(default=200, ge=1, le=10_000, description="rows per answer")
    max_tokens: Whole = Field(
        default=20_000, ge=500, le=1_000_000, description="tokens per answer, counted as bytes / 3"
    )
    max_cell: Whole = Field(default=2_000, ge=20, le=100_000, description="characters per cell in a list")
    timeout: Duration = Field(
        default=10.0, description='time limit of a call: "10s", "500ms", "2m", or a number of seconds'
    )
    calls_per_minute: Whole | None = Field(
        default=None, ge=1, description="rate limit of each caller; by default none"
    )
    concurrent_calls: Whole | None = Field(
        default=None, ge=1, description="concurrency limit of each caller; by default none"
    )
    storage: Storage = Field(
        default="memory",
        description="where calls are counted: memory, or redis://… if several servers share the limits",
    )


class ToolsSection(Section):
    """[tools]: how tools are listed."""

    style: Surface = Field(
        default=Surface.AUTO,
        description="typed: tools for each table; generic: tools with the table as an argument; auto: typed "
        "if they fit into the budget",
    )
    budget: Whole = Field(
        default=10_000,
        ge=0,
        description="tokens (bytes / 4) that the definitions of the typed tools may take",
    )
    pin: tuple[str, ...] = Field(default=(), description="tables that always have typed tools")


class QueriesSection(Section):
    """[queries]: permitted queries."""

    directory: FilePath = Field(default="", description="folder of .sql files whose queries become tools")


class ResultsSection(Section):
    """[results]: the format of answers."""

    rows: Rows = Field(
        default=Rows.ARRAYS,
        description="arrays: rows as arrays, with one list of column names; objects: rows as objects",
    )
    text: Text = Field(
        default=Text.JSON,
        description='the format of the text content: "json", or "csv", which takes fewer tokens',
    )


class GrantSection(Section):
    """[roles.R] tables.T: the access of a role to a table."""

    columns: tuple[str, ...] | None = Field(default=None, description="visible columns; by default all")
    exclude: tuple[str, ...] = Field(default=(), description="hidden columns")
    where: str | None = Field(
        default=None, description="row filter: an SQL condition; :claims.x is a claim of the caller"
    )
    mask: dict[str, Mask] = Field(default={}, description="masks by column: null, redact, partial or hash")
    aggregate: bool = Field(default=True, description="whether aggregate_rows may read the table")
    accept_reads: StrictBool = Field(
        default=False, description="whether to serve a view that reads what the role does not see"
    )


class QueryGrantSection(Section):
    """[roles.R] queries: queries that a role may call."""

    name: str = Field(description="name or pattern")
    accept_reads: StrictBool = Field(
        default=False, description="whether these queries may read what the role does not see"
    )


class RoleLimitsSection(Section):
    """[roles.R.limits]: lower limits for a role."""

    max_rows: Whole | None = Field(default=None, ge=1, description="as in [limits], but not higher")
    max_tokens: Whole | None = Field(default=None, ge=500, description="as in [limits], but not higher")
    max_cell: Whole | None = Field(default=None, ge=20, description="as in [limits], but not higher")
    timeout: Duration | None = Field(default=None, description="as in [limits], but not higher")
    calls_per_minute: Whole | None = Field(default=None, ge=1, description="as in [limits], but not higher")
    concurrent_calls: Whole | None = Field(default=None, ge=1, description="as in [limits], but not higher")


class RoleSection(Section):
    """[roles.R]: what a role may see. Without roles there is one, `default`, which sees everything."""

    tables: dict[str, StrictBool | GrantSection] = Field(
        default={},
        description="access by table name or pattern: true, false, or the keys of [roles.R.tables.T]",
    )
    queries: tuple[str | QueryGrantSection, ...] = Field(
        default=(), description="names or patterns of the queries that the role may call"
    )
    inherits: tuple[str, ...] = Field(default=(), description="roles whose grants this role has, too")
    set_role: str | None = Field(
        default=None, min_length=1, description="database role that statements run as (SET ROLE)"
    )
    settings: dict[str, str] = Field(
        default={}, description="database settings for each statement; :claims.x is a claim of the caller"
    )
    limits: RoleLimitsSection = RoleLimitsSection.model_construct()


class PolicySection(Section):
    """[policy]: settings that all roles share."""

    hash_key: str = Field(
        default="", description="secret key of the mask `hash`, such as ${DBTOOLS_HASH_KEY}"
    )
    claims: dict[str, ParameterName] = Field(
        default={}, description="types of claims; a claim that is not a value of its type counts as missing"
    )


class RegistrySection(Section):
    """[registry]: the database that holds permitted queries and the audit log."""

    url: DatabaseUrl = Field(
        default="",
        description="database file or URL; by default the served database, or none if there are roles",
    )


class LogSection(Section):
    """[log]: the audit log of calls, and the format of the server's log."""

    format: Literal["text", "json"] = Field(
        default="text", description="format of the server's log on stderr"
    )
    file: FilePath = Field(default="", description="audit log: a file of JSON lines; by default stderr")
    arguments: StrictBool = Field(
        default=False, description="whether the audit log has the values of arguments"
    )
    registry: StrictBool = Field(
        default=False, description="whether to write the audit log to the registry of [registry] url, too"
    )


class ServerSection(Section):
    """[server]: settings of the server; all except strict are for HTTP."""

    strict: StrictBool = Field(
        default=False, description="whether to refuse a database login that can do more than read"
    )
    allowed_hosts: tuple[Host, ...] = Field(
        default=(), description="host names of the server; by default those of localhost"
    )
    allowed_origins: tuple[Origin, ...] = Field(
        default=(), description="origins of web pages that may call the server; by default those of localhost"
    )
    max_body: Whole = Field(default=2**18, ge=1_000, le=64 * 2**20, description="bytes per request body")
    max_sessions: Whole = Field(
        default=1_000, ge=1, description="open sessions (protocol versions before 2026-07-28)"
    )
    max_streams: Whole = Field(default=1_000, ge=1, description="open notification streams")
    max_connections: Whole = Field(default=4_000, ge=10, description="open connections per process")
    max_requests: Whole = Field(default=256, ge=1, description="concurrent requests")


class TokenSection(Section):
    """[auth] tokens: a bearer token; `dbtools token new` creates one."""

    sha256: Hash = Field(description="SHA-256 hash of the token, in hexadecimal")
    role: str = Field(description="role of the caller")
    claims: dict[str, Claim] = Field(default={}, description="claims of the caller, for row filters")
    name: TokenName | None = Field(
        default=None, description="identity of the caller in the audit log; unique"
    )


class JwtSection(Section):
    """[auth] jwt: tokens of an identity provider (RFC 7519)."""

    issuer: Issuer = Field(description="the value of the claim iss")
    audience: Audiences = Field(
        min_length=1,
        description="a string or a list of strings, of which the claim aud must contain one",
    )
    resource: str = Field(
        default="",
        validate_default=True,
        description="URL of this server in its metadata (RFC 9728); by default the first audience that is an "
        "http or https URL",
    )
    jwks: KeysPlace = Field(description="https URL or file of the key set (RFC 7517)")
    algorithms: tuple[Literal["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"], ...] = Field(
        default=("RS256", "ES256"), min_length=1, description="allowed signature algorithms"
    )
    role_claim: str = Field(
        default="role",
        description="the claim that names the role; a dot leads into nested claims: realm_access.roles",
    )
    claims: dict[str, str] = Field(
        default={},
        description="names of claims in row filters and in the token; by default all under their own names",
    )
    scopes: tuple[str, ...] = Field(default=(), description="required scopes")

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

    tokens: tuple[TokenSection, ...] = Field(default=(), description="bearer tokens and their roles")
    jwt: JwtSection | None = Field(default=None, description="signed tokens of an identity provider")

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

    def having(self, section: str, key: str, value: object) -> "Settings":
        """Return these settings with an unvalidated *value* for *key* of *section*."""
        return self.model_copy(update={section: getattr(self, section).model_copy(update={key: value})})

    def source(self, *path: str) -> Source:
        """Return where the file has the key *path*."""
        return self._origin.source(path)

    def shown(self, path: Path) -> Path:
        """Return *path* as it opens from the current folder: below the folder of the file by way of that."""
        folder = Path(self._origin.path).parent
        return (
            Path(self._origin.file).parent / path.relative_to(folder) if path.is_relative_to(folder) else path
        )

    def selection(self) -> Selection:
        """Return which tables to read."""
        wanted = self.database
        return Selection(schemas=wanted.schemas, include=wanted.include, exclude=wanted.exclude)

    def manner(self) -> Manner:
        """Return the format of answers and how to list tools."""
        listing = Listing(surface=self.tools.style, budget=self.tools.budget, pin=self.tools.pin)
        return Manner(style=Style(rows=self.results.rows, text=self.results.text), listing=listing)
