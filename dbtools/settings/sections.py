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
    Duration,
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
from dbtools.telemetry import Tells
from dbtools.types import Mask, ParameterName


class Section(BaseModel):
    """A table of the file: an unknown key in it is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class DatabaseSection(Section):
    """[database]: which database is served, and which of its tables."""

    url: str = Field(default="", description="database file or URL; ${NAME} is read from the environment")
    schemas: tuple[str, ...] = Field(
        default=(), description="schemas to serve; none means all but the system's"
    )
    include: tuple[str, ...] = Field(default=("*",), description="patterns of tables to serve")
    exclude: tuple[str, ...] = Field(default=(), description="patterns of tables to leave out")
    description: str = Field(default="", description="what the database is about, for people and models")
    request_id: Tells | None = Field(
        default=None,
        description="how the database is told which request a statement belongs to; application_name where "
        "connections have one",
    )


class TableSection(Section):
    """[tables.T]: what the database's own comments do not say."""

    description: str = Field(default="", description="replaces the table's comment")
    columns: dict[str, str] = Field(default={}, description="replaces comments of columns")


class LimitsSection(Section):
    """[limits]: how much one call may take."""

    max_rows: Whole = Field(default=200, ge=1, le=10_000, description="rows of one answer")
    max_tokens: Whole = Field(default=20_000, ge=500, le=1_000_000, description="bytes of one answer / 3")
    max_cell: Whole = Field(default=2_000, ge=20, le=100_000, description="characters of one cell in a list")
    timeout: Duration = Field(default=10.0, description='of one call: "10s", "500ms", "2m", or seconds')
    calls_per_minute: Whole | None = Field(default=None, ge=1, description="of one caller; none: any number")
    concurrent_calls: Whole | None = Field(
        default=None, ge=1, description="of one caller at the same time; none: any number"
    )
    storage: Storage = Field(
        default="memory",
        description="where calls are counted: memory, or redis://… for several servers",
    )


class ToolsSection(Section):
    """[tools]: how tools are listed."""

    style: Surface = Field(
        default=Surface.AUTO,
        description="typed: tools for each table; generic: for any; auto: typed while the budget allows",
    )
    budget: Whole = Field(
        default=10_000, ge=0, description="tokens (bytes / 4) that the definitions of typed tools may cost"
    )
    pin: tuple[str, ...] = Field(default=(), description="tables with tools of their own on either surface")


class QueriesSection(Section):
    """[queries]: SQL that is permitted."""

    directory: str = Field(
        default="", description="folder of .sql files, each query a tool; none: no queries"
    )


class ResultsSection(Section):
    """[results]: how answers are written."""

    rows: Rows = Field(
        default=Rows.ARRAYS, description="rows as arrays under one list of columns, or objects"
    )
    text: Text = Field(default=Text.JSON, description='the text channel: "json", or "csv" for fewer tokens')


class GrantSection(Section):
    """[roles.R] tables.T: what a role may do with a table."""

    columns: tuple[str, ...] | None = Field(default=None, description="the columns that are seen; none: all")
    exclude: tuple[str, ...] = Field(default=(), description="columns that are not")
    where: str | None = Field(
        default=None, description="SQL condition on the rows that are seen; :claims.x is a claim"
    )
    mask: dict[str, Mask] = Field(default={}, description="how cells of a column are shown instead")
    aggregate: bool = Field(default=True, description="whether rows may be counted and summed up")
    accept_reads: StrictBool = Field(
        default=False, description="whether a view may show what it reads and the role does not see"
    )


class QueryGrantSection(Section):
    """[roles.R] queries: queries that a role may call."""

    name: str = Field(description="name or pattern")
    accept_reads: StrictBool = Field(
        default=False, description="whether it is meant that they read what the role does not see"
    )


class RoleLimitsSection(Section):
    """[roles.R.limits]: limits of a role that are lower than those of all."""

    max_rows: Whole | None = Field(default=None, ge=1, description="as in [limits], never more")
    max_tokens: Whole | None = Field(default=None, ge=500, description="as in [limits], never more")
    max_cell: Whole | None = Field(default=None, ge=20, description="as in [limits], never more")
    timeout: Duration | None = Field(default=None, description="as in [limits], never more")
    calls_per_minute: Whole | None = Field(default=None, ge=1, description="as in [limits], never more")
    concurrent_calls: Whole | None = Field(default=None, ge=1, description="as in [limits], never more")


class RoleSection(Section):
    """[roles.R]: what a role may see; without any role there is one, which sees everything."""

    tables: dict[str, StrictBool | GrantSection] = Field(
        default={}, description="by name or pattern: true, false, or what is seen of it"
    )
    queries: tuple[str | QueryGrantSection, ...] = Field(
        default=(), description="names or patterns of the queries that it may call"
    )
    inherits: tuple[str, ...] = Field(default=(), description="roles whose grants it has as well")
    set_role: str | None = Field(
        default=None, min_length=1, description="role of the database that its statements run as"
    )
    settings: dict[str, str] = Field(
        default={}, description="settings of the database for its statements; :claims.x is a claim"
    )
    limits: RoleLimitsSection = RoleLimitsSection.model_construct()


class PolicySection(Section):
    """[policy]: what all roles share."""

    hash_key: str = Field(default="", description="secret of the mask hash, such as ${DBTOOLS_HASH_KEY}")
    claims: dict[str, ParameterName] = Field(
        default={}, description="types of claims: a caller whose claim is no such value is denied"
    )


class RegistrySection(Section):
    """[registry]: the database that keeps permitted queries beside those in files."""

    url: str = Field(
        default="",
        description="database file or URL; none: the served database, and no registry where there are roles",
    )


