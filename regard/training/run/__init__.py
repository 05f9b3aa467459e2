"""A training run: loop, checkpoints, run directory, metrics."""
