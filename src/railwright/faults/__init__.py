"""What can slow a curve down, one fault per file: its model, and the check that finds it. Pure."""
