"""dbtools: safe, typed, fast access to a SQL database for language models."""

from importlib import import_module

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import the Python API when it is used: the command line starts sooner without it."""
    if name != "open_toolbox":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("dbtools.service.serving").open_target
