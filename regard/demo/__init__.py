"""Synthetic data for the demo."""
