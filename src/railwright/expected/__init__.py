"""What a workload should reach on a machine: the limit, what healthy systems reach of it, and why."""
