"""dbtools: safe, typed, fast access to a SQL database for language models."""

__version__ = "0.1.0"
