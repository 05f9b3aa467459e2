"""Predictions and metrics of a model on a dataset, and training with these metrics."""
