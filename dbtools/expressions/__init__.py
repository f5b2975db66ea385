"""What may stand where a column is named."""
