"""Load `dbtools.toml`. A file and the environment in, frozen settings or errors with file and line out."""

from dbtools.settings.files import is_file, load, settings_of
from dbtools.settings.sections import (
    DatabaseSection,
    JwtSection,
    LimitsSection,
    LogSection,
    ResultsSection,
    Settings,
    TableSection,
    ToolsSection,
)

__all__ = [
    "DatabaseSection",
    "JwtSection",
    "LimitsSection",
    "LogSection",
    "ResultsSection",
    "Settings",
    "TableSection",
    "ToolsSection",
    "is_file",
    "load",
    "settings_of",
]
