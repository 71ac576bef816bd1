"""NCCL's log held against the machine: routes, networks, settings, contradictions. Pure."""
