"""The work that several verbs share: a measured run here, on hosts, in a container, or in a Slurm or Kubernetes job."""
