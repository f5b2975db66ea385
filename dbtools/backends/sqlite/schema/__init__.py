"""What the database has."""
