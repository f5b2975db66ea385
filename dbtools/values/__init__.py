"""What a value is: its type, its forms, and how it is written in JSON."""
