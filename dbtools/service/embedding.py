"""The tools of a database in a Python program, without MCP: `from dbtools import open_toolbox`."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from dbtools.policy import Caller
from dbtools.results import Answer
from dbtools.service import serving
from dbtools.service.toolbox import Toolbox
from dbtools.settings import Settings, settings_of, typed_claims
from dbtools.tools.definition import ToolDefinition


class OpenToolbox:
    """The tools of a database that is open."""

    def __init__(self, toolbox: Toolbox, settings: Settings) -> None:
        self._toolbox = toolbox
        self._settings = settings

    async def list(self, role: str = Caller.role) -> tuple[ToolDefinition, ...]:
        """Return the definitions of the tools that *role* sees."""
        return await self._toolbox.list(role)

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, object] | None = None,
        *,
        role: str = Caller.role,
        claims: Mapping[str, object] | None = None,
    ) -> Answer:
        """Return the answer of *tool* to a caller with this *role* and these *claims*.

        Raise DbtoolsError if the call is refused.
        """
        known = typed_claims(self._settings, claims or {})
        return await self._toolbox.call(Caller(role=role, claims=known), tool, arguments or {})


@asynccontextmanager
async def open_toolbox(target: str | Path | Settings) -> AsyncIterator[OpenToolbox]:
    """Open *target*: a database file, a database URL, a `dbtools.toml`, or settings."""
    settings = target if isinstance(target, Settings) else settings_of(str(target), Path.cwd())
    toolbox, backend = serving.open_toolbox(settings)
    try:
        await toolbox.snapshot()
        yield OpenToolbox(toolbox, settings)
    finally:
        await backend.close()
