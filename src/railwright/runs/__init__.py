"""A measured run, from plan to report: here, on hosts, in a container, or in a job of Slurm or Kubernetes."""
