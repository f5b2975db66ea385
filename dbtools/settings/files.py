"""`dbtools.toml` into settings: the file, the environment in it, and complaints with their line."""

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, get_args, get_origin
from urllib.parse import quote

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dbtools import errors
from dbtools.backends import open_backend, resolved_url, url_of_file
from dbtools.cells import visible
from dbtools.errors import listing, nearest, nearest_path
from dbtools.policy import Source
from dbtools.settings.positions import DEEPEST, LONGEST, Key, TomlFile, file_error
from dbtools.settings.sections import DatabaseSection, Settings
from dbtools.types import quoted

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
        return load(folder / FILE, FILE)
    if target.endswith(".toml"):
        return load(folder / target, target)
    if "://" in target:
        url = target if folder == Path.cwd() else resolved_url(target, folder)
        return Settings.model_construct(database=DatabaseSection.model_construct(url=url))
    # As it is given, messages name it.
    path = Path(target) if folder == Path.cwd() else folder / target
    if not is_file(path):
        _refuse_target(target, path)
    return Settings.model_construct(database=DatabaseSection.model_construct(url=url_of_file(path)))


def _refuse_target(target: str, path: Path) -> NoReturn:
    hint = "TARGET is a database file, a database URL or a .toml file."
    if is_login(target):
        message = "This is neither a file nor a URL, but looks like a login."
        raise errors.ConfigurationError(message, hint="A URL is SCHEME://USER:PASSWORD@HOST/DATABASE.")
    if os.path.isdir(path):
        raise errors.ConfigurationError(
            f"{quoted(target, 200)} is a folder.", hint=f"Name a file in it. {hint}"
        )
    if os.path.exists(path):
        raise errors.ConfigurationError(f"{quoted(target, 200)} is not a regular file.", hint=hint)
    raise errors.ConfigurationError(
        f"There is no file {quoted(target, 200)}.", hint=f"{nearest_path(path)}{hint}"
    )


def is_login(word: str) -> bool:
    """Return whether *word* looks like a URL or a connection string that may hold a password: never shown."""
    return "@" in word or "://" in word or re.search(r"\bpassword\s*=", word) is not None


