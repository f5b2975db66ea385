"""The tools of permitted queries."""
