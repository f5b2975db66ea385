"""URLs of SQLite files, also in the spellings of other tools. A URL in; a path and options out."""

import os.path
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from dbtools.backends import url_of_file
from dbtools.backends.urls import UrlParameter, check_name, check_value, home_path
from dbtools.errors import ConfigurationError

YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
#: The options of a URI that SQLite reads (https://sqlite.org/uri.html), and `uri` of SQLAlchemy's URLs.
URI_OPTIONS: Mapping[str, UrlParameter] = {
    "immutable": UrlParameter("", (*YES, *NO)),
    "mode": UrlParameter("", ("ro", "rw"), "dbtools opens a file that exists, and creates none"),
    "cache": UrlParameter("", ("private",), "a shared cache shows what others have not committed"),
    "nolock": UrlParameter("", NO, "without locks, an answer may be wrong while another program writes"),
    "vfs": UrlParameter("", (), "dbtools reads files in SQLite's default way. Remove the option"),
    "psow": UrlParameter("", (*YES, *NO)),
    "uri": UrlParameter("", (*YES, *NO)),
}
HOSTS = ("", "localhost")
URL_FORMS = "Write sqlite:///shop.db or sqlite:////srv/shop.db."


def path_of(url: str) -> str:
    """Return the path of the file at *url* as it is meant, or raise ConfigurationError."""
    written, _ = _parts(url)
    path = unquote(written)
    if path in ("", "/") or "\0" in path:
        raise ConfigurationError("This URL names no database file.", hint=URL_FORMS)
    candidates = (path, written, str(home_path(path)))
    return next(filter(os.path.exists, candidates), candidates[-1])


def options_of(url: str) -> Mapping[str, str]:
    """Return the options in *url*, or raise ConfigurationError for one that dbtools does not take."""
    _, query = _parts(url)
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name, value in options.items():
        check_name(name, URI_OPTIONS)
        check_value(name, value, URI_OPTIONS[name])
    return options


def with_full_path(url: str, folder: Path) -> str:
    """Return *url* with the full path of the file, resolved against *folder*."""
    written, query = _parts(url)
    if written.startswith("~"):
        full = url_of_file(home_path(unquote(written), folder.absolute()))
    elif written and not written.startswith("/"):
        full = f"{url_of_file(folder.absolute())}/{written}"
    else:
        return url
    return f"{full}?{query}" if query else full


def _parts(url: str) -> tuple[str, str]:
    """Return the path and the options of *url* as they are written."""
    scheme, _, rest = url.partition(":")
    path, _, query = rest.partition("?")
    if scheme == "file" and not path.startswith("//"):
        return path, query
    host, slash, path = path.removeprefix("//").partition("/")
    if host not in HOSTS:
        raise ConfigurationError("This URL names no database file.", hint=URL_FORMS)
    # SQLAlchemy's URLs may hold a URI: sqlite:///file:shop.db?uri=true.
    return f"{slash}{path}" if scheme == "file" else path.removeprefix("file:"), query
