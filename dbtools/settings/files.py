"""Read `dbtools.toml`, with the environment in it. A path in; settings, or errors with their line, out."""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin
from urllib.parse import quote as quote_url

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dbtools import errors
from dbtools.backends import home_path, is_url, open_backend, url_of_file
from dbtools.errors import alternatives, did_you_mean, listing, nearest_path
from dbtools.findings import Source
from dbtools.settings.sections import DatabaseSection, Settings
from dbtools.settings.toml_file import DEEPEST_KEYS, LONGEST_QUOTE, KeyPath, TomlFile, file_error, stamp_of
from dbtools.values.cells import escape
from dbtools.values.types import quote

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
    path = home_path(target)
    if target.endswith(".toml"):
        return load(path, target)
    if not is_url(target) and not is_file(path):
        raise _refusal(target)
    url = target if is_url(target) else url_of_file(path)
    return Settings.model_construct(database=DatabaseSection.model_construct(url=url))


def _refusal(target: str) -> errors.ConfigurationError:
    if is_login(target):
        message = "This is neither a file nor a URL, but looks like a login."
        return errors.ConfigurationError(message, hint="A URL is SCHEME://USER:PASSWORD@HOST/DATABASE.")
    hint = "TARGET is a database file, a database URL or a .toml file."
    if os.path.exists(home_path(target)):
        what = "a folder" if os.path.isdir(home_path(target)) else "not a regular file"
        return errors.ConfigurationError(f"{quote(target, 200)} is {what}.", hint=hint)
    hint = f"{nearest_path(home_path(target))}{hint}"
    return errors.ConfigurationError(f"There is no file {quote(target, 200)}.", hint=hint)


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
    unfilled, folder = written.content(), path.absolute().parent
    faults, content = dict(_faults(unfilled, written, ())), _with_environment(unfilled)
    try:
        settings = Settings.model_validate(content, context={"folder": folder})
    except ValidationError as exc:
        raise _combine_mistakes({**dict(_mistakes(exc, content, written)), **faults}) from exc
    if faults:
        raise _combine_mistakes(faults)
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
        raise errors.ConfigurationError(f"{escape(file)}: not a regular file.")
    stamp = stamp_of(str(path))  # before it is read: a later change must not be missed
    try:
        text = path.read_text(encoding="utf-8-sig")
        return TomlFile(path=str(path.absolute()), file=file, text=text, stamp=stamp)
    except OSError as exc:
        if isinstance(exc, FileNotFoundError):
            hint = nearest_path(path)
            raise errors.ConfigurationError(f"{escape(file)}: there is no such file.", hint=hint) from exc
        raise errors.ConfigurationError(f"{escape(file)}: the file cannot be read.") from exc
    except UnicodeDecodeError as exc:
        line = exc.object[: exc.start].count(b"\n") + 1
        raise file_error(Source(file=file, line=line), "not TOML: the file is not UTF-8 text.") from exc


KeyedErrors = Iterator[tuple[tuple[int | str, ...], errors.ConfigurationError]]


def _faults(value: Any, written: TomlFile, key: tuple[int | str, ...]) -> KeyedErrors:
    """Yield the parts of *value* that no key can have."""
    if len(key) > DEEPEST_KEYS:
        yield key, written.error(key, f"there are more than {DEEPEST_KEYS} levels of keys.")
        return
    if any("\0" in each for each in (value, *key[-1:]) if isinstance(each, str)):
        yield key, written.error(key, "no name, path or SQL may contain the character \\u0000.")
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in pairs:
        yield from _faults(each, written, (*key, name))
    names = VARIABLE.findall(value) if isinstance(value, str) else ()
    if unset := [name for name in names if name not in os.environ]:
        yield key, written.error(key, f"the environment variable {quote(unset[0])} is not set.")


def _with_environment(value: Any, level: int = 0) -> Any:
    """Return *value* with each ${NAME} replaced from the environment, if it is set there."""
    if isinstance(value, dict) and level < DEEPEST_KEYS:
        return {name: _with_environment(each, level + 1) for name, each in value.items()}
    if isinstance(value, list) and level < DEEPEST_KEYS:
        return [_with_environment(each, level + 1) for each in value]
    return VARIABLE.sub(_variable, value) if isinstance(value, str) else value


def _variable(match: re.Match[str]) -> str:
    text = os.environ.get(match[1], match[0])
    before, after = match.string[: match.start()], match.string[match.end() :]
    if "://" in before and "@" not in before.partition("://")[2] and "@" in after:
        # A user or a password in a URL: percent-encode what would end it there (RFC 3986, 3.2.1), unless it
        # is encoded already.
        return quote_url(re.sub("%(?![0-9A-Fa-f]{2})", "%25", text), safe="%!$&'()*+,;=:")
    return text


def _combine_mistakes(mistakes: Mapping[Any, errors.ConfigurationError]) -> errors.ConfigurationError:
    """Return the first of *mistakes* in the file, with the others after it."""
    first, *others = sorted(mistakes.values(), key=lambda each: getattr(each.place, "line", 0))
    first.others = others
    return first


