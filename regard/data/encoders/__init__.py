"""Encoders: convert examples to token ids and labels, one encoder for each example type."""
