"""Derives a job's iterations and its communication cost from its counters alone, without knowledge of the job."""
