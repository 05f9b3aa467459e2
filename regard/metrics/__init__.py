"""Scores as pure functions."""
