"""GPUs, ranks and hosts that did the same work, held against each other. Pure."""
