"""Faster replacements for modules of the network during training."""
