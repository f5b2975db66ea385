"""Serve a database. Settings and a database in, answers for each role out, even while both change."""
