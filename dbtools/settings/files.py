"""Read `dbtools.toml`, with the environment in it. A path in; settings, or errors with their line, out."""

import os
import re
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin
from urllib.parse import quote

from pydantic import ValidationError

from dbtools import errors
from dbtools.backends import open_backend, url_of_file
from dbtools.cells import visible
from dbtools.errors import listing, nearest, nearest_path
from dbtools.policy import Source
from dbtools.settings.sections import DatabaseSection, Settings
from dbtools.settings.toml_file import DEEPEST, LONGEST_QUOTE, KeyPath, TomlFile, file_error, stamp_of
from dbtools.types import quoted

FILE = "dbtools.toml"
VARIABLE = re.compile(r"\$\{([^}]*)\}")


def settings_of(target: str | None) -> Settings:
    """Return the settings that *target* names: a database file, a URL, a `.toml` file, or ./dbtools.toml."""
    if target is None:
        if not os.path.isfile(FILE):
            raise errors.ConfigurationError(
                f"No TARGET is given and there is no {FILE} here.",
                hint="Name a database file, a database URL or a .toml file.",
            )
        target = FILE
    if target.endswith(".toml"):
        return load(Path(target), target)
    if "://" not in target and not is_file(Path(target)):
        raise _refusal(target)
    url = target if "://" in target else url_of_file(Path(target))
    return Settings.model_construct(database=DatabaseSection.model_construct(url=url))


def _refusal(target: str) -> errors.ConfigurationError:
    if is_login(target):
        message = "This is neither a file nor a URL, but looks like a login."
        return errors.ConfigurationError(message, hint="A URL is SCHEME://USER:PASSWORD@HOST/DATABASE.")
    hint = "TARGET is a database file, a database URL or a .toml file."
    if os.path.exists(target):
        what = "a folder" if os.path.isdir(target) else "not a regular file"
        return errors.ConfigurationError(f"{quoted(target, 200)} is {what}.", hint=hint)
    hint = f"{nearest_path(Path(target))}{hint}"
    return errors.ConfigurationError(f"There is no file {quoted(target, 200)}.", hint=hint)


def is_login(word: str) -> bool:
    """Return whether *word* looks like a URL or a connection string that may hold a password: never shown."""
    return "@" in word or "://" in word or re.search(r"\bpassword\s*=", word) is not None


