"""The tools that change rows."""