def _mistakes(exc: ValidationError, content: Any, written: TomlFile) -> KeyedErrors:
    """Yield the mistakes that the operator can correct: one for each key."""
    found: dict[tuple[int | str, ...], list[ErrorDetails]] = {}
    for each in exc.errors(include_url=False):
        found.setdefault(_place(each, content), []).append(each)
    # Where a value may have several types, the mistakes within it are those of the type that was meant.
    above = {place[:end] for place in found for end in range(len(place))}
    yield from ((place, _mistake(place, found[place], written)) for place in found if place not in above)


def _mistake(
    place: tuple[int | str, ...], details: Sequence[ErrorDetails], written: TomlFile
) -> errors.ConfigurationError:
    given = details[0]["input"]
    former = FORMER.get(".".join(map(str, place))) or FORMER.get(place[-1])
    for each in details:
        if each["type"] == "extra_forbidden" and former is not None:
            return written.error(place, "is no key any more.", hint=former)
        if each["type"] == "extra_forbidden":
            known = _keys_of_section(place[:-1])
            near = _section_of(place) or did_you_mean(str(place[-1]), known) or _quoting_hint(place, given)
            return written.error(place, "unknown key.", hint=f"{near}Keys here: {listing(known)}.")
        if each["type"] == "missing":
            return written.error(place, "is missing.")
    if isinstance(given, dict) and "queries" in place and "name" in given:
        return written.error(place, "must be a string.", hint=FORMER["accept_writes"])
    kinds = dict.fromkeys(kind for each in details for kind in _kinds(each))
    texts = [each["msg"].removeprefix("Value error, ") for each in details if each["type"] == "value_error"]
    message = texts[0] if texts else f"must be {alternatives(kinds)}"
    # Texts are not quoted: one may hold a secret of the environment.
    is_short = isinstance(given, float) or (isinstance(given, int) and given.bit_length() <= LONGEST_QUOTE)
    return written.error(place, f"{message}{f', not {given}' if is_short else ''}.")


#: What to write instead of keys that there were, by their names, or by their paths.
FORMER: Mapping[str | int, str] = {
    "accept_reads": "A rule that names a view grants it, whatever the view reads.",
    "accept_writes": 'The name of a query grants it: queries = ["top"].',
    "results.rows": "Rows are arrays, with one list of column names. Remove the key.",
}
#: What a value must be, by the type of the error; the words in braces are bounds of the key.
TYPE_ERRORS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("bool_type", "bool_parsing"), ("true", "false")),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), ("an integer",)),
    **dict.fromkeys(("dict_type", "model_type"), ("{{ … }}",)),
    "tuple_type": ("an array",),
    "string_type": ("a string",),
    "float_type": ("a number",),
    "finite_number": ("a finite number",),
    "greater_than": ("more than {gt}",),
    "greater_than_equal": ("at least {ge}",),
    "less_than_equal": ("at most {le}",),
    "string_too_short": ("a string that is not empty",),
    "too_short": ("an array that is not empty",),
}
CHOICE = re.compile(r"'([^']*)'")


def _kinds(details: ErrorDetails) -> Sequence[str]:
    """Return the kinds of values, or the values, that would have avoided the error with these *details*."""
    bounds = details.get("ctx", {})
    if "expected" in bounds:
        return [f'"{choice}"' for choice in CHOICE.findall(bounds["expected"])]
    return [kind.format(**bounds) for kind in TYPE_ERRORS.get(details["type"], ())]


def _place(details: ErrorDetails, content: Any) -> tuple[int | str, ...]:
    """Return the key in *content* that *details* are about, without the names of types that pydantic adds."""
    place: list[int | str] = []
    value = content
    for part in details["loc"]:
        if isinstance(value, list) if isinstance(part, int) else isinstance(value, dict) and part in value:
            value = value[part]
            place.append(part)
    return (*place, details["loc"][-1]) if details["type"] == "missing" else tuple(place)


def _section_of(place: KeyPath) -> str:
    """Return which section has the key at *place*, if it was written above all sections."""
    sections = {
        name: each.annotation
        for name, each in Settings.model_fields.items()
        if len(place) == 1 and get_origin(each.annotation) is not dict
    }
    names = [name for name, each in sections.items() if place[0] in _section_in(each).model_fields]
    return f"It belongs under [{names[0]}]. " if names else ""


def _quoting_hint(place: KeyPath, given: object) -> str:
    """Return how to write the name of a table with its schema, if that was meant at *place*."""
    match place:
        case ["tables", schema, table] | ["roles", _, "tables", schema, table] if isinstance(
            given, dict | bool
        ):
            return f'Put a name with its schema in quotes: tables."{schema}.{table}". '
        case _:
            return ""


def _keys_of_section(place: KeyPath) -> Collection[str]:
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
