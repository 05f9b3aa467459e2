"""A training run: its loop, its exact state, its directory."""
