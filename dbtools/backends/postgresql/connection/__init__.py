"""Connections, and what they cost."""
