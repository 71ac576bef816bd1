"""What should be possible. Pure."""
