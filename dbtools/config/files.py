"""`dbtools.toml` into settings: the file, the environment in it, and complaints with their line."""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin
from urllib.parse import quote

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dbtools import errors
from dbtools.column_types import quoted
from dbtools.config.sections import DatabaseSection, JwtSection, Settings
from dbtools.dialects import dialect_of, resolved_url, url_of_file
from dbtools.errors import listing, nearest
from dbtools.positions import line_of

FILE = "dbtools.toml"
GRANT = 4  #: parts of the place of a grant, [roles.R] tables.T or the number of one of [roles.R] queries
VARIABLE = re.compile(r"\$\{([^}]*)\}")


def settings_of(target: str | None, folder: Path) -> Settings:
    """Return the settings that *target* names: a database file, a URL, a `.toml` file, or ./dbtools.toml."""
    if target is None:
        if not (folder / FILE).is_file():
            raise errors.ConfigurationError(
                f"No TARGET is given and there is no {FILE} here.",
                hint="Name a database file, a database URL or a .toml file.",
            )
        return load(folder / FILE)
    if target.endswith(".toml"):
        return load(folder / target)
    if "://" in target:
        return Settings(database=DatabaseSection(url=resolved_url(target, folder)))
    if not is_file(folder / target):
        raise errors.ConfigurationError(
            f"There is no file {quoted(target, 200)}.",
            hint="TARGET is a database file, a database URL or a .toml file.",
        )
    return Settings(database=DatabaseSection(url=url_of_file(folder / target)))


