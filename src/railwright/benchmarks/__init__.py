"""What happens: one file per data path, and the one registry of them."""
