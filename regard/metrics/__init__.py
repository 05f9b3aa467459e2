"""Metrics as pure functions of references and predictions."""
