"""Launch of ranks on Slurm nodes, and submission of Slurm jobs."""
