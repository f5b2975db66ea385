"""Who sees and changes what."""
