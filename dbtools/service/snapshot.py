"""Take a snapshot of what is served. A Resolved in, what each role sees out."""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from dbtools import errors
from dbtools.answers.styles import Listing, Surface
from dbtools.configured.resolved import Resolved
from dbtools.findings import Finding, FindingCode
from dbtools.policy.roles import Role
from dbtools.schema.catalog import Catalog
from dbtools.settings.sections import Settings
from dbtools.tools import MOST_TOOLS, choose, define, listed_tools
from dbtools.tools.definition import (
    ListChange,
    ToolContext,
    ToolDefinition,
    ToolGroup,
    Toolset,
    compare,
    tokens_in,
)
from dbtools.tools.resources import Resource, define_resources, updated_resources
from dbtools.values.cells import json_of

DATABASE = "database"  #: the name of the stamp of the schema
MOST_ACCEPTED = f"Some providers of models accept at most {MOST_TOOLS}."
PIN = " To list those of some tables, name these in [tools] pin in dbtools.toml."
FEWER = (
    'To list fewer, set [tools] style = "auto" or "generic" in dbtools.toml, name fewer tables in pin, or '
    "let the role see fewer."
)


@dataclass(frozen=True, kw_only=True)
class RoleSnapshot:
    """What one role sees of a snapshot."""

    role: Role
    context: ToolContext
    typed: frozenset[ToolGroup]  #: the groups whose typed tools are listed
    problems: tuple[Finding, ...]  #: for the operator, never for a caller
    stamp: str  #: of the schema
    hash_key: bytes = field(repr=False)  #: of the mask hash
    tools: Toolset = field(repr=False)  #: all that can be called
    whole: Catalog = field(default_factory=Catalog, repr=False)  #: what the login sees
    definitions: tuple[ToolDefinition, ...] = field(repr=False)  #: of those that are listed
    resources: tuple[Resource, ...] = field(default=(), repr=False)  #: that are listed

    @cached_property
    def tool_contents(self) -> tuple[bytes, ...]:
        """The JSON of each definition, as `tools/list` shows it."""
        return tuple(each.json for each in self.definitions)

    @cached_property
    def resource_contents(self) -> tuple[bytes, ...]:
        """The JSON of each resource, as `resources/list` shows it."""
        return tuple(json_of(each.content()).encode() for each in self.resources)

    @property
    def costs(self) -> tuple[int, ...]:
        """How many tokens each definition takes."""
        return tuple(tokens_in(len(each)) for each in self.tool_contents)

    def replacement_notes(self, listing: Listing) -> Iterator[str]:
        """Yield which typed tools exceed the budget of *listing*, and what is listed instead."""
        shown = {each.name for each in self.definitions}
        taken = 0
        for group in ToolGroup if listing.surface is Surface.AUTO else (ToolGroup.QUERIES,):
            tools = [tool for tool in self.tools.values() if tool.group is group]
            typed = [tool for tool in tools if tool.surface is not Surface.GENERIC]
            hidden = [tool.name for tool in typed if tool.name not in shown]
            cost = taken + sum(tokens_in(len(tool.definition.json)) for tool in typed)
            if group in self.typed:
                taken = cost
            elif hidden:
                instead = ", ".join(tool.name for tool in tools if tool.surface is Surface.GENERIC)
                pin = "" if group is ToolGroup.QUERIES else " or pin"
                why = (
                    f"with those, the tools would cost {cost:,} tokens, more than the budget of "
                    f"{listing.budget:,}. To list them, set [tools] budget{pin} in dbtools.toml."
                )
                too_many = f"with those, there would be more than {MOST_TOOLS} tools. {MOST_ACCEPTED}"
                reason = why if cost > listing.budget else f"{too_many}{PIN * bool(pin)}"
                yield f"{instead} replace {errors.listing(hidden, 1)}: {reason}"
        if self.excess:
            yield self.excess

    @property
    def excess(self) -> str:
        """Why some clients refuse all tools, and the remedy; empty if they are few enough."""
        if len(self.definitions) <= MOST_TOOLS:
            return ""
        return f"{len(self.definitions)} tools are listed. {MOST_ACCEPTED} {FEWER}"

    @property
    def catalog(self) -> Catalog:
        """The part of the catalog that the role sees."""
        return self.context.catalog


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One moment of the database: replaced whole, never changed."""

    catalog: Catalog = field(repr=False)
    views: Mapping[str, RoleSnapshot]  #: by the name of the role
    stamps: Mapping[str, Hashable] = field(
        default_factory=dict
    )  #: of everything that it was made from, by name
    missing: tuple[str, ...] = ()  #: why tools may be missing, if their registry cannot be read
    settings: Settings = field(default_factory=Settings, repr=False)  #: that it was made from

    @cached_property
    def writes(self) -> bool:
        """Whether a role may change rows."""
        return any(
            any(table.writes is not None for table in view.catalog.tables)
            or any(query.effects for query in view.context.queries)
            for view in self.views.values()
        )

    def view(self, role: str) -> RoleSnapshot:
        """Return what *role* sees, or raise Denied if the role no longer exists."""
        view = self.views.get(role)
        if view is None:
            raise errors.Denied
        return view


def take_snapshot(resolved: Resolved, before: Snapshot | None = None) -> Snapshot:
    """Return the snapshot in which each role sees its part of the catalog.

    A role that was in the snapshot *before* keeps its surface, unless the configuration changes it: otherwise
    clients would lose all tools at once.
    """
    listing = resolved.settings.listing()
    same = before is not None and before.settings.listing() == listing
    kept = {name: view.typed for name, view in before.views.items()} if before and same else {}
    is_known = all(each.journal is not None for each in resolved.roles) and resolved.is_complete
    catalogs: list[Catalog] = []
    offers: dict[Hashable, RoleSnapshot] = {}
    views: dict[str, RoleSnapshot] = {}
    for each in resolved.roles:
        role, typed = each.served, kept.get(each.served.name)
        queries = tuple(query for query in resolved.library.queries if role.may_call(query.name))
        # The tools of roles that see the same are defined once.
        if each.catalog not in catalogs:
            catalogs.append(each.catalog)
        seen, names = catalogs.index(each.catalog), tuple(query.name for query in queries)
        key = (seen, each.journal, role.limits, names, typed, each.server)
        if key not in offers:
            context = ToolContext(
                catalog=each.catalog,
                limits=role.limits,
                text=resolved.settings.results.text,
                queries=queries,
                journal=each.journal,
                server=each.server,
            )
            offers[key] = _view(resolved, role, context, listing, typed)
        views[role.name] = replace(offers[key], role=role, whole=each.whole)
    return Snapshot(
        catalog=resolved.catalog,
        views=views,
        # No poll finds this code, so another refresh follows soon.
        stamps={DATABASE: resolved.catalog.stamp if is_known else FindingCode.UNCHECKED, **resolved.stamps},
        missing=resolved.missing,
        settings=resolved.settings,
    )


def changes_of(before: Snapshot, after: Snapshot) -> Mapping[str, ListChange]:
    """Return how the lists of *after* differ from those of *before*, by role; omit roles without changes."""
    changes: dict[str, ListChange] = {}
    known: dict[Hashable, ListChange] = {}
    for name in dict.fromkeys((*before.views, *after.views)):
        views = before.views.get(name), after.views.get(name)
        # Roles that see the same share their definitions.
        key = tuple(view and (id(view.definitions), id(view.context)) for view in views)
        if key not in known:
            known[key] = _change(*views)
        if known[key]:
            changes[name] = known[key]
    return changes


def _change(before: RoleSnapshot | None, after: RoleSnapshot | None) -> ListChange:
    """Return how the lists of a role differ; a role that is absent lists nothing."""
    change = compare(before.definitions if before else (), after.definitions if after else ())
    resources = (before.resources if before else ()) != (after.resources if after else ())
    updated = tuple(updated_resources(before.context, after.context)) if before and after else ()
    return replace(change, resources=resources, updated=updated)


def _view(
    resolved: Resolved, role: Role, context: ToolContext, listing: Listing, typed: frozenset[ToolGroup] | None
) -> RoleSnapshot:
    tools = define(context)
    typed = choose(listing, tools) if typed is None else typed
    shown = listed_tools(listing, typed, tools, context.catalog)
    return RoleSnapshot(
        role=role,
        context=context,
        typed=typed,
        problems=resolved.problems,
        stamp=resolved.catalog.stamp,
        hash_key=resolved.settings.policy.hash_key.encode(),
        tools=tools,
        definitions=tuple(tool.definition for tool in shown),
        resources=tuple(define_resources(context)),
    )
