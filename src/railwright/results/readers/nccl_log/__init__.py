"""Reader of NCCL's log."""
