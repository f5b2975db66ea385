"""The generated tables of the documents: `python -m cogapp -r README.md docs/deployment.md` writes them."""

from collections.abc import Iterator, Sequence
from typing import Any

from dbtools import errors
from dbtools.backends.postgresql.parameters import PARAMETERS, By
from dbtools.settings import Settings
from dbtools.settings.sections import (
    AuthSection,
    GrantSection,
    JwtSection,
    RoleLimitsSection,
    RoleSection,
    TokenSection,
)
from dbtools.types import FAMILIES


def _table(headings: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def settings_table() -> str:
    """Return the table of all keys of dbtools.toml."""
    return _table(("key", "default", "meaning"), _settings())


def _settings() -> Iterator[Sequence[str]]:
    for name, field in Settings.model_fields.items():
        section: Any = field.annotation
        if name in ("tables", "roles"):
            section = section.__args__[1]
            name = "tables.T" if name == "tables" else "roles.R"
        yield from _keys(name, section)
        if section is RoleSection:
            yield from _keys("roles.R.tables.T", GrantSection)
            yield from _keys("roles.R.limits", RoleLimitsSection)
        if section is AuthSection:
            yield from _keys("[auth.tokens]", TokenSection)
            yield from _keys("auth.jwt", JwtSection)


def _keys(name: str, section: Any) -> Iterator[Sequence[str]]:
    for key, each in section.model_fields.items():
        if each.description:
            default = "required" if each.is_required() else f"`{_written(each.default)}`"
            yield f"`[{name}] {key}`", default, each.description


def _written(value: object) -> str:
    match value:
        case None:
            return "none"
        case dict():
            return "{}"
        case tuple():
            return "[" + ", ".join(map(_written, value)) + "]"
        case str():
            return f'"{value}"'
        case float():
            return f'"{value:g}s"'
        case _:
            return str(value)


def errors_table() -> str:
    """Return the table of what a caller can be told."""
    return _table(("code", "meaning", "comes as"), _errors(errors.DbtoolsError))


def _errors(kind: type[errors.DbtoolsError]) -> Iterator[Sequence[str]]:
    for each in kind.__subclasses__():
        if each is errors.CallError:
            yield from _errors(each)
            continue
        comes = "a result with `isError`" if issubclass(each, errors.CallError) else "a protocol error"
        comes = "exit status 2" if each is errors.ConfigurationError else comes
        yield f"`{each.code}`", str(each.__doc__), comes


def operators_table() -> str:
    """Return the table of the operators that columns take."""
    families: dict[str, list[str]] = {}
    for family, row in FAMILIES.items():
        families.setdefault(" ".join(f"`{each}`" for each in row.operators), []).append(str(family))
    return _table(
        ("type of the column", "operators"), ((", ".join(names), ops) for ops, names in families.items())
    )


def parameters_table() -> str:
    """Return the table of the parameters of a PostgreSQL URL."""
    return _table(("parameter", "variable", "values", "who acts on it"), _parameters())


def _parameters() -> Iterator[Sequence[str]]:
    for name, each in PARAMETERS.items():
        values = ", ".join(f"`{value}`" for value in each.values) or ("none" if each.why else "any")
        effect = "accepted, no effect" if each.by is By.NOBODY and each.values else str(each.by)
        refusal = f"others are refused: {each.why}" if each.values else f"refused: {each.why}"
        told = [*([effect] if effect != By.NOBODY else []), *([refusal] if each.why else [])]
        yield f"`{name}`", f"`{each.variable}`" if each.variable else "", values, "; ".join(told)
