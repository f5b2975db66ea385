"""What will be run, as values."""
