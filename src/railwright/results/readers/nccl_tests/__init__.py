"""Readers of nccl-tests: tables (whole, torn, or mixed between ranks) and JSON."""
