"""A training run: its steps, checkpoints, measurements and processes."""
