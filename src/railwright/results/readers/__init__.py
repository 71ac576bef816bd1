"""Foreign formats, one per file."""