class LogSection(Section):
    """[log]: where each call is written down, and how the server tells of itself."""

    format: Literal["text", "json"] = Field(
        default="text", description="how the server writes on stderr what it tells of itself: a line each"
    )
    file: str = Field(default="", description="file of JSON lines; none: stderr")
    arguments: StrictBool = Field(default=False, description="whether values are written down, or only names")
    registry: StrictBool = Field(
        default=False, description="whether calls go to the registry of [registry] url as well"
    )
    max_bytes: Whole = Field(default=10 * 2**20, ge=10_000, description="size at which another file is begun")
    keep: Whole = Field(
        default=5, ge=0, le=1_000, description="older files that are kept, as FILE.1, FILE.2, …"
    )


class ServerSection(Section):
    """[server]: how it is served; all but the first over HTTP."""

    strict: StrictBool = Field(
        default=False, description="whether a login that can do more than read is refused"
    )
    allowed_hosts: tuple[Host, ...] = Field(
        default=(), description="names under which clients reach it; none: those of the loopback address"
    )
    allowed_origins: tuple[Origin, ...] = Field(
        default=(), description="origins of web pages that may call it; none: those of the loopback address"
    )
    max_body: Whole = Field(default=2**18, ge=1_000, le=64 * 2**20, description="bytes of one request")
    max_sessions: Whole = Field(default=1_000, ge=1, description="sessions of the 2025 era that are open")
    max_streams: Whole = Field(default=1_000, ge=1, description="streams of notices that are open")
    max_connections: Whole = Field(default=4_000, ge=10, description="connections that are open, a process")
    max_requests: Whole = Field(default=256, ge=1, description="requests that are answered at the same time")


class TokenSection(Section):
    """[auth] tokens: a secret that a caller shows; `dbtools token new` makes one."""

    sha256: Hash = Field(description="the hash of the token, in hexadecimal")
    role: str = Field(description="whose view of the database")
    claims: dict[str, Claim] = Field(default={}, description="what is known of the caller, for row filters")
    name: TokenName | None = Field(
        default=None, description="unique; the audit log shows it as the identity of the caller"
    )


class JwtSection(Section):
    """[auth] jwt: tokens that somebody else signs (RFC 7519)."""

    issuer: Issuer = Field(description="who signs them: the claim iss")
    audience: Audiences = Field(
        min_length=1,
        description="a string, or a list of strings: the claim aud must contain one of them",
    )
    resource: str = Field(
        default="",
        validate_default=True,
        description="URL of this server, in the metadata for clients (RFC 9728); none: the first audience "
        "that is an http or https URL",
    )
    jwks: KeysPlace = Field(description="https URL or file of the keys (RFC 7517)")
    algorithms: tuple[Literal["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"], ...] = Field(
        default=("RS256", "ES256"), min_length=1, description="how they may be signed"
    )
    role_claim: str = Field(
        default="role",
        description="the claim that names the role; dots lead into nested claims, as in realm_access.roles",
    )
    claims: dict[str, str] = Field(
        default={}, description="names of claims in row filters, each with that in the token; none: all"
    )
    scopes: tuple[str, ...] = Field(default=(), description="scopes that a token must have")

    @field_validator("resource")
    @classmethod
    def _url(cls, text: str, others: ValidationInfo) -> str:
        """Return the URL of this server: *text*, or else an audience that can be it."""
        given = (text,) if text else others.data.get("audience", ())
        if url := next(filter(is_resource, given), ""):
            return url
        why = "" if text else ", since no audience is one"
        raise ValueError(f"wants the URL of this server, such as https://db.example.com/mcp{why}")


class AuthSection(Section):
    """[auth]: who may call over HTTP; a listener that others reach has to have it."""

    tokens: tuple[TokenSection, ...] = Field(default=(), description="tokens and what they stand for")
    jwt: JwtSection | None = Field(default=None, description="tokens that are signed elsewhere")

    @field_validator("tokens")
    @classmethod
    def _names_differ(cls, tokens: tuple[TokenSection, ...]) -> tuple[TokenSection, ...]:
        """Refuse tokens that the audit log could not tell apart."""
        numbers: dict[str, int] = {}
        for number, name in enumerate((token.name for token in tokens), 1):
            if name and numbers.setdefault(name, number) != number:
                raise ValueError(
                    f"tokens {numbers[name]} and {number} have the same name; names must be unique"
                )
        return tokens

    def __bool__(self) -> bool:
        """Return whether anybody is asked who they are."""
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
        """The file that they were read from, if any."""
        return self._origin

    def written_in(self, origin: TomlFile) -> "Settings":
        """Return these settings as those that are written in *origin*."""
        self._origin = origin
        return self

    def having(self, section: str, key: str, value: object) -> "Settings":
        """Return these settings with *value* for *key* of *section*, which is not validated."""
        return self.model_copy(update={section: getattr(self, section).model_copy(update={key: value})})

    def source(self, *path: str) -> Source:
        """Return where the key *path* is written."""
        return self._origin.source(path)

    def shown(self, path: Path) -> Path:
        """Return *path* as it opens from the current folder: below the folder of the file by way of that."""
        folder = Path(self._origin.path).parent
        return (
            Path(self._origin.file).parent / path.relative_to(folder) if path.is_relative_to(folder) else path
        )

    def selection(self) -> Selection:
        """Return which tables are read."""
        wanted = self.database
        return Selection(schemas=wanted.schemas, include=wanted.include, exclude=wanted.exclude)

    def manner(self) -> Manner:
        """Return how answers are written and tools are listed."""
        listing = Listing(surface=self.tools.style, budget=self.tools.budget, pin=self.tools.pin)
        return Manner(style=Style(rows=self.results.rows, text=self.results.text), listing=listing)
