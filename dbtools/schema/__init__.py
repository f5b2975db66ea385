"""What a database has: its catalog, the names and paths in it, and the lexical rules of its SQL."""
