"""Runs held against what a vendor and a customer agreed on. Pure."""
