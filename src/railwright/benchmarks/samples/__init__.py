"""Samples of a training set, each a file, as a model reads them: read ahead, and handed over at a pace."""