def is_file(path: Path) -> bool:
    """Return whether *path* is a regular file; False for an impossible name."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def load(path: Path, file: str = "") -> Settings:
    """Return the settings in the file at *path*, or raise ConfigurationError.

    Errors call it *file*, or use the name in *path*.
    """
    written = _read(path, file or path.name)
    content, folder = _filled(written.content(), written, ()), path.absolute().parent
    try:
        settings = Settings.model_validate(content, context={"folder": folder})
    except ValidationError as exc:
        raise _complaint(exc, written) from exc
    if not settings.database.url:
        raise file_error(written.source(("database",)), "[database] url is missing.")
    if settings.log.registry and not settings.registry.url:
        raise written.error(("log", "registry"), "requires [registry] url.")
    facts = open_backend(settings.database.url).facts
    if settings.database.request_id == "application_name" and not facts.names_connections:
        problem = "connections to this database have no application name."
        raise written.error(("database", "request_id"), problem, hint='Use "comment".')
    return settings.written_in(written)


def _read(path: Path, file: str) -> TomlFile:
    if os.path.exists(path) and not is_file(path):
        # Reading a pipe would wait for its writer.
        raise errors.ConfigurationError(f"{visible(file)}: not a regular file.")
    stamp = stamp_of(str(path))  # before it is read: a later change must not be missed
    try:
        text = path.read_text(encoding="utf-8")
        return TomlFile(path=str(path.absolute()), file=file, text=text, stamp=stamp)
    except OSError as exc:
        if isinstance(exc, FileNotFoundError):
            hint = nearest_path(path)
            raise errors.ConfigurationError(f"{visible(file)}: there is no such file.", hint=hint) from exc
        raise errors.ConfigurationError(f"{visible(file)}: the file cannot be read.") from exc
    except UnicodeDecodeError as exc:
        line = exc.object[: exc.start].count(b"\n") + 1
        raise file_error(Source(file=file, line=line), "not TOML: the file is not UTF-8 text.") from exc


def _filled(value: Any, written: TomlFile, key: tuple[int | str, ...]) -> Any:
    """Return *value* with each ${NAME} replaced from the environment."""
    if len(key) > DEEPEST:
        raise written.error(key, f"there are more than {DEEPEST} levels of keys.")
    if any("\0" in each for each in (value, *key[-1:]) if isinstance(each, str)):
        raise written.error(key, "no name, path or SQL may contain the character \\u0000.")
    if isinstance(value, dict):
        return {name: _filled(each, written, (*key, name)) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, written, (*key, at)) for at, each in enumerate(value)]
    if not isinstance(value, str):
        return value
    return VARIABLE.sub(partial(_variable, written, key), value)


def _variable(written: TomlFile, key: KeyPath, match: re.Match[str]) -> str:
    name = match[1]
    if name not in os.environ:
        raise written.error(key, f"the environment variable {quoted(name)} is not set.")
    before, after = match.string[: match.start()], match.string[match.end() :]
    if "://" in before and "@" not in before.partition("://")[2] and "@" in after:
        # A user or a password in a URL: percent-encode what would end it there (RFC 3986, 3.2.1), unless it
        # is encoded already.
        value = re.sub("%(?![0-9A-Fa-f]{2})", "%25", os.environ[name])
        return quote(value, safe="%!$&'()*+,;=:")
    return os.environ[name]


def _complaint(exc: ValidationError, written: TomlFile) -> errors.ConfigurationError:
    """Return the error for the operator. An unknown key comes first: it may be a misspelt required one."""
    found = [(_place(each["loc"]), each) for each in exc.errors(include_url=False)]
    unknown = [each for each in found if each[1]["type"] == "extra_forbidden"]
    place, first = unknown[0] if unknown else max(found, key=lambda each: len(each[0]))
    given = first["input"]
    if unknown:
        known = _known(place[:-1])
        near = nearest(str(place[-1]), known) or _unquoted(place, given)
        return written.error(place, "unknown key.", hint=f"{near}Keys here: {listing(known)}.")
    kinds = [KINDS[each["type"]] for other, each in found if other == place and each["type"] in KINDS]
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    message = f"must be {' or '.join(kinds)}" if kinds else message.replace("Field required", "is missing")
    # Texts are not quoted: one may hold a secret of the environment.
    is_short = isinstance(given, float) or (isinstance(given, int) and given.bit_length() <= LONGEST_QUOTE)
    return written.error(place, f"{message}{f', not {given}' if is_short else ''}.")


#: What a value must be, by the type of the error.
KINDS: Mapping[str, str] = {
    "bool_type": "true or false",
    "tuple_type": "an array",
    "string_type": "a string",
    "int_type": "an integer",
    "dict_type": "{ … }",
    "model_type": "{ … }",
}


def _place(location: KeyPath) -> KeyPath:
    """Return the key at *location*, without the names of types that pydantic adds."""
    if location[0] == "roles" and len(location) > 4 and location[2] in ("tables", "queries"):
        location = (*location[:4], *location[5:])
    return [part for part in location if not str(part).startswith("function-")]


def _unquoted(place: KeyPath, given: object) -> str:
    """Return how to write the name of a table with its schema, if that was meant at *place*."""
    *sections, schema, table = place
    is_table = sections == ["tables"] or (sections[:1] == ["roles"] and sections[2:] == ["tables"])
    if not is_table or not isinstance(given, dict | bool):
        return ""
    return f'Put a name with its schema in quotes: tables."{schema}.{table}". '


def _known(place: KeyPath) -> Collection[str]:
    section: Any = Settings
    is_name = False  # of a role or a table
    for part in place:
        if is_name or isinstance(part, int):
            is_name = False
            continue
        annotation = section.model_fields[part].annotation
        is_name = get_origin(annotation) is dict
        section = _section_in(annotation)
    return tuple(section.model_fields)


def _section_in(annotation: Any) -> Any:
    if hasattr(annotation, "model_fields"):
        return annotation
    return next(filter(None, map(_section_in, get_args(annotation))), None)
