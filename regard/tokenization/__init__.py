"""Tokenizers: train, load, save."""
