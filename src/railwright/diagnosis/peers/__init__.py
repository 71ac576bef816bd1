"""Compares GPUs, ranks and hosts that did the same work. Pure."""
