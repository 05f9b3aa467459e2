"""Losses that are computed in one pass with their gradients."""
