"""What can be wrong, one fault per file. Pure."""
