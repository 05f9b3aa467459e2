"""The Transformer, whole."""
