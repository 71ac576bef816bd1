"""RDMA between two hosts by verbs alone, as perftest measures it."""
