"""`dbtools.toml` and the environment into frozen settings; every complaint names the file and the line."""

from dbtools.config.adding import candidates
from dbtools.config.claims import typed_claims
from dbtools.config.descriptions import described
from dbtools.config.files import is_file, load, settings_of
from dbtools.config.login import grants_of
from dbtools.config.migration import RoleChange, changes_by, migrated
from dbtools.config.registered import query_of
from dbtools.config.review import Review, review
from dbtools.config.roles import role_names, roles_of
from dbtools.config.sections import (
    AuthSection,
    DatabaseSection,
    JwtSection,
    LimitsSection,
    LogSection,
    RegistrySection,
    ResultsSection,
    ServerSection,
    Settings,
    TableSection,
    ToolsSection,
)
from dbtools.config.served import Served, open_served, open_toolbox, read_catalog, snapshot_of

__all__ = [
    "AuthSection",
    "DatabaseSection",
    "JwtSection",
    "LimitsSection",
    "LogSection",
    "RegistrySection",
    "ResultsSection",
    "Review",
    "RoleChange",
    "Served",
    "ServerSection",
    "Settings",
    "TableSection",
    "ToolsSection",
    "candidates",
    "changes_by",
    "described",
    "grants_of",
    "is_file",
    "load",
    "migrated",
    "open_served",
    "open_toolbox",
    "query_of",
    "read_catalog",
    "review",
    "role_names",
    "roles_of",
    "settings_of",
    "snapshot_of",
    "typed_claims",
]