def is_file(path: Path) -> bool:
    """Return whether there is a file at *path*; a name that no file can have names none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def load(path: Path, file: str = "") -> Settings:
    """Return the settings in the file at *path*, or raise ConfigurationError.

    Complaints call it *file*, or else by its name.
    """
    written = _read(path, file or path.name)
    try:
        settings = Settings.model_validate(_filled(written.content(), written, ()))
    except ValidationError as exc:
        raise _complaint(exc, written) from exc
    folder = path.absolute().parent
    database, registry = _full(settings.database.url, folder), _full(settings.registry.url, folder)
    _check(settings, database, registry, written)
    settings = settings.having("database", "url", database).having("registry", "url", registry)
    for section, key, value in (
        ("queries", "directory", settings.queries.directory),
        ("log", "file", settings.log.file),
    ):
        settings = settings.having(section, key, str(folder / value) if value else "")
    jwt = settings.auth.jwt
    if jwt is not None and "://" not in jwt.jwks:
        jwt = jwt.model_copy(update={"jwks": str(folder / jwt.jwks)})
    return settings.having("auth", "jwt", jwt).written_in(written)


def _read(path: Path, file: str) -> TomlFile:
    if os.path.exists(path) and not is_file(path):
        # Reading a pipe would wait for its writer.
        raise errors.ConfigurationError(f"{visible(file)}: this is no regular file.")
    try:
        return TomlFile(path=str(path.absolute()), file=file, text=path.read_text(encoding="utf-8"))
    except OSError as exc:
        if isinstance(exc, FileNotFoundError):
            hint = nearest_path(path)
            raise errors.ConfigurationError(f"{visible(file)}: there is no such file.", hint=hint) from exc
        raise errors.ConfigurationError(f"{visible(file)}: the file cannot be read.") from exc
    except UnicodeDecodeError as exc:
        line = exc.object[: exc.start].count(b"\n") + 1
        raise file_error(Source(file=file, line=line), "not TOML: this is no text in UTF-8.") from exc


def _check(settings: Settings, url: str, registry: str, written: TomlFile) -> None:
    """Raise ConfigurationError where *settings* do not fit each other, *url* or the URL of the *registry*."""
    if not url:
        raise file_error(written.source(("database",)), "[database] url is missing.")
    for section, place in (("database", url), ("registry", registry)):
        try:
            if place:
                open_backend(place)
        except errors.ConfigurationError as exc:
            raise written.error((section, "url"), exc.message, hint=exc.hint) from exc
    if settings.log.registry and not registry:
        raise written.error(("log", "registry"), "needs the database of a registry: [registry] url.")
    if settings.database.request_id == "application_name" and not open_backend(url).facts.names_connections:
        problem = "connections to this database have no names."
        raise written.error(("database", "request_id"), problem, hint='There is "comment".')


def _full(url: str, folder: Path) -> str:
    if not url:
        return ""
    return resolved_url(url, folder) if "://" in url else url_of_file(folder / url)


def _filled(value: Any, written: TomlFile, key: tuple[int | str, ...]) -> Any:
    """Return *value* with each ${NAME} in its strings replaced from the environment."""
    if len(key) > DEEPEST:
        raise written.error(key, f"there are more than {DEEPEST} levels of keys.")
    if any("\0" in each for each in (value, *key[-1:]) if isinstance(each, str)):
        raise written.error(key, "no name, path or SQL may have the character \\u0000.")
    if isinstance(value, dict):
        return {name: _filled(each, written, (*key, name)) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, written, (*key, at)) for at, each in enumerate(value)]
    if not isinstance(value, str):
        return value
    return VARIABLE.sub(partial(_variable, written, key), value)


def _variable(written: TomlFile, key: Key, match: re.Match[str]) -> str:
    name = match[1]
    if name not in os.environ:
        raise written.error(key, f"the environment has no variable {quoted(name)}.")
    before, after = match.string[: match.start()], match.string[match.end() :]
    if "://" in before and "@" not in before.partition("://")[2] and "@" in after:
        # A user or a password in a URL: what would end it there is percent-encoded (RFC 3986, 3.2.1).
        # It may be encoded already; a percent sign of its own is not.
        value = re.sub("%(?![0-9A-Fa-f]{2})", "%25", os.environ[name])
        return quote(value, safe="%!$&'()*+,;=:")
    return os.environ[name]


def _complaint(exc: ValidationError, written: TomlFile) -> errors.ConfigurationError:
    first = _telling(exc.errors(include_url=False))
    place = [part for part in _key_of(first["loc"]) if not str(part).startswith("function-")]
    if first["type"] == "extra_forbidden":
        known = _known(place[:-1])
        near = nearest(str(place[-1]), known) or _unquoted(place, first["input"])
        return written.error(place, "there is no such key.", hint=f"{near}Keys here: {listing(known)}.")
    words = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    message = _wanted(place, first["type"]) or words
    # Not of texts: one may hold a secret of the environment.
    given = first["input"]
    is_short = isinstance(given, float) or (isinstance(given, int) and given.bit_length() <= LONGEST)
    return written.error(place, f"{message}{f', not {given}' if is_short else ''}.")


def _unquoted(place: Key, given: object) -> str:
    """Return how the name of a table with its schema is written, if *given* at *place* is that of one."""
    *sections, schema, table = place
    is_table = sections == ["tables"] or (sections[:1] == ["roles"] and sections[2:] == ["tables"])
    if not is_table or not isinstance(given, dict | bool):
        return ""
    return f'A name with its schema stands in quotes: tables."{schema}.{table}". '


def _telling(found: Sequence[ErrorDetails]) -> ErrorDetails:
    """Return the error that helps: a key that nobody knows, since what is missing may be that one.

    Of a grant, which may be of several forms, what its table wants.
    """
    unknown = [each for each in found if each["type"] == "extra_forbidden"]
    if unknown:
        return unknown[0]
    same = [each for each in found if each["loc"][:GRANT] == found[0]["loc"][:GRANT]]
    tables = [each for each in same if each["loc"][GRANT:][:1] != ("bool",)]
    return max(tables or same, key=lambda each: len(each["loc"]))


def _key_of(place: tuple[int | str, ...]) -> list[int | str]:
    """Return the key that is written at *place*, without the forms of grants."""
    if place[:1] != ("roles",) or place[2:3] not in (("tables",), ("queries",)):
        return list(place)
    return [*place[:GRANT], *place[GRANT + 1 :]]


WANTED: Mapping[str, str] = {
    "tuple_type": "must be an array of strings",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "dict_type": "must be { … }",
    "model_type": "must be { … }",
    "missing": "is missing",
}


def _wanted(place: Key, problem: str) -> str:
    """Return what is wanted at *place*, nothing where the *problem* has words of its own."""
    is_grant = tuple(place[:1]) == ("roles",) and tuple(place[2:3]) == ("tables",) and len(place) == GRANT
    if is_grant and problem == "model_type":
        return "must be true, false or { … }"
    if tuple(place) == ("auth", "tokens") and problem == "tuple_type":
        return "must be an array of { … }"
    return WANTED.get(problem, "")


def _known(place: Sequence[int | str]) -> list[str]:
    """Return the keys that may stand at *place*."""
    model: Any = Settings
    for part in place:
        model = _within(model, part)
    return list(getattr(model, "model_fields", {}))


def _within(model: Any, part: int | str) -> Any:
    """Return what stands below *part* in *model*, a section or a table of sections by any name."""
    if isinstance(part, int):
        return model  # that of each element of the array
    fields = getattr(model, "model_fields", None)
    below = fields[part].annotation if fields and part in fields else get_args(model)[-1]
    below = get_args(below)[0] if get_origin(below) is tuple else below
    sections = [each for each in get_args(below) if hasattr(each, "model_fields")]
    return sections[0] if sections and get_origin(below) is not dict else below
