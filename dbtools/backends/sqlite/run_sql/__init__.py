"""Callers' SQL."""
