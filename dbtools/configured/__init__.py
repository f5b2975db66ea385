"""Apply a configuration to a database: `resolve` shows the stages in their order."""
