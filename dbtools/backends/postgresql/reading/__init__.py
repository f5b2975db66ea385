"""Statements that read."""
