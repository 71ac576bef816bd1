"""What was seen."""
