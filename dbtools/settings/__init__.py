"""`dbtools.toml` and the environment into frozen settings; every complaint names the file and the line."""

from dbtools.settings.files import is_file, load, settings_of
from dbtools.settings.roles import typed_claims
from dbtools.settings.sections import (
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

__all__ = [
    "AuthSection",
    "DatabaseSection",
    "JwtSection",
    "LimitsSection",
    "LogSection",
    "RegistrySection",
    "ResultsSection",
    "ServerSection",
    "Settings",
    "TableSection",
    "ToolsSection",
    "is_file",
    "load",
    "settings_of",
    "typed_claims",
]
