"""Files and raw drives to host memory."""
