"""Ranks on the nodes of Slurm, and jobs for it."""
