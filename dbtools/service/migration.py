"""What a migration does to the tools: settings, and the URL of a migrated database, in; changes out."""

from collections.abc import Mapping
from dataclasses import dataclass

from dbtools import errors
from dbtools.records.registry import find_registry
from dbtools.service.registered import registry_url
from dbtools.service.served import snapshot_of
from dbtools.service.snapshot import View
from dbtools.settings.sections import Settings
from dbtools.tools import ToolDefinition, change_of


@dataclass(frozen=True, kw_only=True)
class RoleChange:
    """The names of a role's tools, in the order of their lists."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    broken: tuple[str, ...]  #: queries that do not work on the migrated database


async def migrated(settings: Settings, url: str) -> Settings:
    """Return *settings* for the migrated database at *url*, with the queries that are served now."""
    registry = registry_url(settings)
    if not settings.registry.url and registry and not await _has_registry(registry):
        registry = ""
    return settings.at(url).model_copy(
        update={
            "registry": settings.registry.model_copy(update={"url": registry}),
            # Whoever migrates may do more than whoever serves.
            "server": settings.server.model_copy(update={"strict": False}),
        }
    )


async def _has_registry(url: str) -> bool:
    try:
        return await find_registry(url) is not None
    except errors.DatabaseUnavailable:
        return False  # it is served without


async def changes_by(settings: Settings, after: Settings) -> Mapping[str, RoleChange]:
    """Return by role what is new, other, gone and broken with the settings *after* a migration."""
    before = await snapshot_of(settings)
    later = await snapshot_of(after, before)
    return {role: _role_change(before.views[role], view) for role, view in later.views.items()}


def _role_change(before: View, later: View) -> RoleChange:
    """Return the change of what can be called: the tools of each table too where they are not listed."""
    change = change_of(*(_definitions(view) for view in (before, later)))
    old, new = ({query.name for query in view.setting.queries} for view in (before, later))
    return RoleChange(
        added=change.added,
        changed=change.changed,
        removed=tuple(name for name in change.removed if name not in old),
        broken=tuple(sorted(old - new)),
    )


def _definitions(view: View) -> list[ToolDefinition]:
    """Return the definitions of the tools of *view*: of those for any table only where they are listed."""
    listed = {each.name for each in view.definitions} | {each.name for each in view.setting.queries}
    tools = view.tools.values()
    return [tool.definition for tool in tools if tool.table is not None or tool.name in listed]