def is_file(path: Path) -> bool:
    """Return whether there is a file at *path*; a name that no file can have names none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def load(path: Path) -> Settings:
    """Return the settings in the file at *path*, or raise ConfigurationError."""
    if path.exists() and not is_file(path):
        # To read a pipe would be to wait for whoever writes.
        raise errors.ConfigurationError(f"{path.name}: this is no regular file.")
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except OSError as exc:
        problem = "there is no such file" if isinstance(exc, FileNotFoundError) else "the file cannot be read"
        raise errors.ConfigurationError(f"{path.name}: {problem}.") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise errors.ConfigurationError(f"{path.name}: not TOML: {exc}.") from exc
    try:
        settings = Settings.model_validate(_filled(content, Written(file=path.name, text=text), ()))
    except ValidationError as exc:
        raise _complaint(exc, Written(file=path.name, text=text)) from exc
    if not settings.database.url:
        raise errors.ConfigurationError(f"{path.name}: [database] url is missing.")
    folder = path.absolute().parent
    full = _full(settings.database.url, folder)
    _check(settings, full, Written(file=path.name, text=text))
    registry = _full(settings.registry.url, folder) if settings.registry.url else ""
    queries = str(folder / settings.queries.directory) if settings.queries.directory else ""
    log_file = str(folder / settings.log.file) if settings.log.file else ""
    settings = settings.model_copy(
        update={
            "database": settings.database.model_copy(update={"url": full}),
            "queries": settings.queries.model_copy(update={"directory": queries}),
            "registry": settings.registry.model_copy(update={"url": registry}),
            "log": settings.log.model_copy(update={"file": log_file}),
            "auth": settings.auth.model_copy(update={"jwt": _jwt(settings.auth.jwt, folder)}),
        }
    )
    return settings.written_in(path, text)


def _check(settings: Settings, url: str, written: "Written") -> None:
    """Raise ConfigurationError where *settings* do not fit each other, or the database at *url*."""
    if settings.log.registry and not settings.registry.url:
        place = written.place(("log", "registry"))
        raise errors.ConfigurationError(f"{place}: wants the database of a registry, [registry] url.")
    if settings.database.request_id == "application_name" and not dialect_of(url).NAMES_CONNECTIONS:
        place = written.place(("database", "request_id"))
        raise errors.ConfigurationError(
            f"{place}: connections to this database have no names.", hint='There is "comment".'
        )


def _jwt(jwt: JwtSection | None, folder: Path) -> JwtSection | None:
    if jwt is None or "://" in jwt.jwks:
        return jwt
    return jwt.model_copy(update={"jwks": str(folder / jwt.jwks)})


def _full(url: str, folder: Path) -> str:
    return resolved_url(url, folder) if "://" in url else url_of_file(folder / url)


@dataclass(frozen=True, kw_only=True)
class Written:
    """A file that is being read."""

    file: str
    text: str

    def place(self, key: Sequence[int | str]) -> str:
        """Return where *key* is written, and the key."""
        line = line_of(self.text, [str(part) for part in key]) or 1
        return f"{self.file}:{line}: {'.'.join(map(str, key))}"


Key = tuple[int | str, ...]


def _filled(value: Any, written: Written, key: Key) -> Any:
    """Return *value* with each ${NAME} in its strings replaced from the environment."""
    if isinstance(value, dict):
        return {name: _filled(each, written, (*key, name)) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, written, (*key, at)) for at, each in enumerate(value)]
    if not isinstance(value, str):
        return value
    return VARIABLE.sub(partial(_variable, written, key), value)


def _variable(written: Written, key: Key, match: re.Match[str]) -> str:
    name = match[1]
    if name not in os.environ:
        raise errors.ConfigurationError(
            f"{written.place(key)}: the environment has no variable {quoted(name)}."
        )
    before, after = match.string[: match.start()], match.string[match.end() :]
    if "://" in before and "@" not in before.partition("://")[2] and "@" in after:
        # A user or a password in a URL: what would end it there is percent-encoded (RFC 3986, 3.2.1).
        return quote(os.environ[name], safe="%!$&'()*+,;=:")
    return os.environ[name]


def _complaint(exc: ValidationError, written: Written) -> errors.ConfigurationError:
    first = _telling(exc.errors(include_url=False))
    place = _key_of(first["loc"])
    where = written.place([part for part in place if not str(part).startswith("function-")])
    if first["type"] == "extra_forbidden":
        known = _known(place[:-1])
        return errors.ConfigurationError(
            f"{where}: there is no such key.",
            hint=f"{nearest(str(first['loc'][-1]), known)}Keys here: {listing(known)}.",
        )
    message = WANTED.get(first["type"]) or first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    # Not of texts: one may hold a secret of the environment.
    given = f", not {first['input']}" if isinstance(first["input"], int | float) else ""
    return errors.ConfigurationError(f"{where}: {message}{given}.")


def _telling(found: Sequence[ErrorDetails]) -> ErrorDetails:
    """Return the error that helps: of a grant, which may be of several forms, what its table wants."""
    same = [each for each in found if each["loc"][:GRANT] == found[0]["loc"][:GRANT]]
    tables = [each for each in same if each["loc"][GRANT:][:1] != ("bool",)]
    return max(tables or same, key=lambda each: len(each["loc"]))


def _key_of(place: Key) -> list[int | str]:
    """Return the key that is written at *place*, without the forms and the numbers of grants."""
    if place[:1] != ("roles",) or place[2:3] not in (("tables",), ("queries",)):
        return list(place)
    kept = GRANT if place[2] == "tables" else GRANT - 1
    return [*place[:kept], *place[GRANT + 1 :]]


WANTED: Mapping[str, str] = {
    "tuple_type": "wants an array of strings",
    "string_type": "wants a string",
    "int_type": "wants an integer",
    "dict_type": "wants a table",
    "model_type": "wants a table",
    "missing": "is missing",
}


def _known(place: Sequence[int | str]) -> list[str]:
    """Return the keys that may stand at *place*."""
    model: Any = Settings
    for part in place:
        model = _within(model, part)
    return list(getattr(model, "model_fields", {}))


def _within(model: Any, part: int | str) -> Any:
    """Return what stands below *part* in *model*, a section or a table of sections by any name."""
    fields = getattr(model, "model_fields", None)
    below = fields[part].annotation if fields and part in fields else get_args(model)[-1]
    below = get_args(below)[0] if get_origin(below) is tuple else below
    sections = [each for each in get_args(below) if hasattr(each, "model_fields")]
    return sections[0] if sections and get_origin(below) is not dict else below
