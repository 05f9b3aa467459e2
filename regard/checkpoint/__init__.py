"""Checkpoints: load one into a network with a report of every tensor, and save a network."""
