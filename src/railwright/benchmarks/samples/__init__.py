"""Samples of a training set, one per file, read ahead and delivered at a model's pace."""
