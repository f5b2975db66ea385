"""What is answered, and how large it may be."""
