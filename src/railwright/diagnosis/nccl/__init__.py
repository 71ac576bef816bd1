"""Compares NCCL's log with the machine: routes, networks, settings, contradictions. Pure."""
