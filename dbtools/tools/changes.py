"""How the tools of one role differ from what they were. Definitions before and after in, names out."""

from collections.abc import Sequence
from dataclasses import dataclass

from dbtools.tools.definition import ToolDefinition


@dataclass(frozen=True, kw_only=True)
class Change:
    """The names of tools, in the order in which they are listed."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    resources: bool = False  #: whether the list of resources differs as well
    updated: tuple[str, ...] = ()  #: the addresses of resources that say something else

    @property
    def tools(self) -> bool:
        """Whether the list of tools differs."""
        return bool(self.added or self.changed or self.removed)

    def __bool__(self) -> bool:
        """Return whether there is any difference."""
        return self.tools or self.resources or bool(self.updated)


def change_of(before: Sequence[ToolDefinition], after: Sequence[ToolDefinition]) -> Change:
    """Return what *after* has, has otherwise, and has not of what was there *before*."""
    if before == after:
        return Change()
    old, new = ({each.name: each for each in definitions} for definitions in (before, after))
    return Change(
        added=tuple(name for name in new if name not in old),
        changed=tuple(name for name in new if name in old and new[name] != old[name]),
        removed=tuple(name for name in old if name not in new),
    )
