"""The work that several verbs share: a measured run here, on hosts, in a container, or in a job of Slurm or Kubernetes."""
