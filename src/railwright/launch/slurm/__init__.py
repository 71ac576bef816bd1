"""Launching on Slurm nodes, and submission of Slurm jobs."""
