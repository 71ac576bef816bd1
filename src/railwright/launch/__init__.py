"""Launch of ranks: start, supervision and end."""
