"""Records for other programs: JSON lines, OpenMetrics, and the files of cuFile and NCCL."""
