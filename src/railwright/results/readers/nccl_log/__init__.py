"""NCCL's log."""
