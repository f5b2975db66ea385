"""Compile statements with SQLAlchemy Core, for every database."""
