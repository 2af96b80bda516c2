"""Many searches in one process, on shared evaluators."""
