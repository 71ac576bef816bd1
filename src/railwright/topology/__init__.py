"""What is there: devices, links and paths."""
