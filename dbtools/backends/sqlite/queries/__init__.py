"""Operators' SQL."""
