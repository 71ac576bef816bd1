"""Compares runs with the agreement between a vendor and a customer. Pure."""
