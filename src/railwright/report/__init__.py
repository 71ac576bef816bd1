"""Reports for people and for machines."""
